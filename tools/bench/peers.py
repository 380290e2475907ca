#!/usr/bin/env python3
"""What PyTorch and transformers reach on this GPU with the work that `sluice-bench` measures: one JSON line for each run.

    peers.py train --model qwen2.5-0.5b --batch 16 --seq 1024 [--accumulate N] [--packed 0.1] [--mode compile,eager]
    peers.py train ... --gpus 2      DistributedDataParallel over GPUs of this host; tokens/s are those of one of them
    peers.py collectives --gpus 2
    peers.py cross_entropy --tokens 16384 --hidden 896 --vocab 151936
    peers.py attention --tokens 16384 --seq 1024 --heads 14 --kv-heads 2 --head-dim 64
    peers.py versions

Random weights and tokens: zeros would let the chip run cooler and faster than any real work does. Needs a GPU, torch and
transformers.
"""

import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed
import torch.nn.functional as F
import transformers

# The published models' shapes, as in engine/bench/model_shapes.cc:
# class, vocabulary, hidden, intermediate, layers, heads, key-value heads, head size, tied embeddings, rope theta.
SHAPES = {
    "smollm2-135m": ("Llama", 49152, 576, 1536, 30, 9, 3, 64, True, 1e5),
    "qwen2.5-0.5b": ("Qwen2", 151936, 896, 4864, 24, 14, 2, 64, True, 1e6),
    "qwen2.5-1.5b": ("Qwen2", 151936, 1536, 8960, 28, 12, 2, 128, True, 1e6),
    "qwen2.5-3b": ("Qwen2", 151936, 2048, 11008, 36, 16, 2, 128, True, 1e6),
    "qwen2.5-7b": ("Qwen2", 152064, 3584, 18944, 28, 28, 4, 128, False, 1e6),
    "qwen3-0.6b": ("Qwen3", 151936, 1024, 3072, 28, 16, 8, 128, True, 1e6),
    "qwen3-8b": ("Qwen3", 151936, 4096, 12288, 36, 32, 8, 128, False, 1e6),
    "llama3.2-1b": ("Llama", 128256, 2048, 8192, 16, 32, 8, 64, True, 5e5),
    "llama3-8b": ("Llama", 128256, 4096, 14336, 32, 32, 8, 128, False, 5e5),
}


def model_config(name, layers=0):
    """The transformers config of a shape, with `layers` layers where that is not 0."""
    kind, vocab, hidden, intermediate, depth, heads, kv_heads, head_dim, tied, theta = SHAPES[name]
    settings = dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers or depth,
        num_attention_heads=heads, num_key_value_heads=kv_heads, tie_word_embeddings=tied, rms_norm_eps=1e-6,
        max_position_embeddings=32768, rope_parameters={"rope_type": "default", "rope_theta": theta},
    )  # fmt: skip
    if kind != "Qwen2":  # its head size always is hidden / heads
        settings["head_dim"] = head_dim
    return getattr(transformers, kind + "Config")(**settings)


def random_model(config, dtype, device="cuda"):
    """Weights drawn as transformers initialises them. Attention is torch's scaled_dot_product_attention."""
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")


