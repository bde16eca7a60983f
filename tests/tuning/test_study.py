"""Searches: trials are ordinary runs, the winner is chosen on validation alone, nothing is run twice."""

import csv
import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.metrics_example import example_metrics, example_score

from l2d.config import check_search, compose, to_plain
from l2d.runs.cells import Cell, make_cells
from l2d.runs.sweep import mark_started, run_cells, write_error
from l2d.tuning import search
from l2d.tuning.search import build_studies, searched, tune
from l2d.tuning.study import Study, Trial, build_study, judged, shares_of_rho, winner_table
from l2d.utils.errors import L2DError
from l2d.utils.files import write_json

Command = Callable[..., subprocess.CompletedProcess[str]]
TAUS = "tune.values={method.tau: [0.5, 1.5, 2.5]}"


class Shop:
    """A workshop whose launcher trains nothing: a run's losses follow from its settings."""

    def __init__(self, folder: Path, *overrides: str, loss: Callable[[Cell], float] = lambda _: 0.25) -> None:
        self.folder, self.loss = folder, loss
        self.grid = [["recipe.epochs=10", *overrides]]
        self.config: Any = compose([text for text in overrides if text.startswith(("tune.", "force="))], name="tune")
        self.launched: list[Cell] = []
        self.broken: Callable[[Cell], bool] = lambda _: False

    def compose(self, overrides: Sequence[str]) -> Any:
        return compose([f"runs_dir={self.folder}/runs", *overrides], name="tune")

    def cells(self, grid: Sequence[Sequence[str]]) -> list[Cell]:
        return make_cells(grid, self.compose)

    def open(self) -> Path:
        folder = self.folder / f"workers {len(list(self.folder.glob('workers*')))}"
        folder.mkdir(parents=True)
        return folder

    def run(self, cells: Sequence[Cell], folder: Path) -> dict[Cell, str]:
        def launch(todo: Sequence[Cell], first: int) -> None:
            for number, cell in enumerate(todo, first):
                self.launched.append(cell)
                mark_started(folder, number)
                if self.broken(cell):
                    write_error(folder, number, "no memory")
                else:
                    self.write(cell)

        return run_cells(cells, launch, folder)

    def write(self, cell: Cell) -> None:
        """The test loss is 1 less the validation loss, so a search that looked at it would choose wrongly."""
        loss = self.loss(cell)
        cell.run.path.mkdir(parents=True, exist_ok=True)
        validation = example_score(loss, [0.5, 0.5])
        metrics = example_metrics(1 - loss, validation=validation, method_buffers={"rho": [1.0, 2.5]})
        write_json(cell.run.path / "metrics.json", metrics.as_json())


def by_tau(losses: dict[float, float]) -> Callable[[Cell], float]:
    return lambda cell: losses[cell.settings["method.tau"]]


def study(shop: Any, **changes: Any) -> Study:
    [overrides] = shop.grid
    options = {**to_plain(shop.config.tune), "search": "paper", **changes}
    return build_study(shop, overrides, check_search(options))


def found_in(folder: Path, kind: str = "paper") -> tuple[dict[str, Any], list[dict[str, str]]]:
    """result.json and the rows of trials.csv."""
    [place] = folder.glob(f"runs/digits/III/synthetic/error/*/tune-{kind}-*")
    assert {file.name for file in place.iterdir()} == {"trials.csv", "result.md", "result.json"}
    with (place / "trials.csv").open(newline="", encoding="utf-8") as lines:
        return json.loads((place / "result.json").read_text()), list(csv.DictReader(lines))


@pytest.mark.full
@pytest.mark.measured
def test_a_real_search(tmp_path: Path, command: Command) -> None:
    """Two trials, and the winner's second seed. Test results are not printed before the winner is known."""
    given = ["recipe.epochs=2", "tune.offsets=[0,5]", "tune.final_seeds=[0,1]"]
    done = command(*given, name="tune")
    assert done.returncode == 0, done.stderr
    assert "oracle" not in done.stdout
    result, rows = found_in(tmp_path)
    assert len([*tmp_path.glob("runs/digits/III/synthetic/error/*/*/seed=*/metrics.json")]) == 3
    assert result["overrides"] == rows[0]["trial"].split()
    assert float(rows[0]["validation deferral loss"]) <= float(rows[1]["validation deferral loss"])
    assert {*result["test_deferral_loss"]["tuned"]} == {"0", "1"}


