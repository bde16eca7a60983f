"""Estimates of how right each expert will be that are computed from the training rows at once, not learned step by step."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from l2d.core.groups import group_sums
from l2d.core.ridge import fit_left_out
from l2d.learning.compiling import Features
from l2d.networks.network import KINDS, Network, input_kind
from l2d.networks.tabular import CONSTANT, FAR
from l2d.utils.errors import ParameterError
from l2d.utils.seeding import derive_seed

NEIGHBOURS = (5, 10, 20, 50, 100, 200, 400, 800)  # numbers to choose from
CLUSTERS = (8, 16, 32, 64)
RIDGES = tuple(10.0**power for power in range(-1, 7))
STRENGTHS = (0.001, 0.01, 0.1)  # C of the classifier: the inverse of its penalty
KEPT = 50_000  # rows that are searched for neighbours
JUDGED = 1_000  # of these, on which numbers of neighbours are compared
AT_ONCE = 256  # of the judged rows, compared with all kept rows at once
ROUNDED = 3  # decimals of a standard deviation to which rows of one category agree
CERTAIN = 1e-4  # chances are clamped this far from 0 and 1 before a logit


@dataclass(frozen=True)
class FitRows:
    """inputs [n, F]. right [n, p]: how right each expert was, 0 to 1, NaN where it was not asked. labels int [n], −1 where
    unknown."""

    inputs: Tensor
    right: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, positions: Tensor) -> "FitRows":
        return FitRows(self.inputs[positions], self.right[positions], self.labels[positions])


def shuffled(n: int, what: str) -> Tensor:
    """A permutation of n rows, the same in every run: choices within the training rows do not depend on the seed."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(0, what)))


