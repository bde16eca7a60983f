"""The router for rows of numbers."""

import pytest
import torch
from torch import nn

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.networks.tabular import MLP, QuickDropout

Rows = list[list[float]]


def build(*overrides: str, mean: list[float], std: list[float], head: str = "linear") -> MLP:
    component = check(compose(["router=mlp", *overrides])).router
    network = make(component, mean=mean, std=std, num_outputs=3, head=head)
    assert isinstance(network, MLP)
    return network.eval()


def seen(network: MLP, rows: Rows) -> Rows:
    inputs: list[torch.Tensor] = []
    network.net.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    assert network(torch.tensor(rows)).shape == (len(rows), 3)
    return inputs[0].tolist()


@pytest.mark.parametrize(
    ("mean", "std", "rows", "expected"),
    [
        ([100.0, 1.0], [10.0, 0.5], [[100.0, 1.0], [120.0, 0.5]], [[0, 0], [2, -1]]),
        ([5.0], [1e-6], [[5.0], [6.0]], [[0], [1]]),  # constant in training: a step of 1 on the test split stays one
        ([0.0], [1e-4], [[5e-4]], [[5]]),  # small numbers are not constant
        ([0.0], [1.0], [[1e30], [-1e30], [9.0]], [[10], [-10], [9]]),  # outliers are held at ten spreads
    ],
)
def test_features_are_normalised(mean: list[float], std: list[float], rows: Rows, expected: Rows) -> None:
    assert seen(build(mean=mean, std=std), rows) == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(("depth", "layers"), [(0, 0), (1, 1), (3, 3)])
def test_depth_and_width(depth: int, layers: int) -> None:
    """By hand, for 2 features, width 5 and 3 outputs: 2·5 + 5 into the first layer, 5·5 + 5 between, 5·2 per normalisation."""
    network = build(f"router.depth={depth}", "router.width=5", "router.dropout=0.25", mean=[0.0] * 2, std=[1.0] * 2)
    assert sum(isinstance(layer, nn.Linear) for layer in network.net) == layers
    assert [layer.kept for layer in network.net if isinstance(layer, QuickDropout)] == [192] * layers
    hidden = 15 + 30 * (depth - 1) + 10 * depth if depth else 0
    head = 3 * (5 if depth else 2) + 3
    assert sum(weight.numel() for weight in network.parameters()) == hidden + head


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_drops_each_place_equally_often(share: float) -> None:
    """Eight places share a random number: each of them is kept with the same chance."""
    torch.manual_seed(0)
    dropped = torch.stack([QuickDropout(share)(torch.ones(3, 8)) for _ in range(4000)])
    kept = round((1 - share) * 256) / 256
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / kept])
    rates = (dropped > 0).double().mean(dim=0)
    assert torch.allclose(rates, torch.full((3, 8), kept, dtype=torch.float64), atol=0.04)
    pairs = (dropped[:, 0] > 0).double().T.corrcoef()
    assert (pairs - torch.eye(8)).abs().max() < 0.08


def test_dropout_follows_the_seed_and_is_off_when_it_should_be() -> None:
    values, drawn = torch.randn(5, 7), []
    assert torch.equal(QuickDropout(0.5).eval()(values), values)
    assert torch.equal(QuickDropout(0.0)(values), values)
    assert QuickDropout(0.999).kept == 1  # some pass, or the rest could not make up for what is dropped
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        values = torch.ones(50, requires_grad=True)
        drawn.append(out := QuickDropout(0.5)(values))
        out.sum().backward()
        assert values.grad is not None
        assert torch.equal(values.grad, (out != 0) * 2.0)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
