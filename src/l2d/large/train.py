"""Trains and judges a router on files larger than memory; the run's folder is as any other's."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial

import torch
from torch import Tensor

from l2d.assembly.build import make_method
from l2d.assembly.fingerprints import data_fingerprint
from l2d.assembly.make import blaming, blaming_dataset, make, make_dataset
from l2d.config import Experiment
from l2d.core import results
from l2d.core.guard import Guard, HeldOut
from l2d.core.metrics import collapsed_expert
from l2d.core.results import RunMetrics, Score
from l2d.data.arrays import Answers, Panel, Seen
from l2d.data.sets.large import Layout, Piece, find_files, layout_of, pieces_of
from l2d.data.sets.table import Table
from l2d.data.sheet import Sheet
from l2d.data.text.encoders import Encoder, Hashed
from l2d.data.text.words import Words
from l2d.large import judge
from l2d.large.fits import FITS, Fit, Known, known_of, moments
from l2d.large.judge import Routers
from l2d.large.passes import SAMPLE, Passes, Reader, Rows, few_words, more_words, words_of
from l2d.methods.method import Evidence
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.runs.artifact.drift import summary_tensors
from l2d.runs.artifact.exported import FILE, HELD_OUT, READING, RouterDescription, write_weights
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.plain import from_plain
from l2d.utils.text import counted

NEEDS = "needs all rows in memory, so a single file as dataset.path"
USUAL = {"sampling": ("none",), "fold": (None,), "evaluation": ("auto", "cross_validate")}
PASSES = "passes"  # folder of the finished ones
LEARNED = 20_000  # texts, at most, from which their encoder learns


def train_large(experiment: Experiment, run: RunFolder) -> RunMetrics:
    begun, fit, dataset = time.monotonic(), checked(experiment), make_dataset(experiment)
    assert isinstance(dataset, Table)
    assert dataset.files is not None
    with blaming_dataset(experiment):
        urls = find_files(dataset.files)
        pieces = pieces_of(urls)
        layout = layout_of(pieces[0], dataset.named)
        first = next(((piece, sheet) for piece in pieces for sheet in layout.sheets(piece)), None)
        if first is None:
            raise ParameterError("text", "is empty in all rows", layout.text)
    with run.locked():
        if experiment.settings.force:
            run.clear()
        run.check_data(data_fingerprint(experiment))
        run.write_config(experiment.plain)
        encoder = Hashed() if layout.text is None else fitted(dataset.encoder, layout, pieces, first[1])
        width = len(layout.columns) + (encoder.embed(["?"]).shape[1] if layout.text else 0)
        passes = Passes(run.path / PASSES, pieces, layout, width, experiment.settings.progress)
        reader = Reader(layout, Seen(layout.features, layout.text), experiment.seed, encoder)
        if layout.words:
            words = few_words(passes.run("words", partial(words_of, layout), more_words))
            categories = {name.removeprefix("words_"): tuple(filter(None, some)) for name, some in words.items()}
            reader = replace(reader, seen=replace(reader.seen, categories=categories))
        centre = reader.rows(*first).inputs.double().mean(dim=0)
        known = known_of(passes.run("moments", partial(reader.on, partial(moments, centre))), centre, SAMPLE)
        print(f"{counted(len(urls), 'file')}, {counted(int(known.rows[-1]), 'row')}")
        if known.gaps and not layout.propensities:
            raise L2DError(f"{dataset.files}: some outcomes are empty; a log in parts needs columns propensity_NAME")
        method = method_of(experiment, known, reader)
        with blaming(experiment.method):
            estimators, sample = fit(passes, reader, method, known)
        routers = Routers(method, [EstimatorNetwork(one).eval() for one in estimators], known.gaps)
        metrics, guard = verdict(passes, reader, routers, known, sample)
        shape, prices = tuple(sample.inputs.shape[1:]), tuple(method.prices.tolist())
        reads = experiment.plain["dataset"]["encoder"] if layout.text else None
        description = RouterDescription(layout.names, prices, 0, shape, reader.seen, reads, guard)
        learned = {f"{READING}.{name}": torch.from_numpy(array) for name, array in encoder.state.items()}
        write_weights(run.path / FILE, tensors_of(routers, sample) | learned, description)
        routers.networks[-1].keep(run.path)
        arrays = {name: part.numpy() for name, part in vars(routers.routed(sample)).items()}
        run.finish(metrics.as_json(), arrays, {"seconds": time.monotonic() - begun, "rows": metrics.rows.test})
        shutil.rmtree(run.path / PASSES)
    return metrics


def checked(experiment: Experiment) -> Fit:
    """The function that fits the method. Refuses what needs all rows at once."""
    for key, usual in USUAL.items():
        if (given := getattr(experiment.settings, key)) not in usual:
            raise ParameterError(key, NEEDS, given)
    blank = make_method(experiment, torch.eye(2), 0)
    kind = type(blank.estimator()) if isinstance(blank, SimpleRouter) else None
    if kind not in FITS:
        problem = f"{NEEDS}; auto, linear, category_table, knn, clusters and mix do not"
        raise ParameterError("method", problem, experiment.method.name)
    return FITS[kind]


def fitted(encoder: Encoder | None, layout: Layout, pieces: Sequence[Piece], first: Sheet) -> Encoder:
    """The encoder, which has learned from the first texts of some pieces, evenly spread."""
    assert layout.text is not None
    if not isinstance(encoder, Words | Hashed):
        raise ParameterError("router", f"{NEEDS}; router=mlp and router=hashed do not")
    some = pieces[:: 1 + len(pieces) // 20]
    sheets = [*filter(None, (next(layout.sheets(piece), None) for piece in some))] or [first]
    return encoder.fitted([text for sheet in sheets for text in sheet.texts(layout.text)[: LEARNED // len(some)]])


def method_of(experiment: Experiment, known: Known, reader: Reader) -> SimpleRouter:
    """Built from the extremes of the costs, which are all that a simple router takes from them."""
    cost, errors = make(experiment.cost), torch.stack([known.least, known.most])
    with under("cost"):
        if cost.by_row or cost.from_rows or cost.noise:
            raise ParameterError("", f"{NEEDS}; cost=error and cost=error_plus_cost with a list do not")
        panel = Panel(reader.layout.names, Answers(errors), Answers(errors[:0]))
        cost.check_panel(panel)
        prices = cost.prices(panel, torch.arange(2))
    method = make_method(experiment, errors + prices, 0)
    method.learn(Evidence(errors, prices, torch.full((2,), -1)))
    assert isinstance(method, SimpleRouter)
    return method.eval()


def verdict(passes: Passes, reader: Reader, routers: Routers, known: Known, sample: Rows) -> tuple[RunMetrics, Guard]:
    method, prices = routers.method, routers.method.prices.double()
    means = routers.routed(sample).costs.mean(dim=0) if known.gaps else known.mean_errors + prices
    guards = routers.guards(sample, int(means.argmin()))
    work = partial(judge.judged, reader.layout.names, routers, guards, means)
    # Candidates of auto depend on the time, so after an interruption other routers may have to be judged.
    found = passes.run(f"judged-{routers.digest}", partial(reader.on, work), judge.pooled)
    n, parts = int(found["n"]), json.loads(str(found["metrics"]))
    own = parts["routing"]
    oracle = own["baselines"]["oracle"]
    own["collapsed_expert"] = None if oracle is None else collapsed_expert(own["ratios"], oracle["ratios"])
    content = {
        **own,
        "schema_version": results.SCHEMA_VERSION,
        "capabilities": {**method.capabilities(), "reads_text": False},
        "evaluation": "cross_validate",
        "validation": {field.name: own[field.name] for field in fields(Score)},
        "guarded": parts["guarded"],
        "decision": method.decision,
        "method_buffers": {name: value.tolist() for name, value in method.named_buffers()},
        "rows": {"train": n, "validation": len(sample), "test": n},
        "checkpoint": "last",
        "epochs": 0,
        "kept_epoch": 0,
    }
    return from_plain(RunMetrics, content), guards[-1]


def tensors_of(routers: Routers, sample: Rows) -> dict[str, Tensor]:
    """As training/walk.py writes them. The rows for guards at other prices are those of the sample."""
    method, network, rows = routers.method, routers.networks[-1], routers.routed(sample)
    with torch.inference_mode():
        deployed = method.expected_errors(network(sample.inputs))
        seen = method.expected_errors(routers.outputs(sample, 1))
    errors, learned = (rows.costs - rows.prices).double(), torch.arange(len(sample))
    held_out = HeldOut(errors, rows.expected_errors, errors.mean(dim=0), deployed, learned=learned, seen=seen)
    parts = {"method": method.state_dict(), "network": network.state_dict(), HELD_OUT: held_out.tensors()}
    found = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
    return found | summary_tensors(sample.inputs)
