"""dataset=log: the rows of a log and of its export, and what is refused."""

import contextlib
import csv
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.logs.postgres import postgres
from tests.router.finished import PRICED, SMALL, Untrained, untrained
from tests.server.helpers import PROMPTS, asking, make_service

from l2d.analysis.log_value import inputs_of_log
from l2d.assembly.build import make_splits
from l2d.assembly.fingerprints import with_listed_prices
from l2d.assembly.make import make_dataset
from l2d.commands import log as log_command
from l2d.config import check, compose
from l2d.data.text.encoders import Embeddings, Hashed
from l2d.data.text.words import Words
from l2d.logs.dataset import ServerLog, is_described, snapshot
from l2d.logs.decision import Decision, ReportedOutcome
from l2d.logs.export import RunInputs
from l2d.logs.operations import add_decisions, add_outcomes, add_run
from l2d.logs.outcome_log import OutcomeLog
from l2d.logs.rows import read_rows
from l2d.router.router import Router
from l2d.router.trained import inputs_of
from l2d.utils.errors import L2DError, ParameterError

N = 150  # decisions


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    snapshot.cache_clear()


def change(log: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(log)) as database, database:
        database.execute(statement)
    snapshot.cache_clear()


def serve(run: Path, log: Path | str, keep: str, queries: list[Any], **settings: Any) -> list[Any]:
    """Asked with these queries, with an outcome for each: right, if the expert is a."""
    with asking(make_service(run, log, explore=1.0, keep=keep, **settings)) as client:
        found: list[Any] = client.post("/v1/route", json={"inputs": queries}).json()["decisions"]
        outcomes = [{"decision_id": one["decision_id"], "correct": one["expert"] == "a"} for one in found]
        assert client.post("/v1/outcomes", json={"outcomes": outcomes}).json()["recorded"] == len(queries)
    return found


def texts() -> list[str]:
    return [f"{PROMPTS[place % len(PROMPTS)]} {place}" for place in range(N)]


@pytest.fixture(scope="module")
def served(run: Untrained, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[Any]]]:
    folder, queries = tmp_path_factory.mktemp("served"), [{"text": text} for text in texts()]
    files = {keep: folder / f"{keep}.sqlite" for keep in ("text", "features")}
    return {keep: (file, serve(run.path, file, keep, queries)) for keep, file in files.items()}


@pytest.fixture
def log(served: dict[str, tuple[Path, list[Any]]], tmp_path: Path) -> Path:
    return Path(shutil.copy(served["text"][0], tmp_path / "log.sqlite"))


def dataset(file: Path | str, encoder: Any = None, run: str | None = None) -> ServerLog:
    return ServerLog(path=str(file), run=run, encoder=encoder or Hashed(), test_fraction=0.2)


def pooled(arrays: Any) -> tuple[list[str], torch.Tensor, Any]:
    answers = arrays.panel.train.followed_by(arrays.panel.test)
    ids = [*arrays.train_ids.tolist(), *arrays.ids.tolist()]
    return ids, torch.cat([arrays.train_inputs, arrays.test_inputs]), answers


@pytest.mark.parametrize(
    ("keep", "kind"), [("text", "sqlite"), ("features", "sqlite"), ("text", "csv"), ("features", "parquet")]
)
def test_rows_of_texts(run: Untrained, served: Any, tmp_path: Path, keep: str, kind: str) -> None:
    """The same inputs, outcomes, propensities and prices from the log and from its export, whatever of the text it keeps."""
    log, decided = served[keep]
    file = log
    if kind != "sqlite":
        file = tmp_path / f"log.{kind}"
        log_command.main(["export", str(log), "--out", str(file)])
    arrays: Any = dataset(file).load(tmp_path)
    assert (arrays.panel.names, arrays.seen.text, arrays.seen.features) == (("a", "b", "c"), "prompt", ())
    ids, inputs, answers = pooled(arrays)
    order = [ids.index(one["decision_id"]) for one in decided]
    assert sorted(order) == list(range(N))
    assert torch.equal(inputs[order], inputs_of(Router.load(run.path), texts()))
    prices = dict(zip("abc", (0.5, 0.1, 0.3), strict=True))
    for row, one in zip(order, decided, strict=True):
        k = "abc".index(one["expert"])
        for part, value in (
            (answers.errors, float(one["expert"] != "a")),
            (answers.propensities, 1 / 3),
            (answers.prices, prices[one["expert"]]),
        ):
            assert part[row, k] == pytest.approx(value)
            assert part[row].isnan().tolist() == [place != k for place in range(3)]
    assert answers.latencies is None


