"""The pictures of the documents: drawn from rows, committed, and shown somewhere."""

import html
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
NAMES = {"flow.svg", "collapse.svg", "curve.svg", "regions.svg"}
PHOTOS = {"serve.png", "terminal.svg"}  # of the page, and of README's first commands
Bench = Callable[[str], ModuleType]

SHARES = {"ratios": "0 1", "posterior_ratios": "0.75 0.25", "oracle": "0.75 0.25", "argmax": "0.9", "posterior": "0.1"}


def words(picture: Figure) -> str:
    return " ".join(text.get_text() for axes in picture.axes for text in [axes.title, *axes.texts])


def test_every_picture_is_committed_and_shown() -> None:
    assert {file.name for file in PICTURES.iterdir()} == NAMES | PHOTOS
    documents = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    shown = {Path(name).name for file in documents for name in re.findall(r"pictures/[\w.]+", file.read_text())}
    assert shown == NAMES | PHOTOS
    for file in PICTURES.iterdir():
        assert file.stat().st_size < 150_000, file


def test_the_terminal_shows_the_commands_of_the_readme() -> None:
    """The picture was recorded from them, and moves without a script."""
    text = (PICTURES / "terminal.svg").read_text(encoding="utf-8")
    assert "<script" not in text
    block = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[0]
    for command in re.split(r"(?<!\\)\n", block.strip()):
        assert command.startswith(".") or html.escape(command.splitlines()[-1]) in text


def test_flow_shows_the_measured_gains(bench: Bench) -> None:
    """Means over seeds: .04 and .06 are 5 per 100, with 1.96 standard errors of .01; where the interval has 0, one model."""
    pictures = bench("pictures")
    rows = [
        dict(zip(("benchmark", "prices", "method"), case, strict=True))
        | {"guarded_gain": gain, "guarded_error": "0.01"}
        for place, case in enumerate(pictures.GAINS.values())
        for gain in (("0.04", "0.06") if place == 0 else ("0.01", "0.01"))
    ]
    shown = words(pictures.flow(rows))
    assert re.findall(r"[\d.]+ ± [\d.]+", shown) == ["5.0 ± 2.0"]
    assert shown.count("one model") == len(pictures.GAINS) - 1


def test_collapse_shows_shares_and_losses(bench: Bench) -> None:
    pictures = bench("pictures")
    bare = pictures.CELL | SHARES | {"n": "1000"}
    mild = [{"ratios": "0.7 0.3", "test": "0.2"}]
    picture = pictures.collapse([bare, bare | {"dataset": "cifar10", "argmax": "0.1"}], mild)
    heights = [[bar.get_height() for bar in axes.patches] for axes in picture.axes]
    assert heights == [[75, 25], [0, 100], [75, 25], [70, 30]]
    assert re.findall(r"deferral loss\n([\d.]+)", words(picture)) == ["0.900", "0.100", "0.200"]


def test_curve_says_that_it_is_simulated(bench: Bench) -> None:
    rows = [
        {"kind": kind, "name": name, "price": price, "error": error, "seeds": "1", "n": "10"}
        for kind, name, price, error in (
            ("single", "small", "0.1", "0.5"),
            ("single", "large", "1.0", "0.2"),
            ("mixture", "", "0.1", "0.5"),
            ("repriced", "cost_regression", "0.3", "0.3"),
            ("oracle", "", "0.2", "0.1"),
        )
    ]
    picture = bench("pictures").curve(rows)
    assert "simulated" in words(picture)
    [axes] = picture.axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[0.1], [0.3], [0.2], [0.1, 1.0]]


def test_regions_with_equal_rho_are_never_wrong(bench: Bench) -> None:
    assert re.findall(r"wrong on (\d+%)", words(bench("pictures").regions((1, 1, 1), 6))) == ["0%", "0%"]
    by_argmax, by_posterior = re.findall(r"wrong on (\d+)%", words(bench("pictures").regions((1, 0.6, 0.3), 12)))
    assert int(by_argmax) > int(by_posterior) == 0


@pytest.mark.full
def test_all_are_drawn_the_same_twice(bench: Bench, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    contents = []
    for folder in ("one", "two"):
        files = bench("pictures").draw(tmp_path / folder)
        contents.append({file.name: file.read_bytes() for file in files})
    assert contents[0].keys() == NAMES
    assert contents[0] == contents[1]
    assert dict(mpl.rcParams) == before
