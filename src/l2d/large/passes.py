"""The rows of a block as tensors, and a pass over all rows on Ray Data: sums of each piece, joined in their order."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from l2d.data.arrays import Seen
from l2d.data.inputs import sheet_inputs
from l2d.data.sets.large import BLOCK, Layout, Piece
from l2d.data.sets.outcomes import amounts_beside, errors_of
from l2d.data.sets.table_columns import MOST_CATEGORIES
from l2d.data.sheet import Sheet
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import L2DError, from_extra
from l2d.utils.files import write_atomically
from l2d.utils.seeding import derive_seed

Sums = Mapping[str, np.ndarray]
OfSheet = Callable[[Piece, Sheet], Sums]
Join = Callable[[Sums, Sums], Sums]
FOLDS = 5
SAMPLE = 50_000  # rows, about, that guards are fitted to: all rows of a table that has no more
MOST_TASKS = 2_000  # of a pass: more take longer to schedule than to run
COPIES = 12  # of a block, in double precision, that a task holds at most
BASE = 1 << 29  # bytes of a worker beside its blocks
STORE = 1 << 28  # bytes of Ray's own store on this machine: sums are small


def added(one: Sums, two: Sums) -> Sums:
    """Sums by their names; least_… and most_… are extremes, and rows_… follow each other."""
    joins: dict[str, Any] = {"least": np.minimum, "most": np.maximum, "rows": lambda *both: np.concatenate(both)}
    return {name: joins.get(name.partition("_")[0], np.add)(values, two[name]) for name, values in one.items()}


@dataclass(frozen=True)
class Rows:
    """inputs float32 [n, F]. errors float64 [n, p], NaN where an expert was not asked. folds int64 [n]. drawn [n]: from 0 to 1.
    chances [n, p]: propensities, if the files have them."""

    inputs: Tensor
    errors: Tensor
    folds: Tensor
    drawn: Tensor
    chances: Tensor | None

    def __len__(self) -> int:
        return len(self.inputs)

    def sample(self, share: float) -> Sums:
        kept = self.drawn < share
        return {f"rows_{name}": part[kept].numpy() for name, part in vars(self).items() if part is not None}

    @classmethod
    def of_sample(cls, found: Sums) -> Rows:
        own = (found.get(f"rows_{field.name}") for field in fields(cls))
        return cls(*(None if part is None else torch.from_numpy(part) for part in own))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reader:
    """seen: with the values of the features that are words. seed: of the folds. encoder: of the text."""

    layout: Layout
    seen: Seen
    seed: int
    encoder: Encoder

    def rows(self, piece: Piece, sheet: Sheet) -> Rows:
        assert sheet.rows is not None
        experts = list(self.layout.experts)
        errors = np.stack([errors_of(sheet, expert, None) for expert in experts], axis=1)
        sheet.refuse(experts[0].column, "empty, as all other outcomes are,", np.isnan(errors).all(axis=1))
        chances = amounts_beside(sheet, experts).get("propensities")
        if chances is not None:
            unknown = np.isnan(chances) & ~np.isnan(errors)
            for k, expert in enumerate(experts):
                sheet.refuse(expert.column, "with an outcome but no propensity", unknown[:, k])
        seed = derive_seed(self.seed, "test folds")
        mixed = mix(sheet.rows.astype(np.uint64) + np.uint64(piece.file << 40), seed)
        alike = mixed if self.seen.text is None else mix(hashes(sheet.texts(self.seen.text)), seed)
        return Rows(
            sheet_inputs(sheet, self.seen, (), self.encoder.embed),
            torch.from_numpy(errors),
            torch.from_numpy((alike >> np.uint64(32)).astype(np.int64) % FOLDS),
            torch.from_numpy((mixed & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32),
            None if chances is None else torch.from_numpy(chances),
        )

    def on(self, of_rows: Callable[[Rows], Sums], piece: Piece, sheet: Sheet) -> Sums:
        return of_rows(self.rows(piece, sheet))


def hashes(texts: Sequence[str]) -> np.ndarray:
    """uint64 [n], equal for equal texts, which stay in one fold."""
    return np.array([int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) for text in texts], dtype=np.uint64)


def mix(numbers: np.ndarray, seed: int) -> np.ndarray:
    """SplitMix64: 64 bits that look random, of each number uint64 [n]."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def words_of(layout: Layout, _: Piece, sheet: Sheet) -> Sums:
    return {f"words_{name}": np.unique(sheet.words(name, gaps=True)) for name in layout.words}


