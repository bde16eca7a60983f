"""Estimators that are computed at once, against scikit-learn and by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from l2d.core.ridge import fit_left_out
from l2d.networks.estimators.clusters import Clusters
from l2d.networks.estimators.estimator import Estimator, FitRows, Scaled, simplest, squared
from l2d.networks.estimators.linear import RIDGES, LabelClassifier, Ridge
from l2d.networks.estimators.lookup import Lookup
from l2d.networks.estimators.mixture import Mixture
from l2d.networks.estimators.neighbours import MANY, Neighbours, closest, without
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.utils.errors import ParameterError

LABELS = 3


def some_rows(n: int = 300, labelled: bool = True) -> FitRows:
    """Expert 0 is right at label 0, expert 1 at the others. Columns: two that show the label, noise, and a constant."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, LABELS, n)
    inputs = np.stack([3.0 * (labels == 0), 30.0 * (labels == 1), np.zeros(n), np.full(n, 7.0)], axis=1)
    inputs[:, :3] += rng.normal(size=(n, 3)) * [0.5, 5.0, 1.0]
    right = np.stack([labels == 0, labels != 0], axis=1) ^ (rng.random((n, 2)) < 0.1)
    shown = torch.from_numpy(labels) if labelled else torch.full((n,), -1)
    return FitRows(torch.from_numpy(inputs).float(), torch.from_numpy(right).double(), shown)


ROWS = some_rows()
NEW = some_rows(500).take(torch.arange(300, 500))
KINDS = (Neighbours, Clusters, Ridge, LabelClassifier, lambda: Mixture([Neighbours, Ridge]))


def fitted(estimator: Any, rows: FitRows = ROWS) -> Any:
    estimator.fit(rows)
    return estimator


@pytest.mark.parametrize("kind", KINDS)
def test_they_learn_who_is_right_where(kind: type[Estimator]) -> None:
    estimates = fitted(kind())(NEW.inputs)
    assert estimates.shape == (200, 2)
    assert ((estimates >= 0) & (estimates <= 1)).all()
    chosen = estimates.argmax(dim=1)
    assert (chosen == (NEW.labels != 0).long()).float().mean() > 0.9
    assert squared(estimates, NEW.right).mean() < 0.75 * squared(ROWS.right.mean(dim=0), NEW.right).mean()
    # Its weights are all it needs.
    network, other = EstimatorNetwork(fitted(kind())), EstimatorNetwork(kind())
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(NEW.inputs), network(NEW.inputs))


def nearest_by_scikit_learn(unit: bool, k: int) -> tuple[np.ndarray, KNeighborsRegressor]:
    def scaled(inputs: Tensor) -> np.ndarray:
        values = StandardScaler().fit(ROWS.inputs.numpy()).transform(inputs.numpy())
        return values / np.linalg.norm(values, axis=1, keepdims=True) if unit else values

    model = KNeighborsRegressor(k).fit(scaled(ROWS.inputs), ROWS.right.numpy())
    return model.predict(scaled(NEW.inputs)), model


def test_their_number_is_chosen_by_leave_one_out() -> None:
    """scikit-learn leaves a row out of its own neighbours if it is asked without queries."""
    estimator, seven = fitted(Neighbours()), fitted(Neighbours(7))
    expected, _ = nearest_by_scikit_learn(bool(seven.unit), 7)
    np.testing.assert_allclose(seven(NEW.inputs), expected, atol=1e-5)
    scores = {}
    for k in (200, 100, 50, 20, 10, 5):
        for unit in (True, False):
            near = nearest_by_scikit_learn(unit, k)[1].kneighbors(return_distance=False)
            scores[k, unit] = squared(ROWS.right[near].mean(dim=1), ROWS.right)
    assert (estimator.counted.shape[1], bool(estimator.unit)) == simplest(scores)


def test_the_simplest_within_one_standard_error() -> None:
    """Differences (0, .2) from the least have mean .1 and standard error .1, differences (.1, .3) have .2 and .1."""
    least, near, far = torch.tensor([0.0, 0.0]), torch.tensor([0.0, 0.2]), torch.tensor([0.1, 0.3])
    assert simplest({"far": far, "near": near, "least": least}) == "near"
    assert simplest({"far": far, "least": least, "near": near}) == "least"
    assert simplest({"only": far}) == "only"
    assert simplest({"one row": far[:1], "least": least[:1]}) == "one row"


def test_a_row_is_not_its_own_neighbour() -> None:
    """In the second row, three equal rows came before the row itself: the farthest goes instead."""
    near = torch.tensor([[[4, 0, 2], [0, 4, 2]], [[1, 2, 3], [0, 2, 3]]])
    assert without(near, torch.tensor([4, 0])).tolist() == [[[0, 2], [0, 2]], [[1, 2], [2, 3]]]
    assert without(torch.tensor([[[5, 6, 7]]]), torch.tensor([6])).tolist() == [[[5, 7]]]


def partly_asked(rows: FitRows = ROWS) -> FitRows:
    chosen = torch.from_numpy(np.random.default_rng(1).integers(0, 2, len(rows)))
    return FitRows(rows.inputs, rows.right.where(torch.eye(2, dtype=torch.bool)[chosen], torch.nan), rows.labels)


