"""Searches as people run them: trials are ordinary runs, the winner is chosen on validation alone, nothing is repeated."""

import csv
import json
import math
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from omegaconf import OmegaConf
from tests.forker import Child

from l2d.config import check_search, compose, to_plain
from l2d.config.identity import variant
from l2d.runs.sweep import Workshop
from l2d.tuning.show import Trial
from l2d.tuning.strategies import Ask
from l2d.tuning.study import Study, build_studies, controls, searched, tune
from l2d.utils.errors import L2DError

pytestmark = pytest.mark.slow
Command = Callable[..., subprocess.CompletedProcess[str]]
FEW = ["recipe.epochs=2", "tune.final_seeds=[0]"]


def result(folder: Path, search: str = "paper") -> tuple[Path, dict[str, Any]]:
    [found] = folder.glob(f"runs/digits/III/synthetic/error/*/tune-{search}-*")
    return found, json.loads((found / "result.json").read_text())


def runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/digits/III/synthetic/error/*/*/seed=*/metrics.json"))


def told(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def trials(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.measured
def test_the_least_validation_loss_wins_and_nothing_is_run_twice(tmp_path: Path, command: Command) -> None:
    given = [*FEW, "tune.offsets=[0,5]", "tune.final_seeds=[0,1]"]
    out = told(command(*given, name="tune"))
    folder, found = result(tmp_path)
    assert len(runs(tmp_path)) == 3  # two trials, and the winner's second seed
    assert {file.name for file in folder.iterdir()} == {"trials.csv", "trials.png", "result.md", "result.json"}
    table = trials(folder)
    assert [row["state"] for row in table] == ["finished", "finished"]
    assert found["overrides"] == table[0]["trial"].split()
    assert float(table[0]["validation deferral loss"]) <= float(table[1]["validation deferral loss"])
    assert "best: method.rho.total=1" in out
    assert "oracle" not in out  # nor what else a run says of the test split
    assert {*found["test_deferral_loss"]["tuned"]} == {"0", "1"}

    # Turn the trials' figures round: validation must decide, whatever the test split says.
    loser = table[1]["trial"].split()
    for file in runs(tmp_path):
        metrics = json.loads(file.read_text())
        chosen = f"method.rho.offset={5 if metrics['method_buffers']['rho'][0] > 4 else 0}" in loser
        metrics["validation"]["deferral_loss"] = 0.1 if chosen else 0.2
        metrics["deferral_loss"] = 0.9 if chosen else 0.0
        file.write_text(json.dumps(metrics))
    out = told(command(*given, name="tune"))
    assert result(tmp_path)[1]["overrides"] == loser
    assert "2 runs, 2 of them finished already" in out
    assert len(runs(tmp_path)) == 4


def test_folds_and_pruning(tmp_path: Path, command: Command) -> None:
    told(command(*FEW, "method=tdef", "tune.offsets=[0]", "tune.folds=2", name="tune"))
    _, found = result(tmp_path)
    assert found["trials"] == 1
    assert len(runs(tmp_path)) == 2 + 1

    given = ["recipe.epochs=3", "tune.final_seeds=[0]", "tune.search=optuna", "tune.trials=7", "tune.rungs=[0.4]"]
    given += [
        "tune.recipe=true",
        "router.stem=3x3",
        "tune.seeds=[1]",
    ]  # a router that learns, so that some trials lag behind
    told(command(*given, name="tune"))
    folder, found = result(tmp_path, "optuna")
    states = [row["state"] for row in trials(folder)]
    assert {*states} == {"finished", "pruned after epoch 1 of 3"}
    assert len(states) == found["trials"] == 7
    before = runs(tmp_path)
    told(command(*given, name="tune"))  # begun again: the same trials, all of them there
    assert runs(tmp_path) == before
    assert result(tmp_path, "optuna")[1] == found


def test_ablation_is_one_command(tmp_path: Path, command: Command) -> None:
    few = ["tune.offsets=[0,5]", "tune.final_seeds=[0,1]", "recipe.epochs=1"]
    out = told(command("-m", "experiment=rho_ablation", *few))
    folder, found = result(tmp_path)
    names = ["tuned", "uniform", "theory", "tuned, one ρ for all", "tuned, complement rewards"]
    names += ["tuned, one ρ for all, complement rewards", "tdef"]
    assert {*found["test_deferral_loss"]} == {*names}
    text = (folder / "result.md").read_text()
    for name in names:
        assert f"| {name} | 2 |" in text
    assert "| less tdef, paired, 95 % |" in text
    assert text.split("\n\n")[1] in out


def test_interrupted_search_goes_on(tmp_path: Path, start: Callable[..., Child], command: Command) -> None:
    given = [*FEW, "tune.offsets=[0,1,2,5]"]
    child = start(*given, name="tune")
    while not runs(tmp_path) and child.poll() is None:
        time.sleep(0.05)
    child.kill(signal.SIGKILL)
    child.wait()
    done = {file: file.stat().st_mtime_ns for file in runs(tmp_path)}
    assert 1 <= len(done) < 4
    told(command(*given, name="tune"))
    assert len(runs(tmp_path)) == 4
    assert all(file.stat().st_mtime_ns == then for file, then in done.items())


@pytest.mark.measured
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["seed=3"], "seed: a search sets it itself; use tune.seeds"),
        (["force=true"], "force=true: a search reuses finished runs"),
        (["tune.search=grid"], "tune.search=grid"),
        (["tune.serach=paper"], "tune.serach"),
        (["method=ce"], "method=ce: has no ρ to search"),
        (["method=tdef", "method.rho=[1,2,3,4,5]"], "method.rho=[1, 2, 3, 4, 5]"),
        (["method=tdef", "tune.ablation=true"], "tune.ablation=true: takes MILD apart, not method=tdef"),
        (["method=hinge", "tune.ablation=true"], "tune.ablation=true: takes MILD apart, not method=hinge"),
        (["method=mild,ce"], "has no ρ to search"),  # before mild's search is run
        (["++stop_after=1"], "stop_after: a search sets it itself"),
        (["evaluation=cross_validate"], "evaluation: a search judges trials on validation rows"),
        (["trainer.devices=2"], "trainer.devices: a search gives each run one device"),
    ],
    ids=str,
)
def test_mistakes_are_answered_in_one_line(given: list[str], said: str, tmp_path: Path, command: Command) -> None:
    run = command(*FEW, *given, name="tune")
    assert run.returncode == 1
    [line] = run.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not runs(tmp_path)


