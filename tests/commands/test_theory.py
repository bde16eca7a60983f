"""What `l2d theory` prints and writes, and how it refuses."""

import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from l2d.analysis.theory.bounds import weighted_zero_one_loss
from l2d.analysis.theory.linear_router import LinearRouter, as_linear, load_linear_router
from l2d.analysis.theory.router_bound import BoundReport, bound_report, bound_text, weighted_sample
from l2d.assembly.make import make
from l2d.commands.theory import main, make_theory_parser
from l2d.config import check, compose
from l2d.core.deferral import deferral_loss
from l2d.data.sheet import write_sheet
from l2d.networks.heads import make_head
from l2d.router.router import Router
from l2d.runs.folder import RunFolder
from l2d.training.walk import train
from l2d.utils.errors import L2DError, ParameterError

Call = Callable[..., str]
COMMANDS = ("bound", "consistency", "readings", "simplex", "figure1")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Run the command in an empty folder; what it prints, or its one line of refusal."""

    def run(*arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        refusal = ""
        try:
            main(list(arguments))
        except SystemExit as stopped:
            refusal = str(stopped.code or "")  # a text: printed to stderr, status 1; argparse's help ends with 0
        assert "\n" not in refusal
        return refusal or capsys.readouterr().out

    return run


def rows(text: str) -> dict[str, list[str]]:
    """A printed table by the first word of its lines."""
    return {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if "  " in line}


def test_help(call: Call) -> None:
    """Of the command all subcommands, of each of these every flag with its meaning, and an example that parses."""
    assert call() == call("--help")
    for name in COMMANDS:
        assert f"\n    {name}" in call()
        text = call(name, "--help")
        choices: Any = next(action.choices for action in make_theory_parser()._actions if action.choices)
        for action in choices[name]._actions:
            assert action.help, action
            assert all(flag in text for flag in action.option_strings)
        example = next(line for line in text.splitlines() if line.startswith("  l2d theory "))
        assert make_theory_parser().parse_args(example.split()[2:]).command == name


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize(
    "arguments", [["--help"], ["bound", "--help"], ["simplex", "--roh", "1"], ["simplex", "--size", "1"]]
)
def test_help_and_mistakes_need_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom l2d.commands.theory import main\n"
        f"try: main({arguments})\nexcept SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'matplotlib', 'scipy', 'pytorch_lightning'} & {*sys.modules}) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_counterexample(call: Call) -> None:
    text = call("consistency", "--p", "0.55", "0.45", "--rho", "1", "0.3")
    found = rows(text)
    assert (found["p(k|x)"][-2:], found["ρ"][-2:]) == (["0.55", "0.45"], ["1", "0.3"])
    assert found["best (argmax p)"][-2:] == ["1", "0.0000"]
    assert found["argmax f, the paper's"][-2:] == ["2", "0.1000"]
    assert found["posterior, argmax p̂"][-2:] == ["1", "0.0000"]
    assert "counterexample" in text
    assert "0.5385" in text  # .7/1.3
    assert text == call("consistency")


def test_the_minimiser_of_the_counterexample(call: Call) -> None:
    """With d = f_1 − f_2 and w = p/ρ it is stationary where .55·(1 − σ(d)) = 1.5·σ(d/.3)."""
    text = call("consistency", "--p", "0.55", "0.45", "--rho", "1", "0.3")
    found = rows(text)
    assert found["p/ρ"][-2:] == ["0.55", "1.5"]
    first, second = map(float, found["minimiser f"][-2:])
    assert second == 0
    assert 0.55 / (1 + math.exp(first)) == pytest.approx(1.5 / (1 + math.exp(-first / 0.3)), rel=1e-3)
    told = float(text.partition("surrogate at f: ")[2].partition(";")[0])
    assert told == pytest.approx(
        0.55 * math.log1p(math.exp(-first)) + 0.45 * math.log1p(math.exp(first / 0.3)), rel=1e-4
    )


def test_random_cases_are_told_right(call: Call) -> None:
    """Each line from its own p and ρ: the best expert has the largest p, argmax takes the largest p/ρ, posterior the best."""
    head, _, *lines = call("consistency", "--random", "20", "--experts", "2", "--seed", "1").splitlines()[:-2]
    assert head.split() == ["p(k|x)", "ρ", "best", "argmax", "posterior", "argmax's", "regret", "posterior's"]
    missed = 0
    for line in lines:
        *numbers, best, argmax, posterior, lost, none = line.split()
        p, rho = np.array(numbers, dtype=float).reshape(2, 2)
        assert rho.min() >= 0.1
        assert rho.max() <= 10
        taken = int((p / rho).argmax())
        assert [best, argmax, posterior] == [str(k + 1) for k in (p.argmax(), taken, p.argmax())]
        assert float(lost) == pytest.approx(p.max() - p[taken], abs=3e-4)
        assert none == "0.0000"
        missed += taken != p.argmax()
    assert 0 < missed < len(lines) == 20


def test_where_argmax_is_right_nothing_is_claimed(call: Call) -> None:
    text = call("consistency", "--p", "0.2", "0.5", "0.3", "--rho", "1", "1", "1")
    assert "counterexample" not in text
    assert "argmax f is the best expert" in text


def test_random_cases_follow_the_seed(call: Call) -> None:
    given = ("consistency", "--random", "4", "--experts", "3", "--seed")
    one = call(*given, "1")
    assert len(one.splitlines()) == 2 + 4 + 2
    assert "misses the best expert in 2 of 4" in one
    assert one == call(*given, "1")
    assert one != call(*given, "4")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the theory is asked, instead of asking it."""
    found: list[tuple[Any, ...]] = []

    def record(*given: Any, **named: Any) -> str:
        plain = [value.tolist() if isinstance(value, torch.Tensor) else value for value in given]
        found.append((*plain, *([named] if named else [])))
        return "said"

    for name in (
        *("linear_router.load_linear_router", "router_bound.bound_report", "router_bound.bound_text"),
        *("simplex.simplex_regions", "simplex.simplex_text", "simplex.simplex_figure"),
        *("figure1.figure1_world", "figure1.figure1_text", "figure1.figure1_picture"),
    ):
        monkeypatch.setattr(f"l2d.analysis.theory.{name}", record)
    monkeypatch.setattr("l2d.commands.theory.write_picture", lambda *_: None)
    return found


