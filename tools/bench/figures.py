"""What is measured: one entry a piece of work, with our command, the peer's, and the figures taken from their output.

compare.py runs the commands, make_table.py orders and names the rows by this table. A figure's name in
docs/bench/h200.jsonl is `<work>/<figure>`.
"""

from dataclasses import dataclass
from typing import Callable, Optional

Lines = list  # of JSON objects: what a command printed
Getter = Callable[[Lines], Optional[float]]


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    unit: str
    ours: Getter
    peer: Optional[Getter] = None
    goal: Optional[float] = None
    higher_is_better: bool = True


@dataclass(frozen=True)
class Work:
    name: str
    title: str
    ours: str  # arguments of `program`
    figures: tuple
    peers: tuple = ()  # arguments of peers.py, a run each
    ours_timeout_s: int = 180
    peer_timeout_s: int = 300
    gpus: int = 1  # of this host, that it needs
    program: str = "sluice-bench"  # or a script of this folder, *.py

    @property
    def command(self):
        return f"{self.program} {self.ours}"


def field(key, **where):
    """The value under `key` of the first line whose fields are as in `where`."""

    def get(lines):
        return next((line.get(key) for line in lines if all(line.get(k) == v for k, v in where.items())), None)

    return get


def summed(*getters):
    def get(lines):
        values = [getter(lines) for getter in getters]
        return None if None in values else round(sum(values), 4)

    return get


def training(name, title, ours, peer=None, speed_goal=None, memory_goal=None, fill_goal=None, gpus=1):
    """`peer`: arguments of `peers.py train`, where there is one. Of several GPUs tokens/s are those of each."""
    if gpus > 1:
        ours, peer = f"{ours} --gpus {gpus}", peer and f"{peer} --gpus {gpus}"
    figures = [
        Figure("tokens_per_s", "tokens/s", "tok/s", field("tokens_per_s"), field("tokens_per_s"), speed_goal),
        Figure("peak_gib", "peak memory", "GiB", field("peak_gib"), field("peak_gib"), memory_goal, False),
        Figure("mfu_989", "model FLOPs of 989 TFLOP/s", "", field("mfu_989"), field("mfu_989")),
        Figure("mfu_ceiling", "model FLOPs of the 8192³ product", "", field("mfu_ceiling")),
    ]
    if fill_goal:
        figures.append(Figure("fill", "token slots filled", "", field("fill"), goal=fill_goal))
    return Work(name, title, "train " + ours, tuple(figures), ("train " + peer,) if peer else (), gpus=gpus)


# At the sizes of a small and a large model: the kernel's bytes a second as a part of a copy's in the same run.
KERNEL_MODELS = {"qwen2.5-0.5b": "T16384 H896", "llama3-8b": "T8192 H4096"}


def memory_bound(family, title, kernels):
    figures = tuple(
        figure
        for kernel, name in kernels.items()
        for model, sizes in KERNEL_MODELS.items()
        for figure in (
            Figure(f"{kernel}_{model}", f"{name}, {sizes}", "of copy",
                   field("of_copy", kernel=f"{family}_{kernel}", model=model), goal=0.85),
            # A copy of 100 MB is slower than one of 1 GiB, as a kernel is.
            Figure(f"{kernel}_{model}_of_this_size", f"{name}, {sizes}, against a copy of as many bytes", "of copy",
                   field("of_copy_of_this_size", kernel=f"{family}_{kernel}", model=model)),
        )
    )  # fmt: skip
    return Work(family, title, f"kernels --filter {family}", figures)


def attention_figure(shape, title, goal):
    forward = field("ms", kernel=f"attention_forward_{shape}")
    return (
        Figure(f"ms_{shape}", f"{title}, forward + backward", "ms",
               summed(forward, field("ms", kernel=f"attention_backward_{shape}")),
               field("ms", kernel=f"attention_both_{shape}"), goal, False),
        Figure(f"deterministic_ms_{shape}", f"{title}, deterministic", "ms",
               summed(forward, field("ms", kernel=f"attention_backward_deterministic_{shape}")), higher_is_better=False),
    )  # fmt: skip


