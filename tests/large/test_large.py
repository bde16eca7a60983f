"""Files larger than memory: the sums give what rows in memory give, and a pass survives what kills it."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from l2d.assembly.make import make_dataset
from l2d.config import Experiment, check, compose
from l2d.core import metrics as metrics_
from l2d.core import off_policy
from l2d.core.guard import fit_guard
from l2d.core.results import RunMetrics
from l2d.data.arrays import Seen
from l2d.data.sets import large
from l2d.data.sets.large import Layout, Piece, find_files, layout_of, pieces_of
from l2d.data.text.encoders import Encoder, Hashed
from l2d.large import passes
from l2d.large.passes import FOLDS, Passes, Reader, Rows
from l2d.large.route import route_large
from l2d.large.train import train_large
from l2d.networks.estimators.estimator import FitRows
from l2d.networks.estimators.linear import Ridge
from l2d.networks.estimators.lookup import Lookup
from l2d.networks.estimators.neighbours import Neighbours
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.router.router import Router
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError

NAMES = ("a", "b", "c")
N = 1_200


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are worked on in this process, in blocks of 100 rows."""
    done = lambda pieces, work, *_: (found for found in map(work, pieces) if found is not None)  # noqa: E731
    for module in ("passes", "route"):
        monkeypatch.setattr(f"l2d.large.{module}.each_piece", done)
    monkeypatch.setattr(large, "BLOCK", 100)


def table(*, gaps: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3)).astype("f4") * [1, 100, 0.01] + [0, 5000, 0]
    x[7, 0] = 60.0  # clamped
    chances = 1 / (1 + np.exp(-np.stack([x[:, 0], -x[:, 0], 0.3 + 0 * x[:, 0]], axis=1)))
    right = (rng.random((N, 3)) < chances).astype(float)
    found = {f"x{k}": x[:, k] for k in range(3)} | {"topic": rng.choice(["law", "math", "art"], N)}
    asked = rng.random((N, 3)) < [0.5, 0.7, 0.3]
    asked[:, 0] |= ~asked.any(axis=1)
    share = dict(zip(NAMES, (0.5 + 0.5 * 0.3 * 0.7, 0.7, 0.3), strict=True))
    for k, name in enumerate(NAMES):
        found[f"correct_{name}"] = np.where(asked[:, k], right[:, k], np.nan) if gaps else right[:, k]
    return found | ({f"propensity_{name}": np.full(N, share[name]) for name in NAMES} if gaps else {})


def written(folder: Path, columns: dict[str, np.ndarray]) -> Path:
    """Two files, the first in two row groups."""
    folder.mkdir()
    whole = pa.table(columns)
    parquet.write_table(whole[:800], folder / "one.parquet", row_group_size=500)
    parquet.write_table(whole[800:], folder / "two.parquet")
    return folder


def experiment_of(path: Path | str, runs: Path, *more: str) -> Experiment:
    return check(
        compose(["dataset=table", "method=linear", f"dataset.path={path}", f"runs_dir={runs}", "progress=false", *more])
    )


def trained(path: Path | str, runs: Path, *more: str) -> tuple[RunMetrics, RunFolder]:
    experiment = experiment_of(path, runs, *more)
    run = RunFolder.of(experiment.plain)
    return train_large(experiment, run), run


def layout_in(path: Path, features: list[str], *more: str) -> tuple[list[Piece], Layout]:
    pieces = pieces_of(find_files(str(path)))
    named = make_dataset(experiment_of(path, path, f"dataset.features=[{','.join(features)}]", *more)).named  # type: ignore[attr-defined]
    return pieces, layout_of(pieces[0], named)


def all_rows(
    path: Path, features: list[str], categories: dict[str, tuple[str, ...]], encoder: Encoder | None = None, *more: str
) -> Rows:
    pieces, layout = layout_in(path, features, *more)
    encoder = encoder or Hashed()
    reader = Reader(layout, Seen(tuple(features), layout.text, categories=categories), 0, encoder)
    parts = [reader.rows(piece, sheet) for piece in pieces for sheet in layout.sheets(piece)]
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Rows(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]


def fitted(make: Callable[[], Any], rows: Rows) -> list[EstimatorNetwork]:
    """In memory: without each fold, and to all rows."""
    found = []
    for fold in range(FOLDS + 1):
        kept = rows.folds != fold
        network = EstimatorNetwork(make())
        network.fit(FitRows(rows.inputs[kept], 1 - rows.errors[kept], torch.full((int(kept.sum()),), -1)))
        found.append(network.eval())
    return found


