"""A pass over all rows on Ray Data: sums of each piece, joined in their order. A finished pass is kept in the run's folder."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from l2d.data.sets.large import BLOCK, Piece, sheets_of
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, from_extra
from l2d.utils.files import write_atomically

Sums = Mapping[str, np.ndarray]
OfSheet = Callable[[Piece, Sheet], Sums]
Join = Callable[[Sums, Sums], Sums]
MOST_TASKS = 2_000  # of a pass: more take longer to schedule than to run
COPIES = 12  # of a block, in double precision, that a task holds at most
BASE = 1 << 29  # bytes of a worker beside its blocks
STORE = 1 << 28  # bytes of Ray's own store on this machine: sums are small


def added(one: Sums, two: Sums) -> Sums:
    """Sums by their names; least_… and most_… are extremes, and rows_… follow each other."""
    joins: dict[str, Callable[..., np.ndarray]] = {"least": np.minimum, "most": np.maximum, "rows": _followed}
    return {name: joins.get(name.partition("_")[0], np.add)(values, two[name]) for name, values in one.items()}


def _followed(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return np.concatenate([one, two])


@dataclass(frozen=True)
class Passes:
    """folder: of the finished passes. columns: to read."""

    folder: Path
    pieces: Sequence[Piece]
    columns: Sequence[str]
    progress: bool

    def run(self, name: str, of_sheet: OfSheet, join: Join = added) -> Sums:
        """The sums over all rows, unless an earlier process finished this pass."""
        file = self.folder / f"{name}.npz"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            print(f"pass over all rows: {name}")
            work = partial(sums_of, of_sheet, join, self.columns)
            found = reduce(join, each_piece(self.pieces, work, self.progress, len(self.columns)))
            write_atomically(file, lambda path: np.savez(path, **found))
        with np.load(file, allow_pickle=False) as known:
            return dict(known)


def sums_of(of_sheet: OfSheet, join: Join, columns: Sequence[str], piece: Piece) -> Sums | None:
    """None for a piece without rows."""
    found = None
    for sheet in sheets_of(piece, columns):
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
        raise L2DError(
            f"Ray: no machine has a CPU and {needed / 2**30:.1f} GiB of memory, which a worker needs; add one"
        )
