"""Golden values for the model parity tests, from transformers in fp32 on the CPU.

    python tools/oracle/model.py tests/golden/model

Writes one folder per case: config.json and model.safetensors (a tiny random model), expected.safetensors (logits, loss,
every gradient, and losses and gradient norms of AdamW steps with torch.optim.AdamW on the same batch).
Development only; needs torch, transformers and safetensors.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

SEQUENCE_LENGTHS = (11, 7, 2)  # packed into TOKEN_SLOTS by the tests
STEPS = 10
OPTIMIZER = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIP_GRAD = 1.0

SMALL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
         "initializer_range": 0.02, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2}

CASES = {
    # Four frequencies: one kept, two interpolated, one divided.
    "llama_llama3_rope": {**SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
                          "rope_theta": 100.0, "tie_word_embeddings": False,
                          "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                           "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    # Also the transformers 5 spelling and every bias Llama can have.
    "llama_linear_rope_tied": {**SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
                               "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
                               "rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}},
    "mistral_sliding_window": {**SMALL, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
                               "sliding_window": 4, "head_dim": 8, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "qwen2": {**SMALL, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rope_theta": 1000000.0,
              "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "tie_word_embeddings": True},
    "qwen3": {**SMALL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 8,
              "rope_theta": 1000000.0, "attention_bias": False, "tie_word_embeddings": False},
}


def random_weights(model, seed):
    """Large enough that attention is not flat and every gradient has something to say."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.25 * noise)


def batch(vocab_size, seed):
    """Sequences of token ids, and for each slot the token to predict or -100 (about a third, and each sequence's last)."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, vocab_size, (n,), generator=generator) for n in SEQUENCE_LENGTHS]
    labels = []
    for sequence in ids:
        label = torch.cat([sequence[1:], torch.tensor([-100])])
        label[torch.rand(len(sequence), generator=generator) < 0.3] = -100
        labels.append(label)
    return ids, labels


def forward(model, ids, labels):
    """Each sequence on its own: (logits of all, sum of -log p over the labels)."""
    logits = [model(input_ids=sequence[None], use_cache=False).logits[0] for sequence in ids]
    loss = torch.nn.functional.cross_entropy(torch.cat(logits), torch.cat(labels), ignore_index=-100, reduction="sum")
    return torch.cat(logits), loss


def optimizer_steps(model, ids, labels, scored):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}], **OPTIMIZER)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = OPTIMIZER["lr"] * (1 - step / STEPS)
        optimizer.zero_grad()
        _, loss = forward(model, ids, labels)
        (loss / scored).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD).item())
        losses.append(loss.item() / scored)
        optimizer.step()
    return torch.tensor(losses), torch.tensor(norms)


def write_case(folder, config, seed):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    loaded = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(loaded, attn_implementation="eager", dtype=torch.float32)
    model.eval()
    random_weights(model, seed)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

    ids, labels = batch(config["vocab_size"], seed + 1)
    scored = int((torch.cat(labels) != -100).sum())
    logits, loss = forward(model, ids, labels)
    (loss / scored).backward()
    expected = {"input_ids": torch.cat(ids).to(torch.int32), "labels": torch.cat(labels).to(torch.int32),
                "sequence_lengths": torch.tensor(SEQUENCE_LENGTHS, dtype=torch.int32),
                "logits": logits.detach(), "loss_sum": loss.detach().reshape(1)}
    expected.update({"grad." + name: p.grad.clone() for name, p in model.named_parameters()})
    expected["adamw_losses"], expected["adamw_grad_norms"] = optimizer_steps(model, ids, labels, scored)
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    print(f"{os.path.basename(folder)}: loss {loss.item() / scored:.6f} over {scored} tokens")


def main(root):
    torch.set_num_threads(1)
    for seed, (name, config) in enumerate(CASES.items()):
        write_case(os.path.join(root, name), config, 100 * (seed + 1))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/model")
