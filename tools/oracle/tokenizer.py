#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/components.jsonl: what Hugging Face `tokenizers` gives for each component of tokenizer.json.

Each line takes one of the small tokenizers beside it, changes some keys, and lists texts with their ids, the byte range of
each id (offsets without trimming), ids with special tokens, and decoded texts. A text that is not UTF-8 is written as
"latin1", one character per byte, and given to the library as errors="replace" reads it.

    python tools/oracle/tokenizer.py
"""

import json
import os
import pathlib

import tokenizers
from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden/tokenizer"

TEXTS = [
    "", " ", "hello world", "  Hello,  WORLD!  ", "a\u2581b \u2581\u2581c", "it's I'M they'Ve it'\u017ftop 'll''s", "x1y22z333w4444 \u0664\u0662 \u2167\u00bd",
    "a\r\n\r\n b \t\n\n c\n", "\u00a0x\u3000\u3000y\u2028z\u180ew\u0085", "foo_bar->baz(); //x??!! $5.00", "e\u0301cole \u00c5\u212b \ufb01 \uac01\u1100\u1161\u11a8 a\u0323\u0307q\u0307\u0323",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u093c\u0958 \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041f\u0440\u0438\u0432\u0435\u0442 \u0130I\u03a3\u03c3", "\U0001f469\u200d\U0001f469 \U0001f44d\U0001f3fd\u2764\ufe0f", "aaaaaaa abababab theththe",
    "\x00\x01\x7f\u200b\ufeff\ufffd", "<s>hello</s> x<|im_start|> <mask> cat\n<unk>", "2024-01-31 1,000,000.50", "bad \udc80\udcc3 \udce2\udc82(\udcf0\udc9f\udc98",
    "the the  the   the", "-a--b-c---", "supercalifragilisticexpialidocious" * 3, "\U00011938\u0345\u1aff\u1ac5a\u1ac5\u0301\ua7f2",
]

BYTES, CHARS = "qwen2_style", "sp_bytefallback"


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def metaspace(scheme, split=None, **more):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, **({} if split is None else {"split": split}), **more}


def byte_level(use_regex=True, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": False, "use_regex": use_regex}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def variants():
    for name in ("added_flags", "llama3_style", "qwen2_style", "sp_bytefallback", "sp_metaspace_first"):
        yield name, {}
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield BYTES, {"normalizer": {"type": form}}
    for left, right in ((True, False), (False, True), (True, True)):
        yield CHARS, {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
    yield CHARS, {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}, "pre_tokenizer": metaspace("first")}
    yield CHARS, {"normalizer": {"type": "Replace", "pattern": {"String": "the"}, "content": "\u00e9tude"}}
    yield CHARS, {"normalizer": {"type": "Replace", "pattern": {"Regex": r"\s+|[^\S\n]x"}, "content": "_"}}
    yield CHARS, {"normalizer": {"type": "Replace", "pattern": {"Regex": r"[\s\w]+?\h|\W$"}, "content": ""}}
    yield CHARS, {"normalizer": sequence("normalizers", {"type": "Lowercase"}, {"type": "Prepend", "prepend": "<<"}, {"type": "NFD"})}
    yield CHARS, {"normalizer": sequence("normalizers"), "pre_tokenizer": sequence("pretokenizers")}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield CHARS, {"normalizer": None, "pre_tokenizer": split({"Regex": r"[\s\-]"}, behavior, invert)}
        yield CHARS, {"normalizer": None, "pre_tokenizer": split({"String": "a"}, behavior)}
        yield CHARS, {"normalizer": None, "pre_tokenizer": {"type": "Punctuation", "behavior": behavior}}
    yield CHARS, {"normalizer": None, "pre_tokenizer": split({"Regex": r"x*|^l"}, "Isolated")}
    for individual in (False, True):
        yield CHARS, {"normalizer": None, "pre_tokenizer": {"type": "Digits", "individual_digits": individual}}
    for kind in ("Whitespace", "WhitespaceSplit"):
        yield CHARS, {"normalizer": None, "pre_tokenizer": {"type": kind}}
    for scheme in ("first", "never", "always"):
        for cut in (True, False):
            yield CHARS, {"normalizer": None, "pre_tokenizer": metaspace(scheme, cut), "decoder": metaspace(scheme, cut)}
    yield CHARS, {"normalizer": None, "pre_tokenizer": metaspace("always", None, add_prefix_space=True, str_rep="\u2581")}
    for use_regex in (False, True):
        for prefix in (False, True):
            yield BYTES, {"normalizer": None, "pre_tokenizer": byte_level(use_regex, prefix)}
    digits = {"type": "Digits", "individual_digits": True}
    for prefix in (False, True):
        yield BYTES, {"normalizer": None, "pre_tokenizer": sequence("pretokenizers", digits, byte_level(True, prefix))}
    fuse, fallback = {"type": "Fuse"}, {"type": "ByteFallback"}
    mark = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    yield CHARS, {"decoder": None}
    yield CHARS, {"decoder": fuse}
    yield CHARS, {"decoder": sequence("decoders", mark, fallback, strip, {"type": "Replace", "pattern": {"Regex": "[eo]"}, "content": "_"})}
    yield CHARS, {"decoder": sequence("decoders", fallback, fuse, mark, {**strip, "start": 2})}
    yield BYTES, {"decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "\u0120"}, "content": "\u0120\u0120"}, byte_level())}
    for model in ({"byte_fallback": False}, {"byte_fallback": False, "fuse_unk": False}, {"byte_fallback": False, "unk_token": None}):
        yield CHARS, {"model": model}
    yield BYTES, {"model": {"ignore_merges": True}}


def changed(base, change):
    document = json.loads((FOLDER / f"{base}.tokenizer.json").read_text())
    for key, value in change.items():
        document[key] = {**document[key], **value} if key == "model" else value
    return document


def without_trimming(node):
    if isinstance(node, dict):
        return {k: False if k == "trim_offsets" else without_trimming(v) for k, v in node.items()}
    return [without_trimming(v) for v in node] if isinstance(node, list) else node


def case(tokenizer, escaped, unchanged):
    data = escaped.encode("utf-8", errors="surrogateescape")
    text = data.decode("utf-8", errors="replace")
    encoding = tokenizer.encode(text, add_special_tokens=False)
    valid = text.encode() == data
    result = {"text": text} if valid else {"latin1": data.decode("latin-1")}
    result["ids"] = encoding.ids
    special = tokenizer.encode(text, add_special_tokens=True).ids
    if special != encoding.ids:
        result["ids_with_special"] = special
    if unchanged and valid:
        starts = [len(text[:i].encode()) for i in range(len(text) + 1)]
        result["offsets"] = [starts[i] for pair in encoding.offsets for i in pair]
    result["decoded"] = tokenizer.decode(encoding.ids, skip_special_tokens=False)
    plain = tokenizer.decode(encoding.ids, skip_special_tokens=True)
    if plain != result["decoded"]:
        result["decoded_without_special"] = plain
    return result


def main():
    with open(FOLDER / "components.jsonl", "w") as out:
        header = {"made_by": "python tools/oracle/tokenizer.py", "tokenizers": tokenizers.__version__}
        out.write(json.dumps(header) + "\n")
        for base, change in variants():
            document = without_trimming(changed(base, change))
            tokenizer = Tokenizer.from_str(json.dumps(document))
            # Ranges of normalised text cover what it was made from, which is more than the library says.
            unchanged = document["normalizer"] is None and (base != CHARS or document["model"]["unk_token"] is not None)
            cases = [case(tokenizer, text, unchanged) for text in TEXTS]
            out.write(json.dumps({"base": base, "change": change, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
