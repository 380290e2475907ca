"""Golden values and gradients of models with a value head, from transformers' classifiers with one label in fp32 on the CPU.

    python tools/oracle/value_head.py tests/golden/model     (writes values.safetensors beside each case of model.py)
    python tools/oracle/value_head.py --check runs/x/huggingface_critic     (that an exported critic loads whole)

Development only; needs torch, transformers and safetensors.
"""
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file


def classifier(folder):
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    return model.eval(), info


def values_of(model, sequences):
    """One number a token, each sequence on its own."""
    return torch.cat([model.score(model.model(input_ids=ids[None], use_cache=False).last_hidden_state)[0, :, 0]
                      for ids in sequences])


def write_case(folder, seed):
    batch = load_file(os.path.join(folder, "expected.safetensors"))
    sequences = torch.split(batch["input_ids"].long(), batch["sequence_lengths"].tolist())
    model, _ = classifier(folder)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.score.weight.copy_(0.25 * torch.randn(model.score.weight.shape, generator=generator))
    values = values_of(model, sequences)
    weights = 0.3 + 0.1 * (torch.arange(len(values)) % 7)  # of the loss, a sum over slots
    (weights * values).sum().backward()
    tensors = {"score.weight": model.score.weight.detach().clone(), "values": values.detach()}
    tensors.update({"grad." + name: p.grad.clone() for name, p in model.named_parameters()})
    save_file(tensors, os.path.join(folder, "values.safetensors"))
    print(f"{os.path.basename(folder)}: mean value {values.mean().item():.6f}")


def check(folder):
    model, info = classifier(folder)
    odd = {key: names for key, names in info.items() if names}
    assert not odd, odd
    print(f"{type(model).__name__}, {model.config.num_labels} label, values {values_of(model, [torch.arange(5)]).tolist()}")


def main(arguments):
    torch.set_num_threads(1)
    if arguments[:1] == ["--check"]:
        return check(arguments[1])
    root = arguments[0] if arguments else "tests/golden/model"
    for seed, name in enumerate(sorted(os.listdir(root))):
        if os.path.isdir(os.path.join(root, name)):
            write_case(os.path.join(root, name), 1000 + seed)


if __name__ == "__main__":
    main(sys.argv[1:])
