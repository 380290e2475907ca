#!/usr/bin/env python3
"""Our tokenizer against Hugging Face `tokenizers`, on one core, in one run.

    python tools/bench/tokenizer.py [--program build/bench/tokenizer_bench] TEXT_FILE TOKENIZER_JSON...

Prints MB of text per second of processor time: ours, the library's (its fastest call for each job, no threads), and the
ratio. The text is cut into documents of about 4 KiB. tools/oracle/tokenizer_vocabularies.py makes tokenizer files to try.
"""

import argparse
import json
import os
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

DOCUMENT_BYTES = 4096  # as in tokenizer_bench.cc


def documents(data):
    begin = 0
    while begin < len(data):
        line_end = data.find(b"\n", min(begin + DOCUMENT_BYTES, len(data) - 1))
        end = len(data) if line_end < 0 else line_end + 1
        yield data[begin:end].decode("utf-8", errors="replace")
        begin = end


def megabytes_per_second(size, job):
    best = None
    for _ in range(3):
        start = time.process_time()
        job()
        seconds = time.process_time() - start
        best = seconds if best is None else min(best, seconds)
    return size / best / 1e6


def theirs(path, texts, size):
    tokenizer = Tokenizer.from_file(path)
    ids = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    return {
        "Encode": megabytes_per_second(size, lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False)),
        "EncodeWithOffsets": megabytes_per_second(size, lambda: tokenizer.encode_batch(texts, add_special_tokens=False)),
        "Decode": megabytes_per_second(size, lambda: tokenizer.decode_batch(ids, skip_special_tokens=False)),
    }


def ours(program, path, text):
    environment = {**os.environ, "SLUICE_BENCH_TOKENIZER": path, "SLUICE_BENCH_TEXT": text}
    output = subprocess.run([program, "--benchmark_format=json", "--benchmark_min_time=1"], env=environment, check=True,
                            capture_output=True).stdout
    # Google Benchmark divides by processor time unless told otherwise.
    return {b["name"].removeprefix("BM_"): b["bytes_per_second"] / 1e6 for b in json.loads(output)["benchmarks"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/bench/tokenizer_bench")
    parser.add_argument("text")
    parser.add_argument("tokenizers", nargs="+")
    args = parser.parse_args()
    data = open(args.text, "rb").read()
    texts = list(documents(data))
    print(f"{args.text}: {len(data) / 1e6:.1f} MB in {len(texts)} documents; MB/s on one core")
    print(f"{'tokenizer':24} {'job':18} {'ours':>8} {'library':>8} {'ratio':>6}")
    for path in args.tokenizers:
        our, their = ours(args.program, path, args.text), theirs(path, texts, len(data))
        for job in their:
            name = os.path.basename(path).removesuffix(".json")
            print(f"{name:24} {job:18} {our[job]:8.1f} {their[job]:8.1f} {our[job] / their[job]:6.1f}", flush=True)


if __name__ == "__main__":
    main()