def test_dry_run_lists_the_trials(tmp_path: Path, command: Command) -> None:
    """Without a word it is the paper's grid of MILD with the paper's ρ."""
    out = told(command(*FEW, "dry_run=true", name="tune"))
    assert "6 runs: 6 missing" in out
    assert "then the winner: 1 run at most" in out
    assert told(command(*FEW, "method=mild", "tune.search=paper", "dry_run=true", name="tune")) == out
    assert not runs(tmp_path)


def test_an_experiment_may_be_a_search(tmp_path: Path, command: Command) -> None:
    """By either command, and without -m it is told."""
    given = ["experiment=rho_ablation", *FEW, "dry_run=true"]
    out = told(command(*given, name="tune"))
    assert "then the winner and its controls: 7 runs at most" in out
    assert told(command("-m", *given)) == out
    alone = command(*given)
    assert (alone.returncode, alone.stdout) == (1, "")
    assert alone.stderr.strip() == "error: experiment=rho_ablation: is a sweep; put -m before it"
    other = command(*FEW, "tune.search=paper")
    assert other.stderr.startswith("error: tune.search=paper: ")
    assert not runs(tmp_path)


def test_a_table_is_searched_cell_by_cell(tmp_path: Path, command: Command) -> None:
    """Datasets, setups, methods and seeds are the experiment's, unless given."""
    given = ["experiment=table1_error", "dataset=digits", "setup=I", "method=tdef,mild,ce", "dry_run=true"]
    out = told(command("-m", *given, name="tune"))
    assert "left out, without ρ to search: method=ce\n" in out
    assert "2 searches: 12 trials at most, then 10 runs of the winners at most" in out
    assert "digits I synthetic error tdef: " in out
    assert not runs(tmp_path)


def test_a_list_trains_no_experts(tmp_path: Path, command: Command) -> None:
    out = told(command(*FEW, "experts=trained", "tune.seeds=[7]", "dry_run=true", name="tune"))
    assert "6 runs: 6 missing" in out
    assert not list(tmp_path.glob("runs/experts/*"))


