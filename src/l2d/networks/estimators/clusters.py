"""The rows of one cluster."""

import torch
from torch import Tensor

from l2d.core.groups import group_sums, smoothed_means
from l2d.networks.estimators.estimator import FitRows, Scaled, not_converged_is_fine, shuffled, simplest, squared
from l2d.utils.errors import ParameterError

CLUSTERS = (8, 16, 32, 64)  # numbers to choose from
CLUSTERED = 20_000  # rows that the centres are computed from


class Clusters(Scaled):
    """The mean over the cluster of the row (k-means). k: the number of clusters; None: chosen by leave-one-out."""

    centres: Tensor
    table: Tensor

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.asked = k

    def fit(self, rows: FitRows) -> None:
        from sklearn.cluster import KMeans

        if self.asked is not None and self.asked > len(rows):
            raise ParameterError("k", f"must be at most the number of training rows, {len(rows):,}", self.asked)
        right = rows.right.float()
        counts = [k for k in CLUSTERS if 2 * k <= len(rows)] or [1] if self.asked is None else [self.asked]
        found, made, some = {}, {}, shuffled(len(rows), "clusters")[:CLUSTERED]
        self.set_scale(rows.inputs)
        plain = self.scaled(rows.inputs)
        for unit, points in ((False, plain), (True, torch.nn.functional.normalize(plain, dim=1))):
            for k in counts:
                means = KMeans(k, init="random", n_init=1, max_iter=20, random_state=0)
                with not_converged_is_fine():
                    means.fit(points[some].numpy())
                member, overall = torch.from_numpy(means.predict(points.numpy())).long(), right.nanmean(dim=0)
                sums, sizes = group_sums(member, right, k)
                left_out = (sums[member] - right + overall) / sizes[member]  # smoothed by one row
                table = (sums + overall) / (sizes + 1)
                found[k, unit] = squared(left_out, right)
                made[k, unit] = torch.from_numpy(means.cluster_centers_).float(), table
        chosen = simplest({choice: found[choice] for choice in sorted(found)})
        (self.centres, self.table), self.unit = made[chosen], torch.tensor(chosen[1])

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        right = right.float()
        column = smoothed_means(self.cluster(inputs), right[:, None], len(self.centres), right.mean())
        self.table = torch.cat([self.table, column], dim=1)

    def cluster(self, inputs: Tensor) -> Tensor:
        return (2 * self.scaled(inputs) @ self.centres.T - self.centres.square().sum(dim=1)).argmax(dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.table[self.cluster(inputs)]