class Estimator(nn.Module):
    """Rows [B, F] to how right each expert will be [B, p]. `fit` computes the buffers; what is chosen for the rows at hand, such as
    a number of neighbours, is a buffer too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(resize_buffers)  # type: ignore[no-untyped-call]

    def fit(self, rows: FitRows) -> None:
        raise NotImplementedError

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:  # noqa: ARG002 (for estimators that can)
        """One more expert, from how right it was on some rows [n, F], [n]. What is known of the others stays."""
        raise ParameterError("", "cannot take another expert; knn, clusters, linear, category_table and mix can")


def resize_buffers(module: nn.Module, state: Mapping[str, Tensor], prefix: str, *ignored: Any) -> None:  # noqa: ARG001
    """The sizes of buffers follow from the rows, so a module that was not fitted gets them from the weights."""
    for name in dict(module.named_buffers(recurse=False)):
        if (kept := state.get(prefix + name)) is not None:
            setattr(module, name, torch.empty_like(kept))


class Scaled(Estimator):
    """Standardises columns; with `unit`, rows then have length 1, as embeddings of text are compared."""

    mean: Tensor
    std: Tensor
    unit: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "std"):
            self.register_buffer(name, torch.zeros(0))
        self.register_buffer("unit", torch.tensor(False))

    def set_scale(self, inputs: Tensor, *, unit: bool) -> None:
        values = inputs.float()
        spread = values.std(dim=0, correction=0)
        self.mean, self.std = values.mean(dim=0), torch.where(spread < CONSTANT, torch.ones_like(spread), spread)
        self.unit = torch.tensor(unit)

    def scaled(self, inputs: Tensor) -> Tensor:
        values = ((inputs.float() - self.mean) / self.std).clamp(-FAR, FAR)
        return torch.where(self.unit, nn.functional.normalize(values, dim=1), values)


class Neighbours(Scaled):
    """The mean over the k nearest training rows; if some experts were not asked on some rows, for each expert over the k nearest
    rows on which it was. k and the scale are chosen by leave-one-out on the training rows.

    k: their number; None: chosen.
    """

    kept: Tensor
    right: Tensor
    unasked: Tensor  # bool [n, p]; empty if all experts were asked on all rows
    counted: Tensor  # bool [p or 1, k]: how many neighbours count for each expert; the most, k, is static for exported routers

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.asked_for = k
        for name in ("kept", "right"):
            self.register_buffer(name, torch.zeros(0))
        for name in ("unasked", "counted"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.bool))

    def fit(self, rows: FitRows) -> None:
        if len(rows) < 2:
            raise ParameterError("", "needs at least two training rows")
        if len(rows) > KEPT:
            rows = rows.take(shuffled(len(rows), "neighbours")[:KEPT])
        right = rows.right.float()
        unasked = right.isnan()
        least = int((~unasked).sum(dim=0).min())  # rows on which the expert that was asked least was asked
        if self.asked_for is not None and self.asked_for >= least:
            rows_of = (
                "the number of training rows"
                if not unasked.any()
                else "the training rows on which each expert was asked"
            )
            raise ParameterError("k", f"must be less than {rows_of}, {least:,}", self.asked_for)
        self.right, self.unasked = right.nan_to_num(nan=0.0), unasked if unasked.any() else unasked[:0]
        judged = shuffled(len(rows), "judged neighbours")[:JUDGED]
        counts = [k for k in NEIGHBOURS if k < least] or [1] if self.asked_for is None else [self.asked_for]
        found: dict[tuple[int, bool], Tensor] = {}
        for unit in (False, True):
            self.set_scale(rows.inputs, unit=unit)
            self.kept = self.scaled(rows.inputs)
            near = [self.nearest(part, max(counts) + 1) for part in self.kept[judged].split(AT_ONCE)]
            sums = right_at(self.right, without(torch.cat(near), judged)).cumsum(dim=2)
            found |= {(k, unit): squared(sums[:, :, k - 1] / k, right[judged]) for k in counts}
        k, unit = simplest({choice: found[choice] for choice in sorted(found, reverse=True)})
        self.set_scale(rows.inputs, unit=unit)
        self.kept, self.counted = self.scaled(rows.inputs), torch.ones(1, k, dtype=torch.bool)

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        """It counts as many neighbours as the others, or all rows if there are fewer."""
        n, p = self.right.shape
        new, k = len(inputs), self.counted.shape[1]
        unasked = self.unasked if len(self.unasked) else torch.zeros(n, p, dtype=torch.bool)
        self.unasked = torch.ones(n + new, p + 1, dtype=torch.bool)
        self.unasked[:n, :p], self.unasked[n:, p] = unasked, False
        grown = torch.zeros(n + new, p + 1)
        grown[:n, :p], grown[n:, p] = self.right, right.float()
        self.right, self.kept = grown, torch.cat([self.kept, self.scaled(inputs)])
        self.counted = torch.cat([self.counted.expand(p, -1), (torch.arange(k) < new)[None]])

    def nearest(self, queries: Tensor, k: int) -> Tensor:
        """The k nearest of the kept rows, the nearest first, for each expert. Scaled queries [B, F] -> [B, p, k]; [B, 1, k] if
        they are the same for all experts."""
        closeness = 2 * queries @ self.kept.T - self.kept.square().sum(dim=1)
        if not len(self.unasked):
            return closeness.topk(k, dim=1).indices[:, None]
        asked = [closeness.masked_fill(left_out, -torch.inf) for left_out in self.unasked.T]
        return torch.stack([part.topk(k, dim=1).indices for part in asked], dim=1)

    def right_of(self, near: Tensor) -> Tensor:
        """How right each expert was on its own nearest rows. [B, p or 1, k] -> [B, p, k]"""
        return self.right[near, torch.arange(self.right.shape[1], device=near.device)[:, None]]

    def forward(self, inputs: Tensor) -> Tensor:
        near = self.right_of(self.nearest(self.scaled(inputs), self.counted.shape[1]))
        return (near * self.counted).sum(dim=2) / self.counted.sum(dim=1)


def without(near: Tensor, own: Tensor) -> Tensor:
    """Neighbours [n, p, k + 1] without the row itself, or without the farthest if it is not among them. -> [n, p, k]"""
    is_own = near == own[:, None, None]
    is_own[..., -1] |= ~is_own.any(dim=2)
    place = is_own.to(torch.uint8).argmax(dim=2, keepdim=True)
    return torch.where(torch.arange(near.shape[2] - 1) < place, near[..., :-1], near[..., 1:])


def right_at(right: Tensor, near: Tensor) -> Tensor:
    """As `right_of`, for many neighbours: seven times as fast, but an exported router would copy `right` for every query."""
    return right.T.expand(len(near), -1, -1).gather(2, near.expand(-1, right.shape[1], -1))


class Clusters(Scaled):
    """The mean over the cluster of the row (k-means). The number of clusters is chosen by leave-one-out.

    k: the number of clusters; None: chosen.
    """

    centres: Tensor
    table: Tensor

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.asked = k
        for name in ("centres", "table"):
            self.register_buffer(name, torch.zeros(0))

    def fit(self, rows: FitRows) -> None:
        from sklearn.cluster import MiniBatchKMeans

        if self.asked is not None and self.asked > len(rows):
            raise ParameterError("k", f"must be at most the number of training rows, {len(rows):,}", self.asked)
        right = rows.right.float()
        counts = [k for k in CLUSTERS if 2 * k <= len(rows)] or [1] if self.asked is None else [self.asked]
        found, made = {}, {}
        for unit in (False, True):
            self.set_scale(rows.inputs, unit=unit)
            points = self.scaled(rows.inputs)
            for k in counts:
                with not_converged_is_fine():
                    means = MiniBatchKMeans(k, n_init=1, batch_size=1_024, max_iter=20, random_state=0).fit(
                        points.numpy()
                    )
                member, overall = torch.from_numpy(means.labels_).long(), right.nanmean(dim=0)
                sums, sizes = group_sums(member, right, k)
                left_out = (sums[member] - right + overall) / sizes[member]  # smoothed by one row
                table = (sums + overall) / (sizes + 1)
                found[k, unit] = squared(left_out, right)
                made[k, unit] = torch.from_numpy(means.cluster_centers_).float(), table
        chosen = simplest({choice: found[choice] for choice in sorted(found)})
        self.centres, self.table = made[chosen]
        self.set_scale(rows.inputs, unit=chosen[1])

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        self.table = torch.cat([self.table, smoothed(self.cluster(inputs), right, len(self.centres))], dim=1)

    def cluster(self, inputs: Tensor) -> Tensor:
        """The number of the nearest centre, [B, F] -> [B]."""
        return (2 * self.scaled(inputs) @ self.centres.T - self.centres.square().sum(dim=1)).argmax(dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.table[self.cluster(inputs)]


def smoothed(member: Tensor, right: Tensor, groups: int) -> Tensor:
    """One expert's mean in each group, pulled towards its mean over all rows as if by one row. [n], [n] -> [groups, 1]"""
    sums, sizes = group_sums(member, right.float()[:, None], groups)
    return (sums + right.float().mean()) / (sizes + 1)


