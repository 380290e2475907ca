"""Golden values for the losses and advantage estimators, in double precision with PyTorch's autograd.

    python tools/oracle/algorithms.py tests/golden/losses

Written from the papers' formulas (named at each function), sequence by sequence over lists of the counted tokens only,
independently of engine/loss and engine/advantage. Inputs are rounded to four decimals and then to single precision, as
the tests read them; a masked place is null in the files and NaN in the tests.
Development only; needs numpy and torch.
"""
import json
import math
import os
import sys

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
SCALE = 8.0


def single(values):
    """Four decimals, then the nearest single: what a test gets when it reads the number into a float."""
    return [float(np.float32(round(float(v), 4))) for v in values]


def decimals(values):
    return [None if v is None else round(float(v), 4) for v in values]


def aggregate(mode, sequences):
    """sequences: one tensor of per-token losses for each sequence, counted tokens only."""
    sequences = [s for s in sequences if len(s)]
    tokens, count = sum(len(s) for s in sequences), len(sequences)
    total = sum(s.sum() for s in sequences)
    if mode == "token-mean":
        return total / tokens
    if mode == "token-sum":
        return total
    if mode == "seq-mean-token-sum":
        return total / count
    if mode == "seq-mean-token-sum-norm":
        return total / count / SCALE
    return sum(s.mean() for s in sequences) / count


# --- policy losses: each returns the list of per-token losses of the sequences, given the tensors of each sequence ---

def ratio(lp, old):
    return torch.exp(torch.clamp(lp - old, -20, 20))


def ppo(o, lp, old, adv):  # Schulman et al. 2017, equation 7, with separate bounds
    r = ratio(lp, old)
    return torch.maximum(-adv * r, -adv * torch.clamp(r, 1 - o["clip_ratio_low"], 1 + o["clip_ratio_high"]))


def vanilla(o, lp, old, adv, selected):  # with the lower bound of Ye et al. 2019, equation 5
    loss = ppo(o, lp, old, adv)
    return torch.where(adv < 0, torch.minimum(loss, -adv * o["clip_ratio_c"]), loss)


def gspo(o, lp, old, adv, selected):  # Zheng et al. 2025, equation 14 (GSPO-token)
    s = torch.exp(torch.clamp(lp - lp.detach() + (lp - old).mean().detach(), max=10))
    return torch.maximum(-adv * s, -adv * torch.clamp(s, 1 - o["clip_ratio_low"], 1 + o["clip_ratio_high"]))


def cispo(o, lp, old, adv, selected):  # MiniMax 2025, equation 4
    r = torch.clamp(ratio(lp, old), 1 - o["clip_ratio_low"], 1 + o["clip_ratio_high"]).detach()
    return -r * adv * lp


def sapo(o, lp, old, adv, selected):  # Gao et al. 2025, equations 5 and 6
    tau = torch.where(adv > 0, o["tau_pos"], o["tau_neg"])
    return -adv * torch.sigmoid(tau * (ratio(lp, old) - 1)) * 4 / tau


def geo_mean(o, lp, old, adv, selected):  # Zhao et al. 2025, equation 4; the sequence's value at each of its tokens
    sign = torch.sign(adv)
    l = lp - old
    inner = torch.minimum(sign * l, sign * torch.clamp(l, -o["clip_ratio_low"], o["clip_ratio_high"]))
    return (-adv.mean() * torch.exp((sign * inner).mean())).expand(len(lp))


def gpg(o, lp, old, adv, selected):  # Chu et al. 2025, equation 5
    return -adv * lp


def dro(o, lp, old, adv, selected):  # Richemond et al. 2024, equation 6
    return -(adv * lp - 0.5 * o["dro_beta"] * (lp - old) ** 2)


def clip_cov(o, lp, old, adv, selected):  # Cui et al. 2025, equation 12
    return ppo(o, lp, old, adv) * (1 - selected)


