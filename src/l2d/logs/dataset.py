"""dataset=log: the log of l2d serve, or its export, as rows to train the next router from. Light: only `load` imports torch."""

from __future__ import annotations

import hashlib
import math
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.core.replies import Asks, Replies
from l2d.data.arrays import Answers, Arrays, Panel, divided
from l2d.data.dataset import DatasetBase
from l2d.data.text.encoders import Encoder
from l2d.logs.databases import log_address
from l2d.logs.rows import LoggedRows, explored_rows, left_out_note, read_rows
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.parameters import Name, ProperShare
from l2d.utils.text import counted

if TYPE_CHECKING:
    from torch import Tensor

LEAST_ANSWERS = 25  # of each expert: a regression needs ten, on every fold
# A server may be writing: all steps of a run must see the same rows.
snapshot = cache(read_rows)


class ServerLog(DatasetBase):
    """One row per decision that has an outcome and whose expert a policy chose. path: the log or its export. run: only its
    decisions. encoder: if the log kept numbers, the one that made them. test_fraction: of the rows, the same for every seed."""

    divisible = True

    def __init__(
        self, *, path: str | None, run: Name | None, encoder: Encoder | None, test_fraction: ProperShare
    ) -> None:
        self.path, self.run = path, None if run is None else str(run)
        self.encoder, self.test_fraction = encoder, test_fraction

    @property
    def gives(self) -> str | None:
        rows = self._rows()
        return None if rows.texts is not None else "images" if is_image(rows) else "rows"

    @property
    def error_price(self) -> float | None:
        return self._rows().unit.error_price

    def fingerprint(self, data_dir: Path) -> str:  # noqa: ARG002 (the path says where)
        rows = self._rows()
        found = hashlib.sha256("\n".join([*rows.ids, *rows.experts, repr(rows.about)]).encode())
        for part in (rows.errors, rows.prices, rows.latencies, rows.propensities):
            found.update(part.tobytes())
        if rows.calls is not None and any(len(calls) > 1 for calls in rows.calls):
            found.update(repr(rows.calls.tolist()).encode())
        if self.encoder is not None and rows.texts is not None:
            found.update(self.encoder.identity().encode())
        if rows.about is None:  # an export, whose ids may say nothing of the inputs
            found.update(repr([] if rows.texts is None else rows.texts.tolist()).encode())
            found.update(b"" if rows.features is None else rows.features.tobytes())
        return found.hexdigest()[:16]

    def expert_names(self, data_dir: Path) -> list[str]:  # noqa: ARG002
        return list(self._rows().expert_names)

    def load(self, data_dir: Path) -> Arrays:
        import torch

        from l2d.data.splits import stratified_split

        print(self.summary(), file=sys.stderr)
        rows = self._rows()
        labels, groups = torch.full((len(rows),), -1), equal_inputs(rows)
        train, test = stratified_split(labels, self.test_fraction, 0, groups, parameter="test_fraction")
        if self.encoder is not None and rows.texts is not None:
            self.encoder = self.encoder.fitted(rows.texts[train.numpy()].tolist())
        inputs = self._inputs(rows, data_dir)
        answers = answers_of_rows(rows, rows.expert_names)
        panel = Panel(rows.expert_names, answers, answers[:0], unit=rows.unit)
        reading = {} if self.encoder is None else self.encoder.state
        about: dict[str, Any] = {"train_ids": rows.ids, "seen": rows.seen, "reading": reading}
        whole = Arrays(inputs, labels, inputs[:0], labels[:0], 0, panel=panel, groups=groups, **about)
        return divided(whole, train, test)

    def summary(self) -> str:
        """The rows that are read or left out. Refuses an expert hardly asked: the router would fit no server."""
        rows = self._rows()
        counts = Counter(rows.experts.tolist())
        for name in rows.expert_names if rows.about is None else rows.about.experts:
            if counts[name] < LEAST_ANSWERS:
                was = f"has {counted(counts[name], 'answer')} with an outcome" if counts[name] else "was never asked"
                raise L2DError(f"{rows.file}: {name} {was}; every expert needs {LEAST_ANSWERS} (l2d serve --explore)")
        asked = ", ".join(f"{name} {counts[name]:,}" for name in rows.expert_names)
        read = len(snapshot(log_address(str(self.path)), self.run))
        left = left_out_note({**rows.left_out, "without exploration or price": read - len(rows)})
        return f"{rows.file}: {counted(len(rows), 'decision')} with an outcome{left}; asked: {asked}"

    def _rows(self) -> LoggedRows:
        """Without rows that were not explored and, if the price of some is known, those without a price."""
        if self.path is None:
            raise ParameterError("path", "missing; give the log of l2d serve, or its export")
        address = log_address(self.path)
        if isinstance(address, Path) and not address.is_file():
            raise ParameterError("path", f"no such file (looked for in {Path.cwd()})", self.path)
        kept = explored_rows(snapshot(address, self.run))
        known = ~np.isnan(kept.prices)
        return kept.take(known) if known.any() else kept

    def _inputs(self, rows: LoggedRows, data_dir: Path) -> Tensor:
        import torch

        if rows.features is not None:
            check_encoder(rows, self.encoder)
            if self.encoder is not None and rows.about is not None and rows.about.reading:
                self.encoder = self.encoder.restored(rows.about.learned)
            found = torch.from_numpy(rows.features.copy())  # the snapshot stays as it is
            shape = rows.about.shape if rows.about is not None else found.shape[1:]
            return found.reshape(len(rows), *shape).to(torch.uint8 if is_image(rows) else torch.float32)
        if self.encoder is None:
            raise ParameterError("encoder", "missing, since this router does not read text; choose a router that does")
        assert rows.texts is not None
        with under("encoder"):
            return torch.from_numpy(self.encoder.encode(rows.texts.tolist(), data_dir).copy())


