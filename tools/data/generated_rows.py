"""Writes generated rows as train.jsonl and test.jsonl of a folder, or checks that they are what is written there."""

import json
import os
import sys


def main(program, rows, train_rows, folder):
    """Rows beyond `train_rows` are the test's. Arguments of the program: [--check] [folder]."""
    arguments = sys.argv[1:]
    check = "--check" in arguments
    folder = next((argument for argument in arguments if argument != "--check"), folder)
    everything = list(rows)
    for name, part in (("train.jsonl", everything[:train_rows]), ("test.jsonl", everything[train_rows:])):
        path = os.path.join(folder, name)
        contents = "".join(json.dumps(row) + "\n" for row in part).encode()
        if check:
            with open(path, "rb") as file:
                if file.read() != contents:
                    sys.exit(f"{path}: not what {program} writes")
            continue
        os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as file:
            file.write(contents)
