"""Writes the golden files of the checkpoint tests, with the libraries that define the formats. For developers only.

    python tools/oracle/checkpoint.py --cases <folder with K01*, K02*, tiny_llama.py> [--out tests/golden/checkpoint]

Needs torch, transformers and safetensors (the project's environment has them). What each file is for: README.md beside them.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import safetensors.torch
import torch
import transformers


def write_cases(cases, out):
    """The trouble cases of the format (k01) and of model folders (k02), by their own writers."""
    for name, script in (("k01", "K01_write_safetensors.py"), ("k02", "K02_write_folders.py")):
        folder = os.path.join(out, name)
        shutil.rmtree(folder, ignore_errors=True)
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        subprocess.run([sys.executable, os.path.join(cases, script), folder], check=True, env=environment)
        with open(os.path.join(cases, name.upper() + ".json")) as file:
            text = file.read()
        with open(os.path.join(folder, "expected.json"), "w") as file:
            file.write(text)


def write_mixed(out):
    """Tensors of every common type; tensor number k of n bytes holds k, k+1, ... (mod 251, bool: mod 2)."""
    types = [("bf16", torch.bfloat16, [3]), ("bool", torch.bool, [5]), ("f16", torch.float16, [2, 2]), ("f32", torch.float32, [3, 1]),
             ("f64", torch.float64, [2]), ("e4m3", torch.float8_e4m3fn, [3]), ("e5m2", torch.float8_e5m2, [1]),
             ("i16", torch.int16, [3]), ("i32", torch.int32, [1]), ("i64", torch.int64, [2]), ("i8", torch.int8, [7]),
             ("u8", torch.uint8, [1, 1, 3]), ("empty", torch.float32, [0, 4]), ("scalar", torch.float32, []), ("z.\u00fc\"\\", torch.uint8, [1])]
    tensors = {}
    for k, (name, dtype, shape) in enumerate(types):
        size = torch.empty(shape, dtype=dtype).nbytes
        values = [(k + i) % (2 if dtype == torch.bool else 251) for i in range(size)]
        tensors[name] = torch.tensor(values, dtype=torch.uint8).view(dtype).reshape(shape)
    safetensors.torch.save_file(tensors, os.path.join(out, "mixed.safetensors"), metadata={"format": "pt"})


def write_floats(out):
    """fp32 values of all magnitudes with torch's roundings of them, and torch's values of all 8-bit floats."""
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 1 << 32, 1500, dtype=np.uint64).astype(np.uint32)
    near_half = (generator.standard_normal(1000) * 10.0 ** generator.uniform(-9, 5, 1000)).astype(np.float32)
    ties = (np.float32(1) + np.arange(64, dtype=np.float32) / 4096)  # halves of the last place of f16 and bf16
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, 65536, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25,
                      2.0**-14, 3.4028235e38, 3.39e38, 1e-45], np.float32)
    f32 = torch.from_numpy(np.concatenate([bits.view(np.float32), near_half, ties, edges]))
    all_bytes = torch.arange(256, dtype=torch.uint8)
    tensors = {"f32": f32, "f16": f32.to(torch.float16), "bf16": f32.to(torch.bfloat16)}
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        tensors[name] = all_bytes.clone().view(dtype)
        tensors[name + "_as_f32"] = all_bytes.view(dtype).to(torch.float32)
    safetensors.torch.save_file(tensors, os.path.join(out, "floats.safetensors"))


def write_shards(out):
    """The untied tiny model, saved by transformers in shards of at most 6000 bytes."""
    model = transformers.LlamaForCausalLM.from_pretrained(os.path.join(out, "k02", "untied"), dtype=torch.float32)
    folder = os.path.join(out, "transformers_shards")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="6KB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", required=True)
    parser.add_argument("--out", default="tests/golden/checkpoint")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    write_cases(arguments.cases, arguments.out)
    write_mixed(arguments.out)
    write_floats(arguments.out)
    write_shards(arguments.out)


if __name__ == "__main__":
    main()
