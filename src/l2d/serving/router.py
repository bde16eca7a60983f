"""A finished run's router, and what it says of queries."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from l2d.core.decisions import at_least_float32
from l2d.core.guard import HeldOut
from l2d.data.batches import eval_batch, width_of
from l2d.data.inputs import array_inputs, image_inputs, row_inputs, sheet_inputs, text_inputs
from l2d.data.sheet import Sheet, listed, read_sheet
from l2d.data.text.encoders import Encoder
from l2d.data.text.tokens import is_tokens, lengths_of
from l2d.methods.method import Method
from l2d.networks.text import KEPT
from l2d.routing.build import make
from l2d.runs.folder import RunFolder
from l2d.serving.exported import ANEW, FILE, HELD_OUT, Description, read_weights
from l2d.utils.errors import L2DError

IDS = ("id", "ID", "Id")  # what a column may be called by which rows are known elsewhere


@dataclass(frozen=True)
class Choice:
    """The expert for one query; p̂ and expected cost (error plus price) of each expert by name, None where the method has none. id:
    of a row of a file that has such a column."""

    expert: str
    posterior: dict[str, float] | None
    expected_costs: dict[str, float] | None
    id: str | None = None


class Router:
    """A finished run's router. Its config names the classes that are built, so load runs that you trust."""

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        description: Description,
        encoder: Encoder | None,
        device: str = "cpu",
        *,
        raw: bool = False,
        held_out: HeldOut | None = None,
    ) -> None:
        self.network, self.method = network.to(device).eval(), method.to(device).eval()
        self.description, self.encoder, self.device = description, encoder, device
        self.raw, self.guard, self.held_out, self.repriced = raw, description.guard, held_out, False

    @classmethod
    def load(cls, run: str | Path, device: str = "cpu", *, raw: bool = False) -> "Router":
        """From a run's folder alone. raw: without the guard that was fitted to the run's validation rows."""
        folder = RunFolder(Path(run).expanduser())
        config = folder.config()
        file = folder.path / FILE
        weights, description = read_weights(file)
        if (kept := folder.path / KEPT).is_dir():
            config, description = self_contained(config, description, kept)
        method, network = rebuild(config, weights, description)
        try:
            for name, module in (("method", method), ("network", network)):
                module.load_state_dict(_part(weights, name))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise L2DError(f"{file}: does not fit the router of its config ({reason}); {ANEW}") from error
        encoder = None
        if description.encoder is not None:
            encoder = make(OmegaConf.create({"encoder": description.encoder}).encoder)
        saved = _part(weights, HELD_OUT)
        return cls(network, method, description, encoder, device, raw=raw, held_out=HeldOut(**saved) if saved else None)

    @property
    def held(self) -> str | None:
        """What the guard does to its decisions, where it does anything."""
        guard = None if self.raw else self.guard
        if guard is None and self.repriced and not self.raw:
            return "guard: none for these prices; train anew with force=true for one"
        if guard is None or (guard.constant is None and guard.offsets is None):
            return None
        if guard.constant is not None:
            return (
                f"guard: everything goes to {self.experts[guard.constant]}, which the router did not beat on validation by more"
                " than the noise; --raw asks the router"
            )
        return "guard: the experts' scores are shifted as validation asked for; --raw leaves them as they are"

    @property
    def experts(self) -> tuple[str, ...]:
        return self.description.experts

    @property
    def kind(self) -> str:
        """What a query is: image, text (and nothing else), or row."""
        if len(self.description.shape) == 3:
            return "image"
        return "text" if self.description.seen.text is not None and not self.description.seen.features else "row"

    @property
    def sees(self) -> str:
        seen, shape = self.description.seen, self.description.shape
        if self.kind == "image":
            return f"images ({'×'.join(map(str, shape))})"
        text = [f"the text {seen.text}"] if seen.text is not None else []
        columns = [f"the columns {listed(seen.features, 60)}"] if seen.features else []
        return " and ".join([*columns, *text]) or f"rows of {shape[0]} numbers"

    def reprice(self, prices: Sequence[float] | Mapping[str, float]) -> "Router":
        """Decide by other prices, one per expert, from now on, with the guard that the run's validation rows ask for at these.
        Returns the router itself."""
        new = torch.tensor(listed_prices(prices, self.experts))  # in 32 bits, as the method has them
        self.method.reprice(new)
        known = self.description.prices
        if known is not None and torch.equal(torch.tensor(known), new):
            self.guard = self.description.guard
        else:
            self.guard = None if self.held_out is None else self.held_out.guard_at(new)
        self.repriced = True
        return self

    def route(self, queries: Sequence[Any] | np.ndarray | Tensor) -> list[Choice]:
        """queries: texts; rows, as mappings by column or as numbers in the columns' order; or images, as paths or as uint8
        [n, H, W, C] with the pixel values of the training images."""
        return self._choose(self._inputs(queries)) if len(queries) else []

    def route_file(self, path: str | Path) -> list[Choice]:
        """One choice for each row of a CSV or Parquet file with the columns that the router was trained on, and with the row's id,
        where there is such a column."""
        seen = self.description.seen
        columns = [*seen.features, *(column for column in (seen.text, seen.image) if column is not None)]
        if not columns:
            raise L2DError(f"--file={path}: this router sees {self.sees}, which are in no table")
        file = Path(path).expanduser()
        texts = [column for column in (seen.text, seen.image) if column is not None]
        sheet = read_sheet(file, [*texts, *IDS], "--file")
        for column in columns:
            if column not in sheet.columns:
                raise L2DError(
                    f"--file={file}: no column {column}; this router sees {self.sees}; there are {listed(sheet.names)}"
                )
        choices = self._choose(sheet_inputs(sheet, seen, self.description.shape, self._embed))
        return [replace(choice, id=known) for choice, known in zip(choices, ids_of(sheet), strict=True)]

    def scores(self, inputs: Tensor) -> Tensor:
        """The network's outputs for inputs as it was trained on, [n, num_outputs]."""
        with torch.inference_mode():
            parts = [self.network(cut(part).to(self.device)).cpu() for part in inputs.split(eval_batch(inputs))]
        return at_least_float32(torch.cat(parts))

    def _choose(self, inputs: Tensor) -> list[Choice]:
        outputs = self.scores(inputs).to(self.device)
        with torch.inference_mode():
            decisions = self.method.decide(outputs)
            if not self.raw and self.guard is not None:
                decisions = self.guard.decide(self.method.utilities(outputs), decisions)
            posterior = self.method.posterior(outputs) if self.method.has_posterior else None
            expected = self.method.expected_costs(outputs)
        return [
            Choice(self.experts[decision], shares, costs)
            for decision, shares, costs in zip(
                decisions.tolist(),
                self._by_name(posterior, len(inputs)),
                self._by_name(expected, len(inputs)),
                strict=True,
            )
        ]

    def _by_name(self, values: Tensor | None, n: int) -> Sequence[dict[str, float] | None]:
        if values is None:
            return [None] * n
        return [dict(zip(self.experts, row, strict=True)) for row in values.tolist()]

    def _inputs(self, queries: Sequence[Any] | np.ndarray | Tensor) -> Tensor:
        seen, shape = self.description.seen, self.description.shape
        if isinstance(queries, str | bytes | Mapping):
            raise L2DError("queries: must be a list, also for a single query")
        if isinstance(queries, Tensor):
            queries = queries.cpu().numpy()
        if isinstance(queries, np.ndarray):
            if seen.text is not None:
                raise L2DError(f"queries: an array; this router sees {self.sees}")
            return array_inputs(queries, shape, seen.features)
        kinds = {_kind(query) for query in queries}
        if kinds == {"text"} and self.kind == "text":
            return text_inputs(queries, self._embed)
        if kinds <= {"text", "path"} and self.kind == "image":
            return image_inputs(queries, shape, seen.white)
        if kinds == {"mapping"} and (seen.features or seen.text is not None):
            return row_inputs(queries, seen, self._embed)
        if kinds == {"numbers"} and self.kind == "row" and seen.text is None:
            try:
                array = np.asarray(queries)
            except ValueError:
                raise L2DError("queries: rows of different lengths") from None
            return array_inputs(array, shape, seen.features)
        raise L2DError(f"queries: {', '.join(sorted(kinds))}; this router sees {self.sees}")

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.encoder is None:
            raise L2DError(f"queries: nothing says how this router reads {self.description.seen.text}; {ANEW}")
        return self.encoder.embed(texts)


