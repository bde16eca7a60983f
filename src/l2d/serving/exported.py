"""model.safetensors: the weights of a trained router, its method's buffers and what is needed to ask it; nothing is unpickled."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from l2d.core.guard import Guard
from l2d.data.arrays import Seen
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically

FILE = "model.safetensors"
HELD_OUT = "held_out"  # before the names of what a guard for other prices is fitted to
HEADER = "l2d"  # one key: the order of several is not the same in every process
FORMAT = 1
ANEW = "train it again with force=true"


@dataclass(frozen=True)
class Description:
    """What the tensors do not say. prices: one per expert, None where they differ between rows. shape: of one input. encoder: the
    config of what turns text into numbers. guard: what validation rows made of the decisions."""

    experts: tuple[str, ...]
    prices: tuple[float, ...] | None
    num_classes: int
    shape: tuple[int, ...]
    seen: Seen
    encoder: dict[str, Any] | None
    guard: Guard | None = None

    def as_dict(self) -> dict[str, Any]:
        seen = {"shape": self.shape, **asdict(self.seen), "encoder": self.encoder}
        return {
            "format": FORMAT,
            "version": own_version(),
            "experts": self.experts,
            "prices": self.prices,
            "num_classes": self.num_classes,
            "input": seen,
            "guard": None if self.guard is None else self.guard.as_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Description":
        seen = dict(content["input"])
        shape, encoder = tuple(seen.pop("shape")), seen.pop("encoder")
        prices, guard = content["prices"], content.get("guard")
        return cls(
            experts=tuple(content["experts"]),
            prices=None if prices is None else tuple(prices),
            num_classes=content["num_classes"],
            shape=shape,
            seen=Seen(**{**seen, "features": tuple(seen["features"])}),
            encoder=encoder,
            guard=None if guard is None else Guard.from_dict(guard),
        )


def write_weights(file: Path, weights: Mapping[str, Tensor], description: Description) -> None:
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in weights.items()
    }
    header = json.dumps({**description.as_dict(), "sha256": digest(tensors)}, sort_keys=True)
    write_atomically(file, lambda path: save_file(tensors, path, metadata={HEADER: header}))


def read_weights(file: Path) -> tuple[dict[str, Tensor], Description]:
    """What was written, or a line that says what is wrong with the file."""
    if not file.exists():
        raise L2DError(f"{file}: missing; this run was made before routers were kept there: {ANEW}")
    try:
        with safe_open(file, framework="pt") as content:
            header = json.loads((content.metadata() or {})[HEADER])
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (not a mapping)
        if header["format"] != FORMAT:
            raise L2DError(f"{file}: l2d {header.get('version')} wrote it in another format; {ANEW}")
        whole, description = digest(tensors) == header["sha256"], Description.from_dict(header)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise L2DError(f"{file}: damaged ({type(error).__name__}); {ANEW}") from error
    if not whole:
        raise L2DError(f"{file}: damaged, its checksum is not that of its weights; {ANEW}")
    return tensors, description


def digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def own_version() -> str:
    try:
        return version("l2d")
    except PackageNotFoundError:  # the source without its installation
        return "unknown"
