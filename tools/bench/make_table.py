#!/usr/bin/env python3
"""Writes the figures of docs/bench/h200.jsonl into docs/performance.md, between its two markers.

    tools/bench/make_table.py            # writes the page
    tools/bench/make_table.py --check    # exit code 1 where the page or a line of the file is not as it must be

A row a figure, in the order of figures.py, from the last line that has it.
"""

import argparse
import json
import pathlib
import sys

from compare import ratio
from figures import figures_by_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN = "<!-- tools/bench/make_table.py writes from here -->"
END = "<!-- to here -->"
FIELDS = {
    "what": str, "value": (int, float), "unit": str, "peer": (str, type(None)), "peer_value": (int, float, type(None)),
    "date": str, "commit": str, "command": str, "peer_command": (str, type(None)), "versions": dict, "gpu": str,
}  # fmt: skip


def read(path):
    """{what: its last line}. ValueError names the line."""
    known, latest = figures_by_name(), {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path.name}:{number}"
        try:
            line = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where}: not JSON: {error}") from None
        for field, kind in FIELDS.items():
            if field not in line or not isinstance(line[field], kind) or isinstance(line[field], bool):
                raise ValueError(f"{where}: {field} is missing or of the wrong type")
        if line["what"] not in known:
            raise ValueError(f"{where}: {line['what']} is not in tools/bench/figures.py")
        latest[line["what"]] = line
    return latest


def number(value):
    """Four digits are enough: runs differ by more than the fifth."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def goal(figure):
    if figure.goal is None:
        return ""
    return ("≥ " if figure.higher_is_better else "≤ ") + number(figure.goal)


def missed(figure, value):
    """By how much of the goal, or "" where it is met or there is none."""
    if figure.goal is None or ratio(figure, value, figure.goal) >= 1:
        return ""
    return f", {100 * abs(value - figure.goal) / figure.goal:.1f} % short"


def session_of(line):
    """What all figures of one session have in common."""
    versions = ", ".join(f"{name} {version}" for name, version in line["versions"].items())
    return f"{line['date'][:10]}, commit {line['commit']}, {line['gpu']}; {versions}"


def table(head, rows):
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in (head, ["---"] * len(head), *rows)]


def section(latest):
    figures = {name: entry for name, entry in figures_by_name().items() if name in latest}
    sessions = list(dict.fromkeys(session_of(latest[name]) for name in figures))
    rows, commands = [], {}
    for name, (work, figure) in figures.items():
        line = latest[name]
        value, peer = line["value"], line["peer_value"]
        title = "" if work.name in commands else work.title
        own, peers = commands.setdefault(work.name, ({}, {}))  # dictionaries as ordered sets
        own[f"`{line['command']}`"] = None
        if peer:
            peers[f"{line['peer']}: `{line['peer_command']}`"] = None
        rows.append((
            title, figure.title, f"{number(value)} {figure.unit}".strip(), goal(figure) + missed(figure, value), number(peer),
            f"{ratio(figure, value, peer):.2f}" if peer else "", sessions.index(session_of(line)) + 1,
        ))  # fmt: skip
    titles = {work.name: work.title for work, _ in figures.values()}
    return "\n".join([
        *table(("work", "figure", "Sluice", "goal", "peer", "times better", "session"), rows),
        "",
        "Sessions:",
        "",
        *(f"{index}. {session}" for index, session in enumerate(sessions, 1)),
        "",
        *table(("work", "command", "peer"),
               [(titles[name], "<br>".join(own), "<br>".join(peers)) for name, (own, peers) in commands.items()]),
    ])  # fmt: skip


def page_with(page, text):
    """The page with `text` between the markers. ValueError: it does not have them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no markers: {BEGIN} ... {END}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", type=pathlib.Path, default=ROOT / "docs/bench/h200.jsonl")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/performance.md")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    try:
        wanted = page_with(page, section(read(options.file)))
    except ValueError as error:
        sys.exit(f"make_table: {options.page if 'markers' in str(error) else options.file.parent}: {error}")
    if not options.check:
        options.page.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        sys.exit(f"{options.page} is not what {options.file} gives; run tools/bench/make_table.py")


if __name__ == "__main__":
    main()