def test_what_an_encoder_learned_goes_with_its_numbers(tmp_path: Path) -> None:
    """The next router reads texts as the one that served did. An export has the numbers alone, and another state other numbers."""
    from tests.server.helpers import text_run

    made = text_run(tmp_path, "router=mlp")
    file = tmp_path / "log.sqlite"
    serve(made.path, file, "features", [{"text": text} for text in texts()])
    found = dataset(file, Words()).load(tmp_path)
    served_by = Router.load(made.path)
    assert served_by.encoder is not None
    for name, array in served_by.encoder.state.items():
        np.testing.assert_array_equal(found.reading[name], array)
    seen = torch.cat([found.train_inputs, found.test_inputs]).numpy()
    np.testing.assert_allclose(np.sort(seen, 0), np.sort(served_by.encoder.embed(texts()), 0), atol=1e-6)
    assert len(inputs_of_log(read_rows(file), served_by)) == N
    log_command.main(["export", str(file), "--out", str(tmp_path / "log.csv")])
    change(file, """UPDATE runs SET about = replace(about, '"reading": "', '"reading": "AAAA')""")
    with pytest.raises(L2DError, match="another router"):
        inputs_of_log(read_rows(file), served_by)
    with pytest.raises(ParameterError, match=r"encoder: .*router=hashed"):
        dataset(tmp_path / "log.csv", Words()).load(tmp_path)


@pytest.mark.parametrize("keep", ["text", "features"])
def test_queries_without_a_text_are_left_out(run: Untrained, tmp_path: Path, keep: str) -> None:
    log, out = tmp_path / "log.sqlite", tmp_path / "log.csv"
    serve(run.path, log, keep, [*({"text": text} for text in texts()), *[{"text": " "}] * 10])
    log_command.main(["export", str(log), "--out", str(out)])
    for file in (log, out):
        rows = read_rows(file)
        assert (len(rows), rows.left_out["without inputs"]) == (N, 10)


def test_rows_of_numbers_keep_their_names(tmp_path: Path) -> None:
    found = untrained(tmp_path, "dataset.features=[y,x]", *PRICED, "method=cost_regression", "router=hashed")
    log, out = tmp_path / "log.sqlite", tmp_path / "log.csv"
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(N, 2)).round(3).tolist()
    serve(found.path, log, "features", [{"features": {"x": x, "y": y}} for x, y in queries])
    log_command.main(["export", str(log), "--out", str(out)])
    for file in (log, out):
        arrays = dataset(file).load(tmp_path)
        assert (arrays.seen.features, arrays.seen.text) == (("y", "x"), None)
        assert sorted(pooled(arrays)[1].tolist()) == sorted(torch.tensor(queries)[:, [1, 0]].tolist())
        assert dataset(file).gives == "rows"


def test_numbers_beside_a_text(tmp_path: Path) -> None:
    given = ("dataset.features=[x]", "dataset.text=prompt", *PRICED, "method=cost_regression", "router=hashed")
    found = untrained(tmp_path, *given)
    log, out = tmp_path / "log.sqlite", tmp_path / "log.csv"
    queries = [{"x": place / 8, "prompt": text} for place, text in enumerate(texts())]
    serve(found.path, log, "features", [{"features": query} for query in queries])
    log_command.main(["export", str(log), "--out", str(out)])
    expected = inputs_of(Router.load(found.path), queries)
    for file in (log, out):
        arrays = dataset(file).load(tmp_path)
        assert (arrays.seen.features, arrays.seen.text) == (("x",), "prompt")
        inputs = pooled(arrays)[1]
        assert torch.equal(inputs[inputs[:, 0].argsort()], expected)


