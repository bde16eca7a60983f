"""The base class of router networks: from a batch of one kind of input to outputs [B, num_outputs]."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from l2d.data.text.tokens import is_tokens
from l2d.networks.prices import PriceModel
from l2d.utils.errors import ParameterError

# For each kind of input: what it is, and a router that reads it.
KINDS = {"images": "images", "rows": "rows of numbers", "tokens": "one text (dataset.text=COLUMN, no dataset.features)"}
READERS = {"images": "resnet18_slim recipe=small", "rows": "mlp recipe=table", "tokens": "minilm_tuned"}

Features = Callable[[Any, Tensor], Tensor]  # of a network and inputs


class Network(nn.Module):
    """A subclass takes keyword arguments, to which the run adds `num_outputs` and `head` and, if there are such parameters, `mean`
    and `std` of the training inputs. It has `features`, and its last layer is `head` (make_head)."""

    expects: ClassVar[str | None] = None  # images uint8 [B, H, W, C], rows [B, F], or tokens int32 [B, L]; None: any
    reads_text: ClassVar[bool] = False  # brings its own tokenizer, so a text reaches it as tokens
    head: nn.Module

    def __init__(self) -> None:
        super().__init__()
        # If prices differ between queries: its outputs [B, p] follow the network's own, but not in training.
        self.price_model: PriceModel | None = None

    def features(self, inputs: Tensor) -> Tensor:
        """The head's inputs [B, F]. This is the part that is compiled, so runs with different heads share it."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, compute: Features | None = None) -> Tensor:
        """Outputs [B, num_outputs]. compute: computes the features of a network and inputs; default: `features`."""
        self.check_inputs(inputs)
        features = self.features(inputs) if compute is None else compute(self, inputs)
        # In half precision scores would tie, and ties go to the last expert.
        with torch.autocast(inputs.device.type, enabled=False):
            outputs = self.head(features.float())
        return self.with_prices(outputs, inputs)

    def with_prices(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        if self.training or self.price_model is None:
            return outputs
        with torch.autocast(inputs.device.type, enabled=False):  # small prices would be lost
            return torch.cat([outputs, self.price_model(inputs)], dim=-1)

    @classmethod
    def check_kind(cls, found: str) -> None:
        if cls.expects is not None and found != cls.expects:
            raise ParameterError("", f"reads {KINDS[cls.expects]}, not {found}; use router={READERS[found]}")

    def check_inputs(self, inputs: Tensor) -> None:
        self.check_kind(input_kind(inputs))

    def keep(self, folder: Path) -> None:
        """Write what is needed to build the network again, beside its weights, into a run's folder."""

    @classmethod
    def kept_arguments(cls, folder: Path) -> dict[str, Any]:  # noqa: ARG003 (for networks that keep something)
        """The arguments to replace when the network is built again from a run's folder."""
        return {}


def input_kind(inputs: Tensor) -> str:
    return "images" if inputs.ndim == 4 else "tokens" if is_tokens(inputs) else "rows"