def test_every_flag_is_handed_on(call: Call, asked: list[tuple[Any, ...]]) -> None:
    bound = "bound there --rho 1 2 --rewards complement --delta 0.5 --ceiling 7 --draws 9 --seed 3 --data-dir d --runs-dir r"
    assert call(*bound.split(), "--trust", "m", "--trust", "n") == "said\n"
    assert asked[0] == (Path("there"), {"data_dir": "d", "runs_dir": "r"}, ["m", "n"])
    chosen = {"rho": [1.0, 2.0], "rewards": "complement", "delta": 0.5, "ceiling": 7.0, "draws": 9, "seed": 3}
    assert asked[1] == ("said", chosen)
    asked.clear()
    simplex, rho = "simplex --rho 1 2 3 --p 0.2 0.3 0.5 --size 4", [1.0, 2.0, 3.0]
    call(*simplex.split())
    assert asked == [(rho, 4), (rho, "said"), (rho, "said", [[0.2, 0.3, 0.5]])]
    asked.clear()
    figure1 = "figure1 --points 20 --steps 2 --offset 1 4 --seed 6"
    call(*figure1.split())
    [world, *_] = asked
    assert world == ({"points": 20, "steps": 2, "offsets": [1.0, 4.0], "seed": 6},)


def test_what_a_flag_is_that_is_left_out() -> None:
    def left_out(*words: str) -> dict[str, Any]:
        found = vars(make_theory_parser().parse_args(words))
        return {name: value for name, value in found.items() if name not in ("command", "does", "run")}

    no_places: dict[str, Any] = {"data_dir": None, "runs_dir": None, "trust": []}
    bound = {"rho": None, "rewards": None, "delta": 0.05, "ceiling": 6.0, "draws": 200, "seed": 0}
    assert left_out("bound", "there") == {**bound, **no_places}
    assert left_out("consistency") == {"p": None, "rho": None, "random": 0, "experts": 3, "seed": 0}
    assert left_out("simplex") == {"rho": [1.0, 0.6, 0.3], "p": None, "size": 60, "out": "simplex.png"}
    figure1 = {"offset": [0.0, 5.0], "points": 2000, "steps": 300, "seed": 0, "out": "figure1.png"}
    assert left_out("figure1") == figure1


