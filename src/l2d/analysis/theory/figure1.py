"""Figure 1 as a world that can be run: one input, four classes, three experts with rising prices.

The paper describes the picture only (four coloured densities, three accuracies in grey, darker = dearer; the left-most expert is
the most accurate over most of the input distribution, the darkest the most accurate of all at its best and the dearest; the choice
need not follow the classes). The numbers below are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from tqdm import tqdm

from l2d.analysis.theory.consistency import minimiser
from l2d.config import compose
from l2d.core.costs import cheapest, paid
from l2d.core.decisions import argmax_last
from l2d.methods.comp_sum import CompSum
from l2d.routing.build import make
from l2d.utils.seeding import derive_seed, stream

PRIORS = np.array([0.4, 0.3, 0.2, 0.1])
CENTRES = np.array([-3.0, -1.0, 1.2, 3.2])
SPREADS = np.array([0.9, 0.8, 0.8, 0.7])
PRICES = torch.tensor([0.02, 0.07, 0.12], dtype=torch.float64)
CLASS_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
EXPERT_GREYS = ("0.75", "0.5", "0.1")
GRID = np.linspace(-7.0, 7.0, 2801)


def densities(x: np.ndarray) -> np.ndarray:
    """P(class)·density of x in that class. [n] -> [n, 4]."""
    z = (x[:, None] - CENTRES) / SPREADS
    return PRIORS * np.exp(-(z**2) / 2) / (SPREADS * np.sqrt(2 * np.pi))


def accuracies(x: np.ndarray) -> np.ndarray:
    """P(expert k is right | x), the same for every class. [n] -> [n, 3]."""

    def step(at: float, width: float) -> np.ndarray:
        return 1 / (1 + np.exp(-(x - at) / width))

    first = 0.25 + 0.65 * (1 - step(0.9, 0.35))
    second = 0.25 + 0.67 * step(-0.2, 0.5) * (1 - step(2.4, 0.35))
    third = 0.25 + 0.73 * step(1.8, 0.4)
    return np.stack([first, second, third], axis=1)


def expected_costs(x: np.ndarray) -> Tensor:
    """E[c_k|x] = 1 − accuracy + price. [n] -> [n, 3]."""
    return torch.from_numpy(1 - accuracies(x)) + PRICES


def draw(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """x [n] and costs [n, 3]; the experts err independently of each other and of the class, given x."""
    classes = rng.choice(4, size=n, p=PRIORS)
    x = rng.normal(CENTRES[classes], SPREADS[classes])
    errors = rng.random((n, 3)) >= accuracies(x)
    return torch.from_numpy(x), torch.from_numpy(errors).double() + PRICES


def quadrature(values: Tensor) -> float:
    """E_x[values(x)] over the grid, by trapezia, the mass beyond the grid (below 1e-5) left out and made up for."""
    weights = densities(GRID).sum(axis=1)
    return float(np.trapezoid(values.numpy() * weights, GRID) / np.trapezoid(weights, GRID))


def expected_loss(decisions: Tensor) -> float:
    """The deferral loss of decisions on the grid [2801]."""
    return quadrature(paid(expected_costs(GRID), decisions))


def train(method: CompSum, x: Tensor, costs: Tensor, *, steps: int, seed: int, title: str) -> Tensor:
    """Scores on the grid of a small network on x, trained with the package's own loss on all points at once."""
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
class Row:
    """A way to decide: its decisions on the grid, as learned and at the surrogate's minimiser, and their expected losses."""

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
class World:
    """What is best on the grid, the sample's m_k/m, each MILD's ρ by its offset, and what was learned."""

    optimal: Tensor
    shares: Tensor
    rho: dict[float, Tensor]
    rows: list[Row]

    @property
    def optimum(self) -> float:
        return expected_loss(self.optimal)


def run(*, points: int, steps: int, offsets: Sequence[float], seed: int) -> World:
    """Train TDEF, and MILD with each offset of its ρ, on one sample of the world."""
    x, costs = draw(points, stream(seed, "figure1 sample"))
    tdef = _method(costs, "method=tdef")
    rows = [Row("TDEF", *map(argmax_last, _both(tdef, x, costs, steps, seed, "TDEF")))]
    rho = {}
    for offset in offsets:
        mild = _method(costs, "method=mild_paper", f"method.rho.offset={offset}")
        name = f"MILD, offset {offset:g}"
        learned, limit = _both(mild, x, costs, steps, seed, name)
        rows.append(Row(f"{name}, argmax", argmax_last(learned), argmax_last(limit)))
        rows.append(Row(f"{name}, posterior", argmax_last(mild.posterior(learned)), argmax_last(mild.posterior(limit))))
        rho[offset] = mild.rho.double()
    shares = torch.bincount(cheapest(costs), minlength=3).double() / points
    return World(cheapest(expected_costs(GRID)), shares, rho, rows)


def _both(method: CompSum, x: Tensor, costs: Tensor, steps: int, seed: int, title: str) -> tuple[Tensor, Tensor]:
    """Scores on the grid: learned, and the surrogate's minimiser."""
    learned = train(method, x, costs, steps=steps, seed=seed, title=title)
    return learned, minimiser(_conditional(method), method.rho)


def _method(costs: Tensor, *overrides: str) -> CompSum:
    method: CompSum = make(compose(overrides).method, costs=costs, num_classes=4, decision="argmax")
    return method


def _conditional(method: CompSum) -> Tensor:
    """p(k|x) on the grid. Both rewards are affine in the costs (none is clipped), so theirs follow from the expected costs."""
    rewards = method.rewards(expected_costs(GRID))
    return rewards / rewards.sum(dim=1, keepdim=True)


def figure(world: World) -> Figure:
    """Densities and accuracies above; beneath them the optimal regions and what each method decides."""
    picture = Figure(figsize=(9, 7), layout="constrained")
    top, bottom = picture.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    for k, (density, colour) in enumerate(zip(densities(GRID).T, CLASS_COLOURS, strict=True)):
        top.fill_between(GRID, density / densities(GRID).max(), color=colour, alpha=0.35, label=f"class {k + 1}")
    for k, (accuracy, grey) in enumerate(zip(accuracies(GRID).T, EXPERT_GREYS, strict=True)):
        top.plot(GRID, accuracy, color=grey, lw=2.5, label=f"expert {k + 1}, price {float(PRICES[k]):g}")
    top.set(ylabel="density (scaled), accuracy", ylim=(0, 1.05), xlim=(-6, 6), title="Four classes, three experts")
    top.legend(ncol=2, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    bars = [("optimal", world.optimal, world.optimum)]
    bars += [(row.name, row.learned, row.learned_loss) for row in world.rows]
    for height, (_, decisions, _) in enumerate(reversed(bars)):
        _strip(bottom, decisions.numpy(), height)
    names = [f"{name}  {loss:.4f}" for name, _, loss in reversed(bars)]
    bottom.set_yticks(range(len(bars)), names)
    bottom.set(
        xlabel="x",
        title="which expert is asked (its grey), and the expected deferral loss",
        ylim=(-0.6, len(bars) - 0.4),
    )
    return picture


def _strip(axes: Axes, decisions: np.ndarray, height: int) -> None:
    edges = np.flatnonzero(np.diff(decisions)) + 1
    for start, stop in zip([0, *edges], [*edges, len(GRID)], strict=True):
        left, right = GRID[start], GRID[min(stop, len(GRID) - 1)]
        axes.barh(height, right - left, left=left, height=0.8, color=EXPERT_GREYS[int(decisions[start])])
