"""Every row is judged by a router that did not see it."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
import torch
from tests.conftest import QUICK
from tests.running import folder_of, train

from l2d import Router
from l2d.assembly import build
from l2d.assembly.assemble import Splits
from l2d.assembly.make import make_dataset
from l2d.config import Experiment, check, compose
from l2d.core.decisions import argmax_last
from l2d.core.results import Score
from l2d.data.sets.table import Table
from l2d.data.splits import with_test_fold
from l2d.router.trained import outputs_of
from l2d.runs.folder import RunFolder
from l2d.training import cross_validation, score, walk
from l2d.training.cross_validation import FOLDS, FoldedRows, cross_validates, fold_rows, mean_score
from l2d.training.score import RoutedRows
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.seeding import derive_seed

N = 120


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, which the numbers x tell apart. Each expert is right on most queries of one of them."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "queries.csv"
    with path.open("w", newline="") as lines:
        rows = csv.writer(lines)
        rows.writerow(["x", "topic", "correct_a", "correct_b", "price_a", "price_b"])
        for i in range(N):
            right = rng.random(2) < ([0.9, 0.2] if i % 2 else [0.2, 0.9])
            rows.writerow([f"{rng.normal() + 4 * (i % 2):.4f}", "xy"[i % 2], *right.astype(int), 0.1, 0.01 * (i % 7)])
    return path


def kept_of(cfg: Any) -> dict[str, torch.Tensor]:
    with np.load(folder_of(cfg) / "test.npz") as found:
        return {name: torch.from_numpy(value) for name, value in found.items()}


def config(file: Path, runs: Path, *more: str) -> Any:
    given = ["dataset=table", f"dataset.path={file}", "setup.experts=null", f"runs_dir={runs}", "method=linear"]
    return compose([*given, *QUICK, *more])


def test_every_row_is_judged_once(file: Path, tmp_path: Path) -> None:
    cfg = config(file, tmp_path, "dataset.category=topic", "cost=columns")
    metrics = train(cfg)
    assert metrics["evaluation"] == "cross_validate"
    assert metrics["rows"] == {"train": N, "validation": N, "test": N}
    assert sum(one["rows"] for one in metrics["by_category"].values()) == N
    kept = {name: value.numpy() for name, value in kept_of(cfg).items()}
    whole: Any = fold_rows(check(cfg)).whole
    np.testing.assert_array_equal(kept["prices"], whole.panel.train.prices.numpy())
    np.testing.assert_allclose(kept["costs"], (whole.panel.train.errors + whole.panel.train.prices).numpy())
    paid_for = kept["costs"][np.arange(N), kept["decisions"]]
    assert metrics["deferral_loss"] == pytest.approx(paid_for.mean())
    assert metrics["baselines"]["best_single"]["deferral_loss"] == pytest.approx(kept["costs"].mean(axis=0).min())
    assert metrics["baselines"]["category_table"]["deferral_loss"] < 0.5
    assert not (folder_of(cfg) / "folds").exists()


@pytest.fixture(scope="module")
def by_topic(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The config of a finished run with a table of categories, which can be computed by hand."""
    given = ("method=category_table", "dataset.text=topic", "dataset.category=topic", "seed=3")
    cfg = config(file, tmp_path_factory.mktemp("by_topic"), *given)
    train(cfg)
    return cfg


def test_by_routers_that_did_not_see_it(by_topic: Any) -> None:
    """The other folds' share of right answers, pulled to the mean by one row."""
    kept, rows = kept_of(by_topic), fold_rows(check(by_topic))
    for number in range(1, FOLDS + 1):
        arrays, held = with_test_fold(rows.whole, f"{number}/{FOLDS}", derive_seed(3, "test folds"))
        learned = rows.splits(arrays, "", rows.experiment).train
        right = 1 - learned.answers.errors
        for row in held.tolist():
            same = (learned.inputs == rows.whole.train_inputs[row]).all(dim=1)
            mean = (right[same].sum(dim=0) + right.mean(dim=0)) / (same.sum() + 1)
            np.testing.assert_allclose(kept["expected_errors"][row], 1 - mean, atol=1e-4)
            assert kept["decisions"][row] == int(mean.argmax())