def listed_prices(prices: Sequence[float] | Mapping[str, float], experts: Sequence[str]) -> list[float]:
    """In the experts' order."""
    there = f"there are {', '.join(experts)}"
    if isinstance(prices, Mapping):
        if unknown := [name for name in prices if name not in experts]:
            raise L2DError(f"prices: no expert {', '.join(map(str, unknown))}; {there}")
        if missing := [name for name in experts if name not in prices]:
            raise L2DError(f"prices: no price for {', '.join(missing)}")
        prices = [prices[name] for name in experts]
    try:
        if isinstance(prices, str | bytes | Set):
            raise TypeError
        given = [float(price) for price in prices]
    except (TypeError, ValueError, OverflowError):
        raise L2DError(f"prices={prices}: must be numbers, one for each expert; {there}") from None
    if len(given) != len(experts):
        raise L2DError(f"prices={given}: {len(given)} for {len(experts)} experts; {there}")
    if not all(0 <= price < float("inf") for price in given):
        raise L2DError(f"prices={given}: must be finite and not negative")
    return given


def ids_of(sheet: Sheet) -> list[str] | list[None]:
    for column in (name for name in IDS if name in sheet.columns):
        return ["" if cell is None else str(cell) for cell in sheet.columns[column].to_pylist()]
    return [None] * len(sheet)


