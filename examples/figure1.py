"""Figure 1 as a simulation, with TDEF and MILD trained on it (half a minute): python examples/figure1.py figure1.png

The paper only describes the picture: four coloured densities, three accuracies in grey (darker: dearer). The left-most expert is
the most accurate on most inputs. The darkest has the highest peak accuracy and is the dearest. The numbers below are ours.
"""

import sys
from itertools import product
from typing import Any

import numpy as np
import torch
from consistency import surrogate_minimiser
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from l2d.core.costs import cheapest, paid
from l2d.core.decisions import argmax_last
from l2d.methods.comp_sum import CompSum
from l2d.utils.seeding import derive_seed, stream
from l2d.utils.text import aligned

PRIORS = np.array([0.4, 0.3, 0.2, 0.1])
CENTRES = np.array([-3.0, -1.0, 1.2, 3.2])
SPREADS = np.array([0.9, 0.8, 0.8, 0.7])
PRICES = torch.tensor([0.02, 0.07, 0.12], dtype=torch.float64)
CLASS_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
EXPERT_GREYS = ("0.75", "0.5", "0.1")
GRID = np.linspace(-7.0, 7.0, 2801)
OFFSETS = (0.0, 5.0)  # of MILD's ρ: the theory's own, and the top of the paper's search
SEED = 0
Decisions = dict[str, tuple[Tensor, Tensor]]  # on the grid, by method: learned, and at the surrogate's minimiser


def class_densities(x: np.ndarray) -> np.ndarray:
    """P(class)·density of x in that class. [n] -> [n, 4]."""
    z = (x[:, None] - CENTRES) / SPREADS
    return PRIORS * np.exp(-(z**2) / 2) / (SPREADS * np.sqrt(2 * np.pi))


def expert_accuracies(x: np.ndarray) -> np.ndarray:
    """P(expert k is right | x), the same for every class. [n] -> [n, 3]."""

    def step(at: float, width: float) -> np.ndarray:
        return 1 / (1 + np.exp(-(x - at) / width))

    first = 0.25 + 0.65 * (1 - step(0.9, 0.35))
    second = 0.25 + 0.67 * step(-0.2, 0.5) * (1 - step(2.4, 0.35))
    third = 0.25 + 0.73 * step(1.8, 0.4)
    return np.stack([first, second, third], axis=1)


def expected_costs(x: np.ndarray) -> Tensor:
    """E[c_k|x] = 1 − accuracy + price. [n] -> [n, 3]."""
    return torch.from_numpy(1 - expert_accuracies(x)) + PRICES


