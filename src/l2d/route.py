"""Ask a trained router: python -m l2d.route RUN --text "...", or in Python Router.load(run).route(["..."])."""

import argparse
import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from l2d.backbones.text import KEPT
from l2d.build import make
from l2d.cli import MISTAKES, one_line
from l2d.data.batches import eval_batch, width_of
from l2d.data.encoders import Encoder
from l2d.data.inputs import array_inputs, image_inputs, row_inputs, sheet_inputs, text_inputs
from l2d.data.sheet import listed, read_sheet
from l2d.data.tokens import is_tokens, lengths_of
from l2d.decisions import at_least_float32
from l2d.errors import L2DError
from l2d.files import write_text
from l2d.losses.method import Method
from l2d.runs import RunFolder
from l2d.weights import ANEW, FILE, Description, read_weights

HELP = """Which expert a trained router sends each query to.

usage: python -m l2d.route RUN --text TEXT [--text TEXT ...]
       python -m l2d.route RUN --file QUERIES [--out CHOICES]
       python -m l2d.route RUN --image FILE [FILE ...]

RUN is the folder of a finished run, runs/.../seed=<s>; nothing else is needed, neither the data nor the experts
(a router that reads text through a frozen encoder, router=minilm, needs that encoder).

  --text    a query, for routers that see one text
  --file    a CSV or Parquet file with a row per query and the columns that the router was trained on; others are passed over
  --image   images, for routers that see one; they are brought to the size that the router was trained on
  --prices  others than those of training, such as small=0.1,large=0.3 or in the experts' order 0.1,0.3 (method=cost_regression,
            label_regression, plugin, trained without cost.prices=columns); without the guard, which was fitted to the old ones
  --raw     what the router itself prefers, where validation had the run shift its scores or send everything to one expert
  --out     write there, whole or not at all, and not to the standard output

Writes CSV: the number of the query, the chosen expert, and for each expert
  posterior_NAME       p̂(NAME|query) where the method has one: with method=mild or tdef the expert's share of the expected
                       reward, with method=ce and its kin the chance that it is the cheapest
  expected_cost_NAME   error plus price that the method expects (method=cost_regression, plugin, one_vs_all and their kin)
both empty where the method does not say. The decision is that of the run (decision=argmax or posterior), with its guard.

examples:
  python -m l2d.route runs/mmlu_sim/own/table/error/mild/1a2b3c4d/seed=0 --text "Solve for x: 3x + 4 = 19."
  python -m l2d.route runs/queries/own/table/error/mild/1a2b3c4d/seed=0 --file queries.csv --out choices.csv
  python -m l2d.route runs/digits/III/synthetic/error/mild/1a2b3c4d/seed=0 --image three.png seven.png

in Python:
  from l2d.route import Router
  router = Router.load("runs/.../seed=0")
  router.route(["Solve for x: 3x + 4 = 19."])[0].expert"""