def is_image(rows: LoggedRows) -> bool:
    return rows.features is not None and rows.about is not None and len(rows.about.shape) == 3


def check_encoder(rows: LoggedRows, encoder: Encoder | None) -> None:
    """Refuse another encoder: a router cannot use the numbers that another one made."""
    seen = rows.seen
    if seen.text is None:
        return
    assert rows.features is not None
    if rows.about is not None and rows.about.encoder is not None:
        described = rows.about.encoder
        if encoder is None or not is_described(encoder, described):
            problem = f"the log has what the encoder {described.get('name')} made of the texts"
            raise ParameterError("encoder", f"{problem}; choose the router that served, or one with the same reads")
        return
    if encoder is not None and encoder.learns:
        problem = "an export does not have what it learned from the texts; give the log itself, or choose router=hashed"
        raise ParameterError("encoder", problem)
    width = rows.features.shape[1] - len(seen.columns)
    if encoder is None or encoder.embed(["What is this?"]).shape[1] != width:
        raise ParameterError("encoder", f"does not make {width:,} numbers of a text, as the router that served did")


def is_described(encoder: Encoder, described: Mapping[str, Any]) -> bool:
    arguments = {name: value for name, value in described.items() if name not in ("name", "_target_")}
    same = all(getattr(encoder, name, None) == value for name, value in arguments.items())
    return same and str(described["_target_"]).rpartition(".")[2] == type(encoder).__name__


def equal_inputs(rows: LoggedRows) -> Tensor:
    """int [n]: equal numbers for equal inputs, which must stay on one side of a split."""
    import torch

    from l2d.data.splits import groups_of_equal_texts

    if rows.texts is not None:
        return groups_of_equal_texts(rows.texts.tolist())
    assert rows.features is not None
    numbers: dict[bytes, int] = {}
    return torch.tensor([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows.features])


def answers_of_rows(rows: LoggedRows, names: tuple[str, ...]) -> Answers:
    """[n, p], NaN where an expert was not asked. No prices or latencies if they are known for no row."""
    import torch

    place = np.array([names.index(name) for name in rows.experts])
    known: dict[str, Tensor] = {}
    for part in ("errors", "prices", "latencies", "propensities"):
        if not np.isnan(values := getattr(rows, part)).all():
            known[part] = torch.full((len(rows), len(names)), torch.nan, dtype=torch.float64)
            known[part][np.arange(len(rows)), place] = torch.from_numpy(values)
    return Answers(**known, replies=replies_of_rows(rows, names))


def replies_of_rows(rows: LoggedRows, names: tuple[str, ...]) -> Replies:
    """The answers, as far as the log compared them: numbers stand for answers."""
    import torch

    n, p = len(rows), len(names)
    kinds, turn = torch.full((n, p), -1), torch.full((n, p), -1)
    signals, (propensity, right) = torch.full((n, p, 2), torch.nan), torch.ones(2, n, p, dtype=torch.float64)
    first = zip(rows.experts.tolist(), rows.propensities.tolist(), (1 - rows.errors).tolist(), strict=True)
    for row, (expert, chance, share) in enumerate(first):
        only = {"expert": expert, "same_as": expert, "propensity": chance, "right": share, "length": None}
        given = None if rows.calls is None else rows.calls[row]
        for place, call in enumerate(given or [only | {"confidence": None}]):
            k = names.index(call["expert"])
            kinds[row, k], turn[row, k] = names.index(call["same_as"]), place
            propensity[row, k], right[row, k] = call["propensity"], call["right"]
            if call["length"] is not None:
                signals[row, k, 0] = math.log1p(call["length"])
            if call["confidence"] is not None:
                signals[row, k, 1] = call["confidence"]
    return Replies(kinds, signals, Asks(turn, propensity, torch.where(turn >= 0, right, torch.nan)))