def self_contained(config: dict[str, Any], description: Description, kept: Path) -> tuple[dict[str, Any], Description]:
    """A fine-tuned encoder's architecture and tokenizer, from the run's own folder; its weights are beside it."""
    router = {**(config.get("router") or {}), "model": str(kept), "pretrained": False}
    encoder = {**(description.encoder or {}), "model": str(kept)}
    return {**config, "router": router}, replace(description, encoder=encoder)


def cut(inputs: Tensor) -> Tensor:
    """Texts, to their longest."""
    return inputs[:, : width_of(lengths_of(inputs))] if is_tokens(inputs) else inputs


def rebuild(
    config: Mapping[str, Any], weights: Mapping[str, Tensor], description: Description
) -> tuple[Method, nn.Module]:
    """Method and network as they were built, with other numbers in them."""
    try:
        method, router, decision = dict(config["method"]), dict(config["router"]), config["decision"]
    except (KeyError, TypeError, ValueError):
        raise L2DError(f"config.yaml: not that of a run; {ANEW}") from None
    if "method.rho" in weights and "rho" in method:  # its rule goes by training costs, and may refuse others
        method["rho"] = weights["method.rho"].tolist()
    cfg = OmegaConf.create({"method": method, "router": router})
    p, features = len(description.experts), description.shape[-1]
    costs = 1 - torch.eye(p, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):  # the initial weights are not used: the caller's stream stays where it was
        built = make(cfg.method, costs=costs, num_classes=description.num_classes, decision=decision)
        statistics = {"mean": [0.0] * features, "std": [1.0] * features}
        network = make(cfg.router, **statistics, num_outputs=built.num_outputs, head=built.head)
    return built, network


def _part(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


def _kind(query: object) -> str:
    if isinstance(query, str):
        return "text"
    if isinstance(query, Mapping):
        return "mapping"
    if isinstance(query, Sequence | np.ndarray):
        return "numbers"
    return "path" if isinstance(query, Path) else type(query).__name__
