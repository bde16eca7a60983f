"""Estimates of how right each expert will be that are computed from the training rows at once, not learned step by step."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from l2d.learning.compiling import Features
from l2d.networks.network import KINDS, Network, input_kind
from l2d.networks.tabular import CONSTANT, FAR
from l2d.utils.errors import ParameterError
from l2d.utils.seeding import derive_seed

NEIGHBOURS = (5, 10, 20, 50, 100, 200, 400, 800)  # numbers to choose from
CLUSTERS = (8, 16, 32, 64)
RIDGES = tuple(10.0**power for power in range(-1, 7))
STRENGTHS = (0.001, 0.01, 0.1)  # C of the classifier: the inverse of its penalty
FOLDS = 3  # of a mixture
KEPT = 50_000  # rows that are searched for neighbours
JUDGED = 1_000  # of these, on which numbers of neighbours are compared
AT_ONCE = 256  # of the judged rows, compared with all kept rows at once
ROUNDED = 3  # decimals of a standard deviation to which rows of one category agree
CERTAIN = 1e-4  # chances are clamped this far from 0 and 1 before a logit


@dataclass(frozen=True)
class FitRows:
    """inputs [n, F]. right [n, p]: how right each expert was, 0 to 1. labels int [n], −1 where unknown."""

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
    """The mean over the k nearest training rows. k and the scale are chosen by leave-one-out on the training rows.

    k: their number; None: chosen.
    """

    kept: Tensor
    right: Tensor
    weights: (
        Tensor  # [k], of the nearest, the second nearest and so on; its length is static, which exported routers need
    )

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.asked = k
        for name in ("kept", "right", "weights"):
            self.register_buffer(name, torch.zeros(0))

    def fit(self, rows: FitRows) -> None:
        if len(rows) < 2:
            raise ParameterError("", "needs at least two training rows")
        if self.asked is not None and self.asked >= len(rows):
            raise ParameterError("k", f"must be less than the number of training rows, {len(rows):,}", self.asked)
        if len(rows) > KEPT:
            rows = rows.take(shuffled(len(rows), "neighbours")[:KEPT])
        self.right = rows.right.float()
        judged = shuffled(len(rows), "judged neighbours")[:JUDGED]
        counts = [k for k in NEIGHBOURS if k < len(rows)] or [1] if self.asked is None else [self.asked]
        found: dict[tuple[int, bool], Tensor] = {}
        for unit in (False, True):
            self.set_scale(rows.inputs, unit=unit)
            self.kept = self.scaled(rows.inputs)
            near = [self.nearest(part, max(counts) + 1) for part in self.kept[judged].split(AT_ONCE)]
            sums = self.right[without(torch.cat(near), judged)].cumsum(dim=1)
            found |= {(k, unit): squared(sums[:, k - 1] / k, self.right[judged]) for k in counts}
        k, unit = simplest({choice: found[choice] for choice in sorted(found, reverse=True)})
        self.set_scale(rows.inputs, unit=unit)
        self.kept, self.weights = self.scaled(rows.inputs), torch.full((k,), 1 / k)

    def nearest(self, queries: Tensor, k: int) -> Tensor:
        """The k nearest of the kept rows, the nearest first. Scaled queries [B, F] -> [B, k]."""
        return (2 * queries @ self.kept.T - self.kept.square().sum(dim=1)).topk(k, dim=1).indices

    def forward(self, inputs: Tensor) -> Tensor:
        near = self.nearest(self.scaled(inputs), len(self.weights))
        return (self.right[near] * self.weights[:, None]).sum(dim=1)


def without(near: Tensor, own: Tensor) -> Tensor:
    """Neighbours [n, k + 1] without the row itself, or without the farthest if rows that are equal to it came first. -> [n, k]"""
    is_own = near == own[:, None]
    is_own[~is_own.any(dim=1), -1] = True
    return near[~is_own].view(len(near), -1)


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
                member, sums, sizes = group_sums(torch.from_numpy(means.labels_).long(), right, k)
                left_out = (sums[member] - right + right.mean(dim=0)) / sizes[member]  # smoothed by one row
                table = (sums + right.mean(dim=0)) / (sizes + 1)
                found[k, unit] = squared(left_out, right)
                made[k, unit] = torch.from_numpy(means.cluster_centers_).float(), table
        chosen = simplest({choice: found[choice] for choice in sorted(found)})
        self.centres, self.table = made[chosen]
        self.set_scale(rows.inputs, unit=chosen[1])

    def forward(self, inputs: Tensor) -> Tensor:
        near = (2 * self.scaled(inputs) @ self.centres.T - self.centres.square().sum(dim=1)).argmax(dim=1)
        return self.table[near]


@contextmanager
def not_converged_is_fine() -> Iterator[None]:
    """scikit-learn warns if it stops early, or if there are fewer different rows than clusters. The choice among
    estimates sees what they are worth."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def group_sums(member: Tensor, values: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """member, the sums of values [n, p] by group [groups, p], and the sizes of the groups [groups, 1]."""
    sums = torch.zeros(groups, values.shape[1], dtype=values.dtype).index_add(0, member, values)
    return member, sums, torch.bincount(member, minlength=groups)[:, None].to(values)


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
        _, sums, sizes = group_sums(member, right, len(self.different))
        self.overall = right.mean(dim=0)
        self.table = (sums + self.overall) / (sizes + 1)  # smoothed by one row

    def scaled(self, values: Tensor) -> Tensor:
        """Centred and in double precision: of numbers such as 5,001 and 5,002 the difference must be left."""
        return (values.double() - self.mean) / self.std

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.scaled(inputs)
        near = (2 * values @ self.different.T - self.different.square().sum(dim=1)).argmax(dim=1)
        known = ((self.different[near] - values).abs() < 10.0 ** (1 - ROUNDED)).all(dim=1, keepdim=True)
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
        from sklearn.linear_model import RidgeCV

        self.set_scale(rows.inputs, unit=False)
        model = RidgeCV(RIDGES).fit(self.scaled(rows.inputs).double().numpy(), rows.right.double().numpy())
        self.weight, self.bias = torch.tensor(model.coef_).float(), torch.tensor(model.intercept_).float()

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
        _, sums, sizes = group_sums(labels, right[known], len(found))
        self.table = (sums + right.mean(dim=0)) / (sizes + 1)
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


class Mixture(Estimator):
    """A convex combination of estimators. The weights are chosen by cross-validation within the training rows.

    kinds: of the members.
    """

    weights: Tensor

    def __init__(self, kinds: Sequence[type[Estimator]]) -> None:
        super().__init__()
        self.kinds, self.members = kinds, nn.ModuleList([kind() for kind in kinds])
        self.register_buffer("weights", torch.zeros(len(kinds)))

    def fit(self, rows: FitRows) -> None:
        from scipy.optimize import nnls

        order = shuffled(len(rows), "mixture")
        left_out = torch.zeros(len(self.kinds), *rows.right.shape)
        for judged in order.tensor_split(FOLDS):
            others = torch.ones(len(rows), dtype=torch.bool)
            others[judged] = False
            for number, kind in enumerate(self.kinds):
                member = kind()
                member.fit(rows.take(others))
                left_out[number, judged] = member(rows.inputs[judged])
        solved, _ = nnls(left_out.flatten(1).T.double().numpy(), rows.right.flatten().double().numpy())
        weights = torch.from_numpy(solved).float()
        self.weights = weights / weights.sum() if weights.sum() > 0 else torch.full_like(weights, 1 / len(weights))
        for chosen in self.members:
            assert isinstance(chosen, Estimator)
            chosen.fit(rows)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack(
            [weight * member(inputs) for weight, member in zip(self.weights, self.members, strict=True)]
        ).sum(0)


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
        return torch.logit(self.estimator(inputs.flatten(1)).clamp(CERTAIN, 1 - CERTAIN))


def squared(estimates: Tensor, right: Tensor) -> Tensor:
    """The squared error of each row's estimates. [n, p] both -> [n]"""
    return (estimates - right).square().mean(dim=1)


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
