"""Turns a quantised Llama-family GGUF file into a Hugging Face model folder with bf16 weights.

    gguf_to_huggingface.py MODEL.gguf FOLDER

Writes config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
special_tokens_map.json. Only byte-level BPE vocabularies of the `smollm` kind are known: digits split one by one, then GPT-2's pattern.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def huggingface_name(name):
    stem = name.removesuffix(".weight")
    if stem in OTHER_TENSORS:
        return OTHER_TENSORS[stem] + ".weight"
    block, layer, kind = stem.split(".")
    assert block == "blk", name
    return f"model.layers.{layer}.{LAYER_TENSORS[kind]}.weight"


def rotate_half_order(weight, heads):
    """GGUF stores q and k rows for interleaved rotary pairs (0,1),(2,3)...; Hugging Face rotates halves (0,D/2),(1,D/2+1)..."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main(source, target):
    reader = gguf.GGUFReader(source)
    value = lambda key: reader.fields[key].contents()
    assert value("general.architecture") == "llama", "only the llama architecture is known"
    assert value("tokenizer.ggml.pre") == "smollm", "only the smollm pre-tokenizer is known"
    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")

    weights = {}
    for tensor in reader.tensors:
        name = huggingface_name(tensor.name)
        weight = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if name.endswith("q_proj.weight"):
            weight = rotate_half_order(weight, heads)
        elif name.endswith("k_proj.weight"):
            weight = rotate_half_order(weight, kv_heads)
        weights[name] = torch.from_numpy(np.ascontiguousarray(weight)).to(torch.bfloat16)

    bos, eos, unk, pad = (tokens[value(f"tokenizer.ggml.{kind}_token_id")] for kind in ("bos", "eos", "unknown", "padding"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": value("llama.embedding_length"),
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": value("llama.embedding_length") // heads,
        "hidden_act": "silu",
        "max_position_embeddings": value("llama.context_length"),
        "rms_norm_eps": float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(f"{value('llama.rope.freq_base'):.6g}"),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.041666666666666664,
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "bos_token_id": tokens.index(bos),
        "eos_token_id": tokens.index(eos),
        "pad_token_id": tokens.index(pad),
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, (token, kind) in enumerate(zip(tokens, types))
        if kind == CONTROL_TOKEN
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": value("tokenizer.ggml.merges"),
        },
    }
    special = {"bos_token": bos, "eos_token": eos, "unk_token": unk, "pad_token": pad}
    tokenizer_config = {
        **special,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(entry["id"]): {k: v for k, v in entry.items() if k != "id"} for entry in added},
        "chat_template": value("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "tokenizer_class": "GPT2Tokenizer",
    }
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}

    os.makedirs(target, exist_ok=True)

    def write_json(name, content, **options):
        with open(os.path.join(target, name), "w", encoding="utf-8") as out:
            json.dump(content, out, ensure_ascii=False, **options)
            out.write("\n")

    os.umask(0o022)
    save_file(weights, os.path.join(target, "model.safetensors"), metadata={"format": "pt"})
    write_json("config.json", config, indent=2)
    write_json("generation_config.json", generation, indent=2)
    write_json("tokenizer.json", tokenizer)
    write_json("tokenizer_config.json", tokenizer_config, indent=2)
    write_json("special_tokens_map.json", special, indent=2)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
