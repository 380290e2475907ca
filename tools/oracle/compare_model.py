"""Compares our engine with transformers on a real model folder: logits, loss and every gradient.

    python tools/oracle/compare_model.py --model models/smollm2-135m-instruct --dump build/tests/model_dump

Development only; needs torch, transformers and safetensors, and about five times the model's fp32 size in memory.
"""
import argparse
import os
import subprocess
import sys
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


def reference(folder, ids, labels, dtype, device):
    """(logits, summed loss, gradients of the mean loss), each text on its own."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.to(device).eval()
    logits = torch.cat([model(input_ids=s[None].to(device), use_cache=False).logits[0].float() for s in ids])
    target = torch.cat(labels).to(device)
    loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=-100, reduction="sum")
    (loss / (target != -100).sum()).backward()
    gradients = {name: p.grad.float().cpu() for name, p in model.named_parameters()}
    return logits.detach().cpu(), loss.item(), gradients


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--dump", default="build/tests/model_dump")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--logits-tolerance", type=float, default=1e-4, help="of the largest logit; more is a failure")
    parser.add_argument("--gradient-tolerance", type=float, default=1e-3, help="of a tensor's largest gradient")
    parser.add_argument("--loss-tolerance", type=float, default=1e-5, help="relative")
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

    def worst_error(values, wanted):
        return ((values - wanted).abs().max() / wanted.abs().max()).item()

    def show(name, ours, theirs):
        outside = ((ours - theirs).abs() > 1e-6 + 1e-5 * theirs.abs()).float().mean().item()
        print(f"{name}: largest error {worst_error(ours, theirs):.2g} of the largest value, "
              f"{100 * outside:.2g} % outside of 1e-5 rel + 1e-6 abs")
        return worst_error(ours, theirs)

    logits_error = show("logits", got["logits"], logits)
    print(f"loss sum: {got['loss_sum'].item():.6f} and {loss:.6f}, relative {got['loss_sum'].item() / loss - 1:.2g}")
    worst = max((show("grad." + n, got["grad." + n], g), n) for n, g in gradients.items())

    def norm(values):
        return torch.sqrt(sum((g.double() ** 2).sum() for g in values)).item()

    ours, theirs = norm(got["grad." + n] for n in gradients), norm(gradients.values())
    print(f"gradient norm: {ours:.8g} and {theirs:.8g}, relative {ours / theirs - 1:.2g}")
    print(f"worst gradient: {worst[1]}, {worst[0]:.2g} of its largest value")
    loss_error = abs(got["loss_sum"].item() / loss - 1)
    if logits_error > options.logits_tolerance or worst[0] > options.gradient_tolerance or loss_error > options.loss_tolerance:
        sys.exit("the models differ by more than the tolerances")


if __name__ == "__main__":
    main()
