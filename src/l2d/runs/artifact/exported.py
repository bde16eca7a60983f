"""model.safetensors: the weights of a trained router, its method's buffers, and what is needed to use it. Nothing is unpickled."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from l2d.core.guard import Guard
from l2d.data.arrays import Seen
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically
from l2d.utils.plain import from_plain
from l2d.utils.text import listed, own_version

FILE = "model.safetensors"
HELD_OUT = "held_out"  # prefix of the tensors that a guard for other prices is fitted to
READING = "encoder"  # prefix of what the encoder of texts has learned
HEADER = "l2d"  # one key: safetensors writes several in a different order in each process
FORMAT = 2
MOST_EXPERTS, MOST_NUMBERS = 1_000, 100_000_000  # the latter in one input
RETRAIN = "train the run again with force=true"


@dataclass(frozen=True)
class RouterDescription:
    """The facts that the tensors do not hold. prices: one per expert, None if each row has its own or they are part of
    the costs. shape: of one input. encoder: the text encoder's config. factor: on the prices, so that a budget is kept. plan: that
    the router follows, None if it asks one expert."""

    experts: tuple[str, ...]
    prices: tuple[float, ...] | None
    num_classes: int
    shape: tuple[int, ...]
    seen: Seen
    encoder: dict[str, Any] | None
    guard: Guard
    factor: float = 1.0
    plan: str | None = None

    @property
    def kind(self) -> str:
        """The kind of a query: image, text (and nothing else), or row."""
        if len(self.shape) == 3:
            return "image"
        return "text" if self.seen.text is not None and not self.seen.features else "row"

    @property
    def sees(self) -> str:
        """The same in words, for messages."""
        if self.kind == "image":
            return f"images ({'×'.join(map(str, self.shape))})"
        named = "a text" if self.seen.text == "text" else f"the text {self.seen.text}"
        text = [named] if self.seen.text is not None else []
        columns = [f"the columns {listed(self.seen.features, 60)}"] if self.seen.features else []
        return " and ".join([*columns, *text]) or f"rows of {self.shape[0]} numbers"

    def as_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("experts", "prices", "num_classes", "factor", "plan")}
        seen = {"shape": self.shape, **asdict(self.seen), "encoder": self.encoder}
        return {"format": FORMAT, "version": own_version(), **own, "input": seen, "guard": asdict(self.guard)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "RouterDescription":
        seen = dict(content["input"])
        return from_plain(cls, {**content, "shape": seen.pop("shape"), "encoder": seen.pop("encoder"), "seen": seen})


def check_description(about: RouterDescription) -> None:
    """Raises ValueError if a part cannot be used."""
    names, p, guard = about.experts, len(about.experts), about.guard
    numbers = [*(about.prices or ()), *(guard.offsets or ()), about.factor, guard.gain, guard.needed]
    places = [guard.best, *([] if guard.constant is None else [guard.constant])]
    fine = (
        0 < p <= MOST_EXPERTS
        and all(names)
        and len({*names}) == p
        and all(part is None or len(part) == p for part in (about.prices, guard.offsets))
        and all(map(math.isfinite, numbers))
        and all(0 <= place < p for place in places)
        and about.factor >= 0
        and 0 < len(about.shape) <= 3
        and min(about.num_classes + 1, *about.shape) > 0
        and max(about.num_classes, math.prod(about.shape)) <= MOST_NUMBERS
    )
    if not fine:
        raise ValueError("its description does not fit a router")


def write_weights(file: Path, weights: Mapping[str, Tensor], description: RouterDescription) -> None:
    whole = torch.contiguous_format
    tensors = {name: tensor.detach().cpu().clone(memory_format=whole) for name, tensor in weights.items()}
    header = json.dumps({**description.as_dict(), "sha256": tensors_digest(tensors)}, sort_keys=True)
    write_atomically(file, lambda path: save_file(tensors, path, metadata={HEADER: header}))


def read_weights(file: Path) -> tuple[dict[str, Tensor], RouterDescription]:
    """Raises L2DError if the file is missing, damaged or of another format."""
    if not file.exists():
        raise L2DError(f"{file}: missing; {RETRAIN}")
    try:
        with safe_open(file, framework="pt") as content:
            header = json.loads((content.metadata() or {})[HEADER])
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (not a mapping)
        if header["format"] != FORMAT:
            raise L2DError(f"{file}: l2d {header.get('version')} wrote it in another format; {RETRAIN}")
        whole, description = tensors_digest(tensors) == header["sha256"], RouterDescription.from_dict(header)
        check_description(description)
    except L2DError:
        raise
    except Exception as error:  # anything may be in the file
        raise L2DError(f"{file}: damaged ({type(error).__name__}); {RETRAIN}") from error
    if not whole:
        raise L2DError(f"{file}: damaged, the checksum does not match the weights; {RETRAIN}")
    for name, tensor in tensors.items():
        learned = name.startswith("network.") and not name.startswith("network.estimator.")  # rows may have gaps
        if learned and tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise L2DError(f"{file}: damaged, {name[:100]} has NaN; {RETRAIN}")
    return tensors, description


def part_of(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one part (method, network or held_out), by their names within it."""
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
