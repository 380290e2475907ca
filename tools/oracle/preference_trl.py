"""What trl's own loss functions give on the pairs of preferences.json, kto.json and reward_model.json.

    pip install --target <folder> --no-deps trl ...    (the whole line is in the README of tests/golden/losses)
    PYTHONPATH=<folder> python tools/oracle/preference_trl.py tests/golden/losses

Reads those three files and writes trl.json: loss and gradient of each case that trl has. Its trainers' loss methods are
called with a stand-in for the trainer and for the model, whose outputs are our log-probabilities.
Development only; needs torch and trl (made with trl 1.16.0).
"""
import json
import os
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
import trl
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.reward_trainer import RewardTrainer

torch.set_default_dtype(torch.float64)
FOLDER = sys.argv[1]


def read(name):
    with open(os.path.join(FOLDER, name)) as f:
        return json.load(f)


def padded(batch):
    """Leaf of log_prob (as singles), [sequences, longest] of it and of ref_log_prob with 0 at masked places, and masks."""
    single = lambda xs: torch.tensor([0.0 if x is None else x for x in xs], dtype=torch.float32).double()
    leaf, ref = single(batch["log_prob"]).requires_grad_(), single(batch["ref_log_prob"])
    width = max(batch["lengths"])
    rows, ref_rows, masks, begin = [], [], [], 0
    for n in batch["lengths"]:
        mask = torch.tensor(batch["mask"][begin:begin + n], dtype=torch.float64)
        pad = lambda x: torch.nn.functional.pad(x, (0, width - n))
        rows.append(pad(leaf[begin:begin + n] * mask))
        ref_rows.append(pad(ref[begin:begin + n] * mask))
        masks.append(pad(mask))
        begin += n
    return leaf, torch.stack(rows), torch.stack(ref_rows), torch.stack(masks)


def trainer(**attributes):
    self = MagicMock(_total_train_tokens=0, _tp_size=1)
    self.accelerator.device = "cpu"
    self.accelerator.gather = self.accelerator.gather_for_metrics = lambda x: x
    for key, value in attributes.items():
        setattr(self, key, value)
    return self


def model_of(log_probs):
    zeros = torch.zeros_like(log_probs)
    output = SimpleNamespace(log_probs=log_probs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    return lambda **kwargs: output


def preference(golden, case):
    o = case["options"]
    leaf, lp, ref, mask = padded(golden["batch"])
    pairs = [(c, r) for c, r in golden["pairs"] if mask[c].sum() and mask[r].sum()]
    order = [c for c, _ in pairs] + [r for _, r in pairs]
    lp, ref, mask = lp[order], ref[order], mask[order]
    half = len(pairs)
    if case["type"] in ("dpo", "hinge", "ipo"):
        name = {"dpo": "sigmoid"}.get(case["type"], case["type"])
        self = trainer(ld_alpha=None, f_divergence_type="reverse_kl", loss_types=[name], loss_weights=[1.0],
                       beta=o["beta"], precompute_ref_logps=True, aux_loss_enabled=False, use_weighting=False)
        inputs = {"input_ids": torch.zeros(len(order), mask.shape[1] + 1, dtype=torch.long),
                  "attention_mask": torch.ones(len(order), mask.shape[1] + 1),
                  "completion_mask": torch.nn.functional.pad(mask, (1, 0)).long(),
                  "ref_chosen_logps": ref[:half].sum(1), "ref_rejected_logps": ref[half:].sum(1)}
        loss = DPOTrainer._compute_loss(self, model_of(lp), inputs, False)
    else:
        self = SimpleNamespace(beta=o["beta"], alpha=0.0, loss_type="simpo", simpo_gamma=o["simpo_gamma"],
                               label_smoothing=o["label_smoothing"], accelerator=SimpleNamespace(device="cpu"))
        mean = lp.sum(1) / mask.sum(1)
        if case["type"] == "simpo":
            loss = CPOTrainer.cpo_loss(self, mean[:half], mean[half:])[0].mean()
        else:  # its own term is in single precision; the first one is a cross-entropy on the chosen tokens
            loss = -ORPOTrainer.odds_ratio_loss(self, mean[:half], mean[half:])[0].mean()
            loss = loss - lp[:half].sum() / mask[:half].sum()
    loss.backward()
    return {"loss": loss.item(), "gradient": leaf.grad.tolist()}


def kto(golden, case):
    o = case["options"]
    leaf, lp, ref, mask = padded(golden["batch"])
    keep = [i for i in range(len(lp)) if mask[i].sum()]
    lp, ref, mask = lp[keep], ref[keep], mask[keep]
    self = trainer(loss_type="kto", beta=o["beta"], desirable_weight=o["desirable_weight"],
                   undesirable_weight=o["undesirable_weight"], precompute_ref_logps=True, calculate_KL=True,
                   aux_loss_enabled=False)
    self._compute_kl_logps = lambda model, batch: torch.full((len(keep),), case["z_desirable"])
    batch = {"input_ids": torch.zeros(len(keep), mask.shape[1] + 1, dtype=torch.long),
             "attention_mask": torch.ones(len(keep), mask.shape[1] + 1),
             "completion_mask": torch.nn.functional.pad(mask, (1, 0)).long(),
             "label": torch.tensor([golden["desirable"][i] for i in keep]).bool(), "ref_logps": ref.sum(1),
             "ref_KL_logps": torch.zeros(len(keep))}
    loss = KTOTrainer._compute_loss(self, model_of(lp), batch, False)
    loss.backward()
    return {"loss": loss.item(), "gradient": leaf.grad.tolist()}


def reward_model(golden, case):
    reward = torch.tensor(golden["reward"], dtype=torch.float32).double().requires_grad_()
    order = [c for c, _ in golden["pairs"]] + [r for _, r in golden["pairs"]]
    self = trainer(args=SimpleNamespace(center_rewards_coefficient=case["center_rewards_coefficient"] or None))
    inputs = {"attention_mask": torch.ones(1)}
    if case["with_margin"]:
        inputs["margin"] = torch.tensor(golden["margin"], dtype=torch.float32).double()
    loss = RewardTrainer.compute_loss(self, lambda **kwargs: SimpleNamespace(logits=reward[order][:, None]), inputs)
    loss.backward()
    return {"loss": loss.item(), "gradient": reward.grad.tolist()}


def main():
    result = {"trl": trl.__version__}
    for name, function in (("preferences", preference), ("kto", kto), ("reward_model", reward_model)):
        golden = read(name + ".json")
        result[name] = []
        for case in golden["cases"]:
            # trl's dpo has no label smoothing under this name, and its kto one reference point.
            smoothed = case.get("type") == "dpo" and case["options"]["label_smoothing"] > 0
            two_points = case.get("z_desirable") != case.get("z_undesirable")
            result[name].append(None if smoothed or two_points else function(golden, case))
    for name in ("preferences", "kto", "reward_model"):
        ours = read(name + ".json")["cases"]
        for theirs, case in zip(result[name], ours):
            if theirs is not None:
                gradient = case.get("d_log_prob", case.get("d_reward"))
                print(name, case.get("type", ""), "loss differs by %.1e, gradient by %.1e" % (
                    abs(theirs["loss"] - case["loss"]),
                    max(abs(a - b) for a, b in zip(theirs["gradient"], gradient))))
    with open(os.path.join(FOLDER, "trl.json"), "w") as f:
        json.dump(result, f, separators=(",", ":"))
        f.write("\n")


main()
