"""Figure 1 as a simulation: one input, four classes, three experts with rising prices.

The paper only describes the picture: four coloured densities, three accuracies in grey (darker: dearer). The left-most expert is
the most accurate over most of the input distribution. The darkest has the highest peak accuracy and is the dearest. The choice need
not follow the classes. The numbers below are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from l2d.analysis.theory.consistency import surrogate_minimiser
from l2d.analysis.theory.readings import READINGS
from l2d.core.costs import cheapest, paid
from l2d.core.decisions import argmax_last
from l2d.methods.comp_sum import CompSum
from l2d.utils.seeding import derive_seed, stream
from l2d.utils.text import aligned

if TYPE_CHECKING:  # a second to import, and only pictures need it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIORS = np.array([0.4, 0.3, 0.2, 0.1])
CENTRES = np.array([-3.0, -1.0, 1.2, 3.2])
SPREADS = np.array([0.9, 0.8, 0.8, 0.7])
PRICES = torch.tensor([0.02, 0.07, 0.12], dtype=torch.float64)
CLASS_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
EXPERT_GREYS = ("0.75", "0.5", "0.1")
GRID = np.linspace(-7.0, 7.0, 2801)


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
    """E_x[values(x)] over the grid, by the trapezoidal rule; the mass beyond the grid is below 1e-5 and is normalised away."""
    weights = class_densities(GRID).sum(axis=1)
    return float(np.trapezoid(values.numpy() * weights, GRID) / np.trapezoid(weights, GRID))


def expected_loss(decisions: Tensor) -> float:
    """The deferral loss of decisions on the grid [2801]."""
    return quadrature(paid(expected_costs(GRID), decisions))


def train_small_network(method: CompSum, x: Tensor, costs: Tensor, *, steps: int, seed: int, title: str) -> Tensor:
    """Train a small network on x, full-batch, with the package's own loss. Returns its scores on the grid."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "figure1 weights"))
        network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    inputs, targets = (x[:, None] / 3).float(), costs.float()
    labels = torch.full((len(x),), -1)
    for _ in tqdm(range(steps), desc=title, leave=False, disable=None):
        optimizer.zero_grad()
        method.loss(network(inputs), targets, labels).mean().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return network(torch.from_numpy(GRID)[:, None].float() / 3).double()


@dataclass(frozen=True)
class Figure1Row:
    """A method and a decision rule: its decisions on the grid, as learned and at the surrogate's minimiser."""

    name: str
    learned: Tensor
    limit: Tensor

    @property
    def learned_loss(self) -> float:
        return expected_loss(self.learned)

    @property
    def limit_loss(self) -> float:
        return expected_loss(self.limit)


@dataclass(frozen=True)
class Figure1World:
    """The best decisions on the grid, how often each expert is the cheapest in the sample, ρ of each MILD, and a row for each way
    to decide."""

    optimal: Tensor
    shares: Tensor
    rho: dict[str, Tensor]
    rows: list[Figure1Row]

    @property
    def optimum(self) -> float:
        return expected_loss(self.optimal)


def figure1_world(*, points: int, steps: int, offsets: Sequence[float], seed: int) -> Figure1World:
    """Train TDEF, and MILD with each reading of m_k and each offset of its ρ, on one sample of the world."""
    x, costs = draw_sample(points, stream(seed, "figure1 sample"))
    rows = [Figure1Row("TDEF", *map(argmax_last, _scores(_tdef(costs), x, costs, steps, seed, "TDEF")))]
    rho = {}
    for counts, offset in product(READINGS, offsets):
        mild, name = _mild(costs, counts, offset), f"MILD by {counts}, offset {offset:g}"
        learned, limit = _scores(mild, x, costs, steps, seed, name)
        by_posterior = argmax_last(mild.posterior(learned)), argmax_last(mild.posterior(limit))
        rows.append(Figure1Row(f"{name}, argmax", argmax_last(learned), argmax_last(limit)))
        rows.append(Figure1Row(f"{name}, posterior", *by_posterior))
        rho[name] = mild.rho.double()
    shares = torch.bincount(cheapest(costs), minlength=3).double() / points
    return Figure1World(cheapest(expected_costs(GRID)), shares, rho, rows)


def _scores(method: CompSum, x: Tensor, costs: Tensor, steps: int, seed: int, title: str) -> tuple[Tensor, Tensor]:
    """Scores on the grid: learned, and the surrogate's minimiser."""
    learned = train_small_network(method, x, costs, steps=steps, seed=seed, title=title)
    return learned, surrogate_minimiser(_conditional(method), method.rho)