def kl_cov(o, lp, old, adv, selected):  # Cui et al. 2025, equation 14
    return -adv * ratio(lp, old) + selected * o["ppo_kl_coef"] * (lp - old).abs()


MODES = {f.__name__: f for f in (vanilla, gspo, cispo, sapo, geo_mean, gpg, dro, clip_cov, kl_cov)}
SEQUENCE_MEAN = ("gspo", "sapo", "geo_mean")


def kl(kind, lp, ref):  # Schulman 2020
    d = lp - ref
    if kind.endswith("+"):
        value, k2 = kl(kind[:-1], lp, ref), 0.5 * d * d
        return value.detach() + k2 - k2.detach()
    if kind in ("kl", "k1"):
        return d
    if kind == "abs":
        return d.abs()
    if kind in ("mse", "k2"):
        return 0.5 * d * d
    x = torch.clamp(-d, -20, 20)
    return torch.clamp(torch.exp(x) - x - 1, -10, 10)


OPTIONS = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0, "tau_pos": 1.0, "tau_neg": 1.05,
           "dro_beta": 0.3, "ppo_kl_coef": 1.0, "entropy_coeff": 0.0, "use_kl_loss": False, "kl_loss_coef": 0.0,
           "kl_loss_type": "low_var_kl", "aggregation": "token-mean"}


def random_batch(rng, lengths, spread, extreme):
    tokens = sum(lengths)
    mask = [int(rng.random() < 0.8) for _ in range(tokens)]
    begin = sum(lengths[:-2])
    mask[begin:begin + lengths[-2]] = [0] * lengths[-2]  # a sequence without a counted token
    old = single(-rng.exponential(1.5, tokens))
    change = rng.normal(0, spread, tokens)
    if extreme:
        change[[1, 4, 7]] = (25, -25, 21)
    batch = {"lengths": lengths, "mask": mask, "old_log_prob": old, "log_prob": single(np.array(old) + change),
             "advantage": single(rng.normal(0, 1, tokens)), "entropy": single(rng.exponential(1, tokens)),
             "ref_log_prob": single(np.array(old) + rng.normal(0, 0.7, tokens)),
             "importance_weight": single(rng.uniform(0.2, 2, tokens)),
             "selected": [int(rng.random() < 0.3) for _ in range(tokens)]}
    batch["advantage"][2] = 0.0
    return batch


def rows(batch):
    """Index lists of the counted tokens of each sequence."""
    result, begin = [], 0
    for length in batch["lengths"]:
        result.append([t for t in range(begin, begin + length) if batch["mask"][t]])
        begin += length
    return result


def policy_case(batch, mode, weighted=False, **changes):
    o = {**OPTIONS, **changes}
    index = [r for r in rows(batch) if r]
    lp, ent = (torch.tensor(batch[k]).requires_grad_() for k in ("log_prob", "entropy"))
    old, adv, ref, w, sel = (torch.tensor(batch[k], dtype=torch.float64) for k in
                             ("old_log_prob", "advantage", "ref_log_prob", "importance_weight", "selected"))
    losses = []
    for r in index:
        loss = MODES[mode](o, lp[r], old[r], adv[r], sel[r])
        if weighted:
            loss = loss * (torch.exp(torch.log(w[r]).mean()) if mode == "geo_mean" else w[r])
        losses.append(loss)
    pg = aggregate("seq-mean-token-mean" if mode in SEQUENCE_MEAN else o["aggregation"], losses)
    entropy = aggregate(o["aggregation"], [ent[r] for r in index])
    kl_loss = aggregate(o["aggregation"], [kl(o["kl_loss_type"], lp[r], ref[r]) for r in index])
    loss = pg - o["entropy_coeff"] * entropy
    if o["use_kl_loss"]:
        loss = loss + o["kl_loss_coef"] * kl_loss
    loss.backward()
    counted = sum(index, [])
    expected = {"loss": loss.item(), "pg_loss": pg.item(), "entropy_loss": entropy.item(),
                "kl_loss": kl_loss.item() if o["use_kl_loss"] else 0.0,
                "ppo_kl": -torch.clamp(lp - old, -20, 20)[counted].mean().item(),
                "d_log_prob": lp.grad.tolist(),
                "d_entropy": ent.grad.tolist() if ent.grad is not None else [0.0] * len(lp)}
    return {"mode": mode, "weighted": weighted, "options": o, "expected": expected}


