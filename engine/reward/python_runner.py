"""Scores responses with a user's Python function: one line of JSON in, one out. Run by python_reward.cc, never by hand.

Lines in: first {"path", "function", "kwargs", "timeout_s", "start_timeout_s"}; then for each response {"id", "data_source",
"solution_str", "ground_truth", "extra_info"} with extra_info as JSON text or "". Lines out: {"ready": true} or {"error"}; then
{"id", "score", "metrics"} or {"id", "error": "raised" | "bad_value", "message"}.
"""
import asyncio
import importlib.util
import inspect
import json
import math
import os
import resource
import sys
import traceback

CPU_TIMES_TIMEOUT = 8  # threads of numeric libraries use more CPU time than passes
MOST_METRICS = 256
LOG_BYTES = 1 << 20


class BadValue(Exception):
    pass


def last_lines(error):
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).strip().splitlines()
    return "\n".join(line[:500] for line in lines[-8:])


def limit_cpu(timeout_s):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    seconds = math.ceil(usage.ru_utime + usage.ru_stime + CPU_TIMES_TIMEOUT * timeout_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if hard == resource.RLIM_INFINITY else min(seconds, hard), hard))


def is_number(value):
    return hasattr(type(value), "__float__") or hasattr(type(value), "__index__")


def as_number(value, what):
    if not is_number(value):
        raise BadValue(f"{what} is of type {type(value).__name__}, a number expected")
    try:
        number = float(value)
    except Exception as error:
        raise BadValue(f"{what} of type {type(value).__name__} is no number: {error}"[:500]) from error
    if not math.isfinite(number):
        raise BadValue(f"{what} is {number}, a finite number expected")
    return number


def as_metrics(value):
    metrics = {}
    for name, entry in value.items():
        if name == "score" or not is_number(entry):
            continue
        try:
            float(entry)
        except Exception:  # an array of several numbers
            continue
        metrics[str(name)] = as_number(entry, f"\"{name}\"")
    return metrics


def as_result(value):
    if not isinstance(value, dict):
        return {"score": as_number(value, "the score"), "metrics": {}}
    if "score" not in value:
        raise BadValue(f"the dict has no key \"score\"; it has {sorted(map(str, value))[:20]}"[:500])
    metrics = as_metrics(value)
    if len(metrics) > MOST_METRICS:
        raise BadValue(f"the dict has {len(metrics)} numbers, at most {MOST_METRICS} expected")
    return {"score": as_number(value["score"], "\"score\""), "metrics": metrics}


def load(setup):
    path = setup["path"]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path, loader=importlib.machinery.SourceFileLoader(name, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    function = getattr(module, setup["function"], None)
    if not callable(function):
        known = sorted(name for name, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__)
        raise LookupError(f"no function {setup['function']} in it; it has {', '.join(known) or 'none'}")
    return function


async def wait_for(awaitable):
    return await awaitable


def score(function, kwargs, request):
    extra_info = json.loads(request["extra_info"]) if request["extra_info"] else None
    value = function(data_source=request["data_source"], solution_str=request["solution_str"], ground_truth=request["ground_truth"],
                     extra_info=extra_info, **kwargs)
    if inspect.isawaitable(value):
        value = asyncio.run(wait_for(value))
    sys.stdout.flush()
    return as_result(value)


def main():
    # What the user's code prints goes to the log; only this program has the way to the engine.
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def answer(message):
        line = memoryview(json.dumps(message).encode() + b"\n")
        while line:
            line = line[os.write(answers, line):]

    own_pid = os.getpid()
    setup = json.loads(requests.readline())
    limit_cpu(setup["start_timeout_s"])
    try:
        function = load(setup)
    except BaseException as error:
        if os.getpid() == own_pid:
            answer({"error": last_lines(error)})
        os._exit(1)
    if os.getpid() != own_pid:
        os._exit(0)
    answer({"ready": True})

    for line in requests:
        if os.fstat(2).st_size > LOG_BYTES:
            os.ftruncate(2, 0)
        limit_cpu(setup["timeout_s"])
        request = json.loads(line)
        try:
            result = score(function, setup["kwargs"], request)
        except BadValue as error:
            result = {"error": "bad_value", "message": str(error)}
        except Exception as error:
            result = {"error": "raised", "message": last_lines(error)}
        if os.getpid() != own_pid:  # the user's code forked and came back twice
            os._exit(0)
        answer({"id": request["id"], **result})


main()