def test_images(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")
    pixels = np.random.default_rng(0).integers(0, 255, (80, 4, 4, 1)).astype(np.uint8)
    about = '{"experts": ["a", "b"], "shape": [4, 4, 1], "seen": {"features": [], "white": 16}, "encoder": null, "price_scale": 1.0}'
    log.do(add_run, "run", about)
    kept = [one.astype("<f4").tobytes() for one in pixels]
    log.do(
        add_decisions, [Decision(f"{i}", "run", "ab"[i % 2], "a", "explore", 0.5, features=kept[i]) for i in range(80)]
    )
    log.do(add_outcomes, [ReportedOutcome(str(place), 1.0, None) for place in range(80)]).result()
    log.close()
    arrays = dataset(tmp_path / "log.sqlite").load(tmp_path)
    ids, inputs, answers = pooled(arrays)
    assert (inputs.dtype, arrays.seen.white, answers.prices) == (torch.uint8, 16, None)
    assert torch.equal(inputs[[ids.index(str(place)) for place in range(80)]], torch.from_numpy(pixels))
    assert dataset(tmp_path / "log.sqlite").gives == "images"


@pytest.mark.full
def test_prices_are_carried_over(log: Path, tmp_path: Path) -> None:
    """In dollars, whatever each run took an error for; the last run's counts by default. prices: in units of one error."""
    out = tmp_path / "log.csv"

    def prices(*overrides: str, file: Path = log) -> list[float]:
        snapshot.cache_clear()
        experiment = check(compose(["dataset=log", f"dataset.path={file}", *SMALL, *overrides]))
        found: Any = make_splits(with_listed_prices(experiment)).prices
        return list(found.tolist())

    assert prices() == pytest.approx([0.5, 0.1, 0.3])
    assert prices("cost=error") == [0, 0, 0]
    with_two_runs(log, *({"currency": "$", "price_scale": scale} for scale in (1.0, 50.0)))
    log_command.main(["export", str(log), "--out", str(out)])
    with out.open(newline="") as lines:
        assert [float(row["price_scale"]) for row in csv.DictReader(lines)] == [*[1.0] * 75, *[50.0] * 75]
    assert prices() == prices("cost.error_price=0.02", file=out) == pytest.approx([25, 5, 15])
    assert prices("cost.scale=2") == pytest.approx([1, 0.2, 0.6])
    for file in (log, out):
        for cost in ("cost=logged", "cost=columns"):
            plain = with_listed_prices(check(compose(["dataset=log", f"dataset.path={file}", cost]))).plain
            assert (plain["cost"]["error_price"], plain["cost"]["scale"]) == (0.02, 50)


def with_two_runs(log: Path, *abouts: dict[str, Any]) -> None:
    """The first half of the rows is of a run called old, the other one of a run called new. abouts: what the log says of their
    prices; without a currency, as earlier versions wrote it."""
    with contextlib.closing(sqlite3.connect(log)) as database, database:
        [about, *_] = database.execute("SELECT about FROM runs").fetchone()
        known = {key: value for key, value in json.loads(about).items() if key != "currency"}
        for name, own in zip(("old", "new"), abouts, strict=True):
            database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (name, json.dumps({**known, **own})))
    change(log, f"UPDATE decisions SET run = iif(number <= {N // 2}, 'old', 'new')")


def test_prices_in_different_units(log: Path, tmp_path: Path) -> None:
    """Dollars and units of an error cannot be added up; the rows of one run can be chosen. A row without a price harms nothing."""
    out = str(tmp_path / "log.csv")
    with_two_runs(log, {"price_scale": 2.0}, {"currency": "$", "price_scale": 3.0})  # the first: before currencies
    assert len(read_rows(log)) == N
    with_two_runs(log, {"currency": "$", "price_scale": 2.0}, {"currency": "", "price_scale": 1.0})
    said = r"old and new .*cost\.error_price.*--run .*dataset\.run"
    with pytest.raises(L2DError, match=said):
        dataset(log).load(tmp_path)
    with pytest.raises(SystemExit, match=said):
        log_command.main(["export", str(log), "--out", out])
    assert len(read_rows(log, "old")) == N // 2
    log_command.main(["export", str(log), "--out", out, "--run", "new"])
    change(log, "UPDATE decisions SET price = NULL WHERE run = 'old'")
    assert len(read_rows(log)) == N


def test_the_currency_changes_no_fingerprint() -> None:
    """A training that has begun can be resumed with a log of an earlier version: the repr, which is hashed, is as it was then."""
    inputs = '"experts": ["a", "b"], "shape": [3], "seen": {"features": ["x"]}, "encoder": {"width": 2}'
    seen = "Seen(features=('x',), text=None, image=None, white=255), encoder={'width': 2}"
    for currency in ("", ', "currency": null', ', "currency": "$"'):
        found = RunInputs.read(f'{{{inputs}, "price_scale": 50.0{currency}}}')
        assert repr(found) == f"RunInputs(experts=('a', 'b'), shape=(3,), seen={seen}, price_scale=50.0)"


