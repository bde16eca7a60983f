"""A small network, trained at once: the quick form of cost_regression and, with labels, of label_regression."""

import torch
from torch import Tensor
from torch.nn import functional

from l2d.core.groups import smoothed_means
from l2d.networks.estimators.estimator import FitRows, Scaled
from l2d.utils.seeding import derive_seed

HIDDEN = 128
EPOCHS, STEPS = 20, 300  # whichever is more
BATCH, RATE, DECAY, DROPOUT = 128, 1e-3, 1e-2, 0.5
LABEL_WEIGHT = 4.0  # as in conf/method/label_regression.yaml
CERTAIN = 1e-4


class Perceptron(Scaled):
    """One hidden layer. With labels, further outputs learn them, and the first ones correct what the label says."""

    fitted = ("hidden", "bias", "out", "shift", "table")
    hidden: Tensor
    bias: Tensor
    out: Tensor
    shift: Tensor
    table: Tensor

    def fit(self, rows: FitRows) -> None:
        self.set_scale(rows.inputs, unit=False)
        right, known = rows.right.float(), rows.labels >= 0
        kinds, labels = rows.labels.clamp(min=0).unique(return_inverse=True)
        count = len(kinds) if known.any() else 0
        self.table = (
            smoothed_means(labels[known], right[known], count, right.nanmean(dim=0)) if count else torch.zeros(0)
        )
        points = self.scaled(rows.inputs)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(derive_seed(0, "perceptron"))
            self.start(points.shape[1], right.shape[1] + count)
            weights = [self.hidden, self.bias, self.out, self.shift]
            optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=DECAY, fused=True)
            batches = -(-len(rows) // BATCH)
            epochs = max(EPOCHS, -(-STEPS // batches))
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
            for _ in range(epochs):
                for batch in torch.randperm(len(rows)).split(BATCH):
                    optimizer.zero_grad()
                    self.loss(points[batch], right[batch], labels[batch], known[batch]).backward()
                    optimizer.step()
                    schedule.step()
        for weight in weights:
            weight.requires_grad_(False)

    def start(self, features: int, outputs: int) -> None:
        self.hidden = (torch.randn(HIDDEN, features) * (2 / features) ** 0.5).requires_grad_()
        self.out = (torch.randn(outputs, HIDDEN) * HIDDEN**-0.5).requires_grad_()
        self.bias, self.shift = torch.zeros(HIDDEN, requires_grad=True), torch.zeros(outputs, requires_grad=True)

    def loss(self, points: Tensor, right: Tensor, labels: Tensor, known: Tensor) -> Tensor:
        outputs = self.outputs(points, DROPOUT)
        asked = ~right.isnan()
        losses = functional.binary_cross_entropy_with_logits(self.logits(outputs)[asked], right[asked])
        if known.any():
            losses = losses + LABEL_WEIGHT * functional.cross_entropy(outputs[known, right.shape[1] :], labels[known])
        return losses

    def outputs(self, points: Tensor, dropout: float = 0.0) -> Tensor:
        middle = functional.relu(points @ self.hidden.T + self.bias)
        return functional.dropout(middle, dropout, training=dropout > 0) @ self.out.T + self.shift

    def logits(self, outputs: Tensor) -> Tensor:
        if not len(self.table):
            return outputs
        experts = self.table.shape[1]
        expected = torch.softmax(outputs[:, experts:], dim=1) @ self.table
        return outputs[:, :experts] + torch.logit(expected.clamp(CERTAIN, 1 - CERTAIN))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sigmoid(self.logits(self.outputs(self.scaled(inputs))))
