"""The best of several estimators, chosen by cross-validation within the training rows."""

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from l2d.core.guard import paired
from l2d.networks.estimators.clusters import Clusters
from l2d.networks.estimators.estimator import Estimator, FitRows, shuffled, simplest, squared
from l2d.networks.estimators.linear import LabelClassifier, Ridge
from l2d.networks.estimators.lookup import Lookup
from l2d.networks.estimators.mixture import Mixture, left_out_estimates, relative_weights
from l2d.networks.estimators.neighbours import Neighbours
from l2d.networks.estimators.perceptron import Perceptron
from l2d.utils.errors import ParameterError
from l2d.utils.files import CANDIDATES, write_text
from l2d.utils.text import aligned

FITS = 6  # that share the time: five folds and the final router
CHOOSING, NUMBERS = 20_000, 1_536_000  # rows at most to choose on, and numbers in them: 4,000 rows of 384 columns
# By the names of the methods, the simplest first.
SINGLE: dict[str, type[Estimator]] = {"category_table": Lookup, "clusters": Clusters, "linear": Ridge}
SINGLE |= {"linear_plugin": LabelClassifier, "knn": Neighbours}
MIXED = {"mix": ("linear", "knn"), "mix by label": ("linear", "linear_plugin", "knn")}
NETWORK = "network"


class Best(Estimator):
    """The simplest candidate whose loss is within one standard error of the least: what the decisions cost at the listed prices or,
    if some experts were not asked, the squared error of the estimates. Candidates that begin after `seconds`/FITS are left out."""

    chosen: Tensor

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.comparison = seconds, ""
        mixed = {name: Mixture([SINGLE[one] for one in parts]) for name, parts in MIXED.items()}
        self.names = [*SINGLE, *MIXED, NETWORK]
        self.members = nn.ModuleList([*(kind() for kind in SINGLE.values()), *mixed.values(), Perceptron()])
        self.register_buffer("chosen", torch.tensor(0))

    def fit(self, rows: FitRows) -> None:
        most = min(CHOOSING, NUMBERS // rows.inputs.shape[1])
        some = rows if len(rows) <= most else rows.take(shuffled(len(rows), "choosing")[:most])
        estimates, why = self.left_out(some)
        weights = {}
        for name, parts in MIXED.items():
            if all(part in estimates for part in parts):
                together = torch.stack([estimates[part] for part in parts])
                weights[name] = relative_weights(together, some.right)
                estimates[name] = torch.einsum("m,mnp->np", weights[name], together)
        losses = {name: losses_of(estimates[name], some) for name in self.names if name in estimates}
        best = self.best_of(losses, estimates, some)
        self.comparison = comparison(losses, best, "squared error" if some.right.isnan().any() else "cost")
        self.comparison += "".join(f"not tried: {name}, {problem}\n" for name, problem in why.items())
        self.chosen = torch.tensor(self.names.index(best))
        if isinstance(self.member, Mixture):
            self.member.fit_members(rows, weights[best])
        else:
            self.member.fit(rows)

    @property
    def member(self) -> Estimator:
        found = self.members[int(self.chosen)]
        assert isinstance(found, Estimator)
        return found

    def best_of(self, losses: Mapping[str, Tensor], estimates: Mapping[str, Tensor], rows: FitRows) -> str:  # noqa: ARG002
        return simplest(losses)

    def left_out(self, rows: FitRows) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The estimates of each single candidate for rows that it was not fitted to, and why others have none."""
        begun, found, why = time.thread_time(), dict[str, Tensor](), dict[str, str]()
        for name, kind in {**SINGLE, NETWORK: Perceptron}.items():
            if found and time.thread_time() - begun > self.seconds / FITS:  # others must not decide
                why[name] = "no time left"
                continue
            try:
                [found[name]] = left_out_estimates([kind], rows)
            except ParameterError as error:
                why[name] = error.problem
        return found, why

    def keep(self, folder: Path) -> None:
        write_text(folder / CANDIDATES, self.comparison)

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        self.member.add_expert(inputs, right)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.member(inputs)


def losses_of(estimates: Tensor, rows: FitRows) -> Tensor:
    """[n, p] -> [n]"""
    right = rows.right.to(estimates)
    if right.isnan().any():
        return squared(estimates, right)
    prices = 0 if rows.prices is None else rows.prices.to(estimates)
    costs, expected = (1 - values + prices for values in (right, estimates))
    return costs.gather(1, expected.argmin(dim=1, keepdim=True))[:, 0]


def comparison(losses: Mapping[str, Tensor], best: str, what: str) -> str:
    """A line per candidate, the least loss first. what: the losses are."""
    least, rows = min(losses.values(), key=lambda one: float(one.mean())), []
    for name, one in sorted(losses.items(), key=lambda pair: float(pair[1].mean())):
        more, error = paired(one - least)
        difference = f"{more:+.4f} ± {error or 0.0:.4f}"
        rows.append([name, f"{float(one.mean()):.4f}", difference, "chosen" if name == best else ""])
    lines = aligned(["candidate", what, "more than the least", ""], rows).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)
