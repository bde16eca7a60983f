"""A small network, trained at once: the quick form of cost_regression and, with labels, of label_regression."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from l2d.core.groups import smoothed_means
from l2d.networks.estimators.estimator import FitRows, Scaled
from l2d.networks.tabular import QuickDropout
from l2d.utils.seeding import derive_seed

HIDDEN = 128
EPOCHS, STEPS = 15, 200  # whichever is more
BATCH, RATE, DECAY, DROPOUT = 256, 2e-3, 1e-2, 0.5
LABEL_WEIGHT = 4.0  # as in conf/method/label_regression.yaml
CERTAIN = 1e-4
BETAS = (0.9, 0.999)


class Perceptron(Scaled):
    """One hidden layer. With labels, further outputs learn them, and the first ones correct what the label says."""

    hidden: Tensor
    bias: Tensor
    out: Tensor
    shift: Tensor
    table: Tensor

    def fit(self, rows: FitRows) -> None:
        self.set_scale(rows.inputs)
        right, known = rows.right.float(), rows.labels >= 0
        kinds, labels = rows.labels.clamp(min=0).unique(return_inverse=True)
        count = len(kinds) if known.any() else 0
        if count:
            self.table = smoothed_means(labels[known], right[known], count, right.nanmean(dim=0))
        points = self.scaled(rows.inputs)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(derive_seed(0, "perceptron"))
            self.start(points.shape[1], right.shape[1] + count)
            weights = [self.hidden, self.bias, self.out, self.shift]
            adam, batches = Adam(weights), -(-len(rows) // BATCH)
            epochs = max(EPOCHS, -(-STEPS // batches))
            for epoch in range(epochs):
                for place, batch in enumerate(torch.randperm(len(rows)).split(BATCH)):
                    loss = self.loss(points[batch], right[batch], labels[batch], known[batch])
                    done = (epoch * batches + place) / (epochs * batches)
                    adam.step(torch.autograd.grad(loss, weights), RATE * (1 + math.cos(math.pi * done)) / 2)
        for weight in weights:
            weight.requires_grad_(False)

    def start(self, features: int, outputs: int) -> None:
        self.hidden = (torch.randn(HIDDEN, features) * (2 / features) ** 0.5).requires_grad_()
        self.out = (torch.randn(outputs, HIDDEN) * HIDDEN**-0.5).requires_grad_()
        self.bias, self.shift = torch.zeros(HIDDEN, requires_grad=True), torch.zeros(outputs, requires_grad=True)

    def loss(self, points: Tensor, right: Tensor, labels: Tensor, known: Tensor) -> Tensor:
        outputs = self.outputs(QuickDropout(DROPOUT), points)
        asked = ~right.isnan()
        losses = functional.binary_cross_entropy_with_logits(self.logits(outputs)[asked], right[asked])
        if known.any():
            losses = losses + LABEL_WEIGHT * functional.cross_entropy(outputs[known, right.shape[1] :], labels[known])
        return losses

    def outputs(self, drop: nn.Module, points: Tensor) -> Tensor:
        return drop(torch.addmm(self.bias, points, self.hidden.T).relu()) @ self.out.T + self.shift

    def logits(self, outputs: Tensor) -> Tensor:
        if not len(self.table):
            return outputs
        experts = self.table.shape[1]
        expected = torch.softmax(outputs[:, experts:], dim=1) @ self.table
        return outputs[:, :experts] + torch.logit(expected.clamp(CERTAIN, 1 - CERTAIN))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sigmoid(self.logits(self.outputs(nn.Identity(), self.scaled(inputs))))


class Adam:
    """AdamW. torch's own takes two seconds to import what it does not need here."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights, self.steps = weights, 0
        self.means, self.squares = ([torch.zeros_like(one) for one in weights] for _ in range(2))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        self.steps += 1
        for weight, gradient, mean, square in zip(self.weights, gradients, self.means, self.squares, strict=True):
            mean.lerp_(gradient, 1 - BETAS[0])
            square.lerp_(gradient.square(), 1 - BETAS[1])
            size = (square / (1 - BETAS[1] ** self.steps)).sqrt_().add_(1e-8)
            weight.mul_(1 - rate * DECAY).addcdiv_(mean, size, value=-rate / (1 - BETAS[0] ** self.steps))