@dataclass(frozen=True)
class Choice:
    """The expert for one query; p̂ and expected cost (error plus price) of each expert by name, None where the method has none."""

    expert: str
    posterior: dict[str, float] | None
    expected_costs: dict[str, float] | None


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
    ) -> None:
        self.network, self.method = network.to(device).eval(), method.to(device).eval()
        self.description, self.encoder, self.device = description, encoder, device
        self.raw = raw

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
        return cls(network, method, description, encoder, device, raw=raw)

    @property
    def held(self) -> str | None:
        """What the guard does to its decisions, where it does anything."""
        guard = None if self.raw else self.description.guard
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

    def reprice(self, prices: Sequence[float] | Mapping[str, float]) -> None:
        """Decide by other prices, one per expert, from now on, and by the router itself: a guard was for the prices of training."""
        given = (
            [prices[name] if name in prices else float("nan") for name in self.experts]
            if isinstance(prices, Mapping)
            else [*prices]
        )
        if len(given) != len(self.experts) or not all(0 <= price < float("inf") for price in given):
            raise L2DError(f"prices={prices}: must be one for each expert, not negative: {', '.join(self.experts)}")
        self.method.reprice(torch.tensor(given))
        self.raw = True

    def route(self, queries: Sequence[Any] | np.ndarray | Tensor) -> list[Choice]:
        """queries: texts; rows, as mappings by column or as numbers in the columns' order; or images, as paths or as uint8
        [n, H, W, C] with the pixel values of the training images."""
        return self._choose(self._inputs(queries)) if len(queries) else []

    def route_file(self, path: str | Path) -> list[Choice]:
        """One choice for each row of a CSV or Parquet file with the columns that the router was trained on."""
        seen = self.description.seen
        columns = [*seen.features, *(column for column in (seen.text, seen.image) if column is not None)]
        if not columns:
            raise L2DError(f"--file={path}: this router sees {self.sees}, which are in no table")
        file = Path(path).expanduser()
        sheet = read_sheet(file, [column for column in (seen.text, seen.image) if column is not None], "--file")
        for column in columns:
            if column not in sheet.columns:
                raise L2DError(
                    f"--file={file}: no column {column}; this router sees {self.sees}; there are {listed(sheet.names)}"
                )
        return self._choose(sheet_inputs(sheet, seen, self.description.shape, self._embed))

    def scores(self, inputs: Tensor) -> Tensor:
        """The network's outputs for inputs as it was trained on, [n, num_outputs]."""
        with torch.inference_mode():
            parts = [self.network(cut(part).to(self.device)).cpu() for part in inputs.split(eval_batch(inputs))]
        return at_least_float32(torch.cat(parts))

    def _choose(self, inputs: Tensor) -> list[Choice]:
        outputs = self.scores(inputs).to(self.device)
        with torch.inference_mode():
            decisions = self.method.decide(outputs)
            if not self.raw and self.description.guard is not None:
                decisions = self.description.guard.decide(self.method.utilities(outputs), decisions)
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


def as_csv(choices: Sequence[Choice], experts: Sequence[str]) -> str:
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    kinds = ("posterior", "expected_cost")
    writer.writerow(["query", "expert", *(f"{kind}_{name}" for kind in kinds for name in experts)])
    for place, choice in enumerate(choices, start=1):
        numbers = [
            values[name] if values else None for values in (choice.posterior, choice.expected_costs) for name in experts
        ]
        writer.writerow([place, choice.expert, *("" if value is None else f"{value:.6g}" for value in numbers)])
    return content.getvalue()


def _prices(text: str) -> list[float] | dict[str, float]:
    parts = text.strip("[] ").split(",")
    try:
        if all("=" in part for part in parts):
            return {name.strip(): float(price) for name, price in (part.rsplit("=", 1) for part in parts)}
        return [float(part) for part in parts]
    except ValueError:
        raise L2DError(
            f"--prices={text}: must be such as small=0.1,large=0.3, or 0.1,0.3 in the experts' order"
        ) from None


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise L2DError(f"{message}; see python -m l2d.route --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path)
    parser.add_argument("--text", action="append")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--image", nargs="+", action="extend")
    parser.add_argument("--prices", type=_prices)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    given = [name for name in ("text", "file", "image") if getattr(options, name) is not None]
    if len(given) != 1:
        parser.error(
            f"give one of --text, --file, --image, not {' and '.join(f'--{name}' for name in given) or 'none'}"
        )
    out = options.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):  # said before the work, not after it
        raise L2DError(f"--out={out}: {'is a folder' if out.is_dir() else f'no such folder: {out.parent}'}")
    return options


def answer(options: argparse.Namespace) -> str:
    router = Router.load(options.run, raw=options.raw)
    if options.prices is not None:
        router.reprice(options.prices)
    elif (said := router.held) is not None:
        print(said, file=sys.stderr)
    if options.file is not None:
        return as_csv(router.route_file(options.file), router.experts)
    for name in ("text", "image"):  # texts and paths are both words: the flag says which
        if getattr(options, name) is not None and router.kind != name:
            raise L2DError(f"--{name}: this router sees {router.sees}; see python -m l2d.route --help")
    return as_csv(router.route(options.text or options.image), router.experts)


def main(arguments: Sequence[str]) -> None:
    if not arguments or {"-h", "--help"} & {*arguments}:
        print(HELP)
        return
    try:
        options = parse(arguments)
        content = answer(options)
        if options.out is None:
            print(content, end="")
        else:
            write_text(options.out, content)
    except MISTAKES as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing was written")


if __name__ == "__main__":
    main(sys.argv[1:])
