"""Linear estimates: of how right each expert is, or of the label."""

import torch
from torch import Tensor

from l2d.core.groups import smoothed_means
from l2d.core.ridge import fit_left_out
from l2d.networks.estimators.estimator import FitRows, Scaled, not_converged_is_fine, shuffled, simplest, squared
from l2d.utils.errors import ParameterError

RIDGES = tuple(10.0**power for power in range(-1, 7))
NO_LABELS = "needs labels, and these data have none; name a column, dataset.label=topic, or give labels to l2d.fit"
STRENGTHS = (0.001, 0.01, 0.1)  # C of the classifier: the inverse of its penalty


class Ridge(Scaled):
    """Linear regression with a penalty whose strength is chosen by leave-one-out."""

    weight: Tensor
    bias: Tensor

    def fit(self, rows: FitRows) -> None:
        self.set_scale(rows.inputs)
        points, right = self.scaled(rows.inputs).double(), rows.right.double()
        asked = ~right.isnan()
        if asked.all():  # one decomposition, and one penalty, for all experts
            weight, bias, _ = fit_left_out(points, right, RIDGES)
        else:
            columns = zip(right.T, asked.T, strict=True)
            found = [fit_left_out(points[mine], one[mine, None], RIDGES)[:2] for one, mine in columns]
            weight, bias = (torch.cat(parts, dim=-1) for parts in zip(*found, strict=True))
        self.weight, self.bias = weight.T.float().contiguous(), bias.float()

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        weight, bias, _ = fit_left_out(self.scaled(inputs), right[:, None], RIDGES)
        self.weight, self.bias = torch.cat([self.weight, weight.T.float()]), torch.cat([self.bias, bias.float()])

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.scaled(inputs) @ self.weight.T + self.bias).clamp(0, 1)


class LabelClassifier(Scaled):
    """A linear classifier of the label, its penalty chosen on a fifth of the rows, and a table: Σ_y p(y|x) E[right|y]."""

    weight: Tensor
    bias: Tensor
    table: Tensor

    def fit(self, rows: FitRows) -> None:
        known = rows.labels >= 0
        if not known.any():
            raise ParameterError("", NO_LABELS)
        self.set_scale(rows.inputs)
        found, labels = rows.labels[known].unique(return_inverse=True)
        points, right = self.scaled(rows.inputs[known]), rows.right.float()
        self.table = smoothed_means(labels, right[known], len(found), right.nanmean(dim=0))
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
