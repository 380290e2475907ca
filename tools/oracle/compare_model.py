"""Compares our engine with transformers on a real model folder: logits, loss and every gradient.

    python tools/oracle/compare_model.py --model models/smollm2-135m-instruct --dump build/tests/model_dump

Development only; needs torch, transformers and safetensors, and about five times the model's fp32 size in memory.
"""
import argparse
import os
import subprocess
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

TEXTS = (
    "A bakery sells 12 loaves in the morning and three times as many in the afternoon. Each loaf costs 4 dollars. In the "
    "afternoon it sells 36 loaves, so it sells 48 loaves in all and takes 192 dollars. The answer is 192.",
    "The capital of France is Paris, a city on the river Seine.",
    "Water boils at 100 degrees.",
)


def batch(folder):
    """The texts' token ids; every token but the first of each is predicted, except ten at the start of the first text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [torch.tensor(tokenizer(text)["input_ids"]) for text in TEXTS]
    labels = [torch.cat([sequence[1:], torch.tensor([-100])]) for sequence in ids]
    labels[0][:10] = -100
    return ids, labels


def exact_norm(self, x):
    """RMS norm without transformers' casts to fp32."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def reference(folder, ids, labels, dtype, device):
    """(logits, summed loss, gradients of the mean loss); with dtype fp64 the yardstick for both sides' rounding."""
    if dtype == torch.float64:
        for architecture in ("llama.modeling_llama.Llama", "mistral.modeling_mistral.Mistral",
                             "qwen2.modeling_qwen2.Qwen2", "qwen3.modeling_qwen3.Qwen3"):
            package, module, prefix = architecture.split(".")
            library = __import__(f"transformers.models.{package}.{module}", fromlist=["x"])
            getattr(library, prefix + "RMSNorm").forward = exact_norm
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.to(device).eval()
    keep = torch.float64 if dtype == torch.float64 else torch.float32
    logits = torch.cat([model(input_ids=s[None].to(device), use_cache=False).logits[0].to(keep) for s in ids])
    target = torch.cat(labels).to(device)
    loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=-100, reduction="sum")
    (loss / (target != -100).sum()).backward()
    gradients = {name: p.grad.to(keep).cpu() for name, p in model.named_parameters()}
    return logits.detach().cpu(), loss.item(), gradients


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--dump", default="build/tests/model_dump")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--exact", action="store_true", help="also measure both against transformers in fp64")
    options = parser.parse_args()
    ids, labels = batch(options.model)
    with tempfile.TemporaryDirectory() as folder:
        batch_file, result_file = os.path.join(folder, "batch.safetensors"), os.path.join(folder, "out.safetensors")
        bounds = torch.tensor([0, *map(len, ids)]).cumsum(0)
        save_file({"input_ids": torch.cat(ids).int(), "labels": torch.cat(labels).int(), "cu_seqlens": bounds.int()},
                  batch_file)
        subprocess.run([options.dump, options.model, batch_file, result_file, options.dtype, options.device], check=True)
        got = load_file(result_file)
    dtype = torch.float32 if options.dtype == "fp32" else torch.bfloat16
    logits, loss, gradients = reference(options.model, ids, labels, dtype, options.device)
    exact = reference(options.model, ids, labels, torch.float64, "cpu") if options.exact else None

    def worst_error(values, wanted):
        return ((values - wanted).abs().max() / wanted.abs().max()).item()

    def show(name, ours, theirs, truth):
        outside = ((ours - theirs).abs() > 1e-6 + 1e-5 * theirs.abs()).float().mean().item()
        line = f"{name}: largest error {worst_error(ours, theirs):.2g} of the largest value, {100 * outside:.2g} % outside"
        if truth is not None:
            line += f"; from fp64: ours {worst_error(ours, truth):.2g}, theirs {worst_error(theirs, truth):.2g}"
        print(line)
        return worst_error(ours, theirs)

    show("logits", got["logits"], logits, exact and exact[0])
    print(f"loss sum: {got['loss_sum'].item():.6f} and {loss:.6f}, relative {got['loss_sum'].item() / loss - 1:.2g}")
    worst = max((show("grad." + n, got["grad." + n], g, exact and exact[2][n]), n) for n, g in gradients.items())

    def norm(values):
        return torch.sqrt(sum((g.double() ** 2).sum() for g in values)).item()

    ours, theirs = norm(got["grad." + n] for n in gradients), norm(gradients.values())
    print(f"gradient norm: {ours:.8g} and {theirs:.8g}, relative {ours / theirs - 1:.2g}")
    print(f"worst gradient: {worst[1]}, {worst[0]:.2g} of its largest value")
    if exact:
        errors = [norm(got["grad." + n] - exact[2][n] for n in gradients),
                  norm(gradients[n] - exact[2][n] for n in gradients)]
        print(f"all gradients from fp64, relative to their norm: ours {errors[0] / theirs:.2g}, theirs {errors[1] / theirs:.2g}")


if __name__ == "__main__":
    main()
