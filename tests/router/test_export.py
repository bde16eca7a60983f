"""A trained router as a program without l2d."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.router.finished import ASKED, untrained

import l2d
from l2d.core.guard import Guard
from l2d.router import export
from l2d.router.trained import decide_inputs
from l2d.utils.errors import L2DError, ParameterError

X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
COSTS = np.stack([X[:, 0] > 0, X[:, 0] <= 0, np.full(200, 0.9)], axis=1)


@cache
def fitted(method: str) -> l2d.Router:
    options = {"recipe.epochs": 15, "progress": False, "trainer.accelerator": "cpu"}
    found = l2d.fit(X, COSTS, labels=X[:, 0] > 0, method=method, options=options)
    assert found.description.guard.constant is None
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize(
    "method", ["cascade", "auto", *(pytest.param(one, marks=pytest.mark.full) for one in ("mild", "plugin", "mix"))]
)
def test_torch_export(method: str, tmp_path: Path) -> None:
    router = fitted(method)
    router.export(tmp_path / "router.pt2")
    program = torch.export.load(tmp_path / "router.pt2").module()
    for n in (2, 200):
        assert torch.equal(program(torch.from_numpy(X[:n]))[0], router.decide(X[:n]))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("method", ["mild", "plugin", "cascade", "knn", "mix", "auto"])
def test_onnx(method: str, tmp_path: Path) -> None:
    import onnxruntime

    router = fitted(method)
    router.export(tmp_path / "router.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "router.onnx")
    for n in (2, 200):
        chosen = session.run(None, {session.get_inputs()[0].name: X[:n]})[0]
        assert (chosen == router.decide(X[:n]).numpy()).all()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_equally_near_rows(tmp_path: Path) -> None:
    """ONNX counts others of them than torch does: this is refused, with what to use instead."""
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, 50, 3000), rng.integers(0, 4, 3000)], axis=1).astype(np.float32)
    errors = rng.random((3000, 2)) < np.stack([rows[:, 0] > 25, rows[:, 0] <= 25], axis=1) * 0.6 + 0.1
    for method, works in (("knn", False), ("linear", True)):
        router = l2d.fit(rows, errors=errors, prices=[0.1, 0.2], method=method, options={"progress": False})
        for file in ("router.pt2", "router.onnx"):
            with nullcontext() if works or file == "router.pt2" else pytest.raises(L2DError, match=r"\.pt2.*linear"):
                router.export(tmp_path / file)


def test_the_program_has_the_guard_unless_raw(tmp_path: Path) -> None:
    run = untrained(tmp_path, "method=ce")
    router, inputs, chosen = l2d.Router.load(run.path), run.splits.test.inputs, []
    for guard in (ASKED, Guard(None, 1, 1, 0.0, None), Guard((9.0, -9.0, 0.0), None, 0, 0.3, 0.1)):
        for raw in (False, True):
            router = replace(router, raw=raw, description=replace(router.description, guard=guard))
            with torch.no_grad():
                found = export.RouterProgram(router)(inputs)[0]
            assert torch.equal(found, decide_inputs(router, inputs))
            chosen.append({*found.tolist()})
    assert chosen[2:5:2] == [{1}, {0}]


def test_a_program_is_tried_on_inputs_of_its_kind() -> None:
    """Images from black to white, which is 16 here; and what cannot be exported is refused."""
    description = SimpleNamespace(kind="image", shape=(8, 6, 3), seen=SimpleNamespace(white=16))
    router: Any = SimpleNamespace(description=description)
    images = export.example_inputs(router)
    assert (images.shape, images.dtype) == ((32, 8, 6, 3), torch.uint8)
    assert (int(images.min()), int(images.max())) == (0, 16)
    text = SimpleNamespace(kind="text", shape=(3,))
    tuned: Any = SimpleNamespace(description=text, network=SimpleNamespace(reads_text=True))
    with pytest.raises(L2DError, match="text"):
        export.example_inputs(tuned)


@pytest.mark.slow
@pytest.mark.measured
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    router = fitted("cascade")
    with pytest.raises(ParameterError, match=r"file="):
        router.export(tmp_path / "router.bin")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(L2DError, match="l2d\\[onnx\\]"):
        router.export(tmp_path / "router.onnx")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_a_program_that_chooses_otherwise_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    router = fitted("cascade")
    with monkeypatch.context() as patch:
        wrong = lambda self, inputs: (len(router.experts) - 1 - inputs[:, 0].long(), self.network(inputs))  # noqa: E731
        patch.setattr(export.RouterProgram, "forward", wrong)
        wrong_program = export.RouterProgram(router)
        found = wrong_program(export.example_inputs(router))
    monkeypatch.setattr(torch.export, "load", lambda _: SimpleNamespace(module=lambda: lambda _: found))
    with pytest.raises(L2DError, match=r"router\.pt2"):
        router.export(tmp_path / "router.pt2")
    assert list(tmp_path.iterdir()) == []