def more_words(one: Sums, two: Sums) -> Sums:
    return few_words({name: np.union1d(values, two[name]) for name, values in one.items()})


def few_words(found: Sums) -> Sums:
    for name, words in found.items():
        if np.count_nonzero(words != "") > MOST_CATEGORIES:
            problem = f"more than {MOST_CATEGORIES} different words, which no feature may have"
            raise L2DError(f"column {name.removeprefix('words_')}: {problem}")
    return found


@dataclass(frozen=True)
class Passes:
    """folder: of the finished passes. width: numbers in a row."""

    folder: Path
    pieces: Sequence[Piece]
    layout: Layout
    width: int
    progress: bool

    def run(self, name: str, of_sheet: OfSheet, join: Join = added) -> Sums:
        """The sums over all rows, unless an earlier process finished this pass."""
        file = self.folder / f"{name}.npz"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            print(f"pass over all rows: {name.partition('-')[0]}")
            work = partial(sums_of, of_sheet, join, self.layout)
            found = reduce(join, each_piece(self.pieces, work, self.progress, self.width))
            write_atomically(file, lambda path: np.savez(path, **found))
        with np.load(file, allow_pickle=False) as known:
            return dict(known)


def sums_of(of_sheet: OfSheet, join: Join, layout: Layout, piece: Piece) -> Sums | None:
    """None for a piece without rows."""
    found = None
    for sheet in layout.sheets(piece):
        own = of_sheet(piece, sheet)
        found = own if found is None else join(found, own)
    return found


def each_piece(pieces: Sequence[Piece], work: Callable[[Piece], Any], progress: bool, width: int) -> Iterator[Any]:
    """The results of `work` for each piece, in their order, without None. Ray repeats the work of a killed worker."""
    start_ray(BLOCK * width * 8 * COPIES + BASE)
    from ray import data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # sums of floats depend on it
    items = [{"piece": pickle.dumps(piece)} for piece in pieces]
    rows = data.from_items(items, override_num_blocks=min(len(items), MOST_TASKS)).map(partial(answered, work))
    with tqdm(total=sum(piece.rows for piece in pieces), unit_scale=True, disable=None if progress else True) as bar:
        for row in rows.iter_rows():
            problem, found, done = pickle.loads(row["answer"])
            if problem:
                raise L2DError(problem)
            bar.update(done)
            if found is not None:
                yield found


def answered(work: Callable[[Piece], Any], row: Mapping[str, Any]) -> dict[str, bytes]:
    """A user's error is part of the answer: as an exception, it would come with Ray's own traceback."""
    piece: Piece = pickle.loads(row["piece"])
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")  # an encoder of texts leaves the other cores to other workers
    try:
        return {"answer": pickle.dumps(("", work(piece), piece.rows))}
    except L2DError as error:
        return {"answer": pickle.dumps((str(error), None, 0))}


def start_ray(needed: int) -> None:
    """Join the cluster of RAY_ADDRESS, or start Ray on this machine. needed: bytes of memory of one worker."""
    with from_extra("ray", "reading files in parts"):
        import ray
        import ray.data  # needs more packages than ray
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        own: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": STORE}
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise L2DError(f"RAY_ADDRESS={address}: {str(error).splitlines()[0]}") from error
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    if not any(node.get("CPU", 0) >= 1 and node.get("memory", 0) >= needed for node in nodes):
        raise L2DError(f"Ray: no machine has a CPU and {needed / 2**30:.1f} GiB of memory, as a worker needs; add one")
