"""Run folders in, tables and a page out: by hand, against the paper's file, damaged, in bulk, and in a browser."""

import csv
import html
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.analysis.report.compare import as_in_the_paper, lower_hull, paired_interval, paper, summarise
from l2d.analysis.report.page import TEMPLATE, page
from l2d.analysis.report.read import read_cells
from l2d.analysis.report.tables import escape, latex, markdown
from l2d.commands.report import chosen, main

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def score(loss: float, ratios: list[float]) -> dict[str, Any]:
    return {"deferral_loss": loss, "error_rate": loss, "mean_price": 0.0, "ratios": ratios}


def write_run(runs: Path, cell: str, seed: int, loss: float, **more: Any) -> Path:
    folder = runs / cell / f"seed={seed}"
    folder.mkdir(parents=True)
    ratios = [0.5, 0.3, 0.2]
    metrics = score(loss, ratios) | {
        "baselines": {
            "oracle": score(0.0, [0.6, 0.3, 0.1]),
            "best_single": score(0.4, [1.0, 0.0, 0.0]),
            "random": score(0.6, [1 / 3] * 3),
            "majority": score(0.4, [1.0, 0.0, 0.0]),
        },
        "confusion": [[5, 1, 0], [0, 3, 0], [0, 0, 1]],
        "collapsed_expert": None,
        "prices": [0.0, 0.0, 0.0],
        "experts": [
            {"error_rate": 0.4, "price": 0.0},
            {"error_rate": 0.7, "price": 0.0},
            {"error_rate": 0.8, "price": 0.0},
        ],
        "calibration": [[0.5, 0.2, 0.25], [0.5, 0.8, 0.7]],
    }
    (folder / "metrics.json").write_text(json.dumps(metrics | more))
    (folder / "config.yaml").write_text(
        f"method: {{name: {cell.split('/')[4]}, rho: {more.get('rho', 1)}}}\nseed: {seed}\n"
    )
    (folder / "history.csv").write_text("epoch,step,val/deferral_loss\n1,10,0.5\n2,20,0.3\n")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """SVHN, setup I: three seeds of tdef, two of mild."""
    for seed, loss in enumerate([0.05, 0.06, 0.07]):
        write_run(tmp_path, "svhn/I/synthetic/error/tdef/aaaa", seed, loss)
    for seed, loss in enumerate([0.02, 0.04]):
        write_run(tmp_path, "svhn/I/synthetic/error/mild/bbbb", seed, loss)
    return tmp_path


def entry(entries: list[dict[str, Any]], label: str) -> dict[str, Any]:
    [found] = [one for one in entries if one["label"] == label]
    return found


def test_summary_by_hand(runs: Path) -> None:
    entries = summarise(read_cells(runs))
    mild, tdef = entry(entries, "mild"), entry(entries, "tdef")
    assert (tdef["mean"], tdef["std"], tdef["seeds"]) == (pytest.approx(0.06), pytest.approx(0.01), 3)
    assert (mild["mean"], mild["seeds"], mild["few"], tdef["few"]) == (pytest.approx(0.03), 2, True, False)
    assert mild["paper"] == {"mean": 0.0254, "std": 0.0016, "ratios": pytest.approx([0.8033, 0.1339, 0.0628])}
    assert mild["off_by_std"] == pytest.approx((0.03 - 0.0254) / 0.0016)
    mean, low, high = mild["against_reference"]  # differences -.03 and -.02: t(.975, 1) = 12.706, s = .0070711
    assert (mean, low, high) == (
        pytest.approx(-0.025),
        pytest.approx(-0.0885, abs=1e-4),
        pytest.approx(0.0385, abs=1e-4),
    )
    assert "against_reference" not in tdef
    assert entry(entries, "oracle")["mean"] == 0
    assert entry(entries, "best single expert")["mean"] == pytest.approx(0.4)
    assert {one["label"] for one in entries if one["kind"] == "baseline"} == {
        "oracle",
        "best single expert",
        "random expert",
        "majority expert",
    }


def test_pairs_need_common_seeds() -> None:
    assert paired_interval({0: 1.0, 1: 2.0}, {1: 1.0, 2: 5.0}) is None
    assert paired_interval({0: 1.0, 1: 2.0, 7: 9.0}, {0: 0.5, 1: 1.5}) == (0.5, 0.5, 0.5)