def test_a_server_may_go_on_writing(run: Untrained, log: Path, tmp_path: Path) -> None:
    """All steps of a run see the same rows; the next process sees more."""
    before = dataset(log).fingerprint(tmp_path)
    serve(run.path, log, "text", [{"text": "one more"}])
    assert dataset(log).fingerprint(tmp_path) == before
    assert len(pooled(dataset(log).load(tmp_path))[0]) == N
    snapshot.cache_clear()
    assert dataset(log).fingerprint(tmp_path) != before
    assert len(pooled(dataset(log).load(tmp_path))[0]) == N + 1


def test_equal_inputs_stay_on_one_side(run: Untrained, tmp_path: Path) -> None:
    for keep in ("text", "features"):
        log = tmp_path / f"{keep}.sqlite"
        serve(run.path, log, keep, [{"text": text} for text in texts()[: N // 3] * 3])
        arrays = dataset(log).load(tmp_path)
        rows = [{row.numpy().tobytes() for row in part} for part in (arrays.train_inputs, arrays.test_inputs)]
        assert len(rows[0]) + len(rows[1]) == N // 3
        assert not rows[0] & rows[1]


def test_only_one_runs_decisions(run: Untrained, served: Any, tmp_path: Path) -> None:
    """Runs that see different things can share a log; rows of one of them are chosen by its name."""
    log = Path(shutil.copy(served["features"][0], tmp_path))
    other = untrained(tmp_path, "dataset.features=[x,y]", *PRICED, "method=cost_regression", "router=hashed")
    serve(other.path, log, "features", [{"features": [0.5, place]} for place in range(N)])
    with pytest.raises(L2DError, match="--run"):
        dataset(log).load(tmp_path)
    assert dataset(log, run=str(other.path)).load(tmp_path).seen.features == ("x", "y")
    assert dataset(log, run=str(run.path)).load(tmp_path).seen.text == "prompt"
    out = tmp_path / "log.csv"
    log_command.main(["export", str(log), "--out", str(out), "--run", str(run.path)])
    with pytest.raises(ParameterError, match="run=x"):
        dataset(out, run="x").load(tmp_path)


def test_times_of_an_export_are_not_needed(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    row = {"id": "q1", "time": "2026-03-01T00:05:28", "prompt": "x", "expert": "a", "correct": True, "propensity": 0.5}
    file.write_text(json.dumps(row) + "\n")
    assert len(read_rows(file)) == 1


@pytest.mark.parametrize("seen", ["prompt", "x_size"])
def test_exports_with_other_inputs_are_other_data(seen: str, tmp_path: Path) -> None:
    found = set()
    for number, value in enumerate((1, 1, 2)):
        file = tmp_path / f"log{number}.jsonl"
        given = {"prompt": f"question {value}", "expert": "a", "correct": True, "propensity": 0.5}
        file.write_text("".join(json.dumps({**given, seen: given.get(seen, value)}) + "\n" for _ in range(3)))
        found.add(dataset(file).fingerprint(tmp_path))
    assert len(found) == 2


def test_rows_of_which_nothing_was_kept(run: Untrained, served: Any, tmp_path: Path) -> None:
    """--all exports rows that a client sent to its expert, of which no input is known; training leaves them out."""
    out = tmp_path / "log.csv"
    for file, _ in served.values():
        log = Path(shutil.copy(file, tmp_path))
        writer = OutcomeLog(log)
        writer.do(add_decisions, [Decision("client's", str(run.path), "a", None, "client", None)])
        writer.do(add_outcomes, [ReportedOutcome("client's", 1.0, None)]).result()
        writer.close()
        log_command.main(["export", str(log), "--out", str(out), "--all"])
        assert len(out.read_text().splitlines()) == N + 2
        for file in (log, out):
            assert len(read_rows(file)) == N


def test_refused(log: Path, served: Any, tmp_path: Path) -> None:
    changes = {
        "empty": "DELETE FROM outcomes",
        "none": "UPDATE decisions SET text = NULL",
        "few": "DELETE FROM decisions WHERE number > 40",
        "shadow": "UPDATE decisions SET propensity = 1",
    }
    for name, statement in changes.items():
        change(Path(shutil.copy(log, tmp_path / f"{name}.sqlite")), statement)
    features, _ = served["features"]
    (tmp_path / "table.csv").write_text("id,prompt,correct_a\n1,x,1\n")

    class Other(Hashed):
        """Another encoder."""

    class Narrow(Hashed):
        def embed(self, texts: Any) -> np.ndarray:
            return super().embed(texts)[:, :9]

    log_command.main(["export", str(features), "--out", str(tmp_path / "log.csv")])
    for file, encoder, said in (
        (tmp_path / "nowhere.sqlite", None, r"path=.*nowhere\.sqlite"),
        (tmp_path / "empty.sqlite", None, "outcome"),
        (tmp_path / "none.sqlite", None, r"none\.sqlite: .*--keep none"),
        (tmp_path / "few.sqlite", None, r"few\.sqlite: . has \d+ answers .* 25 "),
        (tmp_path / "shadow.sqlite", None, r"shadow\.sqlite: .*--explore"),
        (features, Other(), "encoder: .* hashed"),
        (tmp_path / "log.csv", Narrow(), "encoder: .* 512"),
        (tmp_path / "table.csv", None, r"table\.csv: .*expert, propensity, correct"),
    ):
        with pytest.raises(L2DError, match=said):
            dataset(file, encoder).load(tmp_path)
    for path, said in (("postgresql://me:secret@host/log", "password"), (None, "path: missing")):
        with pytest.raises(L2DError, match=said):
            ServerLog(path=path, run=None, encoder=None, test_fraction=0.2).fingerprint(tmp_path)


def test_rows_without_a_price(log: Path, tmp_path: Path) -> None:
    """Left out, if others have one: a router that learns prices cannot use them."""
    change(log, "UPDATE decisions SET price = NULL WHERE number <= 10")
    assert len(pooled(dataset(log).load(tmp_path))[0]) == N - 10
    change(log, "UPDATE decisions SET price = NULL")
    assert pooled(dataset(log).load(tmp_path))[2].prices is None
    with pytest.raises(ParameterError, match=r"cost\.prices=logged"):
        make_splits(check(compose(["dataset=log", f"dataset.path={log}", *SMALL])))


@pytest.mark.slow
def test_a_log_in_postgresql(run: Untrained, tmp_path: Path) -> None:
    """Read by its URL, as a file is. A text may have any character."""
    odd = "a\0b of 3"
    with postgres() as server:
        decided = serve(run.path, server.url, "text", [{"text": text} for text in [*texts(), odd]])
        arrays = dataset(server.url).load(tmp_path)
        rows = read_rows(server.url)
    assert sorted(pooled(arrays)[0]) == sorted(one["decision_id"] for one in decided)
    assert rows.texts is not None
    assert rows.texts.tolist() == [*texts(), odd.replace("\0", "\N{REPLACEMENT CHARACTER}")]


def test_encoders() -> None:
    given: dict[str, Any] = {"model": "minilm", "max_length": 256, "start_share": 0.25, "batch_size": 64}
    described = {"name": "embeddings", "_target_": "l2d.data.text.encoders.Embeddings", **given}
    assert is_described(Embeddings(**given), described)
    assert not is_described(Embeddings(**{**given, "max_length": 128}), described)
    assert not is_described(Hashed(), described)


def test_its_config() -> None:
    """The choices of l2d train dataset=log, unless told otherwise."""
    found = compose(["dataset=log", "dataset.path=log.sqlite"])
    assert (found.cost.prices, found.experts.name, found.router.name) == ("logged", "table", "mlp")
    made = make_dataset(check(found))
    assert isinstance(made, ServerLog)
    assert isinstance(made.encoder, Words)
    assert found.method.name == "auto"
    assert compose(["dataset=log", "cost=error"]).cost.name == "error"


def test_rows_that_are_left_out_are_told(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that cannot be read, and those that no policy explored, each by its reason."""
    out = tmp_path / "log.csv"
    log_command.main(["export", str(log), "--out", str(out)])
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, cell in zip(rows, ("", "", "1"), strict=False):
        row["propensity"] = cell
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    capsys.readouterr()
    dataset(out).load(tmp_path)
    printed = capsys.readouterr().err
    for part in (f"{N - 3} decisions", "2 rows without a prop", "1 row without explor"):
        assert part in printed


def test_names_of_the_price_in_an_export(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    for word, said in (
        ("price,cost", "price, cost"),
        ("cost_usd", "cost_usd: .*price"),
        ("Price", "Price: .*price"),
        ("Latency", "Latency: .*latency"),
    ):
        file.write_text(f"id,f_x,expert,correct,propensity,{word}\n1,0.5,a,1,0.5,0.1{',9' if ',' in word else ''}\n")
        with pytest.raises(L2DError, match=said):
            read_rows(file)