def threshold(lifts: list[float], gains: list[float]) -> float:
    """Slow reference for the offset of the first of two experts: the middle of the first best interval. It earns gains of rows."""
    order = sorted(range(len(lifts)), key=lambda i: lifts[i])
    sums = [sum(gains[i] for i in order[:number]) for number in range(len(order) + 1)]
    best = max(range(len(sums)), key=lambda number: (round(sums[number], 9), -number))
    assert 0 < best < len(order)
    return (lifts[order[best - 1]] + lifts[order[best]]) / 2


def test_the_guard_of_a_fold_sees_the_other_folds_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routers that prefer expert a by .5 too much: the guard shifts them back. By hand, row by row, on the rows of other folds."""
    n, rng = 300, np.random.default_rng(5)
    x, noise = rng.normal(size=n), rng.random((n, 2)) < 0.2
    right = np.stack([x > 0, x <= 0], axis=1) ^ noise
    lines = [f"{x[i]:.6f},{int(right[i, 0])},{int(right[i, 1])}" for i in range(n)]
    (tmp_path / "table.csv").write_text("\n".join(["x,correct_a,correct_b", *lines]))
    plain = RoutedRows.of

    def biased(*given: Any) -> RoutedRows:
        found = plain(*given)
        utilities = found.utilities + torch.tensor([0.5, 0.0])
        return replace(found, utilities=utilities, decisions=argmax_last(utilities))

    monkeypatch.setattr(RoutedRows, "of", biased)
    cfg = config(tmp_path / "table.csv", tmp_path, "seed=3")
    metrics, kept, rows = train(cfg), kept_of(cfg), fold_rows(check(cfg))
    utilities, costs = kept["utilities"].double().tolist(), kept["costs"].tolist()
    lift, gain = [b - a for a, b in utilities], [b - a for a, b in costs]
    expected, naive = [-1] * n, threshold(lift, gain)
    for number in range(1, FOLDS + 1):
        held = with_test_fold(rows.whole, f"{number}/{FOLDS}", derive_seed(3, "test folds"))[1].tolist()
        others = [row for row in range(n) if row not in held]
        offset = threshold([lift[row] for row in others], [gain[row] for row in others])
        for row in held:
            expected[row] = 0 if lift[row] < offset else 1
    assert kept["guarded"].tolist() == expected
    assert expected != [0 if one < naive else 1 for one in lift]  # a guard that sees all rows decides otherwise
    assert metrics["guarded"]["deferral_loss"] == pytest.approx(sum(costs[i][expected[i]] for i in range(n)) / n)
    assert metrics["guarded"]["offsets"] == pytest.approx([naive / 2, -naive / 2])


def test_a_router_without_a_true_gain_shows_none(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expert a always costs .5. The router asks b on one half of the rows, where b costs 0 or 1 by chance; elsewhere b costs 1. So
    the true gain is 0, whether a guard falls back or not. A guard that saw the rows that it judges would show a gain, since it falls
    back where the router was unlucky: here .0076 ± .0012."""
    given, plain = list[Any](), cross_validation.score_out_of_fold

    def noted(*found: Any) -> Any:
        given.append(found)
        return plain(*found)

    monkeypatch.setattr(cross_validation, "score_out_of_fold", noted)
    train(config(file, tmp_path))
    [(folds, whole, fitted)] = given
    monkeypatch.setattr(type(fitted.method), "by_argmax", False)  # without offsets, which take time
    gains, rng = list[float](), np.random.default_rng(0)
    for _ in range(225):
        drawn = list[cross_validation.Fold]()
        for number, fold in enumerate(folds):
            asks = torch.tensor([0, 1] * 10)
            chance = np.where(asks == 1, rng.integers(2, size=20), 1)
            costs = torch.from_numpy(np.stack([np.full(20, 0.5), chance], axis=1))
            routed = RoutedRows(-costs, -costs, asks, costs, torch.zeros(2))
            drawn.append(replace(fold, rows=torch.arange(20) + 20 * number, routed=routed, learned=None))
        scored = plain(drawn, whole, fitted)
        gains.append(scored.metrics.guarded.test.gain)
        assert (scored.judged.guard.constant is None) == (scored.metrics.deferral_loss < 0.5)  # deployed: by all rows
    assert abs(np.mean(gains)) < 2 * np.std(gains) / 15


