#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face `tokenizers` on many lines of mixed text.

    python tools/oracle/tokenizer_fuzz.py --dump build/tests/tokenizer_dump --lines 100000 --seed 1 \
        --corpus FOLDER_OR_FILE ... -- A.json B.json ...

Lines come from the corpora (any text files: problems, code) and from generators: scripts of all the world, emoji, all of
Unicode, white space, digits, added tokens, very long words, bytes that are not UTF-8, and mixtures of all these. Compared
are: ids, ids with special tokens, the decoded text with and without special tokens, what a stream shows, and, where the
text is UTF-8 and no normalizer changed it, the offsets. Exit code 1 and the first differing lines if there is a difference.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xC80, 0xCFF), (0xE00, 0xE7F),
           (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x1780, 0x17FF),
           (0x1E00, 0x1FFF), (0x2C00, 0x2DFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xAC00, 0xD7FB),
           (0xFB00, 0xFDFF), (0xFE70, 0xFFEF), (0x10330, 0x1034F), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0x2F800, 0x2FA1D)]
EMOJI = [*range(0x1F300, 0x1F6FF), *range(0x1F900, 0x1F9FF), 0x200D, 0xFE0F, 0x1F3FB, 0x1F3FF, *range(0x1F1E6, 0x1F200), 0x2764]
SPACES = [9, 10, 11, 12, 13, 32, 32, 32, 0x85, 0xA0, 0x1680, 0x180E, 0x2000, 0x200A, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
          0xFEFF, 0x1C, 0x1F]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u2019\u201c\u3001\u3002\u2581\u0120\u010a\ufffd\u017f"
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'\u017f", "\u2019s", "'x", "''s"]


class Lines:
    def __init__(self, seed, corpora, added):
        self.random = random.Random(seed)
        self.corpus = [line for path in corpora for line in corpus_lines(path)]
        self.random.shuffle(self.corpus)
        self.added = added or ["<s>"]
        self.makers = [self.real, self.real, self.real, self.words, self.script, self.emoji, self.unicode, self.spaces, self.digits,
                       self.contractions, self.punctuation, self.token, self.repeated, self.combining]

    def real(self):
        if not self.corpus:
            return self.words()
        line = self.random.choice(self.corpus)
        if self.random.random() < 0.5:
            start = self.random.randrange(len(line) + 1)
            line = line[start:start + self.random.randrange(1, 200)]
        return line

    def chars(self, pool, low, high):
        return "".join(chr(self.random.choice(pool)) for _ in range(self.random.randint(low, high)))

    def words(self):
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        word = lambda: "".join(self.random.choice(letters) for _ in range(self.random.randint(1, 12)))
        return self.random.choice([" ", "  ", "\n", " ", "_", ""]).join(
            self.random.choice([str.lower, str.title, str.upper])(word()) for _ in range(self.random.randint(1, 8)))

    def script(self):
        low, high = self.random.choice(SCRIPTS)
        return " ".join(self.chars(range(low, high + 1), 1, 9) for _ in range(self.random.randint(1, 5)))

    def emoji(self):
        return self.chars(EMOJI, 1, 8)

    def unicode(self):
        return "".join(c for c in self.chars(range(0x110000), 1, 10) if not 0xD800 <= ord(c) <= 0xDFFF)

    def spaces(self):
        return self.chars(SPACES, 1, 8)

    def digits(self):
        return self.random.choice(["%d", "%.3f", "%08d", "%x", "%e"]) % self.random.randrange(1 << self.random.randrange(1, 60))

    def contractions(self):
        return self.random.choice(["I", "they", "IT", "it", " ", ""]) + self.random.choice(CONTRACTIONS) + self.random.choice(["", " ", "x"])

    def punctuation(self):
        return "".join(self.random.choice(PUNCTUATION) for _ in range(self.random.randint(1, 8)))

    def token(self):
        token = self.random.choice(self.added)
        cut = self.random.randrange(len(token) + 1) if self.random.random() < 0.2 else len(token)
        return self.random.choice(["", " ", "a", "\n", "  "]) + token[:cut] + self.random.choice(["", " ", "a", "\n", "1"])

    def repeated(self):
        unit = self.random.choice([self.chars(range(0x21, 0x7F), 1, 3), self.script()[:2] or "a", " ", "\n", "\u2581", "ab", "="])
        return unit * self.random.randint(2, 60)

    def combining(self):
        marks = [*range(0x300, 0x370), 0x323, 0x307, 0x327, 0x338, 0x345, 0x5B0, 0x94D, 0x3099, 0x309A, *range(0x1161, 0x1170), 0x11A8]
        base = [*range(0x41, 0x7B), 0x212B, 0x1100, 0x1112, 0x304B, 0x915, 0x958, 0xAC00, 0xD55C]
        return "".join(self.chars(base, 1, 1) + self.chars(marks, 0, 3) for _ in range(self.random.randint(1, 5)))

    def next(self):
        kind = self.random.random()
        if kind < 0.35:
            text = self.real()
        elif kind < 0.999:
            text = "".join(self.random.choice(self.makers)() for _ in range(self.random.randint(1, 6)))
        else:  # one very long word
            text = self.random.choice([self.chars(range(0x61, 0x7B), 5000, 20000), "a" * 20000, self.chars(range(0x4E00, 0x9FFF), 3000, 9000)])
        data = text.encode("utf-8", errors="surrogatepass")
        if self.random.random() < 0.08:
            data = bytearray(data)
            for _ in range(self.random.randint(1, 4)):
                where = self.random.randrange(len(data) + 1)
                if self.random.random() < 0.5:
                    data[where:where] = bytes(self.random.choices([0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xE0, 0xED, 0xA0, 0xF0, 0x9F, 0xF4, 0x90, 0xFF],
                                                                  k=self.random.randint(1, 4)))
                else:
                    del data[where:where + 1]
            data = bytes(data)
        return data


