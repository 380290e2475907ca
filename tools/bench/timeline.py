"""How busy a run kept its pools and its GPUs: what `sluice run --trace` wrote, and nvidia-smi beside it."""

import datetime
import json
import statistics
import subprocess


class Timeline:
    """What lies between the ends of two steps. Times in seconds from the beginning of the run's first stage, as (begin, end)."""

    def __init__(self, path, first, last):
        trace = json.loads(path.read_text())
        self.began = datetime.datetime.fromisoformat(trace["otherData"]["begin_time"]).timestamp()
        events = trace["traceEvents"]
        self.rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.stages = [event for event in events if event["ph"] == "X"]
        ends = {event["args"]["step"]: (event["ts"] + event["dur"]) / 1e6 for event in self.stages if event["cat"] == "update"}
        self.window = (ends[first], ends[last])
        self.length = self.window[1] - self.window[0]

    def wall_clock(self):
        """The window, in seconds since the epoch."""
        return [self.began + end for end in self.window]

    def times(self, row=None, op=None):
        chosen = [
            (max(event["ts"] / 1e6, self.window[0]), min((event["ts"] + event["dur"]) / 1e6, self.window[1]))
            for event in self.stages
            if (row is None or self.rows[event["tid"]] == row) and (op is None or event["cat"] == op)
        ]
        return [(begin, end) for begin, end in chosen if begin < end]

    def share(self, times):
        return round(sum(end - begin for begin, end in times) / self.length, 3)

    def excerpt(self, first, last):
        """The stages of these steps, in the order in which they began: row, stage and step, milliseconds from the first."""
        chosen = sorted((e for e in self.stages if first <= e["args"]["step"] <= last), key=lambda e: e["ts"])
        since = chosen[0]["ts"]
        return [
            [self.rows[e["tid"]], f"{e['name']} {e['args']['step']}", round((e["ts"] - since) / 1e3, 1), round(e["dur"] / 1e3, 1)]
            for e in chosen
        ]


def both(a, b):
    """The times in which one of `a` and one of `b` ran. REQUIRES: neither list overlaps itself."""
    pairs = [(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b]
    return [(begin, end) for begin, end in pairs if begin < end]


class Utilization:
    """nvidia-smi beside a run: the share of the time, in its samples, in which a GPU ran something."""

    def __enter__(self):
        query = ["nvidia-smi", "--query-gpu=timestamp,index,utilization.gpu", "--format=csv,noheader,nounits", "-lms", "50"]
        self.process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.lines = self.process.communicate()[0].splitlines()

    def between(self, begin, end):
        """By GPU. Times since the epoch, in seconds."""
        samples = {}
        for line in self.lines:
            fields = [field.strip() for field in line.split(",")]
            if len(fields) != 3 or not fields[2].isdigit():
                continue
            time = datetime.datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            if begin <= time <= end:
                samples.setdefault(int(fields[1]), []).append(int(fields[2]) / 100)
        return {gpu: round(statistics.mean(of), 3) for gpu, of in sorted(samples.items())}