# The paper's two methods, written out: the picture must not change with the defaults in conf/method/.
def _tdef(costs: Tensor) -> CompSum:
    return CompSum(costs=costs, num_classes=4, decision="argmax", rewards="complement", rho=1.0, tau=1.0)


def _mild(costs: Tensor, counts: str, offset: float) -> CompSum:
    rho = {"rule": "theory", "total": 1.0, "offset": offset, "counts": counts, "groups": None, "values": None}
    return CompSum(costs=costs, num_classes=4, decision="argmax", rewards="sum_others", rho=rho, tau=1.0)


def _conditional(method: CompSum) -> Tensor:
    """p(k|x) on the grid. Both rewards are affine in the costs (none is clipped), so expected costs are enough."""
    rewards = method.rewards(expected_costs(GRID))
    return rewards / rewards.sum(dim=1, keepdim=True)


def figure1_text(world: Figure1World) -> str:
    """The table of losses, and what its columns are."""
    always = [(f"always expert {k + 1}", expected_loss(torch.full((len(GRID),), k))) for k in range(3)]
    body = [["optimum", f"{world.optimum:.4f}", "", f"{world.optimum:.4f}", ""]]
    body += [[name, *_with_excess(loss, world.optimum), "", ""] for name, loss in always]
    body += [
        [row.name, *_with_excess(row.learned_loss, world.optimum), *_with_excess(row.limit_loss, world.optimum)]
        for row in world.rows
    ]
    return "\n".join(
        [
            f"how often each expert is the cheapest: {_joined(world.shares)}",
            *(f"ρ of {name}: {_joined(rho)}" for name, rho in world.rho.items()),
            "",
            aligned(["expected deferral loss, by quadrature", "learned", "excess", "minimiser", "excess"], body),
            "",
            "learned: a network trained on a sample; an estimate from one seed.",
            "minimiser: where the surrogate is smallest over all functions of x, with unlimited data. An excess there comes",
            "from the surrogate itself and not from training: argmax f = argmax p/ρ.",
        ]
    )


def _with_excess(loss: float, optimum: float) -> tuple[str, str]:
    return f"{loss:.4f}", f"{loss - optimum:+.4f}"


def _joined(values: Tensor) -> str:
    return " ".join(f"{value:.4g}" for value in values.tolist())


def figure1_picture(world: Figure1World) -> "Figure":
    """Densities and accuracies above; beneath them the optimal regions and what each method decides."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(12, 7), layout="constrained")
    top, bottom = picture.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    _draw_inputs(top)
    _draw_decisions(bottom, world)
    return picture


def _draw_inputs(axes: "Axes") -> None:
    every = class_densities(GRID)
    for k, (density, colour) in enumerate(zip(every.T, CLASS_COLOURS, strict=True)):
        axes.fill_between(GRID, density / every.max(), color=colour, alpha=0.35, label=f"class {k + 1}")
    for k, (accuracy, grey) in enumerate(zip(expert_accuracies(GRID).T, EXPERT_GREYS, strict=True)):
        axes.plot(GRID, accuracy, color=grey, lw=2.5, label=f"expert {k + 1}, price {float(PRICES[k]):g}")
    axes.set(ylabel="density (scaled), accuracy", ylim=(0, 1.05), xlim=(-6, 6), title="Four classes, three experts")
    axes.legend(ncol=2, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_decisions(axes: "Axes", world: Figure1World) -> None:
    bars = [("optimal", world.optimal, world.optimum)]
    bars += [(row.name, row.learned, row.learned_loss) for row in world.rows]
    bars.reverse()  # the first at the top
    for height, (_, decisions, _) in enumerate(bars):
        _strip(axes, decisions.numpy(), height)
    axes.set_yticks(range(len(bars)), [f"{name}  {loss:.4f}" for name, _, loss in bars])
    axes.set(
        xlabel="x",
        title="which expert is asked (its grey), and the expected deferral loss",
        ylim=(-0.6, len(bars) - 0.4),
    )


def _strip(axes: "Axes", decisions: np.ndarray, height: int) -> None:
    edges = np.flatnonzero(np.diff(decisions)) + 1
    for start, stop in zip([0, *edges], [*edges, len(GRID)], strict=True):
        left, right = GRID[start], GRID[min(stop, len(GRID) - 1)]
        axes.barh(height, right - left, left=left, height=0.8, color=EXPERT_GREYS[int(decisions[start])])