@pytest.mark.parametrize("kind", KINDS)
def test_they_learn_from_the_experts_that_were_asked(kind: type[Estimator]) -> None:
    estimates = fitted(kind(), partly_asked())(NEW.inputs)
    assert estimates.isfinite().all()
    assert ((estimates >= 0) & (estimates <= 1)).all()
    assert (estimates.argmax(dim=1) == NEW.right.argmax(dim=1)).float().mean() > 0.75


@pytest.mark.parametrize(("kind", "slow"), [(lambda: Neighbours(7), KNeighborsRegressor(7)), (Ridge, RidgeCV(RIDGES))])
def test_each_expert_is_estimated_from_rows_on_which_it_was_asked(kind: Callable[[], Scaled], slow: Any) -> None:
    """The first and the third on all rows, the others on some."""
    part, estimator = partly_asked(), kind()
    rows = FitRows(part.inputs, torch.stack([ROWS.right, part.right], dim=1).transpose(1, 2).flatten(1), part.labels)
    estimator.fit(rows)
    estimates, points, queries = estimator(NEW.inputs), estimator.scaled(rows.inputs), estimator.scaled(NEW.inputs)
    for k in range(4):
        asked = ~rows.right[:, k].isnan()
        slow.fit(points[asked].double().numpy(), rows.right[asked, k].numpy())
        expected = slow.predict(queries.double().numpy()).clip(0, 1)
        assert estimates[:, k].numpy() == pytest.approx(expected, abs=1e-5)


def test_tables_are_means_over_the_rows_on_which_the_expert_was_asked() -> None:
    """Two categories; each mean is pulled towards the expert's overall mean by one row."""
    inputs = torch.tensor([0.0, 0, 0, 1, 1, 1])[:, None]
    nan = torch.nan
    right = torch.tensor([[1, nan], [0, nan], [nan, 1], [nan, 0], [1, 1], [nan, nan]])
    table = fitted(Lookup(), FitRows(inputs, right, torch.full((6,), -1)))(torch.tensor([[0.0], [1.0]]))
    overall = [2 / 3, 2 / 3]
    expected = [[(1 + overall[0]) / 3, (1 + overall[1]) / 2], [(1 + overall[0]) / 2, (1 + overall[1]) / 3]]
    assert table.tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(("kind", "k"), [(Neighbours, 300), (Clusters, 301)])
def test_more_than_there_are_rows(kind: type[Neighbours | Clusters], k: int) -> None:
    with pytest.raises(ParameterError, match="300"):
        kind(k).fit(ROWS)
    kind(k - 1).fit(ROWS)


def test_few_rows_are_enough_but_one_has_no_neighbour() -> None:
    for kind in (Neighbours, Clusters, Ridge):
        assert fitted(kind(), ROWS.take(torch.arange(3)))(NEW.inputs).isfinite().all()
    with pytest.raises(ParameterError, match="two"):
        Neighbours().fit(ROWS.take(torch.arange(1)))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_all_alike_give_no_warning(kind: type[Estimator]) -> None:
    """Three different rows, each a hundred times, as in a table of topics."""
    alike = FitRows(ROWS.labels[:, None].float(), ROWS.right, ROWS.labels)
    estimates = fitted(kind(), alike)(torch.tensor([[0.0], [1.0], [2.0]]))
    assert estimates.argmax(dim=1).tolist() == [0, 1, 1]


def test_clusters() -> None:
    inputs = torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2]])
    right = torch.tensor([[1.0], [1.0], [0.0], [0.0], [1.0]])
    np.testing.assert_allclose(fitted(Clusters(1))(NEW.inputs)[0], ROWS.right.mean(dim=0), atol=1e-6)
    estimates = fitted(Clusters(2), FitRows(inputs, right, torch.zeros(5)))(inputs)
    assert estimates[:, 0].tolist() == pytest.approx([2.6 / 3, 2.6 / 3, 1.6 / 4, 1.6 / 4, 1.6 / 4])
    # If a row counted towards its own mean, many small clusters would look best.
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (300, 2))).float()
    estimator = fitted(Clusters(), FitRows(ROWS.inputs, noise, ROWS.labels))
    assert len(estimator.centres) == 8


CODES = torch.tensor([[5_000.0], [5_001.0], [5_002.0]]).repeat(4, 1)
BY_CODE = FitRows(CODES, torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).repeat(4, 1), torch.full((12,), -1))