def test_folders_of_many_rounds_have_short_names(tmp_path: Path) -> None:
    shop = object.__new__(Workshop)
    shop.place, shop.config = (
        tmp_path / "sweeps" / "now",
        OmegaConf.create({"force": False, "hydra": {"sweep": {"dir": "x"}}}),
    )
    for _ in range(40):
        folder = shop.open()
        shop.run([], folder)
        assert len(folder.name) < 20


def test_what_is_asked_for_again_stays_whole(tmp_path: Path, command: Command) -> None:
    """More trials than there are settings: each is run once, and one that was run to its end stays so."""
    given = ["recipe.epochs=3", "tune.final_seeds=[0]", "tune.search=optuna", "tune.trials=25", "tune.rungs=[0.4]"]
    told(command(*given, "tune.values={method.tau: [0.8, 1.0, 1.2]}", name="tune"))
    folder, found = result(tmp_path, "optuna")
    table = trials(folder)
    assert len(table) == found["trials"] == 3
    assert len(runs(tmp_path)) == sum(row["state"] == "finished" for row in table) >= 1
    assert found["validation_deferral_loss"] == min(
        json.loads(file.read_text())["validation"]["deferral_loss"] for file in runs(tmp_path)
    )


def test_an_experiments_own_search_and_epochs(command: Command) -> None:
    """Values may be whole recipes, each with epochs of its own."""
    out = told(command("tune.values={recipe: [small, table]}", "tune.final_seeds=[0]", "dry_run=true", name="tune"))
    assert "tune.values, the first trials:" in out
    assert "2 runs" in out
    out = told(command(*FEW, "experiment=rho_ablation", "dry_run=true", "tune.offsets=[0,5]", name="tune"))
    assert "tune.search=paper, the first trials:" in out
    assert "2 runs: 2 missing" in out


def test_hydras_own_flags(command: Command) -> None:
    assert "method:\n  name: mild" in told(command("--cfg", "job", name="tune", tiny=False))


def study(overrides: Sequence[str] = (), **changes: Any) -> Study:
    """Of a shop that composes, and whose cells are the combinations they are made from."""
    shop: Any = SimpleNamespace(compose=compose, cells=lambda grid: [SimpleNamespace(epochs=10, grid=grid)])
    options = {**to_plain(compose(name="tune").tune), "search": "paper", **changes}
    return Study(shop, overrides, check_search(options))


def test_other_options_have_another_folder() -> None:
    assert study().folder == study().folder != study(seeds=[1]).folder
    assert study(["recipe.epochs=3"]).folder.name != study().folder.name


def test_the_shares_of_rho_are_the_rules_own() -> None:
    """Whatever total, offset or values the method has now."""
    now = ["method.rho.counts=cheapest", "method.rho.offset=5", "method.rho.total=3", "method.rho.values=[1,2,3,4,5]"]
    space = study(now).space()
    assert space is not None
    assert sum(space.shares) == pytest.approx(1)
    assert max(space.shares) > 1.5 * min(space.shares)
    temperature = study(["method=tdef"]).space()
    assert temperature is not None
    assert temperature.shares == pytest.approx([0.2] * 5)


def test_a_trial_is_every_seed_on_every_fold_as_far_as_asked() -> None:
    own: Any = study(["setup=III"], seeds=[0, 1], folds=2)
    [whole] = own.cells(Ask({"method.tau": 1}))
    begun = [["setup=III", "method.tau=1", f"fold={fold}/2", f"seed={seed}"] for seed in (0, 1) for fold in (1, 2)]
    assert whole.grid == begun
    [part] = own.cells(Ask({"method.tau": 1}, until=0.3))
    assert part.grid == [[*overrides, "stop_after=3"] for overrides in begun]


def test_the_value_of_a_trial_is_the_mean_over_its_seeds_and_folds() -> None:
    """(.1 + .2 + .3 + .8)/4 = .35: worse than .3 everywhere, though the least and the median are better."""
    losses = {0.5: [0.1, 0.2, 0.3, 0.8], 1.0: [0.3] * 4}

    def cells(ask: Ask) -> list[Any]:
        tau = ask.settings["method.tau"]
        runs = [
            SimpleNamespace(path=f"{tau}/{part}", finished=False, validation_after=lambda _, loss=loss: loss)
            for part, loss in enumerate(losses[tau])
        ]
        return [SimpleNamespace(run=run, epochs=10) for run in runs]

    own: Any = study()
    own.cells, own.run_cells = cells, lambda _: {}
    assert own.ask([Ask({"method.tau": tau}, until=0.3) for tau in losses]) == pytest.approx([0.35, 0.3])
    assert [trial.settings["method.tau"] for trial in own.ordered()] == [1.0, 0.5]