def policy_losses():
    rng = np.random.default_rng(11)
    lengths = [7, 1, 5, 12, 4, 3]
    batches, cases = [], []
    for spread, extreme in ((0.4, False), (0.05, False), (0.8, True)):
        batch = random_batch(rng, lengths, spread, extreme)
        for mode in MODES:
            cases.append({"batch": len(batches), **policy_case(batch, mode)})
        if spread == 0.4:
            for mode in MODES:
                cases.append({"batch": len(batches), **policy_case(batch, mode, weighted=True)})
            for mode in AGGREGATIONS:
                cases.append({"batch": len(batches), **policy_case(
                    batch, "vanilla", aggregation=mode, entropy_coeff=0.01, use_kl_loss=True, kl_loss_coef=0.05)})
            for kind in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "kl+", "k1+", "abs+", "mse+", "k2+",
                         "low_var_kl+", "k3+"):
                cases.append({"batch": len(batches), **policy_case(
                    batch, "gspo", kl_loss_type=kind, use_kl_loss=True, kl_loss_coef=0.1)})
        for key in ("old_log_prob", "log_prob", "advantage", "entropy", "ref_log_prob", "importance_weight"):
            batch[key] = decimals(v if m else None for v, m in zip(batch[key], batch["mask"]))
        batches.append(batch)
    return {"batches": batches, "cases": cases}


def kl_values():
    differences = [0.0, 1e-4, -1e-4, 0.5, -0.5, 2.25, -2.25, -3.5, 12.0, -12.0, 25.0, -25.0]
    cases = []
    for kind in ("k1", "abs", "k2", "k3", "k1+", "abs+", "k2+", "k3+"):
        lp = torch.tensor([-1.5 + 0 * d for d in differences]).requires_grad_()
        ref = torch.tensor([-1.5 - d for d in differences])
        value = kl(kind, lp, ref)
        value.sum().backward()
        cases.append({"type": kind, "ref_log_prob": ref.tolist(), "value": value.tolist(), "d_log_prob": lp.grad.tolist()})
    return {"log_prob": -1.5, "cases": cases}


def value_losses():  # Schulman et al. 2017, section 5, with the clipped values of its implementation
    rng = np.random.default_rng(12)
    lengths = [6, 9, 3, 2]
    tokens = sum(lengths)
    mask = [int(rng.random() < 0.8) for _ in range(tokens)]
    mask[15:18] = [0, 0, 0]
    old, target = single(rng.normal(0, 1, tokens)), single(rng.normal(0, 1, tokens))
    value = single(np.array(old) + rng.normal(0, 0.7, tokens))
    batch, cases = {"lengths": lengths, "mask": mask}, []
    index = [r for r in rows(batch) if r]
    for mode in AGGREGATIONS:
        v = torch.tensor(value).requires_grad_()
        o, r = torch.tensor(old), torch.tensor(target)
        bounded = o + torch.clamp(v - o, -0.5, 0.5)
        per_token = 0.5 * torch.maximum((v - r) ** 2, (bounded - r) ** 2)
        loss = aggregate(mode, [per_token[i] for i in index])
        loss.backward()
        cases.append({"aggregation": mode, "loss": loss.item(), "d_value": v.grad.tolist()})
    for key, array in (("value", value), ("old_value", old), ("returns", target)):
        batch[key] = decimals(x if m else None for x, m in zip(array, mask))
    return {"batch": batch, "cases": cases}


