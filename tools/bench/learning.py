#!/usr/bin/env python3
"""The recorded learning curves of configs/: docs/bench/learning.jsonl, and the page that is made of it.

    tools/bench/learning.py run --config configs/grpo_smollm2_arithmetic.yaml --seeds 1,2,3   # runs them, appends a line each
    tools/bench/learning.py page                                                              # writes docs/learning.md

A line is one run: {what, config, seed, date, commit, gpu, command, seconds, steps, curves: {metric: [[step, value], ..]}}.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = ROOT / "docs/bench/learning.jsonl"
PAGE = ROOT / "docs/learning.md"
BEGIN, END = "<!-- tools/bench/learning.py writes from here -->", "<!-- to here -->"
# By the file in configs/: what it is called, the metrics that are kept, and the one that the table is about.
SCORES = ["critic/score/mean", "val/score/mean"]
PAIRS = ["val/rewards/accuracies", "val/rewards/margins", "val/loss"]
JOBS = {
    "grpo_smollm2_arithmetic.yaml": ("GRPO, sums", SCORES),
    "ppo_smollm2_arithmetic.yaml": ("PPO with a critic, sums", SCORES),
    "dr_grpo_smollm2_arithmetic.yaml": ("Dr. GRPO, sums", SCORES),
    "dapo_smollm2_arithmetic.yaml": ("DAPO, sums", [*SCORES, "training/gen_batches"]),
    "gspo_smollm2_arithmetic.yaml": ("GSPO, sums", SCORES),
    "rloo_smollm2_arithmetic.yaml": ("RLOO, sums", SCORES),
    "reinforce_plus_plus_smollm2_arithmetic.yaml": ("REINFORCE++, sums", SCORES),
    "remax_smollm2_arithmetic.yaml": ("ReMax, sums", SCORES),
    "opo_smollm2_arithmetic.yaml": ("OPO, sums", SCORES),
    "dataflow_two_pools_arithmetic.yaml": ("GRPO on two pools, one step off, sums", [*SCORES, "training/staleness"]),
    "dpo_smollm2_preferences.yaml": ("DPO, pairs", PAIRS),
    "ipo_smollm2_preferences.yaml": ("IPO, pairs", PAIRS),
    "orpo_smollm2_preferences.yaml": ("ORPO, pairs", PAIRS),
    "simpo_smollm2_preferences.yaml": ("SimPO, pairs", PAIRS),
    "kto_smollm2_preferences.yaml": ("KTO, labelled answers", ["val/rewards/margins", "val/loss"]),
    "reward_model_smollm2_preferences.yaml": ("Reward model, pairs", ["val/rewards/accuracies", "val/loss"]),
    "distillation_smollm2_arithmetic.yaml": ("Distillation on policy, sums", ["actor/kl_loss"]),
    "distill_smollm2_word_problems.yaml": ("Knowledge distillation, word problems", ["val/loss", "distillation/divergence"]),
    "sft_smollm2_quickstart.yaml": ("Supervised, word problems", ["val/loss"]),
    "pretrain_text.yaml": ("Pretraining from random weights, text", ["val/loss"]),
}


def shell(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def curves_of(metrics_file, wanted):
    curves = {name: [] for name in wanted}
    with open(metrics_file, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            for name in wanted:
                if name in line:
                    curves[name].append([line["step"], round(line[name], 4)])
    missing = [name for name, points in curves.items() if len(points) < 2]
    if missing:
        raise SystemExit(f"{metrics_file}: no curve of {', '.join(missing)}")
    return curves


def run(args):
    name = pathlib.Path(args.config).name
    what, wanted = JOBS[name]
    keys = [key for key in args.keys if "=" in key]
    for seed in args.seeds.split(","):
        with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
            begin = time.monotonic()
            command = [args.sluice, "run", args.config, f"trainer.seed={seed}", *keys]
            subprocess.run([*command, f"trainer.default_local_dir={folder}"], cwd=ROOT, check=True, stdout=sys.stderr)
            line = {
                "what": what, "config": name, "seed": int(seed), "date": time.strftime("%Y-%m-%d"),
                "commit": args.commit or shell("git", "rev-parse", "--short", "HEAD"),
                "gpu": shell("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").split("\n")[0],
                "command": " ".join(["sluice", *command[1:]]), "seconds": round(time.monotonic() - begin, 1),
                "curves": curves_of(pathlib.Path(folder) / "metrics.jsonl", wanted),
            }  # fmt: skip
        with open(args.output, "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def at(points, share):
    """Mean of the points in the first or last tenth, which a single noisy step does not decide."""
    count = max(1, len(points) // 10)
    part = points[:count] if share == "first" else points[-count:]
    return sum(value for _, value in part) / len(part)


def spark(points):
    """A curve in 24 characters, from its least to its greatest value."""
    marks = "▁▂▃▄▅▆▇█"
    step = max(1, len(points) / 24)
    values = [points[min(int(i * step), len(points) - 1)][1] for i in range(min(24, len(points)))]
    low, high = min(values), max(values)
    return "".join(marks[int((value - low) / ((high - low) or 1) * 7.999)] for value in values)


def page(_):
    latest = {}
    for text in LINES.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        latest[(list(JOBS).index(line["config"]), line["seed"])] = line
    rows = ["| job | seed | metric | first tenth | last tenth | curve | whole run |", "| --- | --: | --- | --: | --: | --- | --: |"]
    for key in sorted(latest):
        line = latest[key]
        for name, points in line["curves"].items():
            first, last = at(points, "first"), at(points, "last")
            rows.append(f"| {line['what']} | {line['seed']} | `{name}` | {first:.3f} | {last:.3f} | {spark(points)} | {line['seconds']:.0f} s |")
    runs = sorted({(line["config"], line["date"], line["commit"], line["gpu"], line["command"].replace(f"trainer.seed={line['seed']}", "trainer.seed=N")) for line in latest.values()})
    rows += ["", "| job file | run |", "| --- | --- |"]
    rows += [f"| `configs/{config}` | {date}, commit {commit}, {gpu}: `{command}` |" for config, date, commit, gpu, command in runs]
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n\n" + "\n".join(rows) + f"\n\n{END}{tail}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--config", required=True)
    runs.add_argument("--seeds", default="1")
    runs.add_argument("--sluice", default=os.environ.get("SLUICE", str(ROOT / "build/bin/sluice")))
    runs.add_argument("--output", default=str(LINES))
    runs.add_argument("--scratch", help="where runs are written meanwhile")
    runs.add_argument("--commit", default=os.environ.get("SLUICE_COMMIT", ""))
    runs.add_argument("keys", nargs="*", help="a.key=value: keys of the job")
    runs.set_defaults(call=run)
    commands.add_parser("page").set_defaults(call=page)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
