"""Tables and the page of a report: every number stands under its name."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.report.test_report import entry, write_guarded
from tests.run_folders import write_run, write_small_table

from l2d.analysis.report import tables
from l2d.analysis.report.compare import BASELINES, findings_of, summarise
from l2d.analysis.report.read import FinishedCell, read_cells
from l2d.analysis.report.tables import html_page, latex_tables, markdown_findings, markdown_tables

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TITLES = {"dataset": {"svhn": "SVHN"}, "experts": {"synthetic": "Simulated experts"}}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_small_table(tmp_path)
    return tmp_path


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of a Markdown table, by the names of its columns."""
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    head, _, *lines = [[cell.strip() for cell in line] for line in table]
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_markdown(runs: Path) -> None:
    text = markdown_tables(summarise(read_cells(runs)), TITLES)
    assert "### Simulated experts, error\n" in text
    mild, tdef, *baselines = rows_of(text)
    names, losses = ["SVHN", "I", "mild", "2 (few)"], ["**0.0300 ± 0.0141**", "0.0254 ± 0.0016", "+2.9"]
    pairs = ["-0.0250 [-0.0885, +0.0385]", "-0.3700 [-0.4971, -0.2429]"]  # to tdef, to the best single expert
    assert [*mild.values()] == [*names, *losses, *pairs, "92%", "50.0 / 30.0 / 20.0"]
    assert (tdef["deferral loss"], tdef["seeds"], [*tdef.values()][7]) == ("0.0600 ± 0.0100", "3", "")
    without = ("nearest_neighbours", "category_table")  # images have neither
    titles = [f"*{title}*" for name, title in BASELINES.items() if name not in without]
    assert [row["method"] for row in baselines] == titles
    [untitled, *_] = rows_of(markdown_tables(summarise(read_cells(runs)), {}))
    assert untitled["dataset"] == "svhn"


def test_markdown_of_findings(runs: Path) -> None:
    [found] = findings_of(read_cells(runs))
    [row] = rows_of(markdown_findings([replace(found, pays=False)], TITLES))
    assert [*row.values()][:7] == ["SVHN", "I", "Simulated experts", "error", "**mild**", "0.0300", "0.4000"]
    assert row["change"].startswith("-92% (not")
    assert ("beats" in row, row["not beaten"].split()[0]) == (False, "tdef")


def test_latex(runs: Path) -> None:
    """Names are escaped; columns without a text are left out."""
    entries = summarise(read_cells(runs))
    odd = {"label": "m_1", "setup": "s_1", "dataset": "d_1"}
    lines = [line.strip() for line in latex_tables([*entries, entry(entries, "mild") | odd], TITLES).splitlines()]
    assert (
        r"mild & I & SVHN & 2 (few) & \textbf{0.0300 $\pm$ 0.0141} & 0.0254 $\pm$ 0.0016 & 50.0 / 30.0 / 20.0 \\"
        in lines
    )
    assert any(line.startswith(r"m\_1 & s\_1 & d\_1 &") for line in lines)
    assert {r"\begin{tabular}{lllllll}", r"\caption{Simulated experts, error.}"} < {*lines}
    assert "\\&#$^~".translate(tables.TEX) == r"\textbackslash{}\&\#\$\^{}\~{}"
    assert not any("oracle" in line for line in lines)


@pytest.mark.slow
def test_the_best_router_of_each_block_is_bold(runs: Path) -> None:
    """Also where another dataset has lower losses; never a baseline."""
    for method, loss in (("mild", 0.8), ("tdef", 0.7)):
        write_run(runs, f"cifar10/I/synthetic/error/{method}/aaaa", 0, loss)
    write_run(runs, "svhn/II/synthetic/error/mild/aaaa", 0, 0.4)  # as good as the best single expert
    entries = summarise(read_cells(runs))
    bold = [row["method"] for row in rows_of(markdown_tables(entries, {})) if "**" in row["deferral loss"]]
    assert bold == ["tdef", "mild", "mild"]
    tex = latex_tables(entries, {})
    assert re.findall(r"(\w+) & .*\\textbf", tex) == ["tdef", "mild", "mild"]


def test_fewer_seeds_than_were_asked_for_are_few(runs: Path) -> None:
    cells = [replace(cell, wanted=tuple(range(4))) for cell in read_cells(runs)]
    assert entry(summarise(cells), "tdef")["few"]
    missing = FinishedCell(("svhn", "I", "synthetic", "error", "ce", "cccc"), runs, wanted=(0,))
    tex = latex_tables(summarise([*cells, missing]), {})
    assert re.search(r"ce & .* & 0/1 \(few\) & missing ", tex)