# --- advantages: a batch is a list of samples {group, rewards per counted token, values, score, baseline} ---

def whiten(arrays):
    x = np.concatenate(arrays)
    mean, var = x.mean(), x.var(ddof=1)
    return [(a - mean) / math.sqrt(var + 1e-8) for a in arrays]


def by_group(samples, f):
    """f(rewards, lengths) -> advantages of one group."""
    out = [None] * len(samples)
    for g in sorted({s["group"] for s in samples}):
        members = [i for i, s in enumerate(samples) if s["group"] == g]
        r = np.array([samples[i]["R"] for i in members])
        n = np.array([len(samples[i]["r"]) for i in members], dtype=float)
        a = np.zeros(1) if len(members) == 1 else f(r, n)
        for i, x in zip(members, a):
            out[i] = np.full(len(samples[i]["r"]), x)
    return out


def grpo_group(std):
    def f(r, n):
        return (r - r.mean()) / (r.std(ddof=1) + 1e-6 if std else 1)
    return f


def gae(s, gamma, lam):  # Schulman et al. 2015, equation 16: the sum written out
    r, v = np.array(s["r"]), np.append(s["v"], 0.0)
    delta = r + gamma * v[1:] - v[:-1]
    a = np.array([sum((gamma * lam) ** k * delta[t + k] for k in range(len(r) - t)) for t in range(len(r))])
    return a, a + v[:-1]


def to_go(s, gamma):
    r = s["r"]
    return np.array([sum(gamma ** k * r[t + k] for k in range(len(r) - t)) for t in range(len(r))])


def passk(std):  # Tang et al. 2025
    def f(r, n):
        out, order = np.zeros(len(r)), np.sort(r)
        out[int(np.argmax(r))] = (order[-1] - order[-2]) / (r.std(ddof=1) + 1e-6 if std else 1)
        return out
    return f


def gpg_all(samples):  # Chu et al. 2025, equation 7
    flat = 0
    for g in {s["group"] for s in samples}:
        r = [s["R"] for s in samples if s["group"] == g]
        flat += len(r) if min(r) == max(r) else 0
    alpha = len(samples) / (len(samples) - flat)
    return [alpha * a for a in by_group(samples, lambda r, n: r - r.mean())]


def gdpo_all(samples, weights):  # Liu et al. 2026: each reward normalised in its group, then the sum over the batch
    total = None
    for k, w in enumerate(weights):
        part = by_group([{**s, "R": s["components"][k]} for s in samples], grpo_group(True))
        total = [w * p for p in part] if total is None else [t + w * p for t, p in zip(total, part)]
    return whiten(total)


