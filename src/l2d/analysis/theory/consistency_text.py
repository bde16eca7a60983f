"""What the surrogate's minimiser decides, as text: for one p and ρ, or for random ones."""

import torch
from torch import Tensor
from tqdm import tqdm

from l2d.analysis.theory.consistency import TIE, Verdict, judge, worst_regret
from l2d.utils.seeding import stream
from l2d.utils.text import aligned


def consistency_text(p: Tensor, rho: Tensor) -> str:
    """p(k|x) [p], positive with sum 1, and ρ [p]."""
    verdict = judge(p[None], rho)
    experts = aligned(
        ["expert", *(str(k + 1) for k in range(len(p)))],
        [
            ["p(k|x)", *_row(p)],
            ["ρ", *_row(rho)],
            ["minimiser f", *_row(verdict.scores[0])],
            ["p/ρ", *_row(p / rho)],
            ["posterior p̂", *_row(verdict.posterior[0])],
        ],
    )
    gradient = f"surrogate at f: {float(verdict.surrogate[0]):.6f}; largest gradient: {float(verdict.gradient[0]):.1e}"
    decisions = aligned(["decision", "expert", "excess deferral loss/C(x)"], _decisions(verdict))
    return "\n\n".join([experts, gradient, decisions, f"{_conclusion(verdict)}\n{regret_theorem(rho)}"])


def random_cases_text(number: int, experts: int, seed: int) -> str:
    """p uniform on the simplex, ρ log-uniform between 0.1 and 10."""
    rng = stream(seed, "consistency")
    rows, wrong = [], 0
    for _ in tqdm(range(number), desc="cases", leave=False, disable=None):
        p = torch.from_numpy(rng.dirichlet([1.0] * experts)).clamp(min=1e-9)
        rho = torch.from_numpy(10 ** rng.uniform(-1, 1, experts))
        verdict = judge((p / p.sum())[None], rho)
        wrong += float(verdict.argmax_regret[0]) > TIE
        chosen = [int(k) + 1 for k in (verdict.optimal, verdict.argmax, verdict.by_posterior)]
        regrets = [f"{float(regret):.4f}" for regret in (verdict.argmax_regret, verdict.posterior_regret)]
        rows.append([" ".join(_row(p)), " ".join(_row(rho)), *map(str, chosen), *regrets])
    table = aligned(["p(k|x)", "ρ", "best", "argmax", "posterior", "argmax's regret", "posterior's"], rows)
    return f"{table}\n\nargmax f misses the best expert in {wrong} of {number}"


def regret_theorem(rho: Tensor) -> str:
    return (
        "Proven (docs/theory.md): at the minimiser argmax f = argmax p/ρ. Over all p, argmax loses up to"
        f" (ρ_max − ρ_min)/(ρ_max + ρ_min) = {worst_regret(rho):.4f} times C(x); the posterior decision loses nothing."
    )


def _decisions(verdict: Verdict) -> list[list[str]]:
    return [
        ["best (argmax p)", str(int(verdict.optimal) + 1), "0.0000"],
        ["argmax f, the paper's", str(int(verdict.argmax) + 1), f"{float(verdict.argmax_regret):.4f}"],
        ["posterior, argmax p̂", str(int(verdict.by_posterior) + 1), f"{float(verdict.posterior_regret):.4f}"],
    ]


def _conclusion(verdict: Verdict) -> str:
    if float(verdict.argmax_regret) <= TIE:
        return "Here argmax f is the best expert."
    return (
        "A counterexample to Theorem 5.1 and Corollaries 5.2, 5.3 as printed: the surrogate regret is 0, so they allow no excess,"
        f" but argmax f loses {float(verdict.argmax_regret):.4f}·C(x)."
    )


def _row(values: Tensor) -> list[str]:
    return [f"{value:.4g}" for value in values.tolist()]
