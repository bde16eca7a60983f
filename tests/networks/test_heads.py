"""A second head beside the first: there while it trains, gone after."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.tiny_encoders import write_encoder
from torch import Tensor, nn

from l2d.networks.heads import HEADS, attach_aux
from l2d.networks.tabular import MLP
from l2d.networks.text import TextEncoder
from l2d.networks.vision import ResNet18
from l2d.utils.errors import ParameterError

Made = tuple[nn.Module, Tensor]


def mlp(head: str, _: Path) -> Made:
    shape = {"mean": [0.0, 0.0], "std": [1.0, 1.0], "num_outputs": 3, "head": head}
    return MLP(width=5, depth=1, dropout=0.0, **shape), torch.tensor([[1.0, 2.0], [0.5, -1.0]])  # type: ignore[arg-type]


def resnet(head: str, _: Path) -> Made:
    network = ResNet18(width=2, stem="3x3", zero_init=False, mean=[8.0], std=[4.0], num_outputs=3, head=head)
    return network, torch.randint(0, 16, (2, 8, 8, 1), dtype=torch.uint8)


def text(head: str, folder: Path) -> Made:
    pytest.importorskip("transformers")
    network = TextEncoder(model=str(write_encoder(folder)), pretrained=False, dropout=0.0, num_outputs=3, head=head)
    return network, torch.tensor([[2, 5, 7, 3], [2, 9, 3, 3]], dtype=torch.int32)


@pytest.mark.parametrize("make", [mlp, resnet, pytest.param(text, marks=pytest.mark.slow)])
@pytest.mark.parametrize("head", HEADS)
def test_beside_the_head_while_it_trains(make: Callable[[str, Path], Made], head: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, inputs = make(head, tmp_path)
    with torch.no_grad():
        before = network.eval()(inputs)
        attach_aux(network, 4)
        assert torch.equal(network.eval()(inputs), before)  # the head's own, alone and unchanged
    network.train()
    outputs = network(inputs)
    assert outputs.shape == (2, 7)
    own, beside = outputs.tensor_split([3], dim=1)
    beside.square().sum().backward()
    trunk = [weight for name, weight in network.named_parameters() if not name.startswith("head.")]
    learned = [weight for weight in trunk if weight.grad is not None and weight.grad.abs().sum() > 0]
    assert len(learned) > len(trunk) / 2
    parts = dict(network.named_parameters())
    assert parts["head.aux.weight"].grad is not None
    assert parts["head.head.weight"].grad is None or not parts["head.head.weight"].grad.any()
    if head == "cosine":  # of the head alone: the other's outputs have no bounds
        assert own.abs().max() <= 1 + 1e-6
        assert isinstance(network.head.aux, nn.Linear)  # type: ignore[union-attr]


def test_a_network_without_a_head_is_refused() -> None:
    odd, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.head = nn.Identity()
    for network in (odd, other):
        with pytest.raises(ParameterError, match=r"^aux: Linear .*aux=none"):
            attach_aux(network, 4)