def advantages():
    rng = np.random.default_rng(13)
    lengths = [5, 3, 8, 1, 4, 6, 2, 7, 3, 5, 4]
    groups = [0, 0, 0, 0, 3, 3, 3, 3, 7, 9, 9]  # one group of one; the last group has equal rewards
    failed = [2, 6]
    tokens = sum(lengths)
    mask = [int(rng.random() < 0.75) for _ in range(tokens)]
    token_rewards, values = single(rng.normal(0, 0.1, tokens)), single(rng.normal(0, 1, tokens))
    scores = decimals(rng.normal(0.5, 1, len(lengths)))
    baselines = decimals(rng.normal(0, 1, len(lengths)))
    components = [decimals(rng.normal(0, 1, 2)) for _ in lengths]
    weights = [0.7, 1.3]
    batch = {"lengths": lengths, "mask": mask}
    index = rows(batch)
    assert all(index)
    for t in sum(index[9:], []):
        token_rewards[t] = 0.0
    scores[10] = scores[9]
    samples = [{"group": groups[i], "v": [values[t] for t in index[i]], "baseline": baselines[i],
                "components": components[i], "r": [token_rewards[t] for t in index[i]]} for i in range(len(lengths))]
    for s, score in zip(samples, scores):
        s["r"][-1] += score
        s["R"] = score + sum(s["r"]) - score
    kept = [i for i in range(len(lengths)) if i not in failed]
    live = [samples[i] for i in kept]
    live_rewards = [s["R"] for s in live]
    assert live_rewards[-1] == live_rewards[-2]
    cases = []

    def case(name, values, returns=None, **options):
        cases.append({"estimator": name, "options": options,
                      "advantage": [list(map(float, a)) for a in values],
                      "returns": None if returns is None else [list(map(float, a)) for a in returns]})

    for gamma, lam in ((1.0, 1.0), (0.97, 0.9)):
        pairs = [gae(s, gamma, lam) for s in live]
        case("gae", whiten([p[0] for p in pairs]), [p[1] for p in pairs], gamma=gamma, lam=lam)
        case("reinforce_plus_plus", whiten([to_go(s, gamma) for s in live]), [to_go(s, gamma) for s in live],
             gamma=gamma)
    for std in (True, False):
        case("grpo", by_group(live, grpo_group(std)), norm_adv_by_std_in_grpo=std)
        case("grpo_passk", by_group(live, passk(std)), norm_adv_by_std_in_grpo=std)
    case("reinforce_plus_plus_baseline", whiten(by_group(live, lambda r, n: r - r.mean())))
    # Ahmadian et al. 2024, equation 8: the mean of the others
    case("rloo", by_group(live, lambda r, n: np.array([r[i] - np.delete(r, i).mean() for i in range(len(r))])))
    case("opo", by_group(live, lambda r, n: r - (n * r).sum() / n.sum()))  # Hao et al. 2025, equation 9
    case("remax", [to_go(s, 1.0) - s["baseline"] for s in live], [to_go(s, 1.0) for s in live])  # Li et al. 2023, (6)
    case("gpg", gpg_all(live))
    case("gdpo", gdpo_all(live, weights), component_weight=weights)
    masked = lambda array: decimals(v if m else None for v, m in zip(array, mask))
    return {"batch": {**batch, "group": groups, "score": [None if i in failed else s for i, s in enumerate(scores)],
                      "baseline": baselines, "components": components, "token_rewards": masked(token_rewards),
                      "values": masked(values)},
            "kept": kept, "cases": cases}


# --- preferences: c, r, C, R are sums over the counted tokens ---

def logsigmoid(x):
    return torch.nn.functional.logsigmoid(x)


def dpo(o, c, r, C, R, n, m):  # Rafailov et al. 2023, equation 7, smoothed as in Mitchell 2023
    d = o["beta"] * ((c - C) - (r - R))
    return -(1 - o["label_smoothing"]) * logsigmoid(d) - o["label_smoothing"] * logsigmoid(-d)


def hinge(o, c, r, C, R, n, m):  # Zhao et al. 2023, equation 2
    return torch.relu(1 - o["beta"] * ((c - C) - (r - R)))


def ipo(o, c, r, C, R, n, m):  # Azar et al. 2023, equation 17, with per-token log-ratios
    return ((c - C) / n - (r - R) / m - 1 / (2 * o["beta"])) ** 2


def simpo(o, c, r, C, R, n, m):  # Meng et al. 2024, equation 6
    d = o["beta"] / n * c - o["beta"] / m * r - o["simpo_gamma"]
    return -(1 - o["label_smoothing"]) * logsigmoid(d) - o["label_smoothing"] * logsigmoid(-d)


def orpo(o, c, r, C, R, n, m):  # Hong et al. 2024, equation 7
    odds = lambda a: torch.exp(a) / (1 - torch.exp(a))
    return -o["beta"] * logsigmoid(torch.log(odds(c / n) / odds(r / m)))


PREFERENCES = {f.__name__: f for f in (dpo, hinge, ipo, simpo, orpo)}
PAIRS = [[0, 1], [2, 3], [5, 4], [6, 7], [8, 9]]  # the fourth has a rejected response without a counted token