def test_the_papers_file_is_the_papers() -> None:
    known = paper()
    assert known["cifar10", "III", "synthetic", "error", "mild"]["mean"] == 0.0903
    assert known["svhn", "III", "synthetic", "error", "tdef"]["mean"] == 0.0684
    assert len([key for key in known if key[2:4] == ("synthetic", "error_plus_cost")]) == 24


def test_variants_are_told_apart(runs: Path) -> None:
    write_run(runs, "svhn/I/synthetic/error/mild/cccc", 0, 0.03, rho=5.2)
    labels = {one["label"] for one in summarise(read_cells(runs))}
    assert {"mild (rho=1)", "mild (rho=5.2)"} <= labels


@pytest.mark.parametrize("extra", ["cost: {noise: 0.2}", "experts: {cross_fit: 5}"])
def test_what_the_paper_did_not_do_has_a_reference_but_no_paper(runs: Path, extra: str) -> None:
    """Noise and cross-fitting: held against the tdef that has them too, not against the paper's number."""
    for method, losses in {"tdef": (0.2, 0.3), "mild": (0.1, 0.1)}.items():
        for seed, loss in enumerate(losses):
            folder = write_run(runs, f"svhn/I/synthetic/error/{method}/gggg", seed, loss)
            (folder / "config.yaml").write_text(f"method: {{name: {method}, rho: 1}}\n{extra}\nseed: {seed}\n")
    found = [one for one in summarise(read_cells(runs)) if one["kind"] == "router" and one["method"] == "mild"]
    new = next(one for one in found if one["variant"] == "gggg")
    assert new["paper"] is None
    assert new["against_reference"][0] == pytest.approx(-0.15)
    assert next(one for one in found if one["variant"] == "bbbb")["paper"] is not None


def test_other_prices_are_another_block(runs: Path) -> None:
    """Their oracle and best single expert are others, and so is the best method."""
    for name, price in (("eeee", 0.1), ("ffff", 0.3)):
        folder = write_run(runs, f"svhn/I/synthetic/error_plus_cost/mild/{name}", 0, price)
        (folder / "config.yaml").write_text(f"method: {{name: mild}}\ncost: {{prices: [{price}, 0, 0]}}\nseed: 0\n")
    costs = [one["cost"] for one in summarise(read_cells(runs)) if one["label"] == "oracle"]
    assert costs == ["error", "error_plus_cost (prices=[0.1, 0, 0])", "error_plus_cost (prices=[0.3, 0, 0])"]


def test_other_multiples_of_the_prices_are_another_block(runs: Path) -> None:
    for name, scale in (("eeee", 0.5), ("ffff", 1.0)):
        folder = write_run(runs, f"svhn/I/synthetic/error_plus_cost/mild/{name}", 0, scale)
        (folder / "config.yaml").write_text(f"method: {{name: mild}}\ncost: {{prices: [1, 0, 0], scale: {scale}}}\n")
    entries = summarise(read_cells(runs))
    assert [one["cost"] for one in entries if one["label"] == "oracle"] == [
        "error",
        "error_plus_cost (prices=[1, 0, 0] scale=0.5)",
        "error_plus_cost (prices=[1, 0, 0])",
    ]
    half, whole = (one for one in entries if one["kind"] == "router" and one["cost"] != "error")
    assert half["paper"] is None
    assert whole["paper"] is not None


def test_the_reference_is_the_plain_tdef(runs: Path) -> None:
    """A control with another ρ is no reference, and the paper's number is not its own."""
    for seed in range(3):
        write_run(runs, "svhn/I/synthetic/error/tdef/0000", seed, 0.5, rho=5.2)
    entries = summarise(read_cells(runs))
    assert entry(entries, "mild")["against_reference"][0] == pytest.approx(-0.025)
    control, plain = entry(entries, "tdef (rho=5.2)"), entry(entries, "tdef (rho=1)")
    assert control["against_reference"][0] == pytest.approx(0.44)
    assert control["paper"] is None
    assert not as_in_the_paper({"method.rho.rule": "uniform"}, "tdef")
    assert not as_in_the_paper({"method.rho.rule": "uniform"}, "mild")
    assert as_in_the_paper({"method.rho.rule": "theory"}, "mild")
    assert plain["paper"]["mean"] == 0.0468
    assert "against_reference" not in plain


