#!/usr/bin/env python3
"""What lies between training and generation at a published model's size, with random weights: a JSON line for each and, of async, for each mode.

    tools/bench/transitions.py [--model qwen2.5-0.5b] [--only switch,sync,async] [--tokenizer FOLDER] [key=value ...]

  switch  one GPU for both: seconds to take the room for keys and values and to give it back
  sync    a GPU for each: seconds of the stage weight_sync, and bytes a second. Needs two GPUs
  async   a GPU for each and a reward that takes --reward-seconds a step, in each of --modes: seconds of a step; the share of
          the time in which each pool had a stage of the device (`*_busy`), and in which a generation and an update ran at once
          (`generate_and_update`), by `sluice run --trace`; and in which each GPU ran something, by nvidia-smi. Needs two GPUs

Medians of the steps but the first two; shares are of the time between the end of step 2 and the last four, beside
which nothing is left to generate. Runs the job of configs/ that the name says, cut to a few steps; needs a tokenizer of any
model, torch and transformers (for the shapes of peers.py).
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from peers import SHAPES
from timeline import Timeline, Utilization, both

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 8
STEPS_OF_A_TIMELINE = 24  # of which the last few have nothing to generate beside them
LAST_OF_A_TIMELINE = STEPS_OF_A_TIMELINE - 4
# A stage of a reward that sleeps: each answer costs the same, all of a step together --reward-seconds.
SLOW_REWARD = """import time
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    time.sleep({seconds})
    return float(len(solution_str) % 2)
"""


def write_model(folder, name, tokenizer):
    """config.json of the shape and the files of a tokenizer: what `model.init: random` asks for."""
    kind, vocabulary, hidden, intermediate, layers, heads, kv_heads, head_size, tied, theta = SHAPES[name]
    folder.mkdir()
    for file in pathlib.Path(tokenizer).iterdir():
        if file.suffix in (".json", ".jinja", ".txt") and file.name not in ("config.json", "generation_config.json"):
            shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps({
        "architectures": [kind + "ForCausalLM"], "model_type": kind.lower(), "vocab_size": vocabulary, "hidden_size": hidden,
        "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_size, "tie_word_embeddings": tied, "rope_theta": theta,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.02,
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
    }))  # fmt: skip


def parameters(name):
    kind, vocabulary, hidden, intermediate, layers, heads, kv_heads, head_size, tied, _ = SHAPES[name]
    attention = hidden * head_size * 2 * (heads + kv_heads)
    if kind == "Qwen2":  # biases of q, k and v
        attention += head_size * (heads + 2 * kv_heads)
    elif kind == "Qwen3":  # norms of q and k
        attention += 2 * head_size
    return vocabulary * hidden * (1 if tied else 2) + layers * (attention + 3 * hidden * intermediate + 2 * hidden) + hidden


class Jobs:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        write_model(folder / "model", options.model, options.tokenizer)

    def steps(self, name, config, *keys, steps=STEPS, options=()):
        """metrics.jsonl of a run: its steps but the first two, which autotune and record."""
        output = self.folder / name
        command = [self.options.sluice, "run", *options, config, f"model.path={self.folder / 'model'}", "model.init=random",
                   "engine.model_dtype=bf16", "optim.moments_dtype=bf16", f"trainer.total_training_steps={steps}",
                   "trainer.val_before_train=false", "trainer.export_hf_model=false", "checkpoint.save_contents=[extra]",
                   "data.val_files=[]", f"trainer.default_local_dir={output}", *self.options.keys, *keys]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "train/loss" in line and line["step"] > 2]


def median(steps, name):
    """Of the steps that have it: the last ones need no new weights to be answered with."""
    return statistics.median(step[name] for step in steps if name in step)


def switch(jobs):
    steps = jobs.steps("switch", "configs/grpo_smollm2_arithmetic.yaml")
    yield {"switch_ms": round(1e3 * median(steps, "timing_s/switch"), 2), "step_s": round(median(steps, "perf/seconds"), 4),
           "generate_s": round(median(steps, "timing_s/generate"), 4)}  # fmt: skip


def sync(jobs):
    steps = jobs.steps("sync", "configs/dataflow_two_pools_arithmetic.yaml")
    seconds = median(steps, "timing_s/weight_sync")
    weights = 2 * parameters(jobs.options.model)
    yield {"weight_sync_ms": round(1e3 * seconds, 2), "gib": round(weights / 2**30, 2), "gb_per_s": round(weights / seconds / 1e9, 1)}


def slow(jobs):
    reward = jobs.folder / "slow_reward.py"
    answers = 32 * 16  # of a step of the configuration
    processes = 8
    reward.write_text(SLOW_REWARD.format(seconds=jobs.options.reward_seconds * processes / answers))
    for mode in jobs.options.modes.split(","):
        trace = jobs.folder / f"slow-{mode}.json"
        with Utilization() as utilization:
            steps = jobs.steps(
                "slow-" + mode, "configs/dataflow_two_pools_arithmetic.yaml", f"rollout.mode={mode}", "rollout.max_staleness=2",
                "dataflow=[{stage: rollout, op: generate, model: actor, sampling: {n: 16}},"
                f"{{stage: score, op: reward, inputs: [rollout], reward: {{custom_reward_function: {{path: {reward}, num_workers: {processes}}}}}}},"
                "{stage: old_logprob, op: logprob, model: actor, inputs: [rollout]},"
                "{stage: advantage, op: advantage, inputs: [score, old_logprob], estimator: grpo},"
                "{stage: update, op: update, model: actor, inputs: [advantage], batch_size: 32}]",
                steps=STEPS_OF_A_TIMELINE, options=["--trace", str(trace)],
            )  # fmt: skip
        timeline = Timeline(trace, 2, LAST_OF_A_TIMELINE)
        result = {
            "mode": mode,
            "reward_seconds": jobs.options.reward_seconds,
            "step_s": round(median(steps, "perf/seconds"), 3),
            "staleness": max(step.get("training/staleness", 0) for step in steps),
            "train_busy": timeline.share(timeline.times(row="train")),
            "answer_busy": timeline.share(timeline.times(row="answer")),
            "reward": timeline.share(timeline.times(op="reward")),
            "generate_and_update": timeline.share(both(timeline.times(op="generate"), timeline.times(op="update"))),
            "gpu_utilization": utilization.between(*timeline.wall_clock()),
        }
        for stage in ("generate", "reward", "logprob", "update", "weight_sync"):
            result[stage + "_s"] = round(median(steps, "timing_s/" + stage), 4)
        yield {**result, "stages": timeline.excerpt(10, 12)}


MEASUREMENTS = {"switch": switch, "sync": sync, "async": slow}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", default="models/smollm2-135m-instruct", help="folder with the files of a tokenizer")
    parser.add_argument("--model", default="qwen2.5-0.5b", choices=sorted(SHAPES))
    parser.add_argument("--only", default="switch,sync", help="of: " + ", ".join(MEASUREMENTS))
    parser.add_argument("--reward-seconds", type=float, default=0.3)
    parser.add_argument("--modes", default="sync,one_step_off,async", help="of --only async")
    parser.add_argument("--sluice", default=os.environ.get("SLUICE", str(ROOT / "build/bin/sluice")))
    parser.add_argument("keys", nargs="*", help="key=value of the job")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(options, pathlib.Path(folder))
        for name in options.only.split(","):
            for line in MEASUREMENTS[name](jobs):
                print(json.dumps({"what": name, "model": options.model, **line}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
