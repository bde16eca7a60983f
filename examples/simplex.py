"""Draws both decisions over all p of three experts: python examples/simplex.py simplex.png 1 0.6 0.3

The three numbers are ρ. At the minimiser of MILD's loss, argmax f takes the largest p/ρ and the posterior decision the largest p
(docs/theory.md). Dark: not the best expert.
"""

import sys
from dataclasses import dataclass

import numpy as np
import torch
from consistency import Verdict, judge, worst_regret
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from torch import Tensor

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
TIE = 1e-9  # a smaller regret is rounding between equally good experts
COLOURS = np.array([[0.55, 0.71, 0.87], [0.99, 0.75, 0.50], [0.60, 0.80, 0.58]])


def simplex_triangles(n: int) -> Tensor:
    """The simplex cut into n² equal triangles, by their corners: [n², 3, 3], the last axis p."""
    found = []
    for i in range(n):
        for j in range(n - i):
            found.append([(i, j), (i + 1, j), (i, j + 1)])
            if i + j < n - 1:
                found.append([(i + 1, j), (i + 1, j + 1), (i, j + 1)])
    first = torch.tensor(found, dtype=torch.float64) / n
    return torch.cat([first, 1 - first.sum(dim=-1, keepdim=True)], dim=-1)


@dataclass(frozen=True)
class SimplexRegions:
    """The triangles' corners, and the decisions at their centres."""

    corners: Tensor
    verdict: Verdict

    @property
    def wrong(self) -> float:
        """The part of the simplex where argmax f is not a best expert."""
        return float((self.verdict.argmax_regret > TIE).double().mean())

    @property
    def wrong_by_posterior(self) -> float:
        return float((self.verdict.posterior_regret > TIE).double().mean())


def simplex_regions(rho: Tensor, n: int = 60) -> SimplexRegions:
    corners = simplex_triangles(n)
    return SimplexRegions(corners, judge(corners.mean(dim=1), rho))


def simplex_figure(rho: Tensor, found: SimplexRegions) -> Figure:
    """argmax beside posterior; dashed lines part the regions in which each expert is best."""
    picture = Figure(figsize=(11, 5), layout="constrained")
    left, right = picture.subplots(1, 2)
    verdict = found.verdict
    draw(left, found.corners, verdict.argmax, verdict.argmax_regret > TIE)
    draw(right, found.corners, verdict.by_posterior, verdict.posterior_regret > TIE)
    left.set_title(f"argmax f: not the best expert on {found.wrong:.1%} of the simplex (dark)")
    right.set_title(f"posterior: not the best expert on {found.wrong_by_posterior:.1%}")
    values = ", ".join(f"{value:g}" for value in rho.tolist())
    picture.suptitle(f"what the surrogate's minimiser decides at p(k|x), ρ = ({values})")
    return picture


def draw(axes: Axes, corners: Tensor, decisions: Tensor, wrong: Tensor) -> None:
    colours = COLOURS[decisions.numpy()] * np.where(wrong.numpy(), 0.6, 1.0)[:, None]
    axes.add_collection(PolyCollection(list(corners.numpy() @ CORNERS), facecolors=colours, edgecolors=colours, lw=0.3))
    centre = CORNERS.mean(axis=0)
    for k, (corner, away) in enumerate(zip(CORNERS, (CORNERS - centre) * 1.12 + centre, strict=True)):
        middle = (CORNERS.sum(axis=0) - corner) / 2
        axes.plot(*zip(centre, middle, strict=True), color="black", lw=0.8, ls="--")
        axes.text(away[0], away[1], f"expert {k + 1}", ha="center", va="center")
    axes.set(xlim=(-0.15, 1.15), ylim=(-0.12, 1.0), aspect="equal")
    axes.axis("off")


def main(out: str = "simplex.png", *rho: str) -> None:
    margins = torch.tensor([float(value) for value in rho or (1, 0.6, 0.3)], dtype=torch.float64)
    found = simplex_regions(margins)
    most = float(found.verdict.argmax_regret.max())
    print(
        f"not the best expert on: argmax f {found.wrong:.1%}, posterior {found.wrong_by_posterior:.1%} of the simplex"
    )
    print(f"largest excess of argmax f here {most:.4f}·C(x), over all p {worst_regret(margins):.4f}·C(x)")
    simplex_figure(margins, found).savefig(out, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