def test_seeds_are_averaged(runs: Path) -> None:
    more = {"experts": [{"error_rate": 0.6, "price": 0.0}] * 3, "calibration": [[1.0, 0.25, 0.5]]}
    write_run(runs, "svhn/I/synthetic/error/ce/dddd", 0, 0.1)
    write_run(runs, "svhn/I/synthetic/error/ce/dddd", 1, 0.1, **more)
    ce = entry(summarise(read_cells(runs)), "ce")
    assert [expert["error_rate"] for expert in ce["experts_alone"]] == pytest.approx([0.5, 0.65, 0.7])
    # .5 at (.2, .25) and 1 at (.25, .5) meet in one bin
    assert ce["calibration"][0] == pytest.approx([0.75, 0.7 / 3, 1.25 / 3])
    assert ce["calibration"][1] == pytest.approx([0.25, 0.8, 0.7])


def test_unfinished_and_damaged_runs_are_left_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "svhn/I/synthetic/error/mild/bbbb/seed=5").mkdir()
    bad = runs / "svhn/I/synthetic/error/mild/bbbb/seed=6"
    bad.mkdir()
    (bad / "metrics.json").write_text('{"deferral_loss": ')
    nan = runs / "svhn/I/synthetic/error/mild/bbbb/seed=7"
    nan.mkdir()
    (nan / "metrics.json").write_text('{"deferral_loss": NaN}')
    (runs / ".sweeps" / "x").mkdir(parents=True)
    assert {cell.method: sorted(cell.runs) for cell in read_cells(runs)} == {"tdef": [0, 1, 2], "mild": [0, 1]}
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {bad}/metrics.json: unreadable (JSONDecodeError), left out",
        f"warning: {nan}/metrics.json: unreadable (ValueError), left out",
    ]


def test_markdown_and_latex(runs: Path) -> None:
    entries = summarise(read_cells(runs))
    text = markdown(entries)
    assert "| SVHN | I | mild | 2 (few) | **0.0300 ± 0.0141** | 0.0254 ± 0.0016 | +2.9 |" in text
    assert "| SVHN | I | tdef | 3 | 0.0600 ± 0.0100 | 0.0468 ± 0.0015 | +8.8 |  | 50.0 / 30.0 / 20.0 |" in text
    tex = latex(entries)
    assert (
        r"mild & (I) & SVHN & \textbf{0.0300 $\pm$ 0.0141}$^\dagger$ & 0.0254 $\pm$ 0.0016 & 50.00 & 30.00 & 20.00 \\"
        in tex
    )
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 1
    for line in tex.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert line.count("&") - line.count(r"\&") == 7, line
    assert escape("a_b%{c}\\") == r"a\_b\%\{c\}\textbackslash{}"


def test_missing_cells_are_marked(tmp_path: Path) -> None:
    overrides = ["experiment=table1_error", "dataset=digits", "setup=I", "method=tdef,mild_paper", "seed=0,1"]
    cells = chosen(tmp_path, overrides, [])
    assert [(cell.method, cell.wanted, cell.runs) for cell in cells] == [("tdef", (0, 1), {}), ("mild", (0, 1), {})]
    write_run(tmp_path, "/".join(cells[1].names), 1, 0.1)
    write_run(tmp_path, "/".join(cells[1].names), 4, 0.9)  # a seed that was not asked for
    cells = chosen(tmp_path, overrides, read_cells(tmp_path))
    text = markdown(summarise(cells))
    assert "| Digits | I | tdef | 0/2 (few) | missing |" in text
    assert "| Digits | I | mild | 1/2 (few) | **0.1000** |" in text


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12))
def test_hull_against_a_slow_reference(points: list[tuple[int, int]]) -> None:
    """A point belongs to it if and only if no mixture of two others (or one other) is as cheap and as good."""
    hull = lower_hull([(float(x), float(y)) for x, y in points])

    def beaten(point: tuple[int, int]) -> bool:
        x, y = point
        others = [other for other in set(points) if other != point]
        if any(a <= x and b <= y for a, b in others):
            return True
        return any(
            a < x < c and (b * (c - x) + d * (x - a)) <= y * (c - a) for a, b in others for c, d in others if a < c
        )

    assert sorted(hull) == sorted((float(x), float(y)) for x, y in set(points) if not beaten((x, y)))


