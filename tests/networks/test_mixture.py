"""The mixture that is weighted by differences between experts: by hand, and what it must not fall for."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from tests.networks.test_estimators import NEW, ROWS, fitted

from l2d.networks.estimators.estimator import Estimator, FitRows
from l2d.networks.estimators.linear import Ridge
from l2d.networks.estimators.mixture import Mixture, left_out_estimates, relative_weights


class Constant(Estimator):
    def fit(self, rows: FitRows) -> None:
        self.shape = rows.right.shape[1]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.full((len(inputs), self.shape), 0.01)


def test_weights_by_hand() -> None:
    """Overall means are .5. Without these and the row's mean, right is ±.5. So is the first estimate. The second is half of it and
    has no part beside the first. The third tells which row is hard, the same for both experts: nothing."""
    right = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    exact, half, level = right.float(), right.float() / 2 + 0.25, torch.tensor([[0.9, 0.9], [0.1, 0.1]])
    assert relative_weights(torch.stack([exact, level]), right).tolist() == pytest.approx([1, 0])
    # The scale is not kept.
    assert relative_weights(torch.stack([level, half]), right).tolist() == pytest.approx([0, 1])
    assert relative_weights(torch.stack([1 - exact, level]), right).tolist() == [0.5, 0.5]  # none helps
    # One estimate knows row 0, the other row 1: both weigh the same.
    one, other = right.float().clone(), right.float().clone()
    one[1], other[0] = 0.5, 0.5
    assert relative_weights(torch.stack([one, other]), right).tolist() == pytest.approx([0.5, 0.5])


def test_only_experts_that_were_asked_count() -> None:
    """Row 0 asked all three experts, row 1 two of them, row 2 one, which says nothing about differences."""
    right = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, torch.nan], [torch.nan, 0.0, torch.nan]]).double()
    good = right.nan_to_num(77.0).float()
    good[2] = 1.0
    assert relative_weights(torch.stack([good, 1 - good]), right).tolist() == pytest.approx([1, 0])
    right = torch.tensor([[1.0, torch.nan], [torch.nan, 0.0], [0.0, torch.nan], [torch.nan, 1.0]]).double()
    exact = right.nan_to_num(0.3).float()
    found = relative_weights(torch.stack([1 - exact, exact]), right)
    assert found.tolist() == pytest.approx([0, 1], abs=1e-6)


def test_a_few_rows_with_two_answers_do_not_decide_alone() -> None:
    """Forty rows with one answer are as the first member says, one row with two answers is as the second says."""
    answers = torch.tensor([1.0, 0.0]).repeat(20)
    right = torch.full((41, 2), torch.nan).double()
    right[range(40), torch.arange(40) // 2 % 2] = answers.double()
    right[40] = torch.tensor([1.0, 0.0])
    by_levels = right.nan_to_num(0.5).float()
    by_levels[40] = 0.5
    by_differences = torch.full((41, 2), 0.5)
    by_differences[40] = right[40].float()
    found = relative_weights(torch.stack([by_levels, by_differences]), right)
    assert found[0] > 0.4


class Difficulty(Estimator):
    """Knows from the third column how hard a row is, and nothing of the experts."""

    def fit(self, rows: FitRows) -> None:
        pass

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs[:, 2:3] > 0).float().expand(-1, 2)


def hard_rows(n: int = 400) -> FitRows:
    """Rows with a positive third column are easy for both experts; of the others, the first column says who is right."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(n, 4))
    right = np.stack([inputs[:, 0] > 0, inputs[:, 0] <= 0], axis=1) | (inputs[:, 2:3] > 0)
    return FitRows(torch.from_numpy(inputs).float(), torch.from_numpy(right).double(), torch.zeros(n).long())


def test_difficulty_has_no_weight() -> None:
    """Plain least squares gives it much."""
    rows = hard_rows()
    mixture = fitted(Mixture([Difficulty, Ridge]), rows)
    assert mixture.weights[0] < 0.01
    estimates = left_out_estimates([Difficulty, Ridge], rows).flatten(1).T.double()
    plain, _ = nnls(estimates.numpy(), rows.right.flatten().numpy())
    assert plain[0] / plain.sum() > 0.1


def test_a_convex_combination() -> None:
    mixture = fitted(Mixture([Constant, Ridge]))
    assert mixture.weights.sum() == pytest.approx(1)
    members = torch.stack([member(NEW.inputs) for member in mixture.members])
    torch.testing.assert_close(mixture(NEW.inputs), (mixture.weights[:, None, None] * members).sum(0))


def test_members_are_judged_on_rows_that_they_did_not_see() -> None:
    class Memory(Estimator):
        def fit(self, rows: FitRows) -> None:
            self.known = {tuple(row): right for row, right in zip(rows.inputs.tolist(), rows.right, strict=True)}

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            unknown = torch.tensor([0.5, 0.5])
            return torch.stack([self.known.get(tuple(row), unknown) for row in inputs.tolist()]).float()

    assert (left_out_estimates([Memory], ROWS) == 0.5).all()
    assert fitted(Mixture([Memory, Ridge])).weights[0] == 0