@contextmanager
def not_converged_is_fine() -> Iterator[None]:
    """scikit-learn warns if it stops early, or if there are fewer different rows than clusters. The choice among
    estimates sees what they are worth."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


class Lookup(Estimator):
    """The mean over the training rows that are equal to the row, such as those of one category; over all rows if there are none.

    Rows are equal if they differ by rounding alone: an encoder gives a text other last digits in another batch.
    """

    mean: Tensor
    std: Tensor
    different: Tensor
    table: Tensor
    overall: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "std", "different", "table", "overall"):
            self.register_buffer(name, torch.zeros(0))

    def fit(self, rows: FitRows) -> None:
        right, values = rows.right.float(), rows.inputs.double()
        spread = values.std(dim=0, correction=0)
        self.mean, self.std = values.mean(dim=0), torch.where(spread < CONSTANT, torch.ones_like(spread), spread)
        self.different, member = self.scaled(values).round(decimals=ROUNDED).unique(dim=0, return_inverse=True)
        if 2 * len(self.different) > len(rows):
            raise ParameterError(
                "",
                f"{len(self.different):,} of {len(rows):,} training rows are different; let the router see only the category:"
                " dataset.text=topic dataset.category=topic",
            )
        sums, sizes = group_sums(member, right, len(self.different))
        self.overall = right.nanmean(dim=0)
        self.table = (sums + self.overall) / (sizes + 1)  # smoothed by one row

    def scaled(self, values: Tensor) -> Tensor:
        """Centred and in double precision: of numbers such as 5,001 and 5,002 the difference must be left."""
        return (values.double() - self.mean) / self.std

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        """Rows of new categories count towards the mean over all rows alone."""
        near, known = self.category(inputs)
        self.overall = torch.cat([self.overall, right.float().mean()[None]])
        mine = right.float().where(known[:, 0], torch.nan)[:, None]
        sums, sizes = group_sums(near, mine, len(self.different))
        self.table = torch.cat([self.table, (sums + self.overall[-1]) / (sizes + 1)], dim=1)

    def category(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest of the different rows [B], and whether it is equal [B, 1]."""
        values = self.scaled(inputs)
        near = (2 * values @ self.different.T - self.different.square().sum(dim=1)).argmax(dim=1)
        return near, ((self.different[near] - values).abs() < 10.0 ** (1 - ROUNDED)).all(dim=1, keepdim=True)

    def forward(self, inputs: Tensor) -> Tensor:
        near, known = self.category(inputs)
        return torch.where(known, self.table[near], self.overall)


class Ridge(Scaled):
    """Linear regression with a penalty whose strength is chosen by leave-one-out."""

    weight: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("weight", "bias"):
            self.register_buffer(name, torch.zeros(0))

    def fit(self, rows: FitRows) -> None:
        self.set_scale(rows.inputs, unit=False)
        points, right = self.scaled(rows.inputs).double(), rows.right.double()
        asked = ~right.isnan()
        if asked.all():  # one decomposition, and one penalty, for all experts
            weight, bias = fit_left_out(points, right, RIDGES)
        else:
            found = [
                fit_left_out(points[mine], one[mine, None], RIDGES) for one, mine in zip(right.T, asked.T, strict=True)
            ]
            weight, bias = (torch.cat(parts, dim=-1) for parts in zip(*found, strict=True))
        self.weight, self.bias = weight.T.float().contiguous(), bias.float()

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        weight, bias = fit_left_out(self.scaled(inputs), right[:, None], RIDGES)
        self.weight, self.bias = torch.cat([self.weight, weight.T.float()]), torch.cat([self.bias, bias.float()])

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.scaled(inputs) @ self.weight.T + self.bias).clamp(0, 1)