def draw_sample(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """x [n] and costs [n, 3]; the experts err independently of each other and of the class, given x."""
    classes = rng.choice(4, size=n, p=PRIORS)
    x = rng.normal(CENTRES[classes], SPREADS[classes])
    errors = rng.random((n, 3)) >= expert_accuracies(x)
    return torch.from_numpy(x), torch.from_numpy(errors).double() + PRICES


def quadrature(values: Tensor) -> float:
    """E_x[values(x)] by the trapezoidal rule; the mass beyond the grid is below 1e-5 and is normalised away."""
    weights = class_densities(GRID).sum(axis=1)
    return float(np.trapezoid(values.numpy() * weights, GRID) / np.trapezoid(weights, GRID))


def expected_loss(decisions: Tensor) -> float:
    """The deferral loss of decisions on the grid [2801]."""
    return quadrature(paid(expected_costs(GRID), decisions))


def methods(costs: Tensor) -> dict[str, CompSum]:
    """TDEF, and MILD with each reading of m_k and each offset; written out, so that defaults in conf/ do not matter."""

    def comp_sum(rewards: Any, rho: Any) -> CompSum:
        return CompSum(costs=costs, num_classes=4, decision="argmax", rewards=rewards, rho=rho, tau=1.0)

    rule = {"rule": "theory", "total": 1.0, "groups": None, "values": None}
    return {"TDEF": comp_sum("complement", 1.0)} | {
        f"MILD by {counts}, offset {offset:g}": comp_sum("sum_others", {**rule, "offset": offset, "counts": counts})
        for counts, offset in product(("reward_mass", "cheapest"), OFFSETS)
    }


def learned_scores(method: CompSum, x: Tensor, costs: Tensor, steps: int) -> Tensor:
    """Scores on the grid of a small network that was trained on x, full-batch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(SEED, "figure1 weights"))
        network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    inputs, targets = (x[:, None] / 3).float(), costs.float()
    labels = torch.full((len(x),), -1)
    for _ in range(steps):
        optimizer.zero_grad()
        method.loss(network(inputs), targets, labels).mean().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return network(torch.from_numpy(GRID)[:, None].float() / 3).double()


def best_scores(method: CompSum) -> Tensor:
    """The surrogate's minimiser on the grid. Both rewards are affine in the costs, so expected costs are enough."""
    rewards = method.rewards(expected_costs(GRID))
    return surrogate_minimiser(rewards / rewards.sum(dim=1, keepdim=True), method.rho)


def decide(points: int, steps: int) -> tuple[dict[str, Tensor], Decisions]:
    """ρ of each MILD, and the decisions of all methods, trained on one sample."""
    x, costs = draw_sample(points, stream(SEED, "figure1 sample"))
    rho, decisions = {}, Decisions()
    for name, method in methods(costs).items():
        learned, best = learned_scores(method, x, costs, steps), best_scores(method)
        if name == "TDEF":
            decisions[name] = argmax_last(learned), argmax_last(best)
            continue
        rho[name] = method.rho.double()
        decisions[f"{name}, argmax"] = argmax_last(learned), argmax_last(best)
        decisions[f"{name}, posterior"] = argmax_last(method.posterior(learned)), argmax_last(method.posterior(best))
    return rho, decisions


def figure(decisions: Decisions) -> Figure:
    """Densities and accuracies above; beneath them the optimal regions and the decisions of each method."""
    picture = Figure(figsize=(12, 7), layout="constrained")
    top, bottom = picture.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    draw_inputs(top)
    bars = [("optimal", cheapest(expected_costs(GRID))), *((name, learned) for name, (learned, _) in decisions.items())]
    bars.reverse()  # the first at the top
    for height, (_, chosen) in enumerate(bars):
        draw_strip(bottom, chosen.numpy(), height)
    bottom.set_yticks(range(len(bars)), [f"{name}  {expected_loss(chosen):.4f}" for name, chosen in bars])
    title = "which expert is asked (its grey), and the expected deferral loss"
    bottom.set(xlabel="x", title=title, ylim=(-0.6, len(bars) - 0.4))
    return picture


def draw_inputs(axes: Axes) -> None:
    every = class_densities(GRID)
    for k, (density, colour) in enumerate(zip(every.T, CLASS_COLOURS, strict=True)):
        axes.fill_between(GRID, density / every.max(), color=colour, alpha=0.35, label=f"class {k + 1}")
    for k, (accuracy, grey) in enumerate(zip(expert_accuracies(GRID).T, EXPERT_GREYS, strict=True)):
        axes.plot(GRID, accuracy, color=grey, lw=2.5, label=f"expert {k + 1}, price {float(PRICES[k]):g}")
    axes.set(ylabel="density (scaled), accuracy", ylim=(0, 1.05), xlim=(-6, 6), title="Four classes, three experts")
    axes.legend(ncol=2, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def draw_strip(axes: Axes, decisions: np.ndarray, height: int) -> None:
    edges = np.flatnonzero(np.diff(decisions)) + 1
    for start, stop in zip([0, *edges], [*edges, len(GRID)], strict=True):
        left, right = GRID[start], GRID[min(stop, len(GRID) - 1)]
        axes.barh(height, right - left, left=left, height=0.8, color=EXPERT_GREYS[int(decisions[start])])


def main(out: str = "figure1.png", points: int = 2000, steps: int = 300) -> None:
    rho, decisions = decide(points, steps)
    for name, values in rho.items():
        print(f"ρ of {name}: {' '.join(f'{value:.4g}' for value in values.tolist())}")
    optimum = f"{expected_loss(cheapest(expected_costs(GRID))):.4f}"
    always = [(f"always expert {k + 1}", torch.full((len(GRID),), k)) for k in range(3)]
    body = [["optimum", "", optimum], *([name, "", f"{expected_loss(chosen):.4f}"] for name, chosen in always)]
    body += [[name, *(f"{expected_loss(chosen):.4f}" for chosen in both)] for name, both in decisions.items()]
    print(aligned(["expected deferral loss", "learned", "at the minimiser"], body))
    figure(decisions).savefig(out, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "figure1.png")