def model_flops(config, tokens, sum_of_squared_lengths):
    """Forward and backward, by the formula of engine/model/flops.h."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    query = config.num_attention_heads * head_dim
    layer = config.hidden_size * (2 * query + 2 * config.num_key_value_heads * head_dim + 3 * config.intermediate_size)
    matrices = config.num_hidden_layers * layer + config.vocab_size * config.hidden_size
    return 6 * matrices * tokens + 6 * sum_of_squared_lengths * query * config.num_hidden_layers


def versions():
    cudnn = torch.backends.cudnn.version() or 0
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
    }


def join_ranks(gpus):
    """Makes this process one of `gpus`: torchrun starts it again for each, and tells each its place."""
    if gpus == 1:
        return
    if "RANK" not in os.environ:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
        os.execv(sys.executable, [*launch, *sys.argv])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    torch.distributed.init_process_group("nccl", device_id=device)


def is_first_rank():
    return int(os.environ.get("RANK", "0")) == 0


def median(values):
    return sorted(values)[len(values) // 2]


def random_batch(config, options):
    """(arguments of the model, sequence lengths). Rows are right-padded to the longest: what a padding collator makes."""
    ids = torch.randint(0, config.vocab_size, (options.batch, options.seq), device="cuda")
    if not options.packed:
        return {"input_ids": ids, "labels": ids}, [options.seq] * options.batch
    lengths = torch.linspace(options.packed, 1.0, options.batch).mul(options.seq).long().clamp(min=2)
    real = (torch.arange(options.seq)[None] < lengths[:, None]).to("cuda")
    labels = ids.masked_fill(~real, -100)
    return {"input_ids": ids, "labels": labels, "attention_mask": real.long()}, lengths.tolist()


def train(options, mode):
    """Training steps of bf16 weights and moments: forward, backward, clipping, fused AdamW."""
    config = model_config(options.model, options.layers)
    model = random_model(config, torch.bfloat16)
    model.train()
    if options.checkpointing:
        model.gradient_checkpointing_enable()
    if options.gpus > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    forward = torch.compile(model) if mode == "compile" else model
    batches = [random_batch(config, options) for _ in range(min(options.accumulate, 4))]
    lengths = batches[0][1] * options.accumulate
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(options.steps):
        if options.gpus > 1:
            torch.distributed.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for micro_batch in range(options.accumulate):
            # DistributedDataParallel sums over the ranks in the backward: wanted of the last micro-batch only.
            waits = options.gpus > 1 and micro_batch + 1 < options.accumulate
            with model.no_sync() if waits else contextlib.nullcontext():
                loss = forward(**batches[micro_batch % len(batches)][0]).loss
                (loss / options.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    step = median(seconds[len(seconds) // 2 :])
    tflops = model_flops(config, sum(lengths), sum(n * n for n in lengths)) / step / 1e12
    return {
        "run": "train",
        "peer": f"transformers {transformers.__version__}, {'torch.compile' if mode == 'compile' else 'eager'}"
        + (", DDP" if options.gpus > 1 else ""),
        "model": options.model, "gpus": options.gpus, "layers": config.num_hidden_layers, "batch": options.batch, "sequence": options.seq,
        "shortest": options.packed or 1.0, "accumulate": options.accumulate, "mode": mode,
        "checkpointing": options.checkpointing, "tokens_per_s": round(sum(lengths) / step),
        "step_ms": round(step * 1e3, 2), "tflops": round(tflops, 2), "mfu_989": round(tflops / 989, 4),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2), "last_loss": round(loss.item(), 4),
    }  # fmt: skip


def fastest_train(options):
    """The faster of the modes asked for; one that fails is told of and passed over."""
    best = None
    for mode in options.mode.split(","):
        try:
            run = train(options, mode)
        except Exception as error:  # torch.compile and the allocator have no base of errors in common
            print(f"peers.py: {options.model}, {mode}: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr)
            continue
        finally:
            torch.compiler.reset()
            torch.cuda.empty_cache()
        if best is None or run["tokens_per_s"] > best["tokens_per_s"]:
            best = run
    return best


def collectives(options):
    """All-reduce of bf16 values, as sluice-bench measures it: each call timed by itself."""
    world = torch.distributed.get_world_size()
    for mib in (0.0625, 1, 16, 64, 128, 256, 2048):
        values = torch.randn(int(mib * 2**19), device="cuda").bfloat16()
        torch.distributed.barrier()
        milliseconds = gpu_milliseconds(lambda: torch.distributed.all_reduce(values))
        bus = values.nbytes * 2 * (world - 1) / world / milliseconds / 1e6
        line = {"run": "collectives", "collective": "all_reduce", "gpus": world, "mib": mib,
                "us": round(milliseconds * 1e3, 1), "bus_gb_per_s": round(bus, 1)}  # fmt: skip
        if is_first_rank():
            print(json.dumps({**line, "peer": f"torch {torch.__version__}", **versions()}), flush=True)


def gpu_milliseconds(call, warm_up=5, repeats=20):
    """Median time between two events on the device."""
    for _ in range(warm_up):
        call()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def cross_entropy(options):
    """Linear head and loss as transformers computes them: all logits in bf16, then in fp32; both gradients."""
    def randn(*shape, scale=1.0):
        return torch.randn(*shape, device="cuda").mul_(scale).bfloat16().requires_grad_()

    hidden, weight = randn(options.tokens, options.hidden), randn(options.vocab, options.hidden, scale=0.02)
    labels = torch.randint(0, options.vocab, (options.tokens,), device="cuda")

    def call():
        loss = F.cross_entropy(F.linear(hidden, weight).float(), labels)
        return torch.autograd.grad(loss, (hidden, weight))

    milliseconds = gpu_milliseconds(call)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    gradients = call()
    extra = torch.cuda.max_memory_allocated() - before - sum(g.nbytes for g in gradients)
    return {
        "run": "kernel", "kernel": "cross_entropy_both", "peer": f"torch {torch.__version__}, linear and cross_entropy",
        "tokens": options.tokens, "hidden": options.hidden, "vocab": options.vocab, "ms": round(milliseconds, 4),
        "tflops": round(6 * options.tokens * options.hidden * options.vocab / milliseconds / 1e9, 1),
        "workspace_gib": round(extra / 2**30, 2),
    }  # fmt: skip


def attention(options):
    """Causal attention with grouped key-value heads by torch's FlashAttention-2 kernels, forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch = options.tokens // options.seq

    def randn(heads):
        # As a model makes them: [batch, sequence, heads, head size] in memory.
        x = torch.randn(batch, options.seq, heads, options.head_dim, device="cuda").bfloat16()
        return x.transpose(1, 2).requires_grad_()

    query, key, value = randn(options.heads), randn(options.kv_heads), randn(options.kv_heads)
    out_gradient = torch.randn_like(query)

    def forward():
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    def both():
        return torch.autograd.grad(forward(), (query, key, value), out_gradient)

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with torch.no_grad():
            forward_milliseconds = gpu_milliseconds(forward)
        milliseconds = gpu_milliseconds(both)
    return {
        "run": "kernel", "kernel": f"attention_both_{batch}x{options.seq}",
        "peer": f"torch {torch.__version__}, FlashAttention-2", "ms": round(milliseconds, 4),
        "forward_ms": round(forward_milliseconds, 4),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="training steps of a whole model")
    command.set_defaults(run=fastest_train)
    command.add_argument("--model", choices=SHAPES, required=True)
    command.add_argument("--layers", type=int, default=0, help="in place of the model's own")
    command.add_argument("--batch", type=int, required=True, help="rows of a micro-batch")
    command.add_argument("--seq", type=int, required=True)
    command.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    command.add_argument("--packed", type=float, default=0, metavar="F",
                         help="rows from F times --seq to --seq long, padded; only real tokens are counted")
    command.add_argument("--mode", default="compile", help="compile, eager, or both: compile,eager gives the faster")
    command.add_argument("--checkpointing", action="store_true", help="recompute each layer in the backward")
    command.add_argument("--steps", type=int, default=10, help="the second half is timed")
    command.add_argument("--gpus", type=int, default=1, help="of this host, a process each")
    command = commands.add_parser("collectives", help="all-reduce between GPUs")
    command.set_defaults(run=collectives)
    command.add_argument("--gpus", type=int, default=2)
    command = commands.add_parser("cross_entropy", help="language-model head with its loss")
    command.set_defaults(run=cross_entropy)
    for name, value in (("tokens", 16384), ("hidden", 896), ("vocab", 151936)):
        command.add_argument("--" + name, type=int, default=value)
    command = commands.add_parser("attention", help="causal self-attention")
    command.set_defaults(run=attention)
    for name, value in (("tokens", 16384), ("seq", 1024), ("heads", 14), ("kv-heads", 2), ("head-dim", 64)):
        command.add_argument("--" + name, type=int, default=value)
    command = commands.add_parser("versions", help="of the libraries; needs no GPU")
    command.set_defaults(run=lambda options: {})
    options = parser.parse_args()
    if options.command != "versions" and not torch.cuda.is_available():
        sys.exit("peers.py: torch sees no GPU here; run this on the machine that sluice-bench ran on")
    gpus = getattr(options, "gpus", 1)
    join_ranks(gpus)
    line = options.run(options)
    if gpus > 1:
        torch.distributed.destroy_process_group()
    if options.command == "collectives":
        return
    if line is None:
        sys.exit("peers.py: no mode gave a figure")
    if is_first_rank():
        print(json.dumps({**line, **versions()}), flush=True)


if __name__ == "__main__":
    main()