class LabelClassifier(Scaled):
    """A linear classifier of the label and, by label, how right each expert is: Σ_y p(y|x) E[right|y]. The classifier's penalty is
    chosen on a fifth of the training rows."""

    weight: Tensor
    bias: Tensor
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("weight", "bias", "table"):
            self.register_buffer(name, torch.zeros(0))

    def fit(self, rows: FitRows) -> None:
        known = rows.labels >= 0
        if not known.any():
            raise ParameterError(
                "",
                "needs labels, and these data have none; name a column, dataset.label=topic, or give labels to l2d.fit",
            )
        self.set_scale(rows.inputs, unit=False)
        found, labels = rows.labels[known].unique(return_inverse=True)
        points, right = self.scaled(rows.inputs[known]), rows.right.float()
        sums, sizes = group_sums(labels, right[known], len(found))
        self.table = (sums + right.nanmean(dim=0)) / (sizes + 1)
        order = shuffled(len(points), "classifier")
        judged, learned = order[: len(order) // 5], order[len(order) // 5 :]
        scores = {}
        for strength in STRENGTHS if len(judged) and len(labels[learned].unique()) > 1 else STRENGTHS[:1]:
            self.classify(points[learned], labels[learned], strength, len(found))
            scores[strength] = squared(self.given_label(points[judged]), right[known][judged])
        self.classify(points, labels, simplest(scores), len(found))

    def classify(self, points: Tensor, labels: Tensor, strength: float, num_labels: int) -> None:
        """Labels that these rows do not have get no chance."""
        from sklearn.linear_model import LogisticRegression

        self.weight, self.bias = torch.zeros(num_labels, points.shape[1]), torch.full((num_labels,), -torch.inf)
        present = labels.unique()
        if len(present) == 1:
            self.bias[present] = 0.0
            return
        model = LogisticRegression(C=strength, max_iter=200, tol=1e-2)
        with not_converged_is_fine():
            model.fit(points.numpy(), labels.numpy())
        weight, bias = torch.from_numpy(model.coef_).float(), torch.from_numpy(model.intercept_).float()
        if len(present) == 2:  # scikit-learn gives the second one's log-odds
            weight, bias = torch.cat([-weight / 2, weight / 2]), torch.cat([-bias / 2, bias / 2])
        self.weight[present], self.bias[present] = weight, bias

    def given_label(self, points: Tensor) -> Tensor:
        return torch.softmax(points @ self.weight.T + self.bias, dim=1) @ self.table

    def forward(self, inputs: Tensor) -> Tensor:
        return self.given_label(self.scaled(inputs))


class EstimatorNetwork(Network):
    """An estimator in a network's place: output k is the logit of the chance that expert k is right. Images are read as rows of
    pixels."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.estimator = estimator

    def fit(self, rows: FitRows) -> None:
        with torch.no_grad():
            self.estimator.fit(replace(rows, inputs=rows.inputs.flatten(1)))

    def check_inputs(self, inputs: Tensor) -> None:
        if input_kind(inputs) == "tokens":
            raise ParameterError("", f"reads {KINDS['rows']}, not {KINDS['tokens']}; use router=minilm")

    def forward(self, inputs: Tensor, compute: Features | None = None) -> Tensor:  # noqa: ARG002 (there is nothing to compile)
        self.check_inputs(inputs)
        return self.with_prices(torch.logit(self.estimator(inputs.flatten(1)).clamp(CERTAIN, 1 - CERTAIN)), inputs)


def squared(estimates: Tensor, right: Tensor) -> Tensor:
    """The squared error of each row's estimates, over the experts that were asked. [n, p] both -> [n]"""
    return (estimates - right).square().nanmean(dim=1)


Choice = TypeVar("Choice")


def simplest(errors: Mapping[Choice, Tensor]) -> Choice:
    """The first choice whose mean squared error is within one standard error of the least. errors: of the same rows, by choice, the
    smoothest estimates first. A router takes the best of several estimates, so noise costs it more than the squared error says."""
    least = min(errors.values(), key=lambda one: float(one.mean()))
    for choice, one in errors.items():
        more = one - least
        if len(more) < 2 or more.mean() <= more.std() / len(more) ** 0.5:
            return choice
    raise AssertionError("the least is within one standard error of itself")