@pytest.mark.slow
@pytest.mark.measured
def test_commands_that_list_a_search(tmp_path: Path, command: Command) -> None:
    """`l2d train -m` with the key of a search is a search too. An experiment needs -m."""
    few = ["tune.final_seeds=[0]", "dry_run=true"]
    listed = command(*few, name="tune").stdout
    assert "1 run at most" in listed
    assert command("-m", "tune.search=paper", *few).stdout == listed
    assert "experiment=rho_ablation" in command("experiment=rho_ablation", *few).stderr
    assert "tune.search=paper" in command("tune.search=paper").stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_least_validation_loss_wins_and_nothing_is_run_twice(tmp_path: Path) -> None:
    """τ = 1.5 has the least validation loss and the greatest test loss."""
    shop: Any = Shop(tmp_path, "tune.values={method.tau: [0.5, 1.5]}", "tune.final_seeds=[0,1]")
    shop.loss = by_tau({0.5: 0.2, 1.5: 0.1, 2.5: 0.3})
    tune(shop)
    result, rows = found_in(tmp_path, "values")
    assert result["settings"] == {"method.tau": 1.5}
    assert (result["trials"], result["validation_deferral_loss"]) == (2, 0.1)
    assert result["test_deferral_loss"] == {"tuned": {"0": 0.9, "1": 0.9}}
    assert [row["validation deferral loss"] for row in rows] == ["0.1000", "0.2000"]
    assert len(shop.launched) == 3  # two trials, and the winner's second seed
    tune(shop)
    assert len(shop.launched) == 3
    shop.grid[0][1:2], shop.config.tune.values = [TAUS], {"method.tau": [0.5, 1.5, 2.5]}
    tune(shop)
    assert len(shop.launched) == 4


@pytest.mark.slow
def test_of_equal_settings_of_a_users_own_grid_the_first_wins(tmp_path: Path) -> None:
    losses = by_tau({0.5: 0.2, 1.5: 0.2, 2.5: 0.3})
    shop: Any = Shop(tmp_path, TAUS, "tune.seeds=[0,1]", "tune.final_seeds=[0]", loss=losses)
    tune(shop)
    result, rows = found_in(tmp_path, "values")
    assert result["settings"] == {"method.tau": 0.5}
    assert [[*row.values()] for row in rows] == [
        ["method.tau=0.5", "0.2000", "1 2.5", "2"],
        ["method.tau=1.5", "0.2000", "1 2.5", "2"],
        ["method.tau=2.5", "0.3000", "1 2.5", "2"],
    ]


@pytest.mark.slow
def test_of_equal_sizes_of_rho_the_largest_wins(tmp_path: Path) -> None:
    shop: Any = Shop(tmp_path, "tune.offsets=[1,5]", "tune.final_seeds=[0]")
    tune(shop)
    assert found_in(tmp_path)[0]["settings"]["method.rho.offset"] == 5


@pytest.mark.slow
def test_a_trial_that_fails_is_an_error_and_leaves_no_older_result(tmp_path: Path) -> None:
    shop: Any = Shop(tmp_path, TAUS, "tune.final_seeds=[0]", loss=by_tau({0.5: 0.2, 1.5: 0.2, 2.5: 0.1}))
    shop.broken = lambda cell: cell.settings["method.tau"] == 2.5
    own = study(shop)
    own.folder.mkdir(parents=True)
    for name in ("result.json", "result.md"):
        (own.folder / name).touch()
    with pytest.raises(L2DError, match=r"1 run failed: .*method\.tau=2\.5.*no memory"):
        tune(shop)
    assert not list(own.folder.iterdir())


