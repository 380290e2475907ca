#!/usr/bin/env python3
"""The steps of a fine-tuning job once more in transformers, and how far our curve of it is from theirs.

    build/bin/sluice run tools/oracle/gsm8k_curve.yaml data.train_files=.../gsm8k/train.jsonl
    tools/oracle/finetune_curve.py --job tools/oracle/gsm8k_curve.yaml data.train_files=.../gsm8k/train.jsonl

Takes the job file and the overrides that the job got, reads metrics.jsonl of its folder, and trains on the same rows in the same
order with the same labels, AdamW, schedule and clipping. The job must not shuffle and have the gsm8k format; a key that this
script does not know is an error. In bf16 the model computes in bf16, gradients of the micro-batches are added in fp32, and AdamW works on
fp32 masters with fp32 moments from which the weights are rounded after each step, as in our engine. Every step must have exactly our
tokens, scored tokens and learning rate; losses and gradient norms are compared. Exit code 1: outside of the tolerances.

--save FILE keeps transformers' curve, --curve FILE compares with a kept one in place of training.
"""

import argparse
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers
import yaml
from tokenizers import Tokenizer

from template import ENVIRONMENT

REQUIRED = object()
# Keys of a job that shape the curve: the default, and the values that this script follows where not all.
KEYS = {
    "recipe": ("sft", ["sft"]),
    "model.path": (REQUIRED, None),
    "model.init": ("pretrained", ["pretrained"]),
    "data.train_files": (REQUIRED, None),
    "data.format": ("auto", ["gsm8k"]),
    "data.loss_on": ("assistant", ["assistant"]),
    "data.max_length": (1024, None),
    "data.train_batch_size": (256, None),
    "data.shuffle": (True, [False]),
    "data.train_max_samples": (-1, None),
    "engine.model_dtype": ("fp32", ["fp32", "bf16"]),
    "optim.lr": (1e-5, None),
    "optim.weight_decay": (0.01, None),
    "optim.betas": ([0.9, 0.999], None),
    "optim.eps": (1e-8, None),
    "optim.clip_grad": (1.0, None),
    "optim.lr_scheduler_type": ("cosine", ["constant", "cosine", "linear"]),
    "optim.lr_warmup_steps": (-1, None),
    "optim.init_lr_ratio": (0.1, None),
    "optim.min_lr_ratio": (0.01, None),
    "optim.master_weights": (True, [True]),
    "optim.moments_dtype": ("fp32", ["fp32"]),
    "trainer.default_local_dir": ("runs/job", None),
    "trainer.total_training_steps": (REQUIRED, None),
}
# Keys that do not.
OTHER_KEYS = (
    "name", "data.val_files", "data.val_max_samples", "data.max_token_len_per_gpu", "data.num_workers", "data.cache_dir",
    "engine.device", "engine.cpu_threads", "engine.activation_checkpointing", "engine.full_determinism", "engine.gemm_autotune",
    "engine.cuda_graphs", "trainer.seed", "trainer.save_freq", "trainer.test_freq", "trainer.val_before_train",
    "trainer.max_ckpt_to_keep", "trainer.resume_mode", "trainer.nnodes", "trainer.n_gpus_per_node", "checkpoint.",
)  # fmt: skip