BOTH_DIRECTIONS = {"forward": "forward", "backward": "backward"}

def transitions(model, title, switch_goal, sync_goal):
    """What lies between training and generation, on one GPU and on two."""
    return (
        Work(f"switch-{model}", f"{title}: from training to generation and back, on one GPU", f"--only switch --model {model}",
             (Figure("switch_ms", "memory taken and given back", "ms", field("switch_ms"), None, switch_goal, False),),
             program="transitions.py"),
        Work(f"weight_sync-{model}", f"{title}: weights from the GPU that trains to the one that generates",
             f"--only sync --model {model}",
             (Figure("ms", "time", "ms", field("weight_sync_ms"), None, sync_goal, False),
              Figure("gb_per_s", "rate", "GB/s", field("gb_per_s"))), gpus=2, program="transitions.py"),
    )  # fmt: skip


def generation(name, title, ours):
    figures = (Figure("tokens_per_s", "tokens/s", "tok/s", field("tokens_per_s")),
               Figure("median_pass_ms", "a pass", "ms", field("median_pass_ms"), higher_is_better=False))  # fmt: skip
    return Work(f"generate-{name}", title, "generate " + ours, figures)


def slow_reward(model, title):
    """A reward that takes as long as the GPUs' work, in each mode."""
    figures = []
    for mode in ("sync", "one_step_off", "async"):
        figures += [
            Figure(f"{mode}/step_s", f"mode `{mode}`: a step", "s", field("step_s", mode=mode), higher_is_better=False),
            Figure(f"{mode}/train_busy", f"mode `{mode}`: the GPU that trains has a stage", "of the time", field("train_busy", mode=mode)),
            Figure(f"{mode}/generate_and_update", f"mode `{mode}`: a generation and an update run at once", "of the time",
                   field("generate_and_update", mode=mode)),
        ]  # fmt: skip
    return Work(f"slow_reward-{model}", f"{title}: a GPU trains, one answers, the reward sleeps 0.3 s a step",
                f"--only async --model {model} --reward-seconds 0.3", tuple(figures), gpus=2, program="transitions.py")  # fmt: skip


