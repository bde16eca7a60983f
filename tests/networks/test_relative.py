"""The mixture that is weighted by differences between experts: by hand, and what it must not fall for."""

import numpy as np
import pytest
import torch
from tests.networks.test_estimators import NEW, ROWS, Constant

from l2d.networks.estimators import Estimator, FitRows, LabelClassifier, Mixture, Neighbours, Ridge
from l2d.networks.relative import RelativeMixture, left_out_estimates, relative_weights


def test_weights_by_hand() -> None:
    """Without the row's mean, right is (±.5), the first estimate the same and the second one half of it: all weight on the first.
    Without the first, the second should be doubled, but the weights sum to one at most. What is constant over experts has no
    weight, however well it tells which row is hard."""
    right = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    exact, half, level = right.float(), right.float() / 2, torch.tensor([[0.9, 0.9], [0.1, 0.1]])
    overall = torch.tensor([0.5, 0.5])
    assert relative_weights(torch.stack([exact, level]), right, overall).tolist() == pytest.approx([1, 0])
    assert relative_weights(torch.stack([half]), right, overall).tolist() == [1]
    twice = 2 * right.float() - 0.5
    assert relative_weights(torch.stack([twice]), right, overall).tolist() == pytest.approx(
        [0.5]
    )  # the rest is the overall mean
    assert relative_weights(torch.stack([1 - exact]), right, overall).tolist() == [0]  # never a negative weight


def test_only_experts_that_were_asked_count() -> None:
    """Row 0 asked all three experts, row 1 two of them, row 2 one, which says nothing about differences."""
    right = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, torch.nan], [torch.nan, 0.0, torch.nan]]).double()
    good = right.nan_to_num(77.0).float()
    good[2] = 1.0
    assert relative_weights(torch.stack([good]), right, torch.full((3,), 0.5)).tolist() == pytest.approx([1])


def test_a_log_of_single_answers_is_weighted_by_levels() -> None:
    right = torch.tensor([[1.0, torch.nan], [torch.nan, 0.0], [0.0, torch.nan]]).double()
    exact = right.nan_to_num(0.3).float()
    found = relative_weights(torch.stack([torch.full((3, 2), 0.9), exact]), right, torch.tensor([0.5, 0.0]))
    assert found.tolist() == pytest.approx([0, 1], abs=1e-6)


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
    plain, relative = Mixture([Difficulty, Ridge]), RelativeMixture([Difficulty, Ridge])
    for mixture in (plain, relative):
        mixture.fit(rows)
    assert plain.weights[0] > 0.1
    assert relative.weights[0] < 0.01
    assert relative.weights[1] > 0.7


def test_the_rest_is_the_overall_mean() -> None:
    mixture = RelativeMixture([Constant, Ridge])
    mixture.fit(ROWS)
    assert 0.5 < mixture.weights.sum() <= 1 + 1e-6
    members = torch.stack([member(NEW.inputs) for member in mixture.members])
    rest = (1 - mixture.weights.sum()) * ROWS.right.float().mean(dim=0)
    torch.testing.assert_close(mixture(NEW.inputs), (mixture.weights[:, None, None] * members).sum(0) + rest)


def test_members_are_judged_on_rows_that_they_did_not_see() -> None:
    class Memory(Estimator):
        """Right on rows that it was fitted to, and wrong elsewhere."""

        def fit(self, rows: FitRows) -> None:
            self.known = {tuple(row): right for row, right in zip(rows.inputs.tolist(), rows.right, strict=True)}

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.stack(
                [self.known.get(tuple(row), torch.tensor([0.5, 0.5])) for row in inputs.tolist()]
            ).float()

    assert (left_out_estimates([Memory], ROWS) == 0.5).all()
    mixture = RelativeMixture([Memory, Ridge])
    mixture.fit(ROWS)
    assert mixture.weights[0] == 0


def test_a_fitted_mixture_is_loaded() -> None:
    kinds: list[type[Estimator]] = [Neighbours, Ridge, LabelClassifier]
    mixture, other = RelativeMixture(kinds), RelativeMixture(kinds)
    mixture.fit(ROWS)
    other.load_state_dict(mixture.state_dict())
    torch.testing.assert_close(other(NEW.inputs), mixture(NEW.inputs))
