"""Loss and gradients of one step of preference tuning, as trl computes them on a model of transformers in fp32.

    pip install --target <folder> --no-deps trl ...    (the whole line is in the README of tests/golden/losses)
    PYTHONPATH=<folder> python tools/oracle/preference_model.py tests/golden

Takes the tiny model llama_linear_rope_tied of tests/golden/model; the reference is the same model with half of each weight.
Writes preference/<loss>.safetensors: the pairs (ids of chosen and rejected one after another, their lengths, the prompt's
length of each), the loss, every gradient. dpo and ipo are trl's DPOTrainer, simpo its CPOTrainer. reward_model.safetensors
is of its RewardTrainer on transformers' classifier with one label: also the head, a margin for each pair, the rewards.
Development only; needs torch, transformers, safetensors and trl (made with trl 1.16.0).
"""
import copy
import os
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
import transformers
from safetensors.torch import save_file
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.reward_trainer import RewardTrainer

MODEL = "llama_linear_rope_tied"
BETA, SIMPO_GAMMA, CENTER_REWARDS = 0.3, 0.4, 0.05
MARGINS = [0.0, 0.5, -0.25, 1.0]
# Prompt, chosen and rejected tokens of each pair.
PAIRS = [(3, 5, 2), (6, 1, 4), (2, 7, 7), (4, 3, 1)]


def pairs(vocab_size, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(0, vocab_size, (n,), generator=generator)
    chosen, rejected = [], []
    for prompt_tokens, c, r in PAIRS:
        prompt = draw(prompt_tokens)
        chosen.append(torch.cat([prompt, draw(c)]))
        rejected.append(torch.cat([prompt, draw(r)]))
    return chosen + rejected


def padded(sequences):
    """Ids, attention mask and completion mask, padded on the right; chosen ones first."""
    width = max(len(s) for s in sequences)
    pad = lambda x: torch.nn.functional.pad(x, (0, width - len(x)))
    ids = torch.stack([pad(s) for s in sequences])
    attention = torch.stack([pad(torch.ones_like(s)) for s in sequences])
    completion = attention.clone()
    for i, (prompt_tokens, _, _) in enumerate(PAIRS * 2):
        completion[i, :prompt_tokens] = 0
    return ids, attention, completion


def log_probs(model, ids, attention):
    logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]


def dpo_loss(name, model, reference, ids, attention, completion):
    half = len(PAIRS)
    with torch.no_grad():
        reference_sums = (log_probs(reference, ids, attention) * completion[:, 1:]).sum(1)
    trainer = MagicMock(ld_alpha=None, f_divergence_type="reverse_kl", loss_types=[name], loss_weights=[1.0], beta=BETA,
                        precompute_ref_logps=True, aux_loss_enabled=False, use_weighting=False, _total_train_tokens=0,
                        _tp_size=1)
    trainer.accelerator.device = "cpu"
    trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda x: x

    def outputs(**kwargs):
        of_tokens = log_probs(model, ids, attention) * completion[:, 1:]  # as trl's own head: 0 without a label
        zeros = torch.zeros_like(of_tokens)
        return SimpleNamespace(log_probs=of_tokens, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())

    inputs = {"input_ids": ids, "attention_mask": attention, "completion_mask": completion,
              "ref_chosen_logps": reference_sums[:half], "ref_rejected_logps": reference_sums[half:]}
    return DPOTrainer._compute_loss(trainer, outputs, inputs, False)


def simpo_loss(model, ids, attention, completion):
    half = len(PAIRS)
    mask = completion[:, 1:]
    mean = (log_probs(model, ids, attention) * mask).sum(1) / mask.sum(1)
    trainer = SimpleNamespace(beta=BETA, alpha=0.0, loss_type="simpo", simpo_gamma=SIMPO_GAMMA, label_smoothing=0.0,
                              accelerator=SimpleNamespace(device="cpu"))
    return CPOTrainer.cpo_loss(trainer, mean[:half], mean[half:])[0].mean()


def expected_of(sequences, loss, model):
    half = len(PAIRS)
    expected = {"chosen_ids": torch.cat(sequences[:half]).int(), "rejected_ids": torch.cat(sequences[half:]).int(),
                "chosen_lengths": torch.tensor([len(s) for s in sequences[:half]]).int(),
                "rejected_lengths": torch.tensor([len(s) for s in sequences[half:]]).int(),
                "prompt_lengths": torch.tensor([p for p, _, _ in PAIRS]).int(), "loss": loss.detach().reshape(1)}
    expected.update({"grad." + key: p.grad.clone() for key, p in model.named_parameters()})
    return expected


def write_reward_model(root, folder, sequences):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1, attn_implementation="eager", dtype=torch.float32)
    used = set(torch.cat(sequences).tolist())
    model.config.pad_token_id = next(i for i in range(model.config.vocab_size) if i not in used)
    with torch.no_grad():
        model.score.weight.copy_(0.5 * torch.randn(model.score.weight.shape, generator=torch.Generator().manual_seed(11)))
    ids, attention, _ = padded(sequences)
    inputs = {"input_ids": ids.masked_fill(attention == 0, model.config.pad_token_id), "attention_mask": attention,
              "margin": torch.tensor(MARGINS)}
    trainer = MagicMock(_total_train_tokens=0, _tp_size=1)
    trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda x: x
    trainer.args.center_rewards_coefficient = CENTER_REWARDS

    def outputs(margin, **kwargs):  # the trainer leaves it among the inputs, and its own classes take it
        return model(**kwargs)

    loss, output = RewardTrainer.compute_loss(trainer, outputs, inputs, return_outputs=True)
    loss.backward()
    expected = expected_of(sequences, loss, model)
    expected.update({"score.weight": model.score.weight.detach().clone(), "margin": torch.tensor(MARGINS),
                     "center_rewards_coefficient": torch.tensor([CENTER_REWARDS]),
                     "rewards": output.logits.detach()[:, 0].clone()})
    save_file(expected, os.path.join(root, "preference", "reward_model.safetensors"))
    print(f"reward_model: loss {loss.item():.7f}, rewards {output.logits[:, 0].tolist()}")


def main(root):
    torch.set_num_threads(1)
    folder = os.path.join(root, "model", MODEL)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    model.eval()
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.mul_(0.5)
    sequences = pairs(model.config.vocab_size, 7)
    batch = padded(sequences)
    os.makedirs(os.path.join(root, "preference"), exist_ok=True)
    for name in ("sigmoid", "ipo", "simpo"):
        model.zero_grad()
        loss = simpo_loss(model, *batch) if name == "simpo" else dpo_loss(name, model, reference, *batch)
        loss.backward()
        expected = expected_of(sequences, loss, model)
        expected.update({"beta": torch.tensor([BETA]), "simpo_gamma": torch.tensor([SIMPO_GAMMA])})
        save_file(expected, os.path.join(root, "preference", name + ".safetensors"))
        print(f"{name}: loss {loss.item():.7f}")
    write_reward_model(root, folder, sequences)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
