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
NAMES = {"flow.svg", "collapse.svg"}
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
