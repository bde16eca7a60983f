"""A mixture of estimators whose weights are chosen by what a decision depends on: the differences between experts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from l2d.networks.estimators import FOLDS, Estimator, FitRows, Mixture, shuffled


class RelativeMixture(Mixture):
    """Σ_m w_m e_m(x) + (1 − Σ_m w_m) ē: members e_m and the overall means ē, with w ≥ 0 and Σ_m w_m ≤ 1.

    Plain least squares would favour members that see how hard a question is. That is the same for all experts, so it changes no
    decision.
    """

    overall: Tensor

    def __init__(self, kinds: Sequence[type[Estimator]]) -> None:
        super().__init__(kinds)
        self.register_buffer("overall", torch.zeros(0))

    def fit(self, rows: FitRows) -> None:
        self.overall = rows.right.nanmean(dim=0).nan_to_num(0.5).float()  # an expert that was never asked: unknown
        self.weights = relative_weights(left_out_estimates(self.kinds, rows), rows.right, self.overall)
        for member in self.members:
            assert isinstance(member, Estimator)
            member.fit(rows)

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        super().add_expert(inputs, right)
        self.overall = torch.cat([self.overall, right.float().mean()[None]])

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + (1 - self.weights.sum()) * self.overall


def left_out_estimates(kinds: Sequence[type[Estimator]], rows: FitRows) -> Tensor:
    """The estimates of each kind for rows that it was not fitted to. -> [m, n, p]"""
    found = torch.zeros(len(kinds), *rows.right.shape)
    for judged in shuffled(len(rows), "mixture").tensor_split(FOLDS):
        others = torch.ones(len(rows), dtype=torch.bool)
        others[judged] = False
        for number, kind in enumerate(kinds):
            member = kind()
            member.fit(rows.take(others))
            found[number, judged] = member(rows.inputs[judged])
    return found


def relative_weights(estimates: Tensor, right: Tensor, overall: Tensor) -> Tensor:
    """w ≥ 0 with Σ w ≤ 1 and a small Σ (d[right − ē] − Σ_m w_m d[e_m − ē])². d subtracts a row's mean over the experts that were
    asked. If each row asked one expert, there are no differences, and d subtracts nothing. estimates [m, n, p], right [n, p]."""
    from scipy.optimize import nnls

    asked = ~right.isnan()
    several = asked.sum(dim=1) > 1
    values = torch.cat([right[None].to(estimates), estimates]) - overall
    if several.any():
        values, asked = values[:, several], asked[several]
        known = torch.where(asked, values, 0.0)
        values = values - known.sum(dim=2, keepdim=True) / asked.sum(dim=1)[:, None]
    cells = values[:, asked].double().numpy()
    solved, _ = nnls(cells[1:].T, cells[0])
    weights = torch.from_numpy(solved).float()
    return weights / weights.sum().clamp(min=1)
