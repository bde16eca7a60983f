"""ResNet-18 routers for images, from timm's blocks."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from l2d.networks.heads import make_head
from l2d.networks.network import Network
from l2d.utils.parameters import EvenWidth


class ResNet18(Network):
    """Raw uint8 images [B, H, W, C], which it normalises itself, to outputs [B, num_outputs]. width: channels of the first of four
    stages, each doubled. stem: 3x3 keeps the resolution, 7x7 is ImageNet's. mean, std: per channel, of raw pixel values."""

    expects: ClassVar[str] = "images"
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        width: EvenWidth,
        stem: Literal["3x3", "7x7"],
        zero_init: bool,
        mean: Sequence[float],
        std: Sequence[float],
        num_outputs: int,
        head: str,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))
        self.net = _resnet18(width, stem, zero_init, in_channels=len(mean))
        self.head = make_head(head, self.net.num_features, num_outputs)

    def features(self, inputs: Tensor) -> Tensor:
        pixels = inputs.permute(0, 3, 1, 2).to(self.mean.dtype)
        return self.net((pixels - self.mean) / self.std)


def _resnet18(width: int, stem: str, zero_init: bool, in_channels: int) -> ResNet:
    # timm fixes the stem's width at 64 unless the stem is "deep", whose first convolution alone differs and is replaced here.
    deep = {"stem_type": "deep", "stem_width": width // 2, "num_classes": 0, "zero_init_last": zero_init}
    net = ResNet(BasicBlock, [2, 2, 2, 2], channels=(width, 2 * width, 4 * width, 8 * width), **deep)
    side, stride = (3, 1) if stem == "3x3" else (7, 2)
    net.conv1 = nn.Conv2d(in_channels, width, side, stride=stride, padding=side // 2, bias=False)
    if stem == "3x3":
        net.maxpool = nn.Identity()
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")  # as timm does with the others
    return net