class FakeCell:
    """A run of ten epochs with a validation loss, finished or not."""

    def __init__(self, path: str, loss: float, finished: bool = True) -> None:
        scored = SimpleNamespace(validation=SimpleNamespace(deferral_loss=loss), deferral_loss=1 - loss, rho=[1.0, 2.5])
        self.run: Any = SimpleNamespace(
            path=Path(path), finished=finished, metrics=lambda: scored, validation_after=lambda _: loss
        )
        self.epochs, self.seed = 10, 0


def fake_search(tmp_path: Path, losses: dict[float, float], broken: float | None = None) -> Any:
    """A search over method.tau, two runs each; of the broken one the second fails."""
    own: Any = study([f"runs_dir={tmp_path}"], values={"method.tau": [*losses]}, seeds=[0, 1])
    made = {tau: [FakeCell(f"{tau}/{seed}", loss) for seed in (0, 1)] for tau, loss in losses.items()}
    own.cells = lambda ask: made[ask.settings["method.tau"]]
    own.run_cells = lambda _: {} if broken is None else {made[broken][1]: "no memory"}
    own.finish = lambda _: None
    return own


def test_what_a_search_says_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of three settings two are equally good, and of the last one run failed."""
    own = fake_search(tmp_path, {0.5: 0.2, 1.5: 0.2, 2.5: 0.1}, broken=2.5)
    assert own.folder.name.startswith("tune-values-")
    own.run()
    out = capsys.readouterr().out
    for line in (
        f"{own.title}: search by validation deferral loss (own values, 3 trials), into {own.folder}",
        "trial 1: method.tau=0.5: after epoch 10 of 10, validation deferral loss 0.2000 (best so far 0.2000)",
        "trial 3: method.tau=2.5: failed: no memory, validation deferral loss inf (best so far 0.2000)",
        "best: method.tau=0.5 (validation deferral loss 0.2000, tied with 1 more)",
    ):
        assert f"{line}\n" in out
    assert (own.folder / "trials.csv").read_text() == (
        "trial,validation deferral loss,ρ,runs,state\n"
        "method.tau=0.5,0.2000,1 2.5,2,finished\n"
        "method.tau=1.5,0.2000,1 2.5,2,finished\n"
        "method.tau=2.5,-,,2,failed: no memory\n"
    )


def test_a_trial_that_goes_on_is_not_the_best_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is its ρ known before it is finished."""
    own = fake_search(tmp_path, {0.5: 0.2})
    own.cells = lambda _: [FakeCell("begun", 0.2, finished=False)]
    own.ask([Ask({"method.tau": 0.5}, until=0.3)])
    assert capsys.readouterr().out == "trial 1: method.tau=0.5: after epoch 3 of 10, validation deferral loss 0.2000\n"
    assert [trial.rho for trial in own.ordered()] == [[]]


def test_a_search_without_any_result_says_why(tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=r"^no trial could be run: failed: no memory$"):
        fake_search(tmp_path, {0.5: 0.2}, broken=0.5).run()


def test_the_shares_of_rho_are_those_of_the_first_seed() -> None:
    own: Any = study(seeds=[7, 8])
    seen: list[Sequence[str]] = []

    def noted(overrides: Sequence[str]) -> Any:
        seen.append(overrides)
        return compose(overrides)

    own.shop.compose = noted
    own.space()
    assert seen == [["seed=7"]]


def test_a_dry_run_counts_the_runs_of_the_winner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("l2d.tuning.study.listing", lambda cells: f"{len(cells)} cells")
    own: Any = study(["dry_run=true"], final_seeds=[0, 1, 2])
    own.cells = lambda ask: [FakeCell(str(ask.overrides), 0.1)]
    own.run()
    assert capsys.readouterr().out.endswith("6 cells\nthen the winner: 3 runs at most\n")


