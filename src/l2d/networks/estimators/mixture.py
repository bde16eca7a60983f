"""A mixture of estimators whose weights are chosen by what a decision depends on: the differences between experts."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from l2d.networks.estimators.estimator import Estimator, FitRows, shuffled

FOLDS = 3
AT_ONCE = 8_192  # rows, each of which neighbours compare with all that they learned from


class Mixture(Estimator):
    """A convex combination of estimators, with weights chosen by cross-validation within the training rows."""

    weights: Tensor

    def __init__(self, kinds: Sequence[type[Estimator]]) -> None:
        super().__init__()
        self.kinds, self.fitted = kinds, [kind() for kind in kinds]
        self.members = nn.ModuleList(self.fitted)

    def fit(self, rows: FitRows) -> None:
        self.fit_members(rows, relative_weights(left_out_estimates(self.kinds, rows), rows.right))

    def fit_members(self, rows: FitRows, weights: Tensor) -> None:
        self.weights = weights
        for member in self.fitted:
            member.fit(rows)

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        for member in self.fitted:
            member.add_expert(inputs, right)

    def forward(self, inputs: Tensor) -> Tensor:
        parts = [weight * member(inputs) for weight, member in zip(self.weights, self.members, strict=True)]
        return torch.stack(parts).sum(0)


def left_out_estimates(kinds: Sequence[type[Estimator]], rows: FitRows) -> Tensor:
    """The estimates of each kind for rows that it was not fitted to. -> [m, n, p]"""
    found = torch.zeros(len(kinds), *rows.right.shape)
    for judged in shuffled(len(rows), "mixture").tensor_split(FOLDS):
        others = torch.ones(len(rows), dtype=torch.bool)
        others[judged] = False
        for number, kind in enumerate(kinds):
            part, member = rows.take(others), kind()
            right = torch.where(part.right.isnan().all(dim=0), 0.5, part.right)  # an expert that nobody asked there
            member.fit(replace(part, right=right))
            found[number, judged] = torch.cat([member(some) for some in rows.inputs[judged].split(AT_ONCE)])
    return found


def relative_weights(estimates: Tensor, right: Tensor) -> Tensor:
    """w ≥ 0 with the least Σ (d[right] − Σ_m w_m d[e_m])², scaled to Σ_m w_m = 1; equal weights if no member helps. d subtracts
    each expert's overall mean and, if most rows asked several experts, the row's mean: how hard a question is changes no decision.
    estimates [m, n, p], right [n, p]: NaN where not asked."""
    from scipy.optimize import nnls

    asked = ~right.isnan()
    values = torch.cat([right[None].to(estimates), estimates]) - right.nanmean(dim=0).nan_to_num().to(estimates)
    several = asked.sum(dim=1) > 1
    if several.double().mean() >= 0.5:
        values, asked = values[:, several], asked[several]
        values = values - torch.where(asked, values, 0.0).sum(dim=2, keepdim=True) / asked.sum(dim=1)[:, None]
    cells = values[:, asked].double().numpy()
    solved, _ = nnls(cells[1:].T, cells[0])
    weights = torch.from_numpy(solved).float()
    return weights / weights.sum() if weights.sum() > 0 else torch.full_like(weights, 1 / len(weights))
