"""How the regret of a learned plan grows with the number of experts that it may ask, in a simulated world whose best plan is known.

    python examples/plan_regret.py regret.png    # two minutes of CPU time

Expert k is right with chance a_k, independently of all else. Two wrong answers never agree, so two that agree are right. The
best plan follows by induction over sets S of asked experts whose answers all differ:

    V(S) = min(1 − max_{j ∈ S} π_j, min_{k ∉ S} price_k + Σ_{j ∈ S} P(k agrees with j) · 0 + P(k agrees with none) · V(S ∪ {k})).

Regret: what the learned plan costs more, on new rows. It learns from n rows and sees no inputs.
"""

import argparse
from functools import cache
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from l2d.core.plan import View, chances_of, follow, least_cost
from l2d.core.plan_learning import Rows, induct, learn_chances

CHANCES = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
PRICES = (0.02, 0.02, 0.03, 0.03, 0.04, 0.04)
ROWS, REPEATS, NEW = (100, 400), 20, 20_000


def best_cost(chances: tuple[float, ...], prices: tuple[float, ...]) -> float:
    """V(∅), exactly."""
    odds = [chance / (1 - chance) for chance in chances]

    @cache
    def value(asked: frozenset[int]) -> float:
        total = 1 + sum(odds[j] for j in asked)  # of: none is right, or just one of them
        stop = 1 - max((odds[j] / total for j in asked), default=0.0)
        more = []
        for k in range(len(chances)):
            if k not in asked:
                agrees = chances[k] * (total - 1) / total
                more.append(prices[k] + (1 - agrees) * value(asked | {k}))
        return min([stop, *more]) if asked else min(more)

    return value(frozenset())


def drawn(n: int, chances: tuple[float, ...], rng: np.random.Generator) -> tuple[View, torch.Tensor]:
    """Rows, and which experts are right. Estimates from the input are those of the mean."""
    right = torch.from_numpy(rng.random((n, len(chances))) < chances)
    places = torch.arange(len(chances)).expand(n, -1)
    first = right.long().argmax(dim=1, keepdim=True)
    logits = torch.logit(torch.tensor(chances)).expand(n, -1)
    return View(logits, torch.where(right, first, places), torch.zeros(n, len(chances), 0)), right.float()


def regret(n: int, chances: tuple[float, ...], prices: tuple[float, ...], rng: np.random.Generator) -> float:
    paid = torch.tensor(prices)
    view, right = drawn(n, chances, rng)
    weights = learn_chances(view, right)
    plan = least_cost(induct(Rows.of(view, right, weights), paid))
    new, truth = drawn(NEW, chances, rng)
    followed = follow(plan, new, lambda rows, asked: chances_of(weights[-1], new.take(rows), asked))
    return float(followed.costs(1 - truth, paid)[0].mean()) - best_cost(chances, prices)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    torch.set_num_threads(1)
    picture = Figure(figsize=(6, 4), layout="constrained")
    axes, counts = picture.subplots(), range(2, len(CHANCES) + 1)
    for n in ROWS:
        each = [
            [regret(n, CHANCES[:p], PRICES[:p], np.random.default_rng([n, p, r])) for r in range(REPEATS)]
            for p in counts
        ]
        errors = [1.96 * np.std(one, ddof=1) / REPEATS**0.5 for one in each]
        axes.errorbar(counts, [np.mean(one) for one in each], errors, marker="o", capsize=2, label=f"{n} rows")
        print(n, *(f"{np.mean(one):+.4f} ± {error:.4f}" for one, error in zip(each, errors, strict=True)))
    axes.set(xlabel="experts that may be asked", ylabel="cost above the best plan's (simulated)", xticks=list(counts))
    axes.legend()
    picture.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