# Steps are few where one is long: the timed half still lasts seconds, and the power cap binds within the first second.
# Both sides do the same work; where a model with fp32 moments would not fit, ours are bf16 as the peer's always are.
WORKS = (
    Work("ceiling", "What the GPU gives", "kernels --filter no-kernel-only-the-ceilings", (
        Figure("copy_gb_per_s", "copy of 1 GiB, read + write", "GB/s", field("copy_gb_per_s", run="ceiling")),
        Figure("gemm_tflops", "8192³ product, bf16", "TFLOP/s", field("gemm_tflops", run="ceiling")),
    )),
    training("train-0.5b-16x1024", "Qwen2.5-0.5B, 16×1024, bf16 moments",
             "--model qwen2.5-0.5b --tokens 16384 --seq 1024 --steps 40 --moments bf16",
             "--model qwen2.5-0.5b --batch 16 --seq 1024 --steps 20", 165000, 18),
    training("train-0.5b-16x1024-fp32-moments", "Qwen2.5-0.5B, 16×1024, fp32 moments",
             "--model qwen2.5-0.5b --tokens 16384 --seq 1024 --steps 40"),
    training("train-0.5b-16x1024-bf16", "Qwen2.5-0.5B, 16×1024, bf16 weights alone, bf16 moments",
             "--model qwen2.5-0.5b --tokens 16384 --seq 1024 --steps 40 --no-master-weights --moments bf16"),
    training("train-0.5b-16x1024-kept", "Qwen2.5-0.5B, 16×1024, bf16 moments, nothing recomputed",
             "--model qwen2.5-0.5b --tokens 16384 --seq 1024 --steps 40 --moments bf16 --recompute none"),
    training("train-0.5b-32x1024x16", "Qwen2.5-0.5B, 32×1024, 16 micro-batches, bf16 moments",
             "--model qwen2.5-0.5b --tokens 32768 --seq 1024 --accumulate 16 --moments bf16 --steps 6",
             "--model qwen2.5-0.5b --batch 32 --seq 1024 --accumulate 16 --steps 4", 170000),
    training("train-1.5b-32x1024", "Qwen2.5-1.5B, 32×1024, 4 micro-batches, bf16 moments",
             "--model qwen2.5-1.5b --tokens 32768 --seq 1024 --accumulate 4 --moments bf16 --steps 6",
             "--model qwen2.5-1.5b --batch 32 --seq 1024 --steps 8", 62500),
    training("train-7b-8x1024x8", "Qwen2.5-7B, 8×1024, 8 micro-batches, bf16 moments",
             "--model qwen2.5-7b --tokens 8192 --seq 1024 --accumulate 8 --moments bf16 --steps 6",
             "--model qwen2.5-7b --batch 8 --seq 1024 --accumulate 8 --steps 4", 14400),
    training("train-8b-2x4096", "Llama-3-8B, 2×4096, bf16 moments",
             "--model llama3-8b --tokens 8192 --seq 4096 --moments bf16 --steps 20",
             "--model llama3-8b --batch 2 --seq 4096 --steps 10", 12400),
    training("train-1.5b-32x1024-kept", "Qwen2.5-1.5B, the same, nothing recomputed",
             "--model qwen2.5-1.5b --tokens 32768 --seq 1024 --accumulate 4 --moments bf16 --steps 6 --recompute none",
             speed_goal=62500),
    training("train-7b-8x1024x8-kept", "Qwen2.5-7B, the same, nothing recomputed",
             "--model qwen2.5-7b --tokens 8192 --seq 1024 --accumulate 8 --moments bf16 --steps 6 --recompute none",
             speed_goal=14400),
    training("train-8b-2x4096-kept", "Llama-3-8B, the same, nothing recomputed",
             "--model llama3-8b --tokens 8192 --seq 4096 --moments bf16 --steps 20 --recompute none", speed_goal=12400),
    training("train-0.5b-packed", "Qwen2.5-0.5B, rows of 10-100 % of 2048, about 258,000 tokens a step",
             "--model qwen2.5-0.5b --tokens 16384 --seq 2048 --shortest 0.1 --accumulate 16 --moments bf16 --steps 8",
             "--model qwen2.5-0.5b --batch 16 --seq 2048 --packed 0.1 --accumulate 14 --steps 4 --mode compile,eager",
             160000, fill_goal=0.98),
    training("train-0.5b-16x1024-2gpus", "Qwen2.5-0.5B, 16×1024 on each of two GPUs, bf16 moments",
             "--model qwen2.5-0.5b --tokens 16384 --seq 1024 --steps 40 --moments bf16",
             "--model qwen2.5-0.5b --batch 16 --seq 1024 --steps 20", gpus=2),
    Work("all_reduce", "Sum over two GPUs, bf16", "collectives --gpus 2", tuple(
        Figure(f"bus_gb_per_s_{mib}mib", f"{mib} MiB, bus", "GB/s",
               field("bus_gb_per_s", collective="all_reduce", mib=mib),
               field("bus_gb_per_s", collective="all_reduce", mib=mib)) for mib in (16, 256, 2048)),
         ("collectives --gpus 2",), gpus=2),
    *transitions("qwen2.5-0.5b", "Qwen2.5-0.5B, bf16", 100, 20),
    *transitions("qwen2.5-7b", "Qwen2.5-7B, bf16", None, 150),
    slow_reward("qwen2.5-0.5b", "Qwen2.5-0.5B, bf16"),
    generation("0.5b-512x512", "Qwen2.5-0.5B, bf16: 16 answers of 512 tokens to each of 32 prompts",
               "--model qwen2.5-0.5b --prompts 32 --answers 16 --prompt 64 --answer 512"),
    generation("0.5b-128x1024", "Qwen2.5-0.5B, bf16: 16 answers of 1,024 tokens to each of 8 prompts",
               "--model qwen2.5-0.5b --prompts 8 --answers 16 --prompt 64 --answer 1024"),
    generation("7b-256x512", "Qwen2.5-7B, bf16: 16 answers of 512 tokens to each of 16 prompts",
               "--model qwen2.5-7b --prompts 16 --answers 16 --prompt 64 --answer 512"),
    Work("paged_attention", "Attention of one token each to keys and values in pages", "kernels --filter paged_attention", tuple(
        Figure(f"{shape}_{size}", f"{sizes}, {tokens}", "ms",
               field("ms", kernel=f"paged_attention_{shape}", model=size), higher_is_better=False)
        for size, sizes in {"qwen2.5-0.5b": "14/2 heads of 64", "llama3-8b": "32/8 heads of 128"}.items()
        for shape, tokens in {"256x1024": "256 sequences of 512-1,024", "512x512": "512 of 256-512", "16x4096": "16 of 2,048-4,096"}.items())),
    Work("cross_entropy", "Head and loss, T16384 H896 V151936, forward + backward", "kernels --filter cross_entropy", (
        Figure("ms", "time", "ms", field("ms", kernel="cross_entropy_both_1000mib", model="qwen2.5-0.5b"),
               field("ms"), 24, False),
        Figure("workspace_gib", "memory besides inputs and gradients", "GiB",
               field("workspace_gib", kernel="cross_entropy_both_1000mib", model="qwen2.5-0.5b"),
               field("workspace_gib"), 1, False),
        Figure("score_ms", "scores alone, no logits stored", "ms",
               field("ms", kernel="cross_entropy_forward", model="qwen2.5-0.5b"), higher_is_better=False),
        Figure("product_ms", "the product of that alone, by cuBLASLt", "ms",
               field("ms", kernel="cross_entropy_product", model="qwen2.5-0.5b"), higher_is_better=False),
    ), ("cross_entropy --tokens 16384 --hidden 896 --vocab 151936",)),
    Work("attention", "Attention, 16,384 tokens", "kernels --filter attention", (
        *attention_figure("4x4096", "D128, 32/8 heads, 4×4096", 4.3),
        *attention_figure("16x1024", "D64, 14/2 heads, 16×1024", 0.5),
    ), ("attention --tokens 16384 --seq 4096 --heads 32 --kv-heads 8 --head-dim 128",
        "attention --tokens 16384 --seq 1024 --heads 14 --kv-heads 2 --head-dim 64")),
    memory_bound("rms_norm", "RMSNorm with residual", BOTH_DIRECTIONS),
    memory_bound("rope", "RoPE and split of QKV", BOTH_DIRECTIONS),
    memory_bound("swiglu", "SwiGLU", BOTH_DIRECTIONS),
    Work("swiglu_projection", "SwiGLU with the product before it, T16384 H896", "kernels --filter swiglu_projection", tuple(
        Figure(name, title, "ms", field("ms", kernel=name, model="qwen2.5-0.5b"), higher_is_better=False)
        for name, title in {"swiglu_projection": "in one kernel", "swiglu_projection_in_two": "cuBLASLt and SwiGLU"}.items())),
    Work("adamw", "AdamW, 2^29 parameters", "kernels --filter adamw", tuple(
        Figure(f"{kernel}_moments_{moments}", f"{title}, {moments} moments", "of copy",
               field("of_copy", kernel=f"adamw_{kernel}_moments_{moments}", model="llama3-8b"), goal=0.85)
        for kernel, title in {"master": "exact masters", "bf16": "bf16 weights alone"}.items()
        for moments in ("fp32", "bf16"))),
)  # fmt: skip


def figures_by_name():
    """{"work/figure": (work, figure)} in the table's order."""
    return {f"{work.name}/{figure.name}": (work, figure) for work in WORKS for figure in work.figures}
