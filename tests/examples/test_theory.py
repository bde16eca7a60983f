"""`examples/theory.py`: its numbers, its flags, and its errors."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from theory import main, make_theory_parser

Call = Callable[..., str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Run the command in an empty folder. Returns its output, or its error, which is one line."""

    def run(*arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        refusal = ""
        try:
            main(list(arguments))
        except SystemExit as stopped:
            refusal = str(stopped.code or "")
        assert "\n" not in refusal
        return refusal or capsys.readouterr().out

    return run


def test_help_lists_commands_and_its_examples_parse(call: Call) -> None:
    assert call() == call("--help")
    example = next(line for line in call("consistency", "--help").splitlines() if line.startswith("  python "))
    assert make_theory_parser().parse_args(example.split()[2:]).command == "consistency"


def test_the_counterexample(call: Call) -> None:
    """With d = f_1 − f_2 and w = p/ρ the minimiser is where .55·(1 − σ(d)) = 1.5·σ(d/.3). Worst regret: .7/1.3."""
    text = call("consistency", "--p", "0.55", "0.45", "--rho", "1", "0.3")
    found = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines() if "  " in line}
    assert (found["p(k|x)"], found["ρ"], found["p/ρ"]) == (["0.55", "0.45"], ["1", "0.3"], ["0.55", "1.5"])
    assert found["best (argmax p)"] == found["posterior"] == ["1", "0.0000"]
    assert found["argmax f (the paper's)"] == ["2", "0.1000"]
    first, second = map(float, found["minimiser f"])
    assert second == 0
    assert 0.55 / (1 + math.exp(first)) == pytest.approx(1.5 / (1 + math.exp(-first / 0.3)), rel=1e-3)
    assert "0.5385" in text
    assert text == call("consistency")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("proof", "proof"),
        ("consistency --q 1", "--q"),
        ("consistency --p 1 0", "--p[2]=0.0"),
        ("consistency --p 0.5 0.4", "--p=0.5 0.4: "),
        ("consistency --p 0.5 0.3 0.2", "--p=0.5 0.3 0.2: "),
        ("consistency --rho 1 -1", "--rho[2]=-1.0"),
        ("consistency --rho 1 1e9", "--rho=[1.0, 1000000000.0]"),
        ("consistency --p half 0.5", "--p: "),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(call: Call, tmp_path: Path, arguments: str, words: str) -> None:
    text = call(*arguments.split())
    assert text.startswith("error: ")
    assert words in text
    assert list(tmp_path.iterdir()) == []
