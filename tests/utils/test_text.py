import sys

import pytest

from l2d.utils.text import aligned, counted, listed, painted, say


def test_the_first_column_goes_left_and_the_others_right() -> None:
    assert aligned(["a", "bcd"], [["long", "1"], ["x", "12345"]]).split("\n") == [
        "a       bcd",
        "-----------",
        "long      1",
        "x     12345",
    ]
    assert aligned(["a", "b"], []) == "a  b\n----"


def test_one_row_and_many() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 2000)] == ["0 rows", "1 row", "2 rows", "2,000 rows"]


def test_only_what_is_left_out_is_counted() -> None:
    twelve = ", ".join(map(str, range(12)))
    assert listed(range(12)) == twelve
    assert listed(range(13)) == f"{twelve} and 1 more"
    assert listed(range(2000), 2) == "0, 1 and 1,998 more"
    assert listed(["a"]) == "a"


def test_colours() -> None:
    assert painted("router  0.1\noracle\nverdict: unclear.\nverdict: routing pays.\nWARNING: collapsed\n").split(
        "\n"
    ) == [
        "\033[1mrouter  0.1\033[0m",
        "oracle",
        "\033[1;33mverdict: unclear.\033[0m",
        "\033[1;32mverdict: routing pays.\033[0m",
        "\033[1;31mWARNING: collapsed\033[0m",
        "",
    ]


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_on_a_terminal_alone(
    terminal: bool, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    say("WARNING: collapsed")
    assert ("\033" in capsys.readouterr().out) is coloured