@pytest.mark.slow
def test_a_winner_of_which_a_run_fails_has_no_result(tmp_path: Path) -> None:
    shop: Any = Shop(tmp_path / "my runs", "tune.values={method.tau: [0.5]}", "tune.final_seeds=[0,1]")
    shop.broken = lambda cell: cell.seed == 1
    with pytest.raises(L2DError, match="no memory"):
        tune(shop)
    own = study(shop)
    assert not (own.folder / "result.json").exists()
    shop.broken = lambda _: False
    tune(shop)
    place = f"../{shop.launched[0].run.path.parent.name}"
    runs = {"start": f"../{own.shop.cells(shop.grid)[0].run.path.parent.name}", "winner": place}
    found = {"settings": {"method.tau": 0.5}, "overrides": ["method.tau=0.5"], "validation_deferral_loss": 0.25}
    found |= {"trials": 1, "test_deferral_loss": {"tuned": {"0": 0.75, "1": 0.75}}}
    expected = {**runs, "trial_runs": [f"{place}/seed=0"], **found}
    assert json.loads((own.folder / "result.json").read_text()) == expected
    text = (own.folder / "result.md").read_text()
    assert "method.tau=0.5" in text.splitlines()[0]
    assert "| tuned | 2 | 0.7500" in text


@pytest.mark.slow
def test_a_dry_run_lists_the_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It trains no experts."""
    shop: Any = Shop(tmp_path, "dry_run=true", "experts=trained", "tune.final_seeds=[0,1,2]")
    tune(shop)
    out = capsys.readouterr().out
    assert "6 runs: 6 missing" in out
    assert "3 runs at most" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["fold=1/2"], "fold: .*tune.folds"),
        (["force=true"], "force=true"),
        (["evaluation=cross_validate"], "evaluation"),
        (["trainer.devices=2"], r"trainer\.devices"),
        (["method=ce"], "method=ce: has no ρ"),
        (["method=tdef", "method.rho=[1,2,3,4,5]"], r"method\.rho=\[1, 2, 3, 4, 5\]"),
    ],
    ids=str,
)
def test_mistakes_are_found_before_anything_is_run(given: list[str], words: str, tmp_path: Path) -> None:
    shop: Any = Shop(tmp_path, *given)
    if "method=ce" in given:
        shop.grid.insert(0, ["method=mild"])  # before its search is run
    with pytest.raises(L2DError, match=words):
        tune(shop)
    assert not shop.launched


@pytest.mark.slow
def test_other_options_have_another_folder(tmp_path: Path) -> None:
    shop, longer = Shop(tmp_path, "tune.offsets=[1]"), Shop(tmp_path, "tune.offsets=[1]", "recipe.epochs=3")
    folder = study(shop).folder
    assert folder.name.startswith("tune-paper-")
    assert len({folder, study(shop, seeds=[1]).folder, study(longer).folder}) == 3


@pytest.mark.slow
def test_the_shares_of_rho_follow_the_rule_on_the_first_seed() -> None:
    """Whatever total, offset or values the method has now. A single ρ has equal shares."""
    now = ["method.rho.counts=cheapest", "method.rho.offset=5", "method.rho.total=3", "method.rho.values=[1,2,3,4,5]"]
    composed: list[Sequence[str]] = []

    def noted(overrides: Sequence[str]) -> Any:
        composed.append(overrides)
        return compose(overrides)

    shop: Any = SimpleNamespace(compose=noted)
    options = check_search({**to_plain(compose(name="tune").tune), "seeds": [7, 8]})
    shares = shares_of_rho(shop, now, options, to_plain(compose(now).method)["rho"])
    assert composed == [[*now, "seed=7"]]
    assert sum(shares) == pytest.approx(1)
    assert max(shares) > 1.5 * min(shares)
    assert shares_of_rho(shop, ["method=tdef"], options, 1.0) == pytest.approx([0.2] * 5)


@pytest.mark.slow
def test_a_trial_is_every_seed_on_every_fold(tmp_path: Path) -> None:
    own = study(Shop(tmp_path, TAUS), seeds=[0, 1], folds=2, values={"method.tau": [1]})
    wanted = [("method.tau=1", f"fold={fold}/2", f"seed={seed}") for seed in (0, 1) for fold in (1, 2)]
    assert [tuple(overrides[-3:]) for overrides in own.grid({"method.tau": 1})] == wanted


def fake_cell(path: str, loss: float, rho: list[float]) -> Any:
    scored = SimpleNamespace(validation=SimpleNamespace(deferral_loss=loss), rho=rho)
    return SimpleNamespace(run=SimpleNamespace(path=path, metrics=lambda: scored))


def test_the_value_of_a_trial_is_the_mean_over_its_runs() -> None:
    cells = [fake_cell(str(part), loss, [part]) for part, loss in enumerate([0.1, 0.2, 0.3, 0.8])]
    trial = judged({"method.tau": 1}, cells)
    assert trial.value == pytest.approx(0.35)
    assert (trial.runs, trial.rho) == (4, [0.0])


def test_a_search_that_fails_does_not_keep_the_others_from_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(title: str) -> None:
        ran.append(title)
        if title == "a=1":
            raise L2DError("no")

    def fake(_: Any, overrides: Sequence[str], __: Any) -> Any:
        [title] = overrides
        return SimpleNamespace(
            title=title, trials=[{}] * 6, options=SimpleNamespace(final_seeds=[0] * 5), run=lambda: run(title)
        )

    monkeypatch.setattr(search, "build_study", fake)
    shop: Any = SimpleNamespace(config=compose(["tune.search=paper"]), grid=[["a=1"], ["a=2"]])
    with pytest.raises(L2DError, match=r"^1 of 2 .* a=1: no$"):
        tune(shop)
    assert ran == ["a=1", "a=2"]
    assert re.search(r"12 trials, .* 10 runs", capsys.readouterr().out)


def test_an_experiments_seeds_are_the_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each combination of the rest is searched once. Without an experiment, a seed is left to be refused."""
    table = [["experiment=t", f"method={method}", f"seed={seed}"] for method in ("tdef", "mild") for seed in (0, 3)]
    assert searched(table) == {("experiment=t", "method=tdef"): [0, 3], ("experiment=t", "method=mild"): [0, 3]}
    assert searched([["seed=3"]]) == {("seed=3",): []}
    options = check_search({**to_plain(compose(name="tune").tune), "final_seeds": [7]})
    monkeypatch.setattr(search, "build_study", lambda _, overrides, own: (overrides, own.final_seeds))
    shop: Any = None
    found: Any = build_studies(shop, searched(table), options)
    assert found[0] == (["experiment=t", "method=tdef", "tune.final_seeds=[0,3]"], [0, 3])
    given: Any = build_studies(shop, {("experiment=t", "tune.final_seeds=[7]"): [0, 3]}, options)
    assert given == [(["experiment=t", "tune.final_seeds=[7]"], [7])]


