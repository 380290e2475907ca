#!/usr/bin/env python3
"""Our figure and the peer's for each piece of work of figures.py, in one session on one GPU.

    tools/bench/compare.sh [--only NAME[,NAME...]] [--ours-only] [--out FILE] [--budget SECONDS]
    tools/bench/compare.sh --list

Appends a line for each figure to docs/bench/h200.jsonl (docs/bench/README.md says what is in it) as soon as it is measured.
A command that fails or takes too long is reported, and the rest goes on; the exit code is then 1. With --ours-only the
figures are only printed, unless --out names a file.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from figures import WORKS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = pathlib.Path(__file__).resolve().with_name("peers.py")


def output_of(*command):
    """What a short command prints, or "" where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def commit_of_tree():
    commit = output_of("git", "rev-parse", "--short=12", "HEAD")
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no")
    return commit + ("+changes" if commit and changed else "")


def gpu_count():
    """That the commands will see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device])
    return len(output_of("nvidia-smi", "-L").splitlines())


def gpu_and_driver():
    """("NVIDIA H200, 700 W", "580.159.04") of the first GPU."""
    query = output_of("nvidia-smi", "--query-gpu=name,power.limit,driver_version", "--format=csv,noheader,nounits")
    parts = [part.strip() for part in query.split("\n")[0].split(",")]
    if len(parts) != 3:
        return "unknown", "unknown"
    name, watts, driver = parts
    try:
        return f"{name}, {float(watts):.0f} W", driver
    except ValueError:  # "[N/A]"
        return name, driver


class CommandFailed(Exception):
    pass


def json_lines(command, timeout_s):
    """The JSON objects that a command printed, one a line."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except BaseException as error:  # also an interrupt: nothing may stay on the GPU
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # torch.compile has helpers of its own
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CommandFailed(f"not done after {timeout_s:.0f} s") from None
        raise
    if process.returncode != 0:
        raise CommandFailed(f"exit code {process.returncode}: {err.strip()[-1500:]}")
    if err.strip():
        print(err.strip()[-1500:], file=sys.stderr)
    try:
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    except ValueError as error:
        raise CommandFailed(f"printed a line that is not JSON: {error}") from None


def ratio(figure, ours, theirs):
    """How many times better ours is."""
    return ours / theirs if figure.higher_is_better else theirs / ours