@pytest.mark.slow
def test_the_router_learns_from_all_rows(file: Path, tmp_path: Path) -> None:
    splits = splits_of_router(check(config(file, tmp_path, "method=mild")))
    assert (len(splits.train), len(splits.test)) == (N, 0)
    chosen = splits_of_router(check(config(file, tmp_path, "method=mild", "checkpoint=best")))
    assert len(chosen.train) + len(chosen.validation) == N
    assert not torch.isin(chosen.train.rows, chosen.validation.rows).any()
    at_once = splits_of_router(check(config(file, tmp_path, "method=knn", "checkpoint=best")))
    assert len(at_once.train) == N  # it has no epochs to choose from


@pytest.mark.slow
@pytest.mark.parametrize("more", [["sampling=over"], ["method=cost_regression", "checkpoint=best", "sampling=under"]])
def test_a_budget_compares_routers_on_rows_that_both_learned_from(more: list[str], file: Path, tmp_path: Path) -> None:
    """Once each: a fold's router on the next fold's rows, less those that sampling or validation took from it or the final one."""
    cfg = config(file, tmp_path, "cost=error_plus_cost", "cost.prices=[0.01,0.02]", "seed=3", *more)
    train(cfg)
    router, rows = Router.load(folder_of(cfg)), fold_rows(check(cfg))
    kept: Any = router.held_out
    expected: Any = router.method.expected_errors(outputs_of(router, rows.whole.train_inputs))
    torch.testing.assert_close(kept.deployed, expected[kept.learned])
    final, both = {*splits_of_router(check(cfg)).train.rows.tolist()}, list[int]()
    for learned, following in learned_in_folds(rows):
        both += sorted({*learned} & {*following} & final)
    assert kept.learned.tolist() == sorted(both)
    assert len(kept.errors) == N


def splits_of_router(experiment: Experiment) -> Splits:
    """The rows that a cross-validated run's router learned from."""
    return fold_rows(experiment).source(()).splits(experiment)


def learned_in_folds(rows: FoldedRows) -> list[tuple[list[int], list[int]]]:
    """For each fold, the rows that its router learned from, and the rows of the next fold. Of a run with seed 3."""
    held, learned = list[list[int]](), list[list[int]]()
    for number in range(1, FOLDS + 1):
        arrays, some = with_test_fold(rows.whole, f"{number}/{FOLDS}", derive_seed(3, "test folds"))
        others = [row for row in range(N) if row not in {*some.tolist()}]
        learned.append([others[place] for place in rows.splits(arrays, "", rows.experiment).train.rows.tolist()])
        held.append(some.tolist())
    return list(zip(learned, held[1:] + held[:1], strict=True))


def test_what_the_routers_of_folds_expect_where_they_learned(by_topic: Any) -> None:
    kept: Any = Router.load(folder_of(by_topic)).held_out
    rows = fold_rows(check(by_topic))
    whole: Any = rows.whole
    inputs, panel, checked = whole.train_inputs, whole.panel, 0
    for learned, following in learned_in_folds(rows):
        right = 1 - panel.train.errors[learned]
        for row in {*learned} & {*following}:
            same = (inputs[learned] == inputs[row]).all(dim=1)
            mean = (right[same].sum(dim=0) + right.mean(dim=0)) / (same.sum() + 1)
            found = kept.seen[kept.learned == row][0]
            torch.testing.assert_close(found, (1 - mean).to(found), atol=1e-4, rtol=0)
            checked += 1
    assert checked == len(kept.learned) > 0.6 * N


class Killed(BaseException):
    pass


def failing(error: BaseException) -> Callable[..., Any]:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    return fails


