#!/usr/bin/env python3
"""Whether a job on two GPUs is the job on one GPU, and what becomes of it when one engine dies or stands still.

    tools/oracle/multi_gpu.py --job tools/oracle/gsm8k_curve.yaml [--only parity,resume,faults] [key=value ...]

Runs the job, cut to a few steps, by `sluice run` and by a controller with two workers, and prints a line of JSON for each check:
  parity   losses and gradient norms of two ranks of one worker, and of two workers of one rank each, against one rank's;
           in bf16 and in fp32
  resume   a checkpoint of two ranks goes on on two (the same weights, bit for bit) and on one
  faults   SIGKILL and SIGSTOP of one engine in the middle: seconds until it is named, until its peer is gone and until the job
           goes on; whether it ends as an undisturbed one, and whether a GPU is still taken afterwards
Exit code 1: a check is outside of its bounds. `engine.device=cpu` tries the script itself where there is no GPU.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 20
# Largest relative differences: of the first step's loss and gradient norm, and of all losses (bf16 rounds to 2^-8).
BOUNDS = {"bf16": (1e-3, 1e-2, 1e-2), "fp32": (1e-5, 1e-4, 1e-5)}
NAMED_WITHIN_S, PEER_GONE_WITHIN_S = 10, 20


class Tool:
    def __init__(self, options, folder):
        self.bin = options.bin
        self.job = options.job
        self.overrides = options.overrides
        self.folder = folder
        self.failures = 0

    def report(self, check, ok, **values):
        self.failures += not ok
        print(json.dumps({"check": check, "ok": bool(ok), **values}), flush=True)

    def output(self, name):
        return self.folder / name

    def arguments(self, name, *overrides):
        return [self.job, f"trainer.default_local_dir={self.output(name)}", "trainer.val_before_train=false",
                f"trainer.total_training_steps={STEPS}", *self.overrides, *overrides]  # fmt: skip

    def run(self, name, *overrides, environment=None):
        """The job's steps by `sluice run`."""
        command = [str(self.bin / "sluice"), "run", *self.arguments(name, *overrides)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
        if done.returncode != 0:
            raise SystemExit(f"multi_gpu.py: {' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
        return self.steps(name)

    def steps(self, name):
        """{step: (loss, gradient norm)}; a step that was taken again counts as it was taken last."""
        lines = (self.output(name) / "metrics.jsonl").read_text().splitlines()
        steps = (json.loads(line) for line in lines)
        return {s["step"]: (s["train/loss"], s["train/grad_norm"]) for s in steps if "train/loss" in s}

    def weights(self, name):
        return (self.output(name) / "huggingface" / "model.safetensors").read_bytes()


def relative(a, b):
    return abs(a - b) / max(abs(a), 1e-30)


def compare(tool, check, dtype, one, many, **values):
    steps = sorted(one)
    losses = [relative(one[s][0], many[s][0]) for s in steps] if sorted(many) == steps else [float("inf")]
    first = steps[0]
    norm = relative(one[first][1], many[first][1]) if first in many else float("inf")
    bounds = BOUNDS[dtype]
    ok = losses[0] <= bounds[0] and norm <= bounds[1] and max(losses) <= bounds[2]
    tool.report(check, ok, dtype=dtype, steps=len(steps), first_loss=losses[0], first_grad_norm=norm,
                largest_loss=max(losses), **values)  # fmt: skip


@contextlib.contextmanager
def cluster(tool, workers):
    """A controller's address, with workers of one GPU each."""
    address = f"unix:{tool.folder}/controller.sock"
    processes = []

    def start(name, command, environment=None):
        log = open(tool.folder / f"{name}.log", "w")
        processes.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})}))

    try:
        start("controller", [tool.bin / "sluice-controller", "--listen", address, "--state-dir", tool.folder / "controller"])
        for worker in range(workers):
            start(f"worker_{worker}", [tool.bin / "sluice-worker", "--controller", address, "--id", f"worker-{worker}", "--rank-slots",
                  "1", "--state-dir", tool.folder / f"worker_{worker}"], {"CUDA_VISIBLE_DEVICES": str(worker)})  # fmt: skip
        listing = [tool.bin / "sluice", "--controller", address, "-o", "json", "workers"]
        for _ in range(100):
            listed = subprocess.run(listing, capture_output=True, text=True)
            if listed.returncode == 0 and listed.stdout.count("worker-") >= workers:
                break
            time.sleep(0.2)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


def parity(tool):
    for dtype in ("bf16", "fp32"):
        model = f"engine.model_dtype={dtype}"
        one = tool.run(f"one_{dtype}", model)
        two = tool.run(f"two_{dtype}", model, "trainer.n_gpus_per_node=2")
        compare(tool, "parity: two ranks of one worker", dtype, one, two)
    with cluster(tool, 2) as address:
        command = [tool.bin / "sluice", "--controller", address, "submit", "--wait",
                   *tool.arguments("cluster", "engine.model_dtype=fp32", "trainer.nnodes=2")]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            tool.report("parity: two workers of one rank", False, output=(done.stdout + done.stderr)[-2000:])
            return
    compare(tool, "parity: two workers of one rank", "fp32", tool.steps("one_fp32"), tool.steps("cluster"))