def test_a_table_of_categories_by_hand() -> None:
    """Four rows each, and one more with the mean of all, 2/3."""
    estimates = fitted(Lookup(), BY_CODE)(torch.tensor([[5_001.0], [5_000.0], [7_000.0], [5_001.5]]))
    more, less, mean = (4 + 2 / 3) / 5, (0 + 2 / 3) / 5, 2 / 3
    np.testing.assert_allclose(estimates, [[less, more], [more, less], [mean, mean], [mean, mean]], atol=1e-6)
    with pytest.raises(ParameterError, match=r"^300 of 300 .*dataset\.category"):
        Lookup().fit(ROWS)  # which all differ
    # An encoder gives a text slightly different numbers in another batch.
    draw = torch.Generator().manual_seed(0)
    topics = torch.randn(3, 64, generator=draw)
    noise = 1e-6 * torch.randn(12, 64, generator=draw)
    rows = FitRows(topics.repeat(4, 1) + noise, BY_CODE.right, BY_CODE.labels)
    estimator = fitted(Lookup(), rows)
    assert len(estimator.different) == 3
    again = topics + 1e-6 * torch.randn(3, 64, generator=draw)
    np.testing.assert_allclose(estimator(again), estimator(topics), atol=1e-7)
    assert (estimator(topics)[0] - estimator(topics)[1]).abs().max() > 0.5


def test_ridge_is_scikit_learns() -> None:
    """Of a single row it is the row's value."""
    coefficients, offsets, _ = fit_left_out(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5]]), RIDGES)
    assert (coefficients.tolist(), offsets.tolist()) == ([[0], [0]], [0.5])
    scaler = StandardScaler().fit(ROWS.inputs.numpy())
    model = RidgeCV(RIDGES).fit(scaler.transform(ROWS.inputs.numpy()), ROWS.right.numpy())
    expected = model.predict(scaler.transform(NEW.inputs.numpy())).clip(0, 1)
    np.testing.assert_allclose(fitted(Ridge())(NEW.inputs), expected, atol=1e-4)


@pytest.mark.parametrize(("n", "width"), [(80, 20), (20, 80), (30, 30)])
def test_one_decomposition_serves_all_penalties(n: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows than columns and with fewer. The result is that of trying them one after the other."""
    rng = np.random.default_rng(n)
    points = rng.normal(size=(n, width)) + 1
    values = points[:, :10].sum(axis=1, keepdims=True) * [1, -1] + 3 * rng.normal(size=(n, 2))
    counted, plain = [], torch.linalg.eigh

    def counting(matrix: Tensor) -> Tensor:
        counted.append(len(matrix))
        return plain(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", counting)
    coefficients, offsets, _ = fit_left_out(torch.from_numpy(points), torch.from_numpy(values), RIDGES)
    assert counted == [min(n, width)]
    slow = RidgeCV(RIDGES).fit(points, values)
    np.testing.assert_allclose(coefficients.T, slow.coef_, atol=1e-10)
    np.testing.assert_allclose(offsets, slow.intercept_, atol=1e-10)
    assert 0.1 < slow.alpha_ < 1e6  # not at an end


@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1), (2,)])
def test_the_classifier_with_any_number_of_labels(kept: tuple[int, ...]) -> None:
    rows = ROWS.take(torch.isin(ROWS.labels, torch.tensor(kept)))
    estimator = fitted(LabelClassifier(), rows)
    chances = torch.softmax(estimator.scaled(rows.inputs) @ estimator.weight.T + estimator.bias, dim=1)
    assert (chances.argmax(dim=1) == torch.searchsorted(torch.tensor(kept), rows.labels)).float().mean() > 0.9
    for number, label in enumerate(kept):
        own = rows.right[rows.labels == label]
        expected = (own.sum(dim=0) + rows.right.mean(dim=0)) / (len(own) + 1)
        np.testing.assert_allclose(estimator.table[number], expected, atol=1e-6)
    np.testing.assert_allclose(estimator(rows.inputs), chances @ estimator.table, atol=1e-6)


def test_rare_labels_and_rows_without_one() -> None:
    """A label of one row cannot be left out, and is learned in the end. No label does not count as one."""
    rare = ROWS.take(torch.cat([(ROWS.labels < 2).nonzero()[:, 0], (ROWS.labels == 2).nonzero()[:1, 0]]))
    estimator = fitted(LabelClassifier(), rare)
    assert estimator.bias.isfinite().all()
    assert estimator(NEW.inputs).isfinite().all()
    half = torch.where(torch.arange(300) % 2 == 0, ROWS.labels, -1)
    estimator = fitted(LabelClassifier(), FitRows(ROWS.inputs, ROWS.right, half))
    assert len(estimator.table) == LABELS
    with pytest.raises(ParameterError, match="labels"):
        LabelClassifier().fit(some_rows(labelled=False))


def test_outputs_are_logits_and_images_are_rows_of_pixels() -> None:
    network = EstimatorNetwork(Ridge())
    network.fit(ROWS)
    chances = network.estimator(NEW.inputs).clamp(1e-4, 1 - 1e-4)
    torch.testing.assert_close(torch.sigmoid(network(NEW.inputs)), chances)
    images = NEW.inputs.view(-1, 2, 2, 1)
    assert torch.equal(network(images), network(NEW.inputs))
    with pytest.raises(ParameterError, match="not one text"):
        network(torch.zeros(2, 5, dtype=torch.int32))


@pytest.mark.parametrize("k", [1, MANY - 1, MANY, 300])
def test_the_closest(k: int) -> None:
    closeness = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 300)))
    assert torch.equal(closest(closeness, k), closeness.argsort(dim=1, descending=True)[:, :k])