def numbers(score: Any) -> list[float]:
    """All numbers of a score."""
    return [float(one) for value in vars(score).values() if not isinstance(value, str) for one in np.atleast_1d(value)]


@pytest.mark.parametrize(
    ("method", "make", "features", "categories"),
    [
        ("linear", Ridge, ["x0", "x1", "x2", "topic"], {"topic": ("art", "law", "math")}),
        ("category_table", Lookup, ["topic"], {"topic": ("art", "law", "math")}),
    ],
)
@pytest.mark.usefixtures("at_home")
def test_same_as_in_memory(
    method: str, make: Any, features: list[str], categories: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    path, prices = written(tmp_path / "files", table()), torch.tensor([0.0, 0.1, 0.2]).double()
    more = ["cost=error_plus_cost", "cost.prices=[0.0,0.1,0.2]", f"dataset.features=[{','.join(features)}]"]
    metrics, run = trained(path, tmp_path / "runs", f"method={method}", *more)

    rows = all_rows(path, features, categories)
    networks, costs = fitted(make, rows), rows.errors + prices
    assert len(rows) == N
    assert set(rows.folds.tolist()) == set(range(FOLDS))
    expected, guarded = torch.zeros(N, 3), torch.zeros(N, dtype=torch.long)
    for fold in range(FOLDS):
        mine = rows.folds == fold
        expected[mine] = 1 - torch.sigmoid(networks[fold](rows.inputs[mine])).detach() + prices.float()
    utilities, best = -expected, int(costs.mean(dim=0).argmin())
    decisions = 2 - utilities.flip(1).argmax(dim=1)
    for fold in range(FOLDS):
        mine = rows.folds == fold
        guard = fit_guard(utilities[~mine], decisions[~mine], costs[~mine], best)
        guarded[mine] = guard.decide(utilities[mine], decisions[mine])
    known = metrics_.routing_metrics(decisions, costs, costs, prices, list(NAMES))
    for name, value in vars(known.baselines).items():
        if value is not None and name != "majority":
            assert numbers(getattr(metrics.baselines, name)) == pytest.approx(numbers(value), abs=1e-9), name
    assert metrics.confusion == known.confusion
    assert metrics.deferral_loss == pytest.approx(known.deferral_loss, abs=1e-9)
    assert metrics.standard_error == pytest.approx(known.standard_error, abs=1e-9)
    again = metrics_.guarded_score(fit_guard(utilities, decisions, costs, best), guarded, costs, prices, list(NAMES))
    assert numbers(metrics.guarded.test) == pytest.approx(numbers(again.test), abs=1e-9)
    assert numbers(metrics.guarded.validation) == pytest.approx(numbers(again.validation), abs=1e-9)

    router, whole = Router.load(run.path), networks[-1](rows.inputs).detach()
    torch.testing.assert_close(router.network(rows.inputs), whole, rtol=0, atol=2e-6)
    assert not (run.path / "passes").exists()


@pytest.mark.usefixtures("at_home")
def test_neighbours_are_those_of_training_in_memory(tmp_path: Path) -> None:
    path, features = written(tmp_path / "files", table()), ["x0", "x1", "x2"]
    metrics, run = trained(path, tmp_path / "runs", "method=knn", f"dataset.features=[{','.join(features)}]")
    rows = all_rows(path, features, {})
    networks = fitted(Neighbours, rows)
    torch.testing.assert_close(Router.load(run.path).network(rows.inputs), networks[-1](rows.inputs), rtol=0, atol=2e-6)
    wrong = 0.0
    for fold in range(FOLDS):
        mine = rows.folds == fold
        decisions = 2 - networks[fold](rows.inputs[mine]).flip(1).argmax(dim=1)
        wrong += float(rows.errors[mine].gather(1, decisions[:, None]).sum())
    assert metrics.deferral_loss == pytest.approx(wrong / N, abs=0.005)  # some experts are expected to be equally good


@pytest.mark.usefixtures("at_home")
def test_auto_learns_from_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l2d.large.train.SAMPLE", 600)
    path = written(tmp_path / "files", table())
    metrics, run = trained(path, tmp_path / "runs", "method=auto", "method.seconds=1", "dataset.features=[x0,x1,x2]")
    assert metrics.rows.test == N
    assert metrics.deferral_loss < metrics.baselines.best_single.deferral_loss
    assert "chosen" in (run.path / "candidates.txt").read_text(encoding="utf-8")
    router = Router.load(run.path)
    assert router.held_out is not None
    assert 450 < len(router.held_out.errors) < 750
    assert router.at([0.0, 0.0, 3.0]).route(np.zeros((1, 3)))[0].expert != NAMES[2]


@pytest.mark.usefixtures("at_home")
def test_a_sample_must_have_rows_of_every_expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = table(gaps=True)
    columns[f"correct_{NAMES[0]}"] = table()[f"correct_{NAMES[0]}"]
    columns[f"correct_{NAMES[2]}"] = np.where(np.arange(N) % 12 == 0, 1.0, np.nan)
    path = written(tmp_path / "files", columns)
    trained(path, tmp_path / "runs", "method=linear", "dataset.features=[x0,x1,x2]")
    monkeypatch.setattr("l2d.large.train.SAMPLE", 300)
    with pytest.raises(L2DError, match=rf"expert {NAMES[2]}: .*sample"):
        trained(path, tmp_path / "runs", "method=clusters", "dataset.features=[x0,x1,x2]")


@pytest.mark.usefixtures("at_home")
def test_log_is_judged_by_doubly_robust_costs(tmp_path: Path) -> None:
    path = written(tmp_path / "files", table(gaps=True))
    metrics, _ = trained(path, tmp_path / "runs", "dataset.features=[x0,x1,x2]")
    rows = all_rows(path, ["x0", "x1", "x2"], {})
    assert rows.chances is not None
    networks, expected = fitted(Ridge, rows), torch.zeros(N, 3).double()
    for fold in range(FOLDS):
        mine = rows.folds == fold
        expected[mine] = 1 - torch.sigmoid(networks[fold](rows.inputs[mine]).detach()).double()
    logged = off_policy.Logged(expected, off_policy.weights_of(~rows.errors.isnan(), rows.chances), rows.chances)
    robust = off_policy.doubly_robust(rows.errors, logged)
    decisions = 2 - (-expected).flip(1).argmax(dim=1)
    known = off_policy.value_of(decisions, robust, logged)
    assert metrics.baselines.oracle is None
    assert metrics.deferral_loss == pytest.approx(known.doubly_robust.value, abs=1e-6)
    assert metrics.standard_error == pytest.approx(known.doubly_robust.standard_error, abs=1e-6)


@pytest.mark.usefixtures("at_home")
def test_columns_of_words_and_folders_of_parts(tmp_path: Path) -> None:
    """A column may be called as a parameter of NumPy; too many words are refused in one block too."""
    columns = table()
    columns |= {"file": columns["topic"], "many": np.arange(N).astype(str)}
    columns["many"][:] = [f"w{k % 60}" for k in range(N)]
    path = written(tmp_path / "logs.parquet", columns)
    (path.parent / "other").mkdir()
    parquet.write_table(pa.table({"x": [1]}), path.parent / "other" / "no.parquet")
    assert len(find_files(str(tmp_path / "*.parquet"))) == len(find_files(str(path))) == 2
    metrics, _ = trained(tmp_path / "*.parquet", tmp_path / "runs", "dataset.features=[file,x0]")
    assert metrics.rows.test == N
    with pytest.raises(L2DError, match=r"column many: .*50"):
        trained(path, tmp_path / "runs", "dataset.features=[many]")


@pytest.mark.parametrize("reads", ["hashed", "mlp"])
@pytest.mark.usefixtures("at_home")
def test_texts(reads: str, tmp_path: Path) -> None:
    """Rows without a text are left out, equal texts stay in one fold, and the router reads new texts."""
    rng, columns = np.random.default_rng(1), table()
    texts = [f"{topic} question {rng.integers(200)}" for topic in columns["topic"]]
    columns |= {
        f"correct_{name}": (columns["topic"] == own) * 1.0
        for name, own in zip(NAMES, ("art", "law", "math"), strict=True)
    }
    columns["question"] = np.array([text if row % 50 else " " for row, text in enumerate(texts)])
    more = ("dataset.text=question", f"router={reads}")
    path = written(tmp_path / "files", columns)
    metrics, run = trained(path, tmp_path / "runs", "dataset.features=[x0]", *more)
    assert metrics.rows.test == N - N // 50
    assert metrics.deferral_loss < 0.02

    router = Router.load(run.path)
    assert router.encoder is not None
    rows = all_rows(path, ["x0"], {}, router.encoder, *more)
    network = fitted(Ridge, rows)[-1]
    estimates = [torch.sigmoid(one(rows.inputs).detach()) for one in (router.network, network)]
    torch.testing.assert_close(*estimates, rtol=0, atol=1e-4)
    kept = [text for row, text in enumerate(texts) if row % 50]
    assert len({*zip(kept, rows.folds.tolist(), strict=True)}) == len({*kept})
    chosen = router.route([{"x0": 0.0, "question": "math question 7"}, {"x0": 0.0, "question": "law question"}])
    assert [choice.expert for choice in chosen] == ["c", "b"]
    assert route_large(router, str(path), tmp_path / "out").total() == N


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("at_home")
def test_finished_passes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "files", table())
    monkeypatch.setattr("l2d.large.train.SAMPLE", 300)
    whole, _ = trained(path, tmp_path / "other", "dataset.features=[x0,x1]")
    with monkeypatch.context() as patch:
        patch.setattr("l2d.large.judge.judged", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(path, tmp_path / "runs", "dataset.features=[x0,x1]")
    begun, each = list[Any](), passes.each_piece

    def counted(*given: Any) -> Any:
        begun.append(given)
        return each(*given)

    monkeypatch.setattr(passes, "each_piece", counted)
    metrics, run = trained(path, tmp_path / "runs", "dataset.features=[x0,x1]")
    assert len(begun) == 1
    assert metrics == whole
    assert json.loads((run.path / "metrics.json").read_text())["rows"]["test"] == N
    held_out = Router.load(run.path).held_out
    assert held_out is not None
    assert 200 < len(held_out.errors) < 400


@pytest.mark.usefixtures("at_home")
def test_routes_files_as_one(tmp_path: Path) -> None:
    path = written(tmp_path / "files", table())
    lines = tmp_path / "lines.jsonl"
    parquet.read_table(path).to_pandas().to_json(lines, orient="records", lines=True, double_precision=15)
    _, run = trained(path, tmp_path / "runs", "dataset.features=[x0,x1]")
    router = Router.load(run.path)
    expected = [choice.expert for file in ("one", "two") for choice in router.route_file(path / f"{file}.parquet")]
    for number, source in enumerate((path, lines)):
        out = tmp_path / f"choices{number}"
        counts = route_large(router, str(source), out)
        assert parquet.read_table(out)["expert"].to_pylist() == expected
        assert counts.total() == N
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    with pytest.raises(L2DError, match=r"--out=.*new"):
        route_large(router, str(path), tmp_path / "choices0")


def test_bad_input_is_one_line(at_home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    path, runs = written(tmp_path / "files", table(gaps=True)), tmp_path / "runs"

    def refused(*more: str, of: Path | str = path) -> str:
        with pytest.raises(L2DError) as error:
            trained(of, runs, "dataset.features=[x0,x1]", *more)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no file" in refused(of=tmp_path / "*.txt")
    assert refused("method=plugin").startswith("method=plugin: ")
    assert refused("sampling=over").startswith("sampling=over: ")
    assert refused("cost=columns").startswith("cost: ")
    assert refused("dataset.text=topic", "router=minilm", "method=linear").startswith("router: ")
    columns = table() | {"topic": np.array([""] * N)}
    assert refused("dataset.text=topic", of=written(tmp_path / "mute", columns)).startswith("dataset.text=topic: ")
    vanished = Piece(f"file://{path}/three.parquet", 2, 0)
    with monkeypatch.context() as patch:
        patch.setattr("l2d.large.train.pieces_of", lambda urls: [*pieces_of(urls), vanished])
        assert "three.parquet" in (told := refused())
        assert "vanished" in told
    parquet.write_table(parquet.read_table(path / "one.parquet").drop_columns("x1"), path / "other.parquet")
    assert "other.parquet" in (told := refused())
    assert "x1" in told
    (path / "more.jsonl").touch()
    assert refused().startswith("dataset.path=")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.full
def test_ray_survives_a_killed_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    path, mark = written(tmp_path / "files", table()), tmp_path / "killed"
    pieces, layout = layout_in(path, ["x0"])

    def sums(piece: Piece, sheet: Any) -> dict[str, np.ndarray]:
        if piece.file == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x0": sheet.numbers("x0").sum(keepdims=True), "n": np.array([len(sheet)])}

    try:
        found = Passes(tmp_path / "passes", pieces, layout, 4, False).run("sums", sums)
        assert mark.exists()
        assert found["n"].tolist() == [N]
        assert found["x0"][0] == pytest.approx(table()["x0"].astype(float).sum())
        again = Passes(tmp_path / "again", pieces, layout, 4, False).run("sums", sums)
        assert found["x0"].tolist() == again["x0"].tolist()  # to the last bit
        small = [{"Alive": True, "Resources": {"CPU": 2.0, "memory": 2.0**20}}]
        monkeypatch.setattr(ray, "nodes", lambda: small)
        with pytest.raises(L2DError, match="Ray"):
            Passes(tmp_path / "others", pieces, layout, 4, False).run("sums", sums)
    finally:
        ray.shutdown()