def test_the_command(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(runs)])
    assert "5 runs, 2 cells" in capsys.readouterr().out
    assert {file.name for file in (runs / "report").iterdir()} == {"index.html", "tables.md", "tables.tex"}
    for arguments, words in {
        ("nowhere",): "nowhere: no such folder",
        (str(runs), "-m"): "-m: unknown flag",
        (str(runs), "experiment=table9"): "table9",
        (
            str(runs),
            "experiment=table1_cost",
            "dataset=svhn",
            "setup=I",
        ): "no finished run of these; 5 finished with other settings",
    }.items():
        with pytest.raises(SystemExit) as leave:
            main(list(arguments))
        assert words in str(leave.value)
        assert "\n" not in str(leave.value)


def test_the_page_holds_its_data_and_fetches_nothing(runs: Path) -> None:
    cells = read_cells(runs)
    text = page(summarise(cells), cells, "</script><b>")
    assert "</script><b>" not in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|fetch\(""", text)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert data["runs"] == 5
    assert data["entries"][0]["curve"] == [[1, 0.5], [2, 0.3]]


def in_browser(file: Path, script: str, tmp_path: Path) -> str:
    """What the page shows after a script: headless, from file://, without network."""
    assert BROWSER
    copy = tmp_path / "scripted.html"
    errors = "<script>window.onerror = (message) => { document.documentElement.dataset.error = message }</script>"
    text = file.read_text(encoding="utf-8").replace("<head>", f"<head>{errors}")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'browser'}",
        "--virtual-time-budget=2000",
    ]
    result = subprocess.run(
        [BROWSER, *flags, "--dump-dom", f"file://{copy}"], capture_output=True, text=True, timeout=120, check=True
    )
    assert "data-error" not in result.stdout
    return result.stdout


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_the_page_in_a_browser(runs: Path, tmp_path: Path) -> None:
    """Draws its plots, sorts by a click on a column, filters, goes dark, fits a phone."""
    cells = read_cells(runs)
    file = tmp_path / "index.html"
    file.write_text(page(summarise(cells), cells, "runs"), encoding="utf-8")
    shown = in_browser(file, "", tmp_path)
    assert shown.count("<figcaption>") - TEMPLATE.read_text().count("<figcaption>") == 6
    assert "SVHN · setup I · synthetic · error · mild" in html.unescape(shown)
    column = "[...document.querySelectorAll('th button')].find((b) => b.textContent.startsWith('deferral loss'))"
    order = "document.title = [...document.querySelectorAll('tbody tr')].map((r) => r.cells[4].textContent).join('|')"
    by_loss = re.search("<title>(.*?)</title>", in_browser(file, f"{column}.click(); {order}", tmp_path))
    again = re.search(
        "<title>(.*?)</title>", in_browser(file, f"{column}.click(); {column}.click(); {order}", tmp_path)
    )
    expected = ["oracle", "mild", "tdef", "best single expert", "majority expert", "random expert"]
    assert by_loss
    assert by_loss[1].split("|") == expected
    assert again
    assert again[1].split("|")[0] == "random expert"
    filtered = in_browser(file, "$('f_text').value = 'MILD'; $('f_text').dispatchEvent(new Event('input'))", tmp_path)
    assert "1 of 6 rows shown" in filtered
    assert 'data-theme="dark"' in in_browser(file, "$('theme').click()", tmp_path)
    narrow = "document.body.style.width = '360px'; document.title = document.querySelector('#plots').scrollWidth"
    width = re.search("<title>(.*?)</title>", in_browser(file, narrow, tmp_path))
    assert width
    assert int(width[1]) <= 360


@pytest.mark.slow
def test_ten_thousand_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first = write_run(runs, "svhn/I/synthetic/error/mild/00000000", 0, 0.1)
    files = {name: (first / name).read_bytes() for name in ("metrics.json", "config.yaml", "history.csv")}
    for cell in range(2000):
        for seed in range(5):
            names = f"set{cell % 10}/I/synthetic/error/m{cell % 50}/{cell:08x}"
            folder = runs / names / f"seed={seed}"
            folder.mkdir(parents=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "l2d", "report", str(runs)], check=True, capture_output=True)
    assert time.monotonic() - started < 20
    assert '"runs":10001' in (runs / "report" / "index.html").read_text()


def test_mean_over_seeds_is_what_statistics_says(runs: Path) -> None:
    with (Path(__file__).parents[3] / "src/l2d/analysis/report/paper.csv").open(newline="") as lines:
        assert next(csv.reader(lines))[:2] == ["table", "experts"]
    assert entry(summarise(read_cells(runs)), "tdef")["std"] == pytest.approx(statistics.stdev([0.05, 0.06, 0.07]))