def read_job(path, overrides):
    """{key: value} of KEYS, numbers as numbers."""
    given = {}
    for section, value in yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8")).items():
        given.update({f"{section}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {section: value})
    for override in overrides:
        key, _, value = override.partition("=")
        given[key] = yaml.safe_load(value)
    job = {}
    for key, (default, followed) in KEYS.items():
        value = given.pop(key, None)
        value = default if value is None else value
        if value is REQUIRED:
            sys.exit(f"{path}: {key} is not set")
        if isinstance(default, float):
            value = float(value)  # 5e-5 is a text in YAML 1.1
        if isinstance(default, int) and not isinstance(default, bool) or key.endswith("_steps"):
            value = int(value)
        if followed is not None and value not in followed:
            sys.exit(f"{path}: {key} is {value}; this script follows {followed}")
        job[key] = value
    unknown = [key for key in given if not key.startswith(OTHER_KEYS)]
    if unknown:
        sys.exit(f"{path}: this script does not know {', '.join(unknown)}")
    return job


class RowEncoder:
    """Token ids and labels of a question and its answer: the rendering of both by the model's chat template; scored is what
    the assistant says and the mark that ends its turn."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        file = folder / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.exists() else config["chat_template"]
        self.template = ENVIRONMENT.from_string(source)
        self.special_tokens = {k: v["content"] if isinstance(v, dict) else v for k, v in config.items()
                               if k in ("bos_token", "eos_token", "unk_token", "pad_token") and v}  # fmt: skip
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def render(self, messages, with_prompt):
        return self.template.render(
            messages=messages, tools=None, documents=None, add_generation_prompt=with_prompt, **self.special_tokens)  # fmt: skip

    def __call__(self, question, answer):
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        text, head = self.render(messages, False), self.render(messages[:1], True)
        if not text.startswith(head):
            sys.exit("the chat template's generation prompt is not how it begins the assistant's turn")
        end = len(text.rstrip())  # no line break after the mark
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        labels = [token if first < end and last > len(head) else -100
                  for token, (first, last) in zip(encoding.ids, encoding.offsets)]  # fmt: skip
        labels[0] = -100  # nothing predicts it
        return encoding.ids, labels


def read_rows(job, wanted):
    """([(ids, labels)] of the first `wanted` rows, the number of all rows)."""
    files, texts = job["data.train_files"], []
    for file in [files] if isinstance(files, str) else files:
        lines = pathlib.Path(file).read_text(encoding="utf-8").split("\n")
        texts += [(f"{file}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if job["data.train_max_samples"] >= 0:
        texts = texts[: job["data.train_max_samples"]]
    encode, rows = RowEncoder(job["model.path"]), []
    for where, text in texts[:wanted]:
        row = json.loads(text)
        rows.append(encode(row["question"], row["answer"]))
        if len(rows[-1][0]) > job["data.max_length"]:
            sys.exit(f"{where}: {len(rows[-1][0])} tokens, more than data.max_length")
    return rows, len(texts)


def rows_of_step(count, batch_size, step):
    """Numbers of the rows, in the files' order; an epoch's last step may be short. Steps count from 0."""
    first = step % math.ceil(count / batch_size) * batch_size
    return range(first, min(first + batch_size, count))


def learning_rate(job, step):
    """As common/schedule/lr_schedule.h says. Steps count from 0."""
    peak, warmup, total = job["optim.lr"], max(job["optim.lr_warmup_steps"], 0), job["trainer.total_training_steps"]
    if warmup and step <= warmup:
        initial = peak * job["optim.init_lr_ratio"]
        return initial + (peak - initial) * step / warmup
    if job["optim.lr_scheduler_type"] == "constant":
        return peak
    least, done = peak * job["optim.min_lr_ratio"], (step - warmup) / (total - warmup)
    factor = 1 - done if job["optim.lr_scheduler_type"] == "linear" else (1 + math.cos(math.pi * done)) / 2
    return least + factor * (peak - least)


class Reference:
    """The model and its optimizer in transformers and torch."""

    def __init__(self, job, device):
        self.job, self.device = job, device
        dtype = torch.bfloat16 if job["engine.model_dtype"] == "bf16" else torch.float32
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            job["model.path"], dtype=dtype, attn_implementation="sdpa").to(device).train()  # fmt: skip
        self.weights = list(self.model.parameters())
        # In fp32 they have a storage of their own too: one way for both types.
        self.masters = [weight.detach().float().clone() for weight in self.weights]
        matrices = [m for m in self.masters if m.dim() > 1]
        others = [m for m in self.masters if m.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": job["optim.weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            betas=tuple(map(float, job["optim.betas"])), eps=job["optim.eps"])  # fmt: skip

    def micro_batch(self, rows, scored):
        """Summed loss of rows side by side; the gradients of the step's mean are added to the masters'. Padding is at the
        end and not scored, so that causal attention needs no mask for it."""
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([i + [0] * (longest - len(i)) for i, _ in rows], device=self.device)
        labels = torch.tensor([lab[1:] + [-100] * (longest - len(lab) + 1) for _, lab in rows], device=self.device)
        wanted = labels != -100
        logits = self.model(input_ids=ids, use_cache=False).logits[wanted].float()
        loss = F.cross_entropy(logits, labels[wanted], reduction="sum")
        (loss / scored).backward()
        for weight, master in zip(self.weights, self.masters):
            master.grad = weight.grad.float() if master.grad is None else master.grad.add_(weight.grad)
            weight.grad = None
        return loss.item()

    def step(self, number, rows, rows_at_once):
        """A line as in metrics.jsonl. Steps count from 0."""
        scored = sum(label != -100 for _, labels in rows for label in labels)
        by_length = sorted(rows, key=lambda row: len(row[0]))
        loss = sum(self.micro_batch(by_length[i : i + rows_at_once], scored) for i in range(0, len(rows), rows_at_once))
        # In double: torch's own norm of a large tensor in fp32 is off by 1e-4 on the CPU.
        norm = math.sqrt(sum(master.grad.double().square().sum().item() for master in self.masters))
        if self.job["optim.clip_grad"] > 0:
            for master in self.masters:
                master.grad.mul_(min(1.0, self.job["optim.clip_grad"] / (norm + 1e-6)))
        rate = learning_rate(self.job, number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for weight, master in zip(self.weights, self.masters):
                weight.copy_(master)
        return {"step": number + 1, "train/loss": loss / scored, "train/grad_norm": norm, "train/lr": rate,
                "train/tokens": sum(len(ids) for ids, _ in rows), "train/scored_tokens": scored}  # fmt: skip


def train(job, options, steps):
    batch_size = job["data.train_batch_size"]
    rows, count = read_rows(job, steps * batch_size)
    print(f"{len(rows)} of {count} rows, {sum(len(ids) for ids, _ in rows):,} tokens, "
          f"{sum(label != -100 for _, labels in rows for label in labels):,} scored", flush=True)  # fmt: skip
    reference, curve = Reference(job, options.device), []
    for number in range(steps):
        curve.append(reference.step(number, [rows[row] for row in rows_of_step(count, batch_size, number)], options.rows))
        if number < 5 or (number + 1) % 20 == 0:
            print("  " + ", ".join(f"{key.removeprefix('train/')} {value:.6g}" for key, value in curve[-1].items()), flush=True)
    return curve


def read_curve(path):
    """The steps of a metrics.jsonl, without its validations."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "train/loss" in line]


def compare(ours, theirs, options):
    """Prints the differences; whether they are within the tolerances."""
    for our, their in zip(ours, theirs):
        for key, tolerance in (("step", 0), ("train/tokens", 0), ("train/scored_tokens", 0), ("train/lr", 1e-9)):
            if abs(our[key] - their[key]) > tolerance * abs(their[key]):
                sys.exit(f"step {their['step']}: {key} is {our[key]} and {their[key]}: these are not the same steps")
    is_inside = True
    for key, first_allowed, allowed, mean_allowed in (
        ("train/loss", 1e-3, options.loss_tolerance, options.mean_loss_tolerance),
        ("train/grad_norm", 1e-2, options.grad_norm_tolerance, options.mean_grad_norm_tolerance),
    ):
        # null, which stands for what is not finite, is outside of every tolerance.
        differences = [abs(our[key] / their[key] - 1) if our[key] is not None else math.inf for our, their in zip(ours, theirs)]
        worst = max(range(len(differences)), key=differences.__getitem__)
        mean = sum(differences) / len(differences)
        print(f"{key}: first {ours[0][key]:.7g} and {theirs[0][key]:.7g}, last {ours[-1][key]:.7g} and {theirs[-1][key]:.7g}; "
              f"relative difference: first {differences[0]:.2e} (allowed {first_allowed:.0e}), largest "
              f"{differences[worst]:.2e} in step {worst + 1} ({allowed:.0e}), mean {mean:.2e} ({mean_allowed:.0e})")  # fmt: skip
        is_inside = is_inside and differences[0] <= first_allowed and differences[worst] <= allowed and mean <= mean_allowed
    return is_inside


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, help="the job file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as the job got them")
    parser.add_argument("--metrics", help="ours (metrics.jsonl in trainer.default_local_dir)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, help="only the first so many")
    parser.add_argument("--rows", type=int, default=16, help="of a micro-batch in transformers")
    parser.add_argument("--save", help="file for transformers' curve")
    parser.add_argument("--curve", help="a kept curve to compare with")
    parser.add_argument("--loss-tolerance", type=float, default=2e-2, help="relative, of any step")
    parser.add_argument("--mean-loss-tolerance", type=float, default=3e-3, help="relative, of all steps")
    parser.add_argument("--grad-norm-tolerance", type=float, default=0.2, help="relative, of any step")
    parser.add_argument("--mean-grad-norm-tolerance", type=float, default=3e-2, help="relative, of all steps")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    job = read_job(options.job, options.overrides)
    steps = options.steps or job["trainer.total_training_steps"]
    metrics = options.metrics or pathlib.Path(job["trainer.default_local_dir"]) / "metrics.jsonl"
    if not options.save and not pathlib.Path(metrics).exists():  # not after the training
        sys.exit(f"{metrics} is not there; run the job first, or say --metrics, or --save for transformers' curve alone")
    theirs = read_curve(options.curve) if options.curve else train(job, options, steps)
    if options.save:
        pathlib.Path(options.save).write_text("".join(json.dumps(line) + "\n" for line in theirs), encoding="utf-8")
        if not pathlib.Path(metrics).exists():
            return
    ours = read_curve(metrics)
    if len(ours) < steps or len(theirs) < steps:
        sys.exit(f"{steps} steps wanted; ours has {len(ours)}, transformers' {len(theirs)}")
    print(f"{steps} steps of {job['data.train_batch_size']} rows, {job['engine.model_dtype']}, "
          f"transformers {transformers.__version__} on {options.device}")  # fmt: skip
    if not compare(ours[:steps], theirs[:steps], options):
        sys.exit("outside of the tolerances")


if __name__ == "__main__":
    main()
