"""Batches of (input, costs, label): gathered on the device if the set is there, else streamed from the host."""

from collections.abc import Iterator

import torch
from torch import Tensor

from l2d.data.text.tokens import is_tokens, lengths_of
from l2d.utils.seeding import derive_seed

Batch = tuple[Tensor, Tensor, Tensor]
EVAL_BATCH = 2048
EVAL_TEXTS = 64  # with 256 tokens each, attention takes about 100 MB per layer
WINDOW = 50  # texts of this many batches are sorted by length together: enough for similar lengths, few enough to stay random
MULTIPLE = 8  # lengths are rounded up to a multiple of this, to match the GPU's tiles


class Inputs:
    """A set's inputs for a device: copied there whole (resident), or sent batch by batch through pinned memory. lengths: tokens of
    each text, on the CPU, so that cutting a batch does not make the device wait; None if the inputs are not text."""

    def __init__(self, inputs: Tensor, device: torch.device, resident: bool) -> None:
        self.device, self.resident = device, resident
        self.lengths = lengths_of(inputs) if is_tokens(inputs) else None
        self.tensor = inputs.to(device) if resident else inputs

    def take(self, rows: Tensor, width: int | None = None) -> Tensor:
        """The inputs of some rows, on the device; for texts, their first `width` tokens. `rows` must be where the inputs are."""
        tensor = self.tensor if width is None else self.tensor[:, :width]
        if self.resident:
            return tensor[rows]
        shape = (len(rows), *tensor.shape[1:])
        batch = torch.empty(shape, dtype=tensor.dtype, pin_memory=self.device.type == "cuda")
        return torch.index_select(tensor, 0, rows, out=batch).to(self.device, non_blocking=True)


def place(inputs: Tensor, device: torch.device, on_device: str) -> Inputs:
    """on_device: true (whole), false (streamed), auto (whole if it takes less than half of the free memory; never on a CPU)."""
    fits = device.type != "cuda" or inputs.nbytes < torch.cuda.mem_get_info(device)[0] / 2
    chosen = on_device == "auto" and device.type != "cpu" and fits
    return Inputs(inputs, device, resident=on_device == "true" or chosen)