def test_what_is_written_of_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its test losses. Where a run of it failed there is a table of the others, but no result."""
    monkeypatch.setattr("l2d.tuning.study.ablation_table", lambda *_: "the table")
    winner = Trial({"method.tau": 0.5}, 0.2, 10, 10, 1)
    for failed in (True, False):
        own: Any = study([f"runs_dir={tmp_path}/my runs"])
        own.folder.mkdir(parents=True, exist_ok=True)
        own.trials = {(name,): winner for name in "abc"}
        own.trial_runs = {own.folder.parent / "tried/seed=0"}
        cell = FakeCell(str(own.folder.parent / "final/seed=0"), 0.2, finished=not failed)
        own.shop.cells = lambda _, cell=cell: [cell]
        own.run_cells = lambda _, cell=cell, failed=failed: {cell: "no memory"} if failed else {}
        if failed:
            with pytest.raises(L2DError, match=r"^1 run failed: no memory; the same command tries them again$"):
                own.finish(winner)
            assert not (own.folder / "result.json").exists()
        else:
            own.finish(winner)
        foot = f"`l2d tune 'runs_dir={tmp_path}/my runs'`; chosen by validation deferral loss among 3 trials"
        title = "digits III synthetic error mild: method.tau=0.5"
        assert (own.folder / "result.md").read_text() == f"{title}\n\nthe table\n\n{foot}\n"
    assert json.loads((own.folder / "result.json").read_text()) == {
        "start": f"../{variant(own.config)}",
        "winner": "../final",
        "trial_runs": ["../tried/seed=0"],
        "settings": {"method.tau": 0.5},
        "overrides": ["method.tau=0.5"],
        "validation_deferral_loss": 0.2,
        "trials": 3,
        "test_deferral_loss": {"tuned": {"0": 0.8}},
    }


def test_a_trial_that_ran_out_of_patience_is_judged_by_its_result() -> None:
    """Its history may end before the epoch that is asked for."""
    scored: Any = SimpleNamespace(validation=SimpleNamespace(deferral_loss=0.1))
    for finished, value in ((True, 0.1), (False, 0.2)):
        run: Any = SimpleNamespace(finished=finished, metrics=lambda: scored, validation_after=lambda _: 0.2)
        cell: Any = SimpleNamespace(run=run, epochs=10)
        assert Study.validation(cell, 6) == value


@pytest.mark.parametrize("epoch", [3, 10])
def test_a_trial_that_is_asked_for_again_stays_whole(epoch: int) -> None:
    own: Any = study()
    run = SimpleNamespace(path="run", finished=False, validation_after=lambda _: 0.2)
    own.cells, own.run_cells = lambda _: [SimpleNamespace(run=run, epochs=10)], lambda _: {}
    ask, known = Ask({"method.tau": 1}, until=0.3), Trial({"method.tau": 1}, 0.1, epoch, 10, 1)
    own.trials = {ask.overrides: known}
    assert own.ask([ask]) == [0.2]
    assert (own.trials[ask.overrides] is known) == known.whole == (epoch == 10)


def test_of_equals_the_last_of_a_grid_wins_and_elsewhere_the_first() -> None:
    """What failed or was left early comes last, however good it looked."""
    names = {"a": (0.2, 3, ""), "b": (0.1, 3, ""), "c": (0.1, 3, ""), "d": (0.0, 1, ""), "e": (math.inf, 3, "failed")}
    for values, order in ((None, "cbade"), ({"method.tau": [1]}, "bcade")):
        own = study(values=values)
        own.trials = {
            (name,): Trial({name: 0}, value, epoch, 3, 1, reason=reason)
            for name, (value, epoch, reason) in names.items()
        }
        assert "".join(trial.name[0] for trial in own.ordered()) == order


def test_the_result_of_an_earlier_search_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any) -> None:
        raise L2DError("stopped")

    own = study([f"runs_dir={tmp_path}"])
    own.folder.mkdir(parents=True)
    for name in ("result.json", "result.md"):
        (own.folder / name).touch()
    monkeypatch.setattr(Study, "ask", ask)
    with pytest.raises(L2DError, match="stopped"):
        own.run()
    assert not list(own.folder.iterdir())


def test_controls_change_one_part_at_a_time() -> None:
    tuned = {"method.rho.total": 7.0, "method.rho.offset": 3.0, "recipe.optimizer.lr": 0.1}
    winner = Trial(tuned, 0.1, 3, 3, 1, rho=[3.0, 4.0, 5.0])
    found = {name: ask.settings for name, ask in controls({"method": {"rho": {"total": 2.0}}}, winner).items()}
    rate, complement = {"recipe.optimizer.lr": 0.1}, {"method.rewards": "complement"}
    rule = {**rate, "method.rho.total": 2.0, "method.rho.offset": 0.0, "method.rho.values": None}
    one = {**rate, "method.rho.values": [4.0] * 3}
    assert found == {
        "uniform": {**rule, "method.rho.rule": "uniform"},
        "theory": {**rule, "method.rho.rule": "theory"},
        "tuned, one ρ for all": one,
        "tuned, complement rewards": {**tuned, **complement},
        "tuned, one ρ for all, complement rewards": {**one, **complement},
        "tdef": {**rate, **complement, "method.rho.values": [1.0] * 3},
    }


def test_a_search_that_fails_does_not_keep_the_others_from_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    class Fake:
        def __init__(self, _: Any, overrides: Sequence[str], __: Any) -> None:
            [self.title] = overrides
            self.most_trials, self.most_finals = 6, 5

        def run(self) -> None:
            ran.append(self.title)
            if self.title == "a=1":
                raise L2DError("no")

    monkeypatch.setattr("l2d.tuning.study.Study", Fake)
    shop: Any = SimpleNamespace(config=compose(["tune.search=paper"]), grid=[["a=1"], ["a=2"]])
    with pytest.raises(L2DError, match=r"^1 of 2 searches failed: a=1$"):
        tune(shop)
    assert ran == ["a=1", "a=2"]
    said = capsys.readouterr()
    assert said.err == "error: a=1: no\n"
    assert said.out == "2 searches: 12 trials at most, then 10 runs of the winners at most\n"


def test_an_experiments_seeds_are_the_winners() -> None:
    """Each combination of the rest is searched once. Without an experiment, a seed is left to be refused."""
    table = [["experiment=t", f"method={method}", f"seed={seed}"] for method in ("tdef", "mild") for seed in (0, 3)]
    assert searched(table) == {("experiment=t", "method=tdef"): [0, 3], ("experiment=t", "method=mild"): [0, 3]}
    assert searched([["seed=3"]]) == {("seed=3",): []}

    class Noted:
        def __init__(self, _: Any, overrides: Sequence[str], options: Any) -> None:
            self.overrides, self.final_seeds = overrides, options.final_seeds

    options = check_search({**to_plain(compose(name="tune").tune), "final_seeds": [7]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("l2d.tuning.study.Study", Noted)
        built: list[Any] = build_studies(shop := cast("Any", None), searched(table), options)
        typed: list[Any] = build_studies(shop, {("experiment=t", "tune.final_seeds=[7]"): [0, 3]}, options)
    assert [study.final_seeds for study in built] == [[0, 3], [0, 3]]
    assert built[0].overrides == ["experiment=t", "method=tdef", "tune.final_seeds=[0,3]"]
    assert [(study.overrides, study.final_seeds) for study in typed] == [
        (["experiment=t", "tune.final_seeds=[7]"], [7])
    ]


def test_methods_of_an_experiment_without_rho_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    shop: Any = SimpleNamespace(compose=compose)
    options = check_search({**to_plain(compose(name="tune").tune), "search": "paper"})
    table = ("experiment=table1_error", "dataset=digits")
    given: dict[tuple[str, ...], list[int]] = {(*table, f"method={name}"): [0] for name in ("ce", "tdef", "ldam")}
    [study] = build_studies(shop, given, options)
    assert study.title == "digits III synthetic error tdef"
    assert "method=ce, method=ldam" in capsys.readouterr().out
    for alone in ((*table, "method=ce"), ("method=ce",)):
        with pytest.raises(L2DError, match=r"^method=ce: has no ρ to search"):
            build_studies(shop, {alone: []}, options)


def test_a_search_says_how_many_trials_it_may_take() -> None:
    for changes, trials in ((dict[str, Any](), 6), ({"search": "per_expert"}, 36), ({"search": "coordinate"}, 40)):
        assert study(**changes).most_trials == trials
    assert study(ablation=True, final_seeds=[0, 1]).most_finals == 14


def test_help(command: Command) -> None:
    out = told(command("--help", name="tune", tiny=False))
    assert "tune.search=paper " in out
