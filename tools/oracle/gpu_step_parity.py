#!/usr/bin/env python3
"""Loss and gradient norm of a first bf16 step, ours and transformers', on the same weights and packed rows.

    tools/oracle/gpu_step_parity.py --shape qwen2.5-0.5b --layers 4 [--dump build/tests/model_dump]
    tools/oracle/gpu_step_parity.py --model models/smollm2-135m-instruct [--device cpu]

A shape's weights are drawn by transformers. The rows are random tokens, some of them not scored. We compute them packed; transformers
each on its own (positions from 0, nothing from another row), in bf16, and once more in fp32 from the same bf16 weights, to show how
far either is from what bf16 approximates. The loss is the sum over scored tokens by their number. transformers' gradients come from one
backward a row and are added in fp32, as ours are. Exit code 1: outside of the tolerances.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from peers import SHAPES, model_config, random_model  # noqa: E402

# Of the rows, as parts of all tokens: one long, some shorter, one very short.
ROW_PARTS = (0.45, 0.25, 0.17, 0.1, 0.03)


def rows(tokens, vocab_size, seed):
    """[(ids, labels)] of `tokens` tokens in all; a label is the next token or -100. A row's first third is a prompt; with
    it every 11th label is left out, and the last, which has no next token."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [max(4, int(part * tokens)) for part in ROW_PARTS[1:]]
    result = []
    for length in [tokens - sum(lengths), *lengths]:
        ids = torch.randint(0, vocab_size, (length,), generator=generator)
        labels = torch.cat([ids[1:], torch.tensor([-100])])
        labels[: length // 3] = -100
        labels[::11] = -100
        result.append((ids, labels))
    return result


def ours(options, folder, batch, work):
    """(summed loss, gradient norm, {name: gradient's norm}) of model_dump."""
    batch_file, result_file = os.path.join(work, "batch.safetensors"), os.path.join(work, "result.safetensors")
    bounds = torch.tensor([0, *(len(ids) for ids, _ in batch)]).cumsum(0)
    save_file(
        {
            "input_ids": torch.cat([ids for ids, _ in batch]).int(),
            "labels": torch.cat([labels for _, labels in batch]).int(),
            "cu_seqlens": bounds.int(),
        },
        batch_file,
    )
    subprocess.run([options.dump, folder, batch_file, result_file, "bf16", options.device], check=True)
    with safe_open(result_file, "pt") as result:
        loss = result.get_tensor("loss_sum").item()
        norms = {
            name.removeprefix("grad."): result.get_tensor(name).double().norm().item()
            for name in result.keys()
            if name.startswith("grad.")
        }
    os.remove(result_file)  # it holds the logits too
    return loss, norms


def theirs(options, folder, batch, dtype):
    """The same of transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=options.attention)
    model.to(options.device).train()
    scored = sum((labels != -100).sum().item() for _, labels in batch)
    loss_sum, gradients = 0.0, {}
    for ids, labels in batch:
        positions = torch.arange(len(ids), device=options.device)[None]
        out = model(input_ids=ids[None].to(options.device), position_ids=positions, use_cache=False)
        loss = F.cross_entropy(out.logits[0].float(), labels.to(options.device), ignore_index=-100, reduction="sum")
        (loss / scored).backward()
        loss_sum += loss.item()
        for name, parameter in model.named_parameters():
            gradient = parameter.grad.float()
            gradients[name] = gradients[name].add_(gradient) if name in gradients else gradient
        model.zero_grad(set_to_none=True)
    return loss_sum, {name: gradient.double().norm().item() for name, gradient in gradients.items()}


def total(norms):
    return sum(norm**2 for norm in norms.values()) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--shape", choices=SHAPES)
    model.add_argument("--model", help="a Hugging Face folder")
    parser.add_argument("--layers", type=int, default=0, help="of the shape, in place of its own")
    parser.add_argument("--tokens", type=int, default=1024, help="of all rows; the dump's logits take 4 bytes x vocabulary each")
    parser.add_argument("--dump", default="build/tests/model_dump")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"], help="of transformers")
    parser.add_argument("--loss-tolerance", type=float, default=1e-3, help="relative")
    parser.add_argument("--grad-norm-tolerance", type=float, default=1e-2, help="relative")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as work:
        folder = options.model or os.path.join(work, "model")
        if options.shape:
            random_model(model_config(options.shape, options.layers), torch.bfloat16, options.device).save_pretrained(folder)
        batch = rows(options.tokens, transformers.AutoConfig.from_pretrained(folder).vocab_size, options.seed)
        our_loss, our_norms = ours(options, folder, batch, work)
        their_loss, their_norms = theirs(options, folder, batch, torch.bfloat16)
        exact_loss, exact_norms = theirs(options, folder, batch, torch.float32)
    if set(our_norms) != set(their_norms):
        sys.exit(f"gradients of different names: {sorted(set(our_norms) ^ set(their_norms))[:5]}")

    scored = sum((labels != -100).sum().item() for _, labels in batch)
    print(f"{options.shape or options.model}, {len(batch)} rows, {options.tokens} tokens, {scored} scored, {options.device}, "
          f"transformers {transformers.__version__} ({options.attention})")  # fmt: skip
    print(f"{'':14} {'ours':>12} {'theirs':>12} {'in fp32':>12} {'difference':>11} {'allowed':>9}   ours, theirs from fp32")
    is_inside = True
    for name, ours_, theirs_, exact, tolerance in (
        ("loss", our_loss / scored, their_loss / scored, exact_loss / scored, options.loss_tolerance),
        ("gradient norm", total(our_norms), total(their_norms), total(exact_norms), options.grad_norm_tolerance),
    ):
        difference = ours_ / theirs_ - 1
        is_inside = is_inside and abs(difference) <= tolerance  # NaN is outside
        print(f"{name:14} {ours_:12.7g} {theirs_:12.7g} {exact:12.7g} {difference:11.2e} {tolerance:9.0e}   "
              f"{ours_ / exact - 1:.2e}, {theirs_ / exact - 1:.2e}")  # fmt: skip
    worst = max(our_norms, key=lambda name: abs(our_norms[name] / exact_norms[name] - 1))
    print(f"gradient norm furthest from fp32: {worst}, ours {our_norms[worst] / exact_norms[worst] - 1:.2e}, "
          f"theirs {their_norms[worst] / exact_norms[worst] - 1:.2e}")  # fmt: skip
    if not is_inside:
        sys.exit("outside of the tolerances")


if __name__ == "__main__":
    main()