@pytest.mark.full
@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_killed_run_goes_on_where_it_was(
    at: int, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = config(file, tmp_path, "method=mild")
    begun, plain = list[Path](), walk.train

    def dying(experiment: Any, run: Any, *rest: Any, **more: Any) -> Any:
        begun.append(run.path)
        if len(begun) == at:
            raise Killed
        return plain(experiment, run, *rest, **more)

    monkeypatch.setattr(cross_validation, "train", dying)
    with pytest.raises(Killed):
        train(cfg)
    monkeypatch.setattr(cross_validation, "train", plain)
    assert not (folder_of(cfg) / "metrics.json").exists()
    kept = [(fold / "metrics.json").stat().st_mtime_ns for fold in begun[: at - 1]]
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    metrics = train(cfg)
    assert [(fold / "metrics.json").stat().st_mtime_ns for fold in begun[: at - 1]] == kept  # no fold is trained twice
    monkeypatch.undo()
    other = config(file, tmp_path / "other", "method=mild")
    assert train(other) == metrics
    assert (folder_of(other) / "test.npz").read_bytes() == (folder_of(cfg) / "test.npz").read_bytes()


@pytest.mark.slow
def test_when_it_is_the_default(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cross_validates(check(config(file, tmp_path)))
    for given in ("evaluation=holdout", "fold=1/3", "dataset.split=topic"):
        assert not cross_validates(check(config(file, tmp_path, given)))
    assert not cross_validates(check(compose([])))
    monkeypatch.setattr(cross_validation, "MOST_ROWS", N - 1)
    assert not cross_validates(check(config(file, tmp_path)))
    assert cross_validates(check(config(file, tmp_path, "evaluation=cross_validate")))


@pytest.mark.slow
def test_tiny_tables_and_prices_that_follow_from_the_rows(file: Path, tmp_path: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    (tmp_path / "tiny.csv").write_text("".join(lines[:30]))
    texts = [f"text {i % 4},{line}" for i, line in enumerate(lines)]
    texts[0] = f"text,{lines[0]}"
    (tmp_path / "texts.csv").write_text("".join(texts))
    tiny = [f"dataset.path={tmp_path / 'tiny.csv'}"]
    few = [f"dataset.path={tmp_path / 'texts.csv'}", "dataset.text=text"]
    for given, said in ((tiny, "29"), (few, "4"), (["cost=extreme"], "cost=extreme")):
        assert not cross_validates(check(config(file, tmp_path, *given)))
        with pytest.raises(ParameterError, match=rf"^evaluation=cross_validate: .*\b{said}\b.*holdout"):
            cross_validates(check(config(file, tmp_path, *given, "evaluation=cross_validate")))


def test_where_it_is_impossible(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^evaluation=cross_validate: .*holdout"):
        cross_validates(check(compose(["evaluation=cross_validate"])))
    for key in ("split", "split_by"):
        with pytest.raises(ParameterError, match=rf"^evaluation=cross_validate: .*dataset\.{key}\b"):
            cross_validates(check(config(file, tmp_path, "evaluation=cross_validate", f"dataset.{key}=x")))
    with pytest.raises(ParameterError, match=r"^evaluation=cross_validate: .*fold"):
        check(config(file, tmp_path, "evaluation=cross_validate", "fold=1/3"))


def test_the_folder_says_how_a_table_was_judged(file: Path, tmp_path: Path) -> None:
    """Image sets are held out, whether that is said or not; a table is another run then."""
    assert folder_of(compose(["evaluation=holdout"])) == folder_of(compose([]))
    assert folder_of(config(file, tmp_path, "evaluation=auto")) == folder_of(config(file, tmp_path))
    assert folder_of(config(file, tmp_path, "evaluation=holdout")) != folder_of(config(file, tmp_path))


def test_a_run_that_is_refused_leaves_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = config(file, tmp_path / "runs")
    monkeypatch.setattr(cross_validation, "assemble_rows", failing(ParameterError("cost.prices", "no price for b")))
    with pytest.raises(ParameterError, match=r"^cost\.prices: "):
        train(cfg)
    assert not [*(tmp_path / "runs").rglob("seed=*")]
    assert not folder_of(cfg).parent.exists()
    other = folder_of(cfg).parent / "seed=1"
    other.mkdir(parents=True)
    with pytest.raises(ParameterError):
        train(cfg)
    assert [*(tmp_path / "runs").rglob("seed=*")] == [other]


def test_finished_folds_survive_an_error(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a later fold: the cause may pass, and the same command goes on."""
    cfg = config(file, tmp_path / "runs")
    plain, begun = build.assemble_rows, list[int]()

    def breaking(*given: Any, **more: Any) -> Any:
        begun.append(1)
        if len(begun) == 3:
            raise ParameterError("encoder", "cannot be reached")
        return plain(*given, **more)

    monkeypatch.setattr(cross_validation, "assemble_rows", breaking)
    with pytest.raises(ParameterError, match="cannot be reached"):
        train(cfg)
    assert len([*folder_of(cfg).glob("folds/*/metrics.json")]) == 2
    train(cfg)
    assert (folder_of(cfg) / "metrics.json").exists()


def test_a_fold_that_has_begun_is_kept(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its router diverged, say: whoever looks for the reason finds its folder."""
    cfg = config(file, tmp_path, "method=mild")
    monkeypatch.setattr(walk, "run_epochs", failing(L2DError("training diverged")))
    with pytest.raises(L2DError, match="diverged"):
        train(cfg)
    assert (folder_of(cfg) / "folds" / "1" / "config.yaml").exists()


def test_other_data_are_not_mixed_with_finished_folds(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_bytes(file.read_bytes())
    cfg = config(copy, tmp_path)

    def dying(_: Any, run: Any, *__: Any, **___: Any) -> Any:
        if run.path.name == "2":
            raise Killed
        return walk.train(_, run, *__, **___)

    monkeypatch.setattr(cross_validation, "train", dying)
    with pytest.raises(Killed):
        train(cfg)
    lines = copy.read_text().splitlines(keepends=True)
    copy.write_text("".join([lines[0], *reversed(lines[1:])]))
    with pytest.raises(L2DError, match="other data"):
        train(cfg)


def test_a_run_is_locked_while_its_folds_are_trained_and_hashes_its_file_once(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg, seen = config(file, tmp_path), []
    hashed, plain = list[Path](), Table.fingerprint

    def counting(table: Table, data_dir: Path) -> str:
        hashed.append(data_dir)
        return plain(table, data_dir)

    def looking(_: Any, run: Any, *__: Any, **___: Any) -> Any:
        lock = filelock.FileLock(folder_of(cfg) / ".lock")
        with pytest.raises(filelock.Timeout):
            lock.acquire(blocking=False)
        seen.append(run.path.name)
        return walk.train(_, run, *__, **___)

    monkeypatch.setattr(cross_validation, "train", looking)
    monkeypatch.setattr(Table, "fingerprint", counting)
    train(cfg)
    assert seen == ["1", "2", "3", "4", "5", "seed=0"]
    assert not RunFolder(folder_of(cfg)).held
    assert len(hashed) == 1
    assert (folder_of(cfg) / "data.txt").read_text().strip() == plain(make_dataset(check(cfg)), Path())  # type: ignore[arg-type]
    monkeypatch.setattr(cross_validation, "train", walk.train)
    train(config(file, tmp_path, "evaluation=holdout"))
    assert len(hashed) == 2


def test_folds_count_by_their_rows() -> None:
    small, large = Score(1.0, 0.5, 0.5, [1.0, 0.0], 0.8), Score(0.0, 0.0, 0.0, [0.0, 1.0], 0.2)
    assert mean_score([small, large], [1, 3]) == Score(0.25, 0.125, 0.125, [0.25, 0.75], 0.25)  # √(0.8² + (3·0.2)²) / 4
    assert mean_score([replace(small, standard_error=None), large], [1, 3]).standard_error is None


@pytest.mark.slow
def test_the_guard_of_all_rows_is_deployed_and_those_of_folds_judge(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first falls back. Those of two folds fall back to the other expert, three leave the router as it is."""
    constant = iter([0, 1, 1, None, None, None])
    plain = score.guard_of

    def held(method: Any, rows: Any, best: int) -> Any:
        return replace(plain(method, rows, best), constant=next(constant), offsets=None)

    monkeypatch.setattr(cross_validation, "guard_of", held)
    cfg = config(file, tmp_path, "seed=3")
    assert train(cfg)["guarded"]["constant"] == "a"
    assert Router.load(folder_of(cfg)).description.guard.constant == 0
    kept, rows = kept_of(cfg), fold_rows(check(cfg))
    for number in range(1, FOLDS + 1):
        held_out = with_test_fold(rows.whole, f"{number}/{FOLDS}", derive_seed(3, "test folds"))[1]
        wanted = kept["decisions"][held_out]
        assert torch.equal(kept["guarded"][held_out], wanted if number > 2 else torch.ones_like(wanted))