def preference_batch():
    rng = np.random.default_rng(14)
    lengths = [5, 3, 8, 6, 2, 7, 4, 3, 6, 5]
    tokens = sum(lengths)
    mask = [int(rng.random() < 0.8) for _ in range(tokens)]
    begin = sum(lengths[:7])
    mask[begin:begin + 3] = [0, 0, 0]
    lp = single(-rng.exponential(1.2, tokens))
    ref = single(np.array(lp) + rng.normal(0, 0.6, tokens))
    return {"lengths": lengths, "mask": mask, "log_prob": lp, "ref_log_prob": ref}


def hide(batch):
    return {**batch, **{k: decimals(v if m else None for v, m in zip(batch[k], batch["mask"]))
                        for k in ("log_prob", "ref_log_prob")}}


def preferences():
    batch = preference_batch()
    index, cases = rows(batch), []
    ref = torch.tensor(batch["ref_log_prob"])

    def case(name, **options):
        o = {"beta": 0.1, "label_smoothing": 0.0, "simpo_gamma": 0.5, **options}
        lp = torch.tensor(batch["log_prob"]).requires_grad_()
        pairs = [(index[c], index[r]) for c, r in PAIRS if index[c] and index[r]]
        terms = [PREFERENCES[name](o, lp[c].sum(), lp[r].sum(), ref[c].sum(), ref[r].sum(), len(c), len(r))
                 for c, r in pairs]
        loss = sum(terms) / len(terms)
        if name == "orpo":
            loss = loss - lp[sum((c for c, _ in pairs), [])].mean()
        loss.backward()
        cases.append({"type": name, "options": o, "loss": loss.item(), "d_log_prob": lp.grad.tolist()})

    case("dpo")
    case("dpo", beta=0.5, label_smoothing=0.1)
    case("hinge", beta=0.3)
    case("ipo", beta=0.2)
    case("simpo", beta=2.0, simpo_gamma=1.0)
    case("simpo", beta=2.0, simpo_gamma=1.0, label_smoothing=0.05)
    case("orpo", beta=0.25)
    return {"batch": hide(batch), "pairs": PAIRS, "cases": cases}