def eval_batch(inputs: Tensor, parts: int = 1) -> int:
    """Rows at a time in evaluation. parts: number of micro-batches per batch in training."""
    return max(1, (EVAL_TEXTS if is_tokens(inputs) else EVAL_BATCH) // parts)


def width_of(lengths: Tensor) -> int:
    """The width a batch of texts is cut to: its longest text, rounded up. It may exceed the width of the array."""
    return -(-int(lengths.max()) // MULTIPLE) * MULTIPLE


def by_length(order: Tensor, lengths: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """The random positions of `order` [n] in batches of similar length; those left over stay last. lengths [n]: by position."""
    number = len(order) // size
    full, rest = order[: number * size], order[number * size :]
    windows = [part[lengths[part].argsort(stable=True)] for part in full.split(WINDOW * size)]
    blocks = torch.cat(windows).reshape(number, size)
    return torch.cat([blocks[torch.randperm(number, generator=generator)].flatten(), rest])


def even_batch(n: int, batch_size: int) -> int:
    """The batch size that divides n rows evenly into the fewest batches of at most batch_size rows."""
    return -(-n // max(1, -(-n // max(1, batch_size))))


def eval_parts(inputs: Tensor) -> Iterator[Tensor]:
    """Inputs without costs and labels, in the batches of evaluation; each batch of texts is cut to its longest."""
    for part in inputs.split(even_batch(len(inputs), eval_batch(inputs))):
        yield part[:, : width_of(lengths_of(part))] if is_tokens(part) else part


def divided(batch: slice, number: int) -> list[slice]:
    """A batch in parts whose sizes differ by one row at most."""
    ends = [batch.start + (batch.stop - batch.start) * (i + 1) // number for i in range(number)]
    return [slice(start, end) for start, end in zip([batch.start, *ends], ends, strict=False)]


def micro_batches(n: int, size: int, number: int, parts: int) -> tuple[list[slice], list[float]]:
    """The micro-batches of n rows in `number` batches of at most `size` rows, and their weights."""
    batches = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    if len(batches) != number:  # a rank with one row less would finish a step early
        batches = divided(slice(0, n), number)
    slices, weights = [], []
    for batch in batches:
        rows = batch.stop - batch.start
        cut = divided(batch, -(-parts * rows // size))
        slices += cut
        weights += [(part.stop - part.start) * parts / rows for part in cut]
    return slices, weights


def draw_augmentation(n: int, pad: int, generator: torch.Generator) -> Tensor:
    """Draws for n samples: vertical shift, horizontal shift (both in −pad..pad) and whether to flip. int64 [n, 3], on the CPU."""
    shifts = torch.randint(-pad, pad + 1, (n, 2), generator=generator)
    return torch.cat([shifts, torch.randint(0, 2, (n, 1), generator=generator)], dim=1)


def crop_flip(images: Tensor, draws: Tensor, flip: bool) -> Tensor:
    """Shift each image [B, H, W, C], filling with zeros, and mirror it where its draw (`draw_augmentation`) says so."""
    b, h, w, _ = images.shape
    y = torch.arange(h, device=images.device) + draws[:, :1]
    x = torch.arange(w, device=images.device).expand(b, w)
    if flip:
        x = torch.where(draws[:, 2:].bool(), x.flip(1), x)
    x = x + draws[:, 1:2]
    inside = ((y >= 0) & (y < h))[:, :, None] & ((x >= 0) & (x < w))[:, None, :]
    rows = torch.arange(b, device=images.device)[:, None, None]
    return images[rows, y.clamp(0, h - 1)[:, :, None], x.clamp(0, w - 1)[:, None, :]] * inside[..., None]


class Batches:
    """Every row once per pass. Batches have one size, for one compilation; the last lacks fewer rows than there are batches. With
    a seed, order and augmentation follow from the seed and the epoch alone, on a GPU as on a CPU. Each of `world` ranks takes its
    own rows of the common order; `batch_size` is for all ranks together. inputs: of all rows; rows [n]: this split's among them.
    parts: number of micro-batches per batch (raised after running out of memory). `weights`: of the micro-batches."""

    def __init__(
        self,
        inputs: Inputs,
        rows: Tensor,
        costs: Tensor,
        labels: Tensor,
        batch_size: int,
        *,
        seed: int | None = None,
        augment: str = "none",
        pad: int = 0,
        rank: int = 0,
        world: int = 1,
        parts: int = 1,
    ) -> None:
        self.inputs, self.rows = inputs, rows
        self.lengths = None if inputs.lengths is None else inputs.lengths[rows]
        self.costs, self.labels = costs.to(inputs.device), labels.to(inputs.device)
        self.seed, self.augment, self.pad, self.rank, self.world = seed, augment, pad, rank, world
        self.epoch = 0
        share = -(-len(rows) // world)
        # at most one batch per row of the rank with the fewest rows: all ranks make the same number of steps
        number = max(1, min(-(-share // max(1, batch_size // world)), len(rows) // world))
        self.batch_size = max(1, -(-share // number))
        self.slices, self.weights = micro_batches(len(range(rank, len(rows), world)), self.batch_size, number, parts)

    # Lightning passes the epoch only to `loader.sampler.set_epoch`, and expects a loader with a sampler to have a batch_sampler.
    batch_sampler = None

    @property
    def sampler(self) -> "Batches":
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def sizes(self) -> list[int]:
        return [part.stop - part.start for part in self.slices]

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[Batch]:
        device = self.inputs.device
        order, draws = self._draw(self.epoch)
        rows, on_device = self.rows[order].to(device if self.inputs.resident else "cpu"), order.to(device)
        draws = draws.to(device) if draws is not None else None
        for part in self.slices:
            width = None if self.lengths is None else width_of(self.lengths[order[part]])
            inputs = self.inputs.take(rows[part], width)
            if draws is not None:
                inputs = crop_flip(inputs, draws[part], flip=self.augment == "crop_flip")
            yield inputs, self.costs[on_device[part]], self.labels[on_device[part]]

    def _draw(self, epoch: int) -> tuple[Tensor, Tensor | None]:
        """This rank's positions within the split, in an epoch's order, and their augmentation."""
        n = len(self.rows)
        if self.seed is None:
            return torch.arange(n)[self.rank :: self.world], None
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", epoch))
        order, draws = torch.randperm(n, generator=generator), None
        if self.lengths is not None:
            order = by_length(order, self.lengths, self.batch_size * self.world, generator)
        if self.augment != "none":
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "augment", epoch))
            draws = draw_augmentation(n, self.pad, generator)[self.rank :: self.world]
        return order[self.rank :: self.world], draws