@pytest.mark.slow
@pytest.mark.measured
def test_pictures_are_written_where_they_are_told(call: Call, tmp_path: Path) -> None:
    assert "simplex.png" in call("simplex", "--size", "10")
    given = ("--rho", "1", "2", "3", "--p", "0.2", "0.3", "0.5", "--out", "regions.svg")
    assert "regions.svg" in call("simplex", "--size", "4", *given)
    text = call("figure1", "--points", "100", "--steps", "5", "--offset", "5")
    assert "MILD by reward_mass, offset 5, argmax" in text
    told = [line.partition(": ")[2].split() for line in text.splitlines() if line.startswith("ρ of MILD by ")]
    for rho in told:
        assert sum(map(float, rho)) == pytest.approx(3 * 5 + 1, abs=2e-3)  # shares of 1, and the offset for each
    assert len(told) == 2
    assert rows(text)["optimum"][-2:] == ["0.1540", "0.1540"]
    assert rows(text)["always expert 2"][-2:] == ["0.6508", "+0.4967"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure1.png", "regions.svg", "simplex.png"]
    assert (tmp_path / "simplex.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("proof", "'proof' (choose from"),
        ("consistency --q 1", "unrecognized arguments: --q 1"),
        ("consistency --p 1 0", "--p[2]=0.0: must be greater than 0"),
        ("consistency --p 0.5 0.4", "--p=0.5 0.4: the sum is 0.9"),
        ("consistency --p 0.5 0.3 0.2", "--p=0.5 0.3 0.2: 3 values for 2"),
        ("consistency --rho 1 -1", "--rho[2]=-1.0: must be greater than 0"),
        ("consistency --rho 1 1e9", "--rho=[1.0, 1000000000.0]: the minimiser was not found"),
        ("consistency --p half 0.5", "--p: invalid float value: 'half'"),
        ("consistency --random -1", "--random=-1: must be at least 0"),
        ("consistency --random 0.5", "--random: invalid int value: '0.5'"),
        ("consistency --random 3 --rho 1 2", "--random=3: "),
        ("readings --coverage 0.5 0.4", "--coverage=0.5 0.4: the sum is 0.9, not 1"),
        ("readings --coverage 1 0", "--coverage[2]=0.0: must be greater than 0"),
        ("readings --coverage 0.5 0.5 --prices 1", "--prices=1: 1 values for 2 experts in --coverage"),
        ("readings --coverage 1", "--coverage=[1.0]: must have at least 2"),
        ("readings --classes 3", "--classes=3: an expert would know none of them; raise it"),
        ("readings --classes 1", "--classes=1: must be at least 2"),
        ("readings --total 0", "--total=0.0: must be greater than 0"),
        ("simplex --rho 1 2", "--rho: expected 3 arguments"),
        ("simplex --p 0.5 0.5 0.5", "--p=0.5 0.5 0.5: the sum is 1.5"),
        ("simplex --out there.txt", "--out=there.txt: must end in .png, .pdf, .svg"),
        ("simplex --out nowhere/it.png", "--out=nowhere/it.png: there is no folder nowhere"),
        ("figure1 --offset high", "--offset: invalid float value: 'high'"),
        ("figure1 --offset -1", "--offset[1]=-1.0: must be at least 0"),
        ("figure1 --points 3", "--points=3: must be at least 10"),
        ("bound", "the following arguments are required: RUN"),
        ("bound nowhere", "nowhere: no such folder"),
        ("bound .", ".: not a run's folder (no config.yaml)"),
        ("bound . --delta 1.5", "--delta=1.5: must be less than 1"),
        ("bound . --rewards none", "--rewards: invalid choice: 'none'"),
        ("bound . --draws 1", "--draws=1: must be at least 2"),
        ("bound . --ceiling 0", "--ceiling=0.0: must be greater than 0"),
        ("bound . --seed -1", "--seed=-1: must be at least 0"),
        ("consistency --random 2 --experts 1", "--experts=1: must be at least 2"),
        ("simplex --size 1", "--size=1: must be at least 2"),
        ("figure1 --steps 0", "--steps=0: must be at least 1"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(call: Call, tmp_path: Path, arguments: str, words: str) -> None:
    said = call(*arguments.split())
    assert said.startswith("error: ")
    assert words in said
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 9999), st.sampled_from(["sum_others", "complement"]), st.integers(2, 5))
def test_the_way_back_to_the_deferral_loss(seed: int, kind: str, p: int) -> None:
    """Lemmas 1 and 2: from the mean zero-one loss of scores to the mean deferral loss of the same scores."""
    rng = np.random.default_rng(seed)
    costs = torch.tensor((rng.random((6, p)) < 0.5) + rng.uniform(0, 0.5, p))
    sample = weighted_sample(costs, kind, cost_scale=float(costs.max()))
    scores = torch.tensor(rng.normal(size=(6, p)))
    loss = float(weighted_zero_one_loss(scores, sample.weights).mean())
    assert sample.as_deferral_loss(loss) == pytest.approx(float(deferral_loss(scores, costs).mean()))
    assert float(sample.weights.sum(dim=1).max()) == pytest.approx(1)


MILD = ("method=mild", "method.rho.values=[2,1]")


def small(*overrides: str, rows: int = 60, decision: str = "argmax") -> LinearRouter:
    """A linear router by hand: the feature says which of two experts is right, weight 3 on it."""
    labels = torch.arange(rows) % 2
    costs = torch.nn.functional.one_hot(1 - labels, 2).double()
    features = torch.stack([1.0 - labels, labels.double()], dim=1)
    component = check(compose(overrides or MILD)).method
    method = make(component, costs=costs, num_classes=2, decision=decision)
    return LinearRouter(features, 3 * torch.eye(2, dtype=torch.float64), costs, method)


def report_of(router: LinearRouter, **given: Any) -> BoundReport:
    options = vars(make_theory_parser().parse_args(["bound", "RUN"]))
    chosen = {key: options[key] for key in ("rho", "rewards", "delta", "ceiling", "draws", "seed")}
    return bound_report(router, **chosen | given)


def test_bound_of_a_router_done_by_hand() -> None:
    """Two experts, one right: c̄ = 1 for it and 0 for the other, so C = 1, m_j = 30, X_j = 1, F = 3√2. All margins are 3 ≥ ρ: no
    empirical loss. Corollary 4.2: 4√2·2·3√2/60·√(30/4 + 30/1)."""
    report = report_of(small())
    assert report.counts.tolist() == [30, 30]
    assert report.norms.tolist() == [1, 1]
    bound = report.rows["Corollary 4.2, X_j"]["ρ fixed"]
    assert bound.empirical == 0
    assert bound.complexity == pytest.approx(48 / 60 * math.sqrt(37.5), rel=1e-6)
    assert report.rows["Theorem 4.1"]["ρ fixed"].complexity <= bound.complexity * 1.01
    assert (report.error, report.worst, report.training_loss) == (0, 1, 0)
    # Equal counts and norms: the best ρ with the same sum is 1.5 for both.
    ratio = report.rademacher["Corollary 4.2, X_j"] / report.best_complexity
    assert ratio == pytest.approx(math.sqrt((30 / 4 + 30 / 1) / (60 / 1.5**2)))
    assert "VACUOUS" in bound_text(report, small())


def test_the_text_of_a_bound_done_by_hand() -> None:
    """Corollary 4.2 of the same router: R̂ = √2·3√2/60·√37.5, times 8 at fixed ρ. Uniform up to 6 it doubles, ρ = (2, 1) are rounded
    to n = (2, 3), and with the constant 4 the sum is less again. The smallest bound falls as 1/√m: there is no empirical loss."""
    report = report_of(small())
    text = bound_text(report, small())
    lines = text.splitlines()
    told = {
        line.rpartition("  ")[0].split("  ")[0]: line.split()[-5:] for line in lines if line.startswith("Corollary")
    }
    rademacher, confidence = math.sqrt(37.5) / 10, 3 * math.sqrt(math.log(40) / 120)
    union = math.log(40) + 2 * math.log(math.pi**2 / 6) + 2 * math.log(2 * 3)
    uniform = 3 * math.sqrt(union / 120) - confidence
    for title, complexity, extra in (
        ("ρ fixed", 8 * rademacher, 0.0),
        ("uniform in ρ", 16 * rademacher, uniform),
        ("uniform in ρ, constant 4", 8 * rademacher, uniform),
    ):
        wanted = [0.0, complexity, confidence, extra, complexity + confidence + extra]
        for form in ("X_j", "X"):
            assert told[f"Corollary 4.2, {form}: {title}"] == [f"{value:.4g}" for value in wanted]
    [head] = [line for line in lines if "empirical margin loss" in line]
    names = ["empirical margin loss", "complexity", "confidence", "uniform in ρ", "bound"]
    assert [head.index(name) for name in names] == sorted(head.index(name) for name in names)
    assert [rows(text)[name][-2:] for name in ("ρ_j", "m_j = Σ_i c̄_j/C", "X_j")] == [
        ["2", "1"],
        ["30", "30"],
        ["1", "1"],
    ]
    least = min(bound.total for row in report.rows.values() for bound in row.values())
    needed = f"with about {60 * least**2:.2g} such points (there are 60)."
    assert f"The smallest, {least:.4g}, would reach 1 {needed}" in text
    assert f"would divide the complexity of Corollary 4.2 by {math.sqrt(37.5 * 2.25 / 60):.4f}." in text
    assert "Proven, with probability 0.95: " in text
    assert "ρ is unequal: argmax may lose up to 0.3333·C(x)" in text
    estimate, error = report.rademacher["Theorem 4.1"], report.rademacher_error
    assert f"(R̂ = {estimate:.4g} ± {1.959964 * error:.1g}, 95 %)" in text
    assert report_of(small(), seed=1).rademacher["Theorem 4.1"] != estimate
    assert "unequal" not in bound_text(report_of(small(), rho=[1.0]), small())


def test_a_bound_below_1_is_told_as_a_deferral_loss_if_it_says_something() -> None:
    """C = 2 and units of 3, with ½ added. A bound that is no better than the worst routing says next to nothing."""
    report = report_of(small(rows=40000), draws=5)
    report = replace(report, sample=replace(report.sample, scale=2.0, unit=3.0, constant=0.5))
    total = report.least.total
    assert f"As a deferral loss that is {6 * total + 0.5:.4f} (" in bound_text(report, small())
    poor = bound_text(replace(report, worst=total), small())
    assert f"NEXT TO VACUOUS: the smallest bound, {total:.4g}, is no better than the worst routing of S." in poor


def test_costs_above_1_are_divided_for_complement_rewards() -> None:
    right = small()
    router = LinearRouter(right.features, right.head, right.costs + 0.5, right.method)
    assert report_of(router, rewards="complement").sample.unit == 1.5


def test_the_worst_that_a_router_can_do() -> None:
    """Costs 0 and ½, rewards 1 and ½, so weights ⅔ and ⅓: only the less rewarded expert is taken."""
    right = small()
    router = LinearRouter(right.features, right.head, right.costs / 2, right.method)
    assert report_of(router, rewards="complement").worst == pytest.approx(2 / 3)


def test_bound_of_many_points_is_not_vacuous() -> None:
    """48/m·√(1.25·m/2) at m = 40,000 is .19; the same router fails with its scores the other way round."""
    report = report_of(small(rows=40000), draws=5)
    assert report.rows["Corollary 4.2, X"]["ρ fixed"].complexity == pytest.approx(
        48 / 40000 * math.sqrt(25000), rel=1e-6
    )
    text = bound_text(report, small())
    assert "Not vacuous" in text
    assert "VACUOUS" not in text
    right = small()
    wrong = report_of(LinearRouter(right.features, -right.head, right.costs, right.method))
    assert wrong.error == 1
    assert wrong.rows["Theorem 4.1"]["ρ fixed"].empirical == 1
    assert "More points would not help" in bound_text(wrong, right)


def test_posterior_decisions_are_named() -> None:
    router = small(decision="posterior")
    assert "agree on 100.00% of S" in bound_text(report_of(router), router)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ceiling": 1.5}, "^ceiling=1.5: must be at least the largest rho, 2"),
        ({"rho": [1.0, 2.0, 3.0]}, r"^rho=\[1.0, 2.0, 3.0\]: 3 values for 2 experts"),
    ],
)
def test_bad_options_of_the_bound(options: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        report_of(small(), **options)


def test_methods_without_margins_are_told_which() -> None:
    router = small("method=ce")
    with pytest.raises(ParameterError, match=r"^rewards: CrossEntropy .* sum_others"):
        report_of(router)
    with pytest.raises(ParameterError, match=r"^rho: CrossEntropy "):
        report_of(router, rewards="complement")
    assert report_of(router, rewards="complement", rho=[0.1], ceiling=0.1).rho.tolist() == [0.1, 0.1]
    assert report_of(router, rewards="complement", rho=[1.0, 2.0]).rho.tolist() == [1, 2]


def test_any_method_with_margins_of_its_own_has_a_bound() -> None:
    """What counts is that it has rho and rewards, not which class it is."""
    router = small("method=cost_sensitive", "method.rho.values=[2,1]")
    assert report_of(router).rho.tolist() == [2, 1]


class Small(torch.nn.Module):
    def __init__(self, head: str) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))
        self.head = make_head(head, 4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_head_and_features_are_the_scores(head: str) -> None:
    """Of the split's own rows, in their order, without dropout; a cosine head has features and rows of norm 1."""
    torch.manual_seed(0)
    network, source, places = Small(head), torch.randn(10, 3), torch.tensor([7, 2, 5])
    split: Any = SimpleNamespace(source=source, rows=places, costs=torch.ones(3, 2))
    method = small().method
    router = as_linear(network, method, split)
    with torch.no_grad():
        np.testing.assert_allclose(router.scores, network.eval()(source[places]), atol=1e-6)
    if head == "cosine":
        np.testing.assert_allclose(router.features.norm(dim=1), 1)
        assert float(router.head.norm()) == pytest.approx(math.sqrt(2))
    learner = make(
        check(compose(["method=cost_regression"])).method, costs=torch.ones(3, 2), num_classes=2, decision="argmax"
    )
    assert (learner.num_outputs, learner.takes_evidence) == (2, True)
    with pytest.raises(L2DError, match=r"^CostRegression: .* one linear score per expert"):
        as_linear(network, learner, split)
    method.num_outputs = 3
    with pytest.raises(L2DError, match=r"^CompSum: .* one linear score per expert"):
        as_linear(network, method, split)


def slow_margin_loss(trained: LinearRouter, rho: list[float]) -> float:
    costs, scores = trained.costs.numpy(), trained.scores.numpy()
    rewards = costs.sum(axis=1, keepdims=True) - costs
    total = 0.0
    for i, k in np.ndindex(*costs.shape):
        margin = scores[i, k] - max(score for j, score in enumerate(scores[i]) if j != k)
        total += rewards[i, k] * min(1.0, max(0.0, 1 - margin / rho[k]))
    return total / float(rewards.sum(axis=1).max()) / len(costs)


@pytest.mark.slow
@pytest.mark.measured
def test_bound_of_a_trained_run(tiny: Callable[..., DictConfig], call: Call) -> None:
    """The router that comes back is the one that was scored, with averaged weights and without its auxiliary head. Its features and
    head give its outputs on the training split, the printed empirical loss is that of loops over the split, and a run that is not
    finished is refused."""
    for checkpoint in ("best", "last"):
        experiment = check(tiny(f"checkpoint={checkpoint}", "recipe.ema=0.5", "aux=label", "sampling=over"))
        train(experiment)
        folder = RunFolder.of(experiment.plain).path
        linear, router = load_linear_router(folder, {}), Router.load(folder)
        with np.load(folder / "test.npz") as saved:
            test = make(experiment.dataset).load(experiment.data_dir).test_inputs
            np.testing.assert_allclose(router.scores(test), saved["scores"], atol=1e-5)
        assert len(linear.costs) == 1293  # each training row once, whatever sampling drew
    text = call("bound", str(folder), "--draws", "20")
    rho: Any = linear.method.rho
    assert f" {slow_margin_loss(linear, rho.tolist()):.4g} " in text
    assert f"m = {len(linear.costs)} points" in text
    assert "VACUOUS" in text
    assert "--ceiling=5.0: must be at least the largest rho" in call("bound", str(folder), "--ceiling", "5")
    unfinished = folder.with_name("seed=9")
    shutil.copytree(folder, unfinished)
    (unfinished / "metrics.json").unlink()
    assert "this run is not finished" in call("bound", str(unfinished))


@pytest.mark.slow
@pytest.mark.measured
def test_bound_on_a_log(tiny: Callable[..., DictConfig], call: Call, tmp_path: Path) -> None:
    """From completed costs, and it says so; a method that takes the log as it is has no cost of every expert."""
    rng = np.random.default_rng(0)
    asked, right = rng.random(120) < 0.5, rng.random(120) < 0.7
    cells = {"x": rng.normal(size=120).tolist()}
    for k, name in enumerate("ab"):
        cells[f"correct_{name}"] = [float(right[i]) if asked[i] == k else None for i in range(120)]
    write_sheet(tmp_path / "log.parquet", cells)
    log = ["dataset=table", f"dataset.path={tmp_path / 'log.parquet'}"]
    told = {}
    for method in ("mild", "one_vs_all"):
        experiment = check(tiny(*log, f"method={method}"))
        train(experiment)
        told[method] = call("bound", str(RunFolder.of(experiment.plain).path), "--rewards", "complement", "--rho", "1")
    assert "From a log: costs of experts that were not asked are estimates" in told["mild"]
    assert "nan" not in told["mild"]
    assert (
        "a log, and method=one_vs_all learns only from the costs that it knows; the bound needs every cost"
        in told["one_vs_all"]
    )
    assert "From a log" not in bound_text(report_of(small()), small())