def kto():
    batch = preference_batch()
    desirable = [1, 0, 0, 1, 1, 0, 1, 1, 0, 0]
    index, cases = rows(batch), []
    ref = torch.tensor(batch["ref_log_prob"])

    def case(z_desirable, z_undesirable, **options):  # Ethayarajh et al. 2024, equation 8
        o = {"beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0, **options}
        lp = torch.tensor(batch["log_prob"]).requires_grad_()
        terms = []
        for r, good in zip(index, desirable):
            if not r:
                continue
            log_ratio = lp[r].sum() - ref[r].sum()
            value = torch.sigmoid(o["beta"] * (log_ratio - z_desirable if good else z_undesirable - log_ratio))
            terms.append((o["desirable_weight"] if good else o["undesirable_weight"]) * (1 - value))
        loss = sum(terms) / len(terms)
        loss.backward()
        cases.append({"options": o, "z_desirable": z_desirable, "z_undesirable": z_undesirable, "loss": loss.item(),
                      "d_log_prob": lp.grad.tolist()})

    case(0.0, 0.0)
    case(0.3, 0.3, beta=0.4, desirable_weight=1.5, undesirable_weight=0.75)
    lp = torch.tensor(batch["log_prob"])
    means = [np.mean([(lp[r].sum() - ref[r].sum()).item() for r, d in zip(index, desirable) if r and d == good])
             for good in (1, 0)]
    case(max(0.0, means[1]), max(0.0, means[0]), beta=0.2)
    everything = np.mean([(lp[r].sum() - ref[r].sum()).item() for r in index if r])
    return {"batch": hide(batch), "desirable": desirable, "cases": cases, "mean_of_desirable": means[0],
            "mean_of_undesirable": means[1], "mean": everything}


def reward_model():
    rng = np.random.default_rng(15)
    reward, margin = single(rng.normal(0, 2, 8)), single(rng.uniform(0, 1, 4))
    pairs, cases = [[0, 1], [3, 2], [4, 5], [7, 6]], []
    for with_margin in (False, True):
        for centre in (0.0, 0.05):
            x = torch.tensor(reward).requires_grad_()
            terms = [-logsigmoid(x[c] - x[r] - (margin[i] if with_margin else 0)) + centre * (x[c] + x[r]) ** 2
                     for i, (c, r) in enumerate(pairs)]
            loss = sum(terms) / len(terms)
            loss.backward()
            cases.append({"with_margin": with_margin, "center_rewards_coefficient": centre, "loss": loss.item(),
                          "d_reward": x.grad.tolist()})
    return {"reward": decimals(reward), "margin": decimals(margin), "pairs": pairs, "cases": cases}


def distillation():
    rng = np.random.default_rng(16)
    lengths, vocabulary = [3, 4, 2, 5], 7
    tokens = sum(lengths)
    mask = [int(rng.random() < 0.75) for _ in range(tokens)]
    mask[7:9] = [0, 0]
    batch = {"lengths": lengths, "mask": mask}
    logits = single(rng.normal(0, 1.5, tokens * vocabulary))
    teacher = torch.log_softmax(torch.tensor(rng.normal(0, 1.5, (tokens, vocabulary))), -1)
    index, cases = [r for r in rows(batch) if r], []
    for listed in (1, 3, vocabulary):
        ids = teacher.topk(listed).indices
        log_p = torch.tensor(np.float32(teacher.gather(1, ids).numpy()).astype(float))
        for kind, rest in (("forward_kl", True), ("forward_kl", False), ("reverse_kl", True)):
            for mode in ("token-mean", "seq-mean-token-mean"):
                z = torch.tensor(logits).reshape(tokens, vocabulary).requires_grad_()
                log_q = torch.log_softmax(z, -1).gather(1, ids)
                p, q = log_p.exp(), log_q.exp()
                value = (p * (log_p - log_q) if kind == "forward_kl" else q * (log_q - log_p)).sum(-1)
                if rest and listed < vocabulary:
                    p0, q0 = 1 - p.sum(-1), 1 - q.sum(-1)
                    value = value + (p0 * (p0 / q0).log() if kind == "forward_kl" else q0 * (q0 / p0).log())
                loss = aggregate(mode, [value[r] for r in index])
                loss.backward()
                cases.append({"type": kind, "rest": rest, "aggregation": mode, "listed": listed, "loss": loss.item(),
                              "d_logits": z.grad.flatten().tolist() if mode == "seq-mean-token-mean" else None})
    order = teacher.topk(vocabulary)  # its first K columns are the list of K
    return {"batch": batch, "vocabulary": vocabulary, "logits": decimals(logits), "ids": order.indices.tolist(),
            "teacher_log_prob": np.float32(order.values.numpy()).astype(float).tolist(), "cases": cases}


def rollout_correction():
    rng = np.random.default_rng(17)
    lengths = [4, 6, 2, 5, 3]
    tokens = sum(lengths)
    mask = [int(rng.random() < 0.8) for _ in range(tokens)]
    mask[10:12] = [0, 0]
    old = single(-rng.exponential(1.0, tokens))
    rollout = single(np.array(old) + rng.normal(0, 0.5, tokens))
    rollout[0] = single([old[0] + 30])[0]
    mask[0] = 1
    batch = {"lengths": lengths, "mask": mask}
    index, cases = rows(batch), []
    l = np.array(old) - np.array(rollout)
    weights = []
    for kind in ("token", "sequence"):
        raw = np.zeros(tokens)
        for r in index:
            raw[r] = np.exp(np.clip(l[r] if kind == "token" else l[r].sum(), -20, 20)) if r else 0
        for threshold, low, high in (("1.4", None, 1.4), ("0.5_1.5", 0.5, 1.5)):
            w = np.minimum(raw, high) if low is None else np.where((raw >= low) & (raw <= high), raw, 0)
            for normalise in (False, True):
                mean = (w[sum(index, [])].mean() if kind == "token" else np.mean([w[r].mean() for r in index if r]))
                weights.append({"rollout_is": kind, "threshold": threshold, "normalise": normalise,
                                "weight": (w / mean if normalise else w).tolist()})
    safe = np.clip(l, -20, 20)
    stats = {"k1": -safe, "k2": safe ** 2 / 2, "k3": np.exp(safe) - 1 - safe}
    for name, threshold in (("token_k1", "0.7_1.6"), ("token_k1", "1.5"), ("token_k2", "0.1"), ("token_k3", "0.08"),
                            ("seq_sum_k1", "0.5_2"), ("seq_sum_k2", "0.6"), ("seq_sum_k3", "0.6"),
                            ("seq_mean_k1", "0.9_1.2"), ("seq_mean_k2", "0.12"), ("seq_mean_k3", "0.12"),
                            ("seq_max_k2", "0.3"), ("seq_max_k3", "0.3")):
        stat, kept = stats[name[-2:]], np.zeros(tokens, int)
        if name.endswith("k1"):
            low, high = threshold.split("_") if "_" in threshold else (1 / float(threshold), threshold)
            inside = lambda x: np.log(float(low)) <= x <= np.log(float(high))
        else:
            inside = lambda x: x <= float(threshold)
        for r in index:
            if not r:
                continue
            if name.startswith("token"):
                kept[r] = [int(inside(x)) for x in stat[r]]
            else:
                value = {"sum": stat[r].sum(), "mean": stat[r].mean(), "max": stat[r].max()}[name[4:-3]]
                kept[r] = int(inside(value))
        cases.append({"rollout_rs": name, "threshold": threshold, "mask": kept.tolist()})
    hide = lambda array: decimals(v if m else None for v, m in zip(array, mask))
    counted = sum(index, [])
    return {"batch": {**batch, "old_log_prob": hide(old), "rollout_log_prob": hide(rollout)}, "weights": weights,
            "rejections": cases, "kl": float(stats["k1"][counted].mean()), "k3_kl": float(stats["k3"][counted].mean()),
            "probs_diff": float(np.abs(np.exp(old) - np.exp(rollout))[counted].mean())}


def covariance():  # Cui et al. 2025, equation 10
    rng = np.random.default_rng(18)
    n = 60
    lp = single(-rng.exponential(1, n))
    old = single(np.array(lp) + rng.normal(0, 0.3, n))
    adv = single(rng.normal(0, 1.5, n))
    cov = (np.array(adv) - np.mean(adv)) * (np.array(lp) - np.mean(lp))
    r = np.exp(np.array(lp) - np.array(old))
    a = np.array(adv)
    clipped = -a * np.clip(r, 0.8, 1.2) > -a * r
    eligible = (cov > 0.2) & (cov < 2.0) & ~clipped
    top = np.zeros(n, int)
    top[np.argsort(-cov)[:6]] = 1
    return {"log_prob": decimals(lp), "old_log_prob": decimals(old), "advantage": decimals(adv),
            "lower": 0.2, "upper": 2.0, "eligible": eligible.astype(int).tolist(), "kl_cov_ratio": 0.1,
            "kl_cov": top.tolist()}


GOLDENS = {"policy_losses": policy_losses, "kl_values": kl_values, "value_losses": value_losses,
           "advantages": advantages, "preferences": preferences, "kto": kto, "reward_model": reward_model,
           "distillation": distillation, "rollout_correction": rollout_correction, "covariance": covariance}


def main():
    for name, make in GOLDENS.items():
        with open(os.path.join(sys.argv[1], name + ".json"), "w") as f:
            json.dump(make(), f, separators=(",", ":"))
            f.write("\n")


main()