def test_latex_has_the_guarded_loss_where_markdown_has_it(tmp_path: Path) -> None:
    write_guarded(tmp_path)
    write_run(tmp_path, "svhn/I/synthetic/error_plus_cost/mild/aaaa", 0, 0.5)
    acting, other = latex_tables(summarise(read_cells(tmp_path)), {}).split(r"\end{table}")[:2]
    assert ("guarded" in acting, "guarded" in other) == (True, False)


def test_rows_with_other_references_name_them(runs: Path) -> None:
    """One setup has tdef, the other has not."""
    for seed in range(2):
        write_run(runs, "svhn/II/synthetic/error/mild/aaaa", seed, 0.1)
        write_run(runs, "svhn/II/synthetic/error/ce/aaaa", seed, 0.2)
    text = markdown_tables(summarise(read_cells(runs)), {})
    assert "+0.1000 [+0.1000, +0.1000] (mild)" in text
    assert "-0.0250 [-0.0885, +0.0385] (tdef)" in text


def page_data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_holds_its_data_and_fetches_nothing(runs: Path) -> None:
    cells = read_cells(runs)
    text = html_page(summarise(cells), findings_of(cells), cells, "</script><b>", TITLES)
    assert "</script><b>" not in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|fetch\(""", text)
    data = page_data(text)
    assert (data["runs"], data["names"], data["title"]) == (5, TITLES, "</script><b>")
    assert data["entries"][0]["curve"] == [[1, 0.5], [2, 0.3]]
    assert data["findings"][0]["change"].startswith("-92%")
    assert entry(data["entries"], "mild")["hull"] == [[0.0, 0.4]]
    told = entry(data["entries"], "mild")["against_reference"]
    assert told == pytest.approx([-0.025, -0.08853102, 0.03853102], abs=1e-7)


def in_browser(file: Path, script: str, tmp_path: Path) -> str:
    """The page after a script: headless, from file://, without network."""
    assert BROWSER
    copy = tmp_path / "scripted.html"
    errors = "<script>window.onerror = (message) => { document.documentElement.dataset.error = message }</script>"
    text = file.read_text(encoding="utf-8").replace("<head>", f"<head>{errors}")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    asked = [BROWSER, *flags, f"--user-data-dir={tmp_path / 'browser'}", f"file://{copy}"]
    result = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    assert "data-error" not in result.stdout
    return result.stdout


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_the_page_in_a_browser(runs: Path, tmp_path: Path) -> None:
    """Draws its plots, sorts by a click on a column, filters, goes dark, fits a phone."""
    write_run(runs, "svhn/I/synthetic/error/mild/bbbb", 2, 0.03)
    cells = read_cells(runs)
    file = tmp_path / "index.html"
    file.write_text(html_page(summarise(cells), findings_of(cells), cells, "runs", TITLES), encoding="utf-8")
    shown = in_browser(file, "", tmp_path)
    assert shown.count("<figcaption>") - tables.PAGE.read_text().count("<figcaption>") == 6
    assert "SVHN · setup I · synthetic · error · mild" in html.unescape(shown)
    assert "significantly in 1 of 1 case." in shown
    assert shown.index("<h2>Summary</h2>") < shown.index("<h2>All results</h2>")
    column = "[...document.querySelectorAll('th button')].find((b) => b.textContent.startsWith('deferral loss'))"
    order = "document.title = [...document.querySelectorAll('#table tbody tr')].map((r) => r.cells[4].textContent).join('|')"

    def title(script: str) -> str:
        found = re.search("<title>(.*?)</title>", in_browser(file, script, tmp_path))
        assert found
        return found[1]

    expected = ["oracle", "mild", "tdef", "best single expert", "majority expert", "random expert"]
    assert title(f"{column}.click(); {order}").split("|") == expected
    assert title(f"{column}.click(); {column}.click(); {order}").split("|")[0] == "random expert"
    filtered = in_browser(file, "$('f_text').value = 'MILD'; $('f_text').dispatchEvent(new Event('input'))", tmp_path)
    assert "1 of 6 rows shown" in filtered
    assert 'data-theme="dark"' in in_browser(file, "$('theme').click()", tmp_path)
    narrow = "document.body.style.width = '360px'; document.title = document.querySelector('#plots').scrollWidth"
    assert int(title(narrow)) <= 360