class Session:
    def __init__(self, options):
        self.options = options
        self.out = options.out
        self.end = time.monotonic() + options.budget
        self.failures = []
        self.peers = {}  # arguments of peers.py -> its lines
        self.commit = options.commit or os.environ.get("SLUICE_COMMIT") or commit_of_tree()
        self.gpu, driver = gpu_and_driver()
        self.versions = {"driver": driver, **self.library_versions()}

    def library_versions(self):
        try:
            return json_lines([str(self.options.python), str(PEERS), "versions"], 120)[0]
        except (CommandFailed, OSError, IndexError):  # without torch only ours can be measured
            return {}

    def attempt(self, name, command, timeout_s):
        """The command's lines; [] where it failed, which is noted."""
        left = self.end - time.monotonic()
        shown = " ".join(command)
        if left < 5:
            self.fail(name, shown, "no time left (--budget)")
            return []
        print(f"$ {shown}", flush=True)
        start = time.monotonic()
        try:
            lines = json_lines(command, min(timeout_s, left))
        except FileNotFoundError as error:
            self.fail(name, shown, f"{error.filename} is not there (build it, or give --bench or --python)")
            return []
        except (CommandFailed, OSError) as error:
            self.fail(name, shown, str(error))
            return []
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
        return lines

    def fail(self, name, command, reason):
        self.failures.append(name)
        print(f"compare: {name}: {command}: {reason}", file=sys.stderr, flush=True)

    def program(self, work):
        if work.program.endswith(".py"):
            return [str(self.options.python), str(PEERS.with_name(work.program)), "--sluice", str(self.options.bench.with_name("sluice"))]
        return [str(self.options.bench)]

    def peer_lines(self, work):
        lines = []
        for arguments in () if self.options.ours_only else work.peers:
            if arguments not in self.peers:  # two works may have the same peer
                command = [str(self.options.python), str(PEERS), *arguments.split()]
                timeout_s = self.options.timeout or work.peer_timeout_s
                self.peers[arguments] = self.attempt(work.name + " (peer)", command, timeout_s)
            lines += self.peers[arguments]
        return lines

    def measure(self, work):
        command = [*self.program(work), *work.ours.split()]
        ours = self.attempt(work.name, command, self.options.timeout or work.ours_timeout_s)
        if not ours:
            return
        theirs = self.peer_lines(work)
        for figure in work.figures:
            value = figure.ours(ours)
            if value is None:
                self.fail(f"{work.name}/{figure.name}", work.command, "its output does not have this figure")
                continue
            peer_value = figure.peer(theirs) if figure.peer and theirs else None
            self.record({
                "what": f"{work.name}/{figure.name}",
                "value": value,
                "unit": figure.unit,
                "peer": theirs[0]["peer"] if peer_value is not None else None,
                "peer_value": peer_value,
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
                "commit": self.commit,
                "command": work.command,
                "peer_command": "; ".join("peers.py " + peer for peer in work.peers) if peer_value is not None else None,
                "versions": self.versions,
                "gpu": self.gpu,
            }, figure)  # fmt: skip

    def record(self, line, figure):
        text = f"  {line['what']}: {line['value']:,} {figure.unit}".rstrip()
        if line["peer_value"]:
            text += f"; peer {line['peer_value']:,}, {ratio(figure, line['value'], line['peer_value']):.2f} times better"
        if figure.goal is not None:
            met = line["value"] >= figure.goal if figure.higher_is_better else line["value"] <= figure.goal
            text += f"; goal {figure.goal:,} {'met' if met else 'NOT met'}"
        print(text, flush=True)
        if self.out is not None:
            with open(self.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="work whose name contains one of these, separated by commas (train, packed, ...)")
    parser.add_argument("--ours-only", action="store_true", help="without the peer")
    parser.add_argument("--out", type=pathlib.Path, help="file to append to (docs/bench/h200.jsonl)")
    parser.add_argument("--budget", type=float, default=3600, metavar="SECONDS", help="for all commands together")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="for each command, in place of the table's")
    parser.add_argument("--bench", type=pathlib.Path, help="sluice-bench ($SLUICE_BENCH, build/bin/sluice-bench)",
                        default=os.environ.get("SLUICE_BENCH", ROOT / "build/bin/sluice-bench"))
    parser.add_argument("--python", type=pathlib.Path, default=sys.executable,
                        help="Python with torch and transformers (the one that runs this)")
    parser.add_argument("--commit", help="what was built, where this is no git tree ($SLUICE_COMMIT)")
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    options = parser.parse_args()
    wanted = [name for name in (options.only or "").split(",") if name]
    works = [work for work in WORKS if not wanted or any(name in work.name for name in wanted)]
    if not works:
        sys.exit(f"compare: --only {options.only}: there is {', '.join(work.name for work in WORKS)}")
    if options.list:
        for work in works:
            print(f"{work.name}: {work.title}\n  {work.command}")
            for peer in work.peers:
                print(f"  peers.py {peer}")
        return
    options.bench = options.bench.absolute()  # commands run in the root
    options.python = pathlib.Path(options.python).absolute()
    if options.out is None and not options.ours_only:
        options.out = ROOT / "docs/bench/h200.jsonl"
    session = Session(options)
    if not session.commit and options.out is not None:
        sys.exit("compare: this is no git tree; say what was built: --commit or SLUICE_COMMIT")
    gpus = gpu_count()
    for work in works:
        if work.gpus > max(gpus, 1):
            print(f"{work.name}: left out: it takes {work.gpus} GPUs, here are {gpus}")
            continue
        session.measure(work)
    if session.failures:
        sys.exit(f"compare: without a figure: {', '.join(session.failures)}")


if __name__ == "__main__":
    main()