@pytest.mark.slow
def test_methods_of_an_experiment_without_rho_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    shop: Any = SimpleNamespace(compose=lambda overrides: compose(["dry_run=true", *overrides]))
    options = check_search({**to_plain(compose(name="tune").tune), "search": "paper"})
    table = ("experiment=table1_error", "dataset=digits")
    given: dict[tuple[str, ...], list[int]] = {(*table, f"method={name}"): [0] for name in ("ce", "tdef", "ldam")}
    [own] = build_studies(shop, given, options)
    assert (own.title, len(own.trials), len(own.options.final_seeds)) == ("digits III synthetic error tdef", 6, 1)
    assert "method=ce, method=ldam" in capsys.readouterr().out
    with pytest.raises(L2DError, match=r"^method=ce: has no ρ"):
        build_studies(shop, {(*table, "method=ce"): []}, options)


def test_the_table_of_the_winner() -> None:
    runs = [
        example_metrics(loss, ratios=ratios, method_buffers={"rho": [1.0, 1.0]})
        for loss, ratios in ((0.1, [0.5, 0.5]), (0.2, [1.0, 0.0]))
    ]
    cells = [cell.strip() for cell in winner_table(runs).splitlines()[-1].split("|")[1:-1]]
    assert cells == ["tuned", "2", "0.1500 ± 0.0707", "1 1", "75.0 / 25.0"]


def test_names_of_trials() -> None:
    names = [Trial(settings, 0.1, 1, []).name for settings in ({}, {"method.tau": 0.5, "seed": 1})]
    assert names == ["as it is", "method.tau=0.5 seed=1"]