def resume(tool):
    two = ["trainer.n_gpus_per_node=2", "engine.full_determinism=true", "engine.model_dtype=bf16",
           f"trainer.save_freq={STEPS // 2}"]  # fmt: skip
    whole = tool.run("whole", *two)
    for name, ranks in (("on_two", 2), ("on_one", 1)):
        shutil.copytree(tool.output("whole"), tool.output(name))
        for step in tool.output(name).glob("global_step_*"):
            if step.name != f"global_step_{STEPS // 2}":
                shutil.rmtree(step)
        shutil.rmtree(tool.output(name) / "huggingface")
        (tool.output(name) / "metrics.jsonl").unlink()
        steps = tool.run(name, *two, f"trainer.n_gpus_per_node={ranks}")
        rest = {step: whole[step] for step in steps}
        if ranks == 2:
            same = tool.weights("whole") == tool.weights(name)
            tool.report("resume: two ranks on two", same and len(steps) == STEPS // 2, steps=len(steps), bit_equal=same)
        else:
            compare(tool, "resume: two ranks on one", "bf16", rest, steps)


def children(pid):
    """{rank: pid} of the engines below a process."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()[1:]
    rows = [line.split(None, 2) for line in listed]
    engines = {}
    for child, parent, arguments in rows:
        if int(parent) == pid and "sluice-engine" in arguments:
            words = arguments.split()
            engines[int(words[words.index("--rank") + 1])] = int(child)
    return engines


def runs(pid):
    """Whether a process is there and no zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def gpus_taken():
    """How many processes hold a GPU, by nvidia-smi; None where there is none."""
    try:
        query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        return len(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split())
    except (OSError, subprocess.SubprocessError):
        return None


def disturb(tool, name, signal_number):
    overrides = ["trainer.n_gpus_per_node=2", "engine.full_determinism=true", "engine.model_dtype=bf16", "trainer.save_freq=5",
                 "trainer.max_ckpt_to_keep=2"]  # fmt: skip
    steps = 60
    command = [str(tool.bin / "sluice"), "run", *tool.arguments(name, *overrides, f"trainer.total_training_steps={steps}")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    engines, sent, named, peer_gone, goes_on, named_as = {}, None, None, None, None, ""
    metrics = tool.output(name) / "metrics.jsonl"
    os.set_blocking(process.stdout.fileno(), False)
    printed = ""
    while process.poll() is None and goes_on is None:
        time.sleep(0.05)
        with contextlib.suppress(TypeError, BlockingIOError):
            printed += process.stdout.read() or ""
        lines = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        now = time.monotonic()
        if sent is None:
            if lines >= 12:
                engines = children(process.pid)
                os.kill(engines[1], signal_number)
                sent, before, seen = now, lines, len(printed)
            continue
        if named is None and "rank 1" in printed[seen:]:
            named = now - sent
            named_as = next(line for line in printed[seen:].splitlines() if "rank 1" in line).strip()[:300]
        if peer_gone is None and not runs(engines[0]) and not runs(engines[1]):
            peer_gone = now - sent
        if peer_gone is not None and lines > before + 2:
            goes_on = now - sent
    os.set_blocking(process.stdout.fileno(), True)
    printed += process.communicate(timeout=500)[0]
    ended = tool.steps(name) if process.returncode == 0 else {}
    taken = gpus_taken()
    ok = (process.returncode == 0 and len(ended) == steps and named is not None and named <= NAMED_WITHIN_S
          and peer_gone is not None and peer_gone <= PEER_GONE_WITHIN_S and not taken)  # fmt: skip
    tool.report(f"faults: {signal.Signals(signal_number).name}", ok, named_s=named, named_as=named_as, peer_gone_s=peer_gone,
                goes_on_s=goes_on, steps=len(ended), gpus_taken=taken,
                **({} if process.returncode == 0 else {"output": printed[-2000:]}))  # fmt: skip


def faults(tool):
    disturb(tool, "killed", signal.SIGKILL)
    disturb(tool, "stopped", signal.SIGSTOP)
    same = tool.weights("killed") == tool.weights("stopped")
    tool.report("faults: both end with the same weights", same, bit_equal=same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build" / "bin")
    parser.add_argument("--only", default="parity,resume,faults")
    parser.add_argument("overrides", nargs="*", help="of keys of the job")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="multi_gpu.") as folder:
        tool = Tool(options, pathlib.Path(folder))
        for check in options.only.split(","):
            {"parity": parity, "resume": resume, "faults": faults}[check](tool)
    sys.exit(1 if tool.failures else 0)


if __name__ == "__main__":
    main()
