"""ResNet-18, wide and slim, and its heads."""

import pytest
import torch
from torch import nn

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.networks.heads import CosineHead, make_head
from l2d.networks.vision import ResNet18


def build(name: str, *overrides: str, channels: int = 3, head: str = "linear") -> ResNet18:
    component = check(compose([f"router={name}", *overrides])).router
    network = make(component, mean=[120.0] * channels, std=[60.0] * channels, num_outputs=5, head=head)
    assert isinstance(network, ResNet18)
    return network


@pytest.mark.slow
def test_is_resnet18() -> None:
    """torchvision's ResNet-18 has 11,689,512 weights; less its 1000-class layer (513,000) plus ours (2,565) is what ours must have
    with the 7×7 stem. The 3×3 stem has 64·3·(49 − 9) fewer."""
    count = sum(weight.numel() for weight in build("resnet18", "router.stem=7x7").parameters())
    assert count == 11_689_512 - 513_000 + 2_565
    assert sum(weight.numel() for weight in build("resnet18").parameters()) == count - 64 * 3 * 40


@pytest.mark.parametrize(("stem", "side"), [("3x3", 32), ("7x7", 8)])
def test_stem_and_resolution(stem: str, side: int) -> None:
    """Slim has a quarter of the channels."""
    network = build("resnet18_slim", f"router.stem={stem}")
    widths = [getattr(network.net, f"layer{i}")[1].conv2.out_channels for i in range(1, 5)]
    assert widths == [16, 32, 64, 128]
    seen: list[torch.Size] = []
    network.net.layer1.register_forward_hook(lambda _m, _i, out: seen.append(out.shape))
    assert network(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape == (2, 5)
    assert seen[0][-2:] == (side, side)


def test_normalises_raw_pixels() -> None:
    network = build("resnet18_slim").eval()
    seen: list[torch.Tensor] = []
    network.net.conv1.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    images = torch.full((1, 32, 32, 3), 180, dtype=torch.uint8)
    images[0, 4, 7, 2] = 0
    network(images)
    assert seen[0].shape == (1, 3, 32, 32)
    assert seen[0][0, 0, 0, 0] == 1.0
    assert seen[0][0, 2, 4, 7] == -2.0


def test_cosine_head() -> None:
    """cos of the angle: 1 along the weight, 0 across it, whatever the lengths."""
    head = CosineHead(2, 2)
    head.weight = nn.Parameter(torch.tensor([[2.0, 0.0], [0.0, 7.0]]))
    torch.testing.assert_close(head(torch.tensor([[10.0, 0.0], [3.0, 4.0]])), torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
    assert isinstance(build("resnet18_slim", head="cosine").head, CosineHead)
    assert isinstance(make_head("linear", 3, 2), nn.Linear)
