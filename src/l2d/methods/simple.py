"""Simple routers: each estimates how right every expert will be, from the training rows at once. Prices may change later."""

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from l2d.core.replies import Replies
from l2d.methods.priced import CostRegression
from l2d.networks.estimators.best import Best
from l2d.networks.estimators.clusters import Clusters
from l2d.networks.estimators.estimator import Estimator, FitRows
from l2d.networks.estimators.linear import LabelClassifier, Ridge
from l2d.networks.estimators.lookup import Lookup
from l2d.networks.estimators.mixture import Mixture
from l2d.networks.estimators.neighbours import Neighbours
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.estimators.planner import Planner
from l2d.utils.parameters import Count, Positive


class SimpleRouter(CostRegression):
    """Cost regression whose estimates come from an estimator, not from the run's network. It trains for no epoch."""

    fitted: ClassVar[bool] = True

    def estimator(self) -> Estimator:
        raise NotImplementedError

    def own_network(self) -> EstimatorNetwork:
        return EstimatorNetwork(self.estimator())

    def fit_rows(
        self, inputs: Tensor, costs: Tensor, labels: Tensor, prices: Tensor, replies: Replies | None = None
    ) -> FitRows:
        """costs: without prices that differ between rows, like those of every training split. prices [p] or [n, p]."""
        mean = prices if prices.ndim == 1 else prices.nanmean(dim=0)
        unit = float(self.most - self.least)
        right = self.right(costs.double() - self.prices.double())
        if replies is not None and (asks := replies.asks) is not None:
            replies = replace(replies, asks=replace(asks, right=self.right(1 - asks.right)))
        return FitRows(inputs, right, labels, mean / unit, prices / unit, replies)


class NearestNeighbours(SimpleRouter):
    def __init__(self, *, k: Count | None, **given: Any) -> None:
        super().__init__(**given)
        self.k = k

    def estimator(self) -> Estimator:
        return Neighbours(self.k)


class ClusterTable(NearestNeighbours):
    def estimator(self) -> Estimator:
        return Clusters(self.k)


class CategoryTable(SimpleRouter):
    def estimator(self) -> Estimator:
        return Lookup()


class LinearEstimates(SimpleRouter):
    """by_label: a classifier of the label and a table, else a regression of each expert's errors."""

    def __init__(self, *, by_label: bool, **given: Any) -> None:
        super().__init__(**given)
        self.needs_labels = self.classifies = by_label

    def estimator(self) -> Estimator:
        return LabelClassifier() if self.classifies else Ridge()


class Auto(SimpleRouter):
    """The best of the others and of a small network, chosen by cross-validation within the training rows."""

    def __init__(self, *, seconds: Positive, **given: Any) -> None:
        super().__init__(**given)
        self.seconds = seconds

    def estimator(self) -> Estimator:
        return Best(self.seconds)


class Planned(Auto):
    """Auto's estimates, and a plan that may ask another expert after an answer."""

    def estimator(self) -> Estimator:
        return Planner(self.seconds)


class Mix(LinearEstimates):
    """Nearest neighbours, linear regression and, by_label, a linear classifier of the label."""

    def estimator(self) -> Estimator:
        return Mixture([Neighbours, Ridge, *([LabelClassifier] if self.classifies else [])])