def corpus_lines(path):
    if os.path.isdir(path):
        for root, _, names in sorted(os.walk(path)):
            for name in sorted(names):
                yield from corpus_lines(os.path.join(root, name))
        return
    with open(path, "rb") as file:
        text = file.read(20_000_000).decode("utf-8", errors="replace")
    if path.endswith(".jsonl"):
        for row in text.splitlines():
            yield from (v for v in json.loads(row).values() if isinstance(v, str))
    else:
        lines = text.split("\n")
        yield from (line for line in lines if line)
        yield from ("\n".join(lines[i:i + 8]) for i in range(0, len(lines), 8))


def ours(dump, path, texts, special):
    with tempfile.TemporaryFile() as out:
        stdin = b"".join(struct.pack("<I", len(t)) + t for t in texts)
        subprocess.run([dump, path] + ["--special"] * special, input=stdin, stdout=out, check=True)
        out.seek(0)
        data = out.read()
    at = 0

    def numbers(count):
        nonlocal at
        at += 4 * count
        return struct.unpack_from(f"<{count}I", data, at - 4 * count)

    def text():
        nonlocal at
        size, = numbers(1)
        at += size
        return data[at - size:at].decode("utf-8")  # what we decode is always UTF-8

    for _ in texts:
        count, = numbers(1)
        ids = list(numbers(count))
        flat = numbers(2 * count)
        yield ids, list(zip(flat[::2], flat[1::2])), text(), text(), text()
    assert at == len(data)


def byte_offsets(text, offsets):
    """Offsets in characters to offsets in bytes."""
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode("utf-8")))
    return [(starts[b], starts[e]) for b, e in offsets]


def loses_text(document, theirs, ids, text):
    """Without an unknown token, characters outside the vocabulary vanish, and the library's offsets are off after them."""
    return document["model"]["unk_token"] is None and theirs.decode(ids, skip_special_tokens=False).strip() != text.strip()


def without_trimming(document):
    def visit(node):
        if isinstance(node, dict):
            if "trim_offsets" in node:
                node["trim_offsets"] = False
            for value in node.values():
                visit(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)
    visit(document["post_processor"])
    return document


def compare(args, path, seed):
    document = json.load(open(path))
    theirs = Tokenizer.from_str(json.dumps(without_trimming(document)))
    lines = Lines(seed, args.corpus, [t["content"] for t in document["added_tokens"]])
    different = done = offsets_compared = 0
    while done < args.lines:
        texts = [lines.next() for _ in range(min(10000, args.lines - done))]
        special = (done // 10000) % 4 == 3
        for data, (ids, ranges, text, plain, streamed) in zip(texts, ours(args.dump, path, texts, special)):
            valid = data.decode("utf-8", errors="replace")
            want = theirs.encode(valid, add_special_tokens=special)
            problems = []
            if ids != want.ids:
                problems.append(f"ids {ids} want {want.ids}")
            elif valid.encode() == data and not loses_text(document, theirs, ids, valid) and (theirs.normalizer is None or (
                    document["normalizer"] == {"type": "NFC"} and unicodedata.is_normalized("NFC", valid)
                    and all(unicodedata.category(c) != "Cn" for c in valid))):
                around = [i for i, o in enumerate(want.special_tokens_mask) if o]
                got_ranges = [r for i, r in enumerate(ranges) if i not in around]
                want_ranges = [r for i, r in enumerate(byte_offsets(valid, want.offsets)) if i not in around]
                offsets_compared += 1
                if got_ranges != want_ranges:
                    problems.append(f"offsets {got_ranges} want {want_ranges}")
            for name, got, skip in (("decode", text, False), ("decode without special", plain, True), ("stream", streamed, False)):
                decoded = theirs.decode(ids, skip_special_tokens=skip)
                if got != decoded:
                    problems.append(f"{name} {got!r} want {decoded!r}")
            if problems:
                different += 1
                if different <= args.show:
                    print(f"{path}: {data[:300]!r}\n  " + "\n  ".join(p[:600] for p in problems), flush=True)
        done += len(texts)
    print(f"{os.path.basename(path)}: {done} lines, {offsets_compared} with offsets, {different} different", flush=True)
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", required=True, help="our tokenizer_dump program")
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5, help="how many differences to print for each file")
    parser.add_argument("--corpus", nargs="*", default=[])
    parser.add_argument("tokenizers", nargs="+", help="tokenizer.json files, after --")
    args = parser.parse_args()
    sys.exit(1 if sum(compare(args, path, args.seed) for path in args.tokenizers) else 0)


if __name__ == "__main__":
    main()
