"""Run folders in, tables and a page out: by hand, against the paper's file, damaged, and in a browser."""

import dataclasses
import html
import itertools
import json
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics_example import example_metrics, example_score
from tests.run_folders import baselines_of, write_run, write_small_table

from l2d.analysis.report.averages import lower_hull, paired_interval
from l2d.analysis.report.compare import BASELINES, summarise
from l2d.analysis.report.findings import findings_of, is_below, sentence
from l2d.analysis.report.paper import paper_results, paper_rho
from l2d.analysis.report.read import FinishedCell, folder_among, read_cells
from l2d.analysis.report.tables import (
    PAGE,
    TEX,
    html_page,
    hulls_by_block,
    latex_tables,
    markdown_findings,
    markdown_tables,
)
from l2d.core.results import ExpertAlone
from l2d.utils.errors import L2DError

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TITLES = {"dataset": {"svhn": "SVHN"}, "experts": {"synthetic": "Simulated experts"}}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_small_table(tmp_path)
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
    assert mild["reference"] == "tdef"
    # less the best single expert's .4: differences -.38 and -.36, -.35, -.34 and -.33
    assert mild["against_single"] == pytest.approx((-0.37, -0.4971, -0.2429), abs=1e-4)
    assert tdef["against_single"] == pytest.approx((-0.34, -0.3648, -0.3152), abs=1e-4)
    assert (mild["of_gap"], tdef["of_gap"]) == (
        pytest.approx(0.37 / 0.4),
        pytest.approx(0.34 / 0.4),
    )  # the oracle's is 0
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


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_intervals_are_those_of_scipy_stats(n: int) -> None:
    from scipy import stats

    ours, theirs = ({seed: ((seed * factor) % 7) / 10 for seed in range(n)} for factor in (3, 5))
    found = stats.ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval()
    assert paired_interval(ours, theirs) == pytest.approx(
        (statistics.fmean([ours[s] - theirs[s] for s in ours]), *found)
    )


def test_the_papers_file_is_the_papers() -> None:
    known = paper_results()
    assert known["cifar10", "III", "synthetic", "error", "mild"]["mean"] == 0.0903
    assert known["svhn", "III", "synthetic", "error", "tdef"]["mean"] == 0.0684
    assert len([key for key in known if key[2:4] == ("synthetic", "error_plus_cost")]) == 24
    assert paper_rho(("svhn", "I", "synthetic", "error"), "mild") is None


def test_variants_are_told_apart(runs: Path) -> None:
    for folder, rho in (("cccc", 5.2), ("dddd", 1)):
        write_run(runs, f"svhn/I/synthetic/error/mild/{folder}", 0, 0.03, {"method": {"name": "mild", "rho": rho}})
    labels = {one["label"] for one in summarise(read_cells(runs))}
    assert {"mild (rho=1)", "mild (rho=5.2)"} <= labels


def test_a_method_without_a_rival_of_its_name_is_called_by_its_name(tmp_path: Path) -> None:
    """Another ρ in another block is no rival. Two that differ in nothing a config tells are told apart by their folders."""
    write_run(tmp_path, "svhn/I/synthetic/error/mild/aaaa", 0, 0.1)
    write_run(tmp_path, "svhn/II/synthetic/error/mild/bbbb", 0, 0.1, {"method": {"name": "mild", "rho": 5.2}})
    for variant in ("cccc", "dddd"):
        write_run(tmp_path, f"svhn/I/synthetic/error/ce/{variant}", 0, 0.1)
    labels = [one["label"] for one in summarise(read_cells(tmp_path)) if one["kind"] == "router"]
    assert labels == ["ce (cccc)", "ce (dddd)", "mild", "mild"]


def test_the_usual_setting_beside_another_is_called_default(tmp_path: Path) -> None:
    write_run(tmp_path, "svhn/I/synthetic/error/mild/aaaa", 0, 0.1)
    write_run(tmp_path, "svhn/I/synthetic/error/mild/bbbb", 0, 0.1, {"missing": "ips"})
    labels = [one["label"] for one in summarise(read_cells(tmp_path)) if one["kind"] == "router"]
    assert labels == ["mild (default)", "mild (missing=ips)"]


def test_baselines_that_differ_between_runs_say_whose_they_are(tmp_path: Path) -> None:
    """Neighbours depend on what a router sees. A run of other seeds differs anyway."""
    for (method, loss), seed in itertools.product((("knn", 0.25), ("mix", 0.375)), (0, 1)):
        near = example_score(loss, [1.0, 0.0, 0.0])
        baselines = dataclasses.replace(baselines_of(0.4), nearest_neighbours=near)
        write_run(tmp_path, f"q/own/table/error/{method}/aaaa", seed, 0.1, baselines=baselines)
    write_run(tmp_path, "q/own/table/error/ce/aaaa", 0, 0.1, baselines=baselines_of(0.6))
    found = {one["label"]: one["mean"] for one in summarise(read_cells(tmp_path)) if one["kind"] == "baseline"}
    assert found["best single expert"] == 0.4
    assert found["nearest neighbours (run of knn)"] == 0.25


@pytest.mark.parametrize("extra", [{"cost": {"noise": 0.2}}, {"experts": {"cross_fit": 5}}])
def test_what_the_paper_did_not_do_has_a_reference_but_no_paper(runs: Path, extra: dict[str, Any]) -> None:
    """Noise and cross-fitting: compared with the tdef that has them too, not with the paper's number."""
    for method, losses in {"tdef": (0.2, 0.3), "mild": (0.1, 0.1)}.items():
        for seed, loss in enumerate(losses):
            write_run(runs, f"svhn/I/synthetic/error/{method}/gggg", seed, loss, extra)
    found = [one for one in summarise(read_cells(runs)) if one["kind"] == "router" and one["method"] == "mild"]
    new = next(one for one in found if one["variant"] == "gggg")
    assert new["paper"] is None
    assert new["against_reference"][0] == pytest.approx(-0.15)
    assert next(one for one in found if one["variant"] == "bbbb")["paper"] is not None


def test_baselines_are_those_of_clean_costs(tmp_path: Path) -> None:
    """With noise on the costs another expert may look best in training. However many seeds are noisy, clean ones come first; of
    clean ones the most seeds count."""
    cell, noise = "svhn/I/synthetic/error/mild", {"cost": {"noise": 0.3}}
    for seed in range(5):
        write_run(tmp_path, f"{cell}/noisy", seed, 0.1, noise, baselines=baselines_of(0.9))
    assert entry(summarise(read_cells(tmp_path)), "best single expert")["mean"] == pytest.approx(0.9)
    write_run(tmp_path, f"{cell}/few", 0, 0.1, baselines=baselines_of(0.7))
    for seed in range(2):
        write_run(tmp_path, f"{cell}/most", seed, 0.1, baselines=baselines_of(0.4))
    single = entry(summarise(read_cells(tmp_path)), "best single expert")
    assert (single["mean"], single["seeds"]) == (pytest.approx(0.4), 2)


def test_other_prices_are_another_block(runs: Path) -> None:
    """Their oracle and best single expert are others, and so is the best method."""
    for name, price in (("eeee", 0.1), ("ffff", 0.3)):
        cost = {"prices": [price, 0, 0]}
        write_run(runs, f"svhn/I/synthetic/error_plus_cost/mild/{name}", 0, price, {"cost": cost})
        if name == "eeee":  # the only prices of their name need not be told
            assert {one["cost"] for one in summarise(read_cells(runs))} == {"error", "error_plus_cost"}
    for name, price in (("gggg", 0.1), ("hhhh", 0.3)):  # prices by the names of the experts
        by_name = {"prices": {"small": price, "large": 1}}
        write_run(runs, f"svhn/II/synthetic/error_plus_cost/mild/{name}", 0, price, {"cost": by_name})
    costs = [one["cost"] for one in summarise(read_cells(runs)) if one["label"] == "oracle"]
    assert costs == [
        *("error", "error_plus_cost (prices=[0.1, 0, 0])", "error_plus_cost (prices=[0.3, 0, 0])"),
        *(f"error_plus_cost (prices.large=1 prices.small={price})" for price in (0.1, 0.3)),
    ]


def test_runs_that_were_judged_on_other_rows_are_not_compared(runs: Path) -> None:
    write_run(runs, "svhn/I/synthetic/error/mild/eeee", 0, 0.01, {}, evaluation="cross_validate")
    costs = [one["cost"] for one in summarise(read_cells(runs)) if one["label"] == "oracle"]
    assert costs == ["error (evaluation=holdout)", "error (evaluation=cross_validate)"]


def test_other_multiples_of_the_prices_are_another_block(runs: Path) -> None:
    for name, scale in (("eeee", 0.5), ("ffff", 1.0)):
        cost = {"prices": "coverage", "scale": scale}
        write_run(runs, f"svhn/I/synthetic/error_plus_cost/mild/{name}", 0, scale, {"cost": cost})
    entries = summarise(read_cells(runs))
    assert [one["cost"] for one in entries if one["label"] == "oracle"] == [
        "error",
        "error_plus_cost (prices=coverage scale=0.5)",
        "error_plus_cost (prices=coverage)",
    ]
    half, whole = (one for one in entries if one["kind"] == "router" and one["cost"] != "error")
    assert half["paper"] is None
    assert whole["paper"] is not None


def test_a_price_of_latency_is_told(runs: Path) -> None:
    """Even if all runs have the same: the price of a table that contains it is no money."""
    cost = {"scale": 1.0, "latency_price": 0.1}
    write_run(runs, "svhn/I/synthetic/columns/mild/eeee", 0, 0.01, {"cost": cost})
    costs = {one["cost"] for one in summarise(read_cells(runs))}
    assert costs == {"error", "columns (latency_price=0.1)"}


def test_the_reference_is_the_plain_tdef(runs: Path) -> None:
    """A control with another ρ is no reference, and the paper's number is not its own."""
    for seed in range(3):
        write_run(runs, "svhn/I/synthetic/error/tdef/0000", seed, 0.5, {"method": {"name": "tdef", "rho": 5.2}})
        rule = {"name": "tdef", "rho": {"rule": "uniform"}}
        write_run(runs, "svhn/I/synthetic/error/tdef/0001", seed, 0.5, {"method": rule})
    entries = summarise(read_cells(runs))
    assert entry(entries, "mild")["against_reference"][0] == pytest.approx(-0.025)
    control, plain = entry(entries, "tdef (rho=5.2)"), entry(entries, "tdef (rho=1)")
    assert control["against_reference"][0] == pytest.approx(0.44)
    assert control["paper"] is None
    assert plain["paper"]["mean"] == 0.0468
    assert "against_reference" not in plain


def test_seeds_are_averaged(runs: Path) -> None:
    alike = [ExpertAlone("expert", error_rate=0.6, price=0.5, standard_error=0.1)] * 3
    write_run(runs, "svhn/I/synthetic/error/ce/dddd", 0, 0.1)
    write_run(runs, "svhn/I/synthetic/error/ce/dddd", 1, 0.1, experts=alike, calibration=[[1.0, 0.25, 0.5]])
    write_run(runs, "svhn/I/synthetic/error/ce/dddd", 2, 0.1, experts=alike, calibration=None)
    ce = entry(summarise(read_cells(runs)), "ce")
    assert [expert["error_rate"] for expert in ce["experts_alone"]] == pytest.approx([1.6 / 3, 1.9 / 3, 2 / 3])
    assert [expert["price"] for expert in ce["experts_alone"]] == pytest.approx([1 / 3] * 3)
    # .5 at (.2, .25) and 1 at (.25, .5) meet in one bin
    assert ce["calibration"][0] == pytest.approx([0.75, 0.7 / 3, 1.25 / 3])
    assert ce["calibration"][1] == pytest.approx([0.25, 0.8, 0.7])


def test_the_numbers_of_an_entry_are_means_over_its_seeds(tmp_path: Path) -> None:
    """The second seed collapsed. A probability of 1 belongs into the last bin."""
    cell, oracle = "svhn/I/synthetic/error_plus_cost/mild/aaaa", example_score(0.0, [0.2, 0.3, 0.5])
    first = {"confusion": [[4, 0, 0], [0, 2, 0], [0, 0, 1]], "calibration": [[0.5, 0.95, 0.9], [0.5, 0.15, 0.1]]}
    second = {"confusion": [[2, 2, 0], [0, 4, 0], [1, 0, 1]], "calibration": [[1.0, 1.0, 0.7]], "collapsed_expert": 1}
    write_run(tmp_path, cell, 0, 0.3, error_rate=0.1, mean_price=0.2, **first)
    baselines = dataclasses.replace(baselines_of(0.4), oracle=oracle)
    write_run(tmp_path, cell, 1, 0.9, error_rate=0.3, mean_price=0.6, **second, baselines=baselines)
    entries = summarise(read_cells(tmp_path))
    mild = entry(entries, "mild")
    assert (mild["error_rate"], mild["mean_price"]) == pytest.approx((0.2, 0.4))
    assert mild["confusion"] == [[3, 1, 0], [0, 3, 0], [0.5, 0, 1]]
    assert mild["oracle_ratios"] == pytest.approx([0.4, 0.3, 0.3])
    low, high = mild["calibration"]
    assert (low, high) == (pytest.approx([0.25, 0.15, 0.1]), pytest.approx([0.75, 1.475 / 1.5, 1.15 / 1.5]))
    assert mild["collapsed"] == 1
    assert "| 50.0 / 30.0 / 20.0 (collapsed) |" in markdown_tables(entries, {})
    assert [entry(entries, f"{name} expert")["mean"] for name in ("random", "majority")] == pytest.approx([0.6, 0.4])


def test_the_guard_is_averaged_where_it_changes_something(tmp_path: Path) -> None:
    cell = "svhn/I/synthetic/error/mild/aaaa"
    untouched = example_metrics(0.5).guarded
    fallback = dataclasses.replace(untouched, deferral_loss=0.2, constant="expert 1")
    write_run(tmp_path, cell, 0, 0.4, guarded=untouched)
    assert entry(summarise(read_cells(tmp_path)), "mild")["guarded"] is None
    write_run(tmp_path, cell, 1, 0.4, guarded=fallback)
    entries = summarise(read_cells(tmp_path))
    assert entry(entries, "mild")["guarded"] == {
        "mean": pytest.approx(0.35),
        "std": pytest.approx(0.3 / 2**0.5),
        "constant": 1,
    }
    assert "| 0.3500 ± 0.2121 (in 1 of 2 seeds the guard chose one expert) |" in markdown_tables(entries, {})


def test_every_method_has_a_guarded_loss_if_one_has(tmp_path: Path) -> None:
    """Or the methods could not be compared by it. Where the guard changes nothing it is the loss itself."""
    write_guarded(tmp_path)
    text = markdown_tables(summarise(read_cells(tmp_path)), {})
    assert re.search(r"\| plugin \| 2 \(few\) .*\| 0\.2000 ± 0\.0000 \|", text)
    assert re.search(
        r"\| mild \| 2 \(few\) .*\| 0\.3000 ± 0\.0000 \(in 2 of 2 seeds the guard chose one expert\) \|", text
    )


def test_latex_has_the_guarded_loss_where_markdown_has_it(tmp_path: Path) -> None:
    """In a table of which one block has a guard that acts, the other block has a dash."""
    write_guarded(tmp_path)
    write_run(tmp_path, "svhn/II/synthetic/error/mild/aaaa", 0, 0.5)
    write_run(tmp_path, "svhn/I/synthetic/error_plus_cost/mild/aaaa", 0, 0.5)
    acting, other = latex_tables(summarise(read_cells(tmp_path)), {}).split(r"\end{table}")[:2]
    assert r"\begin{tabular}{llllllrrr}" in acting
    assert r"Deferral loss & Paper & Guarded & \multicolumn{3}" in acting
    assert r"\cmidrule{7-9}" in acting
    assert "    & & & & & & 1 & 2 & 3 " in acting
    for method, loss in (("mild", "0.3000"), ("plugin", "0.2000")):
        assert re.search(rf"{method} & .* & {loss} \$\\pm\$ 0\.0000 & 50\.00 & 30\.00 & 20\.00 ", acting)
    assert re.search(r"mild & \(II\) & svhn & .* & -- & 50\.00 & 30\.00 & 20\.00 ", acting)
    assert "Guarded" not in other
    assert r"\begin{tabular}{lllllrrr}" in other


def write_guarded(runs: Path) -> None:
    """mild has .1, guarded .3; plugin and ce, which the guard leaves as they are, .2 and .25."""
    fallback = dataclasses.replace(example_metrics(0.3, p=3).guarded, constant="expert 1")
    for seed in range(2):
        write_run(runs, "svhn/I/synthetic/error/mild/aaaa", seed, 0.1, guarded=fallback)
        write_run(runs, "svhn/I/synthetic/error/plugin/aaaa", seed, 0.2)
        write_run(runs, "svhn/I/synthetic/error/ce/aaaa", seed, 0.25)


def test_the_summary_says_if_the_guard_changes_the_order(tmp_path: Path) -> None:
    write_guarded(tmp_path)
    [found] = findings_of(read_cells(tmp_path))
    assert found.best == "mild"
    assert [found.mean, found.guarded] == pytest.approx([0.1, 0.3])
    assert "best mild 0.1000 (guarded 0.3000); with the guard, plugin is the best: 0.2000; best single" in sentence(
        found
    )
    _, _, head, _, row, *_ = markdown_findings([found], TITLES).splitlines()
    assert "| deferral loss | with the guard | best single expert |" in head
    assert "| 0.1000 | 0.3000 (plugin is the best: 0.2000) | 0.4000 |" in row
    behind = dataclasses.replace(found, guarded_order=(("mild", 0.1), ("ce", 0.2), ("plugin", 0.3)))
    assert behind.guard_words == "the order is mild 0.1000, ce 0.2000, plugin 0.3000"


def test_methods_that_the_guard_makes_equal_keep_their_order(tmp_path: Path) -> None:
    fallback = dataclasses.replace(example_metrics(0.3, p=3).guarded, constant="expert 1")
    for method, loss in (("mild", 0.5), ("ce", 0.4), ("tdef", 0.6)):
        write_run(tmp_path, f"svhn/I/synthetic/error/{method}/aaaa", 0, loss, guarded=fallback)
    [found] = findings_of(read_cells(tmp_path))
    assert (found.best, found.guarded_order) == ("ce", ())
    assert sentence(found).startswith("svhn I synthetic error: best ce 0.4000 (guarded 0.3000); best single expert")


def test_without_tdef_methods_are_compared_with_the_best(tmp_path: Path) -> None:
    """Of those that differ in the method alone: not with the noisy ce, which has the least loss of all."""
    losses = {"ce/aaaa": (0.2, 0.3), "mild/aaaa": (0.1, 0.1), "plugin/aaaa": (0.3, 0.5)}
    for cell, values in losses.items():
        for seed, loss in enumerate(values):
            write_run(tmp_path, f"svhn/I/synthetic/error/{cell}", seed, loss)
    write_run(tmp_path, "svhn/I/synthetic/error/ce/bbbb", 0, 0.01, {"cost": {"noise": 0.2}})
    entries = summarise(read_cells(tmp_path))
    plugin, mild = entry(entries, "plugin"), entry(entries, "mild")
    assert (plugin["reference"], plugin["against_reference"][0]) == ("mild", pytest.approx(0.3))
    assert "against_reference" not in mild
    assert "| less mild, paired, 95 % |" in markdown_tables(entries, {})


def test_rows_with_other_references_name_them(runs: Path) -> None:
    """One setup has tdef, the other has not."""
    for seed in range(2):
        write_run(runs, "svhn/II/synthetic/error/mild/aaaa", seed, 0.1)
        write_run(runs, "svhn/II/synthetic/error/ce/aaaa", seed, 0.2)
    text = markdown_tables(summarise(read_cells(runs)), {})
    assert "| less the method in brackets, paired, 95 % |" in text
    assert "| +0.1000 [+0.1000, +0.1000] (mild) |" in text
    assert "| -0.0250 [-0.0885, +0.0385] (tdef) |" in text


@pytest.mark.parametrize(("mean", "said"), [(0.399, "0%"), (0.401, "0%"), (0.4, "0%"), (0.36, "-10%"), (0.44, "+10%")])
def test_no_change_has_no_sign(mean: float, said: str, runs: Path) -> None:
    [found] = findings_of(read_cells(runs))
    assert f"0.4000 ({said})" in sentence(dataclasses.replace(found, mean=mean))


def test_unfinished_and_damaged_runs_are_left_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "svhn/I/synthetic/error/mild/bbbb/seed=5").mkdir()
    bad = runs / "svhn/I/synthetic/error/mild/bbbb/seed=6"
    bad.mkdir()
    (bad / "metrics.json").write_text('{"deferral_loss": ')
    nan = runs / "svhn/I/synthetic/error/mild/bbbb/seed=7"
    nan.mkdir()
    (nan / "metrics.json").write_text('{"deferral_loss": NaN}')
    odd = runs / "svhn/I/synthetic/error/mild/bbbb/seed=8"
    (odd / "metrics.json").mkdir(parents=True)
    (runs / ".sweeps" / "x").mkdir(parents=True)
    assert {cell.method: sorted(cell.runs) for cell in read_cells(runs)} == {"tdef": [0, 1, 2], "mild": [0, 1]}
    warnings = capsys.readouterr().err.splitlines()
    for line, folder in zip(warnings, (bad, nan, odd), strict=True):
        assert re.fullmatch(rf"warning: .*{folder}/metrics\.json.*; left out", line)


def test_cells_whose_config_cannot_be_read_are_left_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs / "svhn/I/synthetic/error/mild/bbbb"
    file, warning = folder / "seed=0" / "config.yaml", f"warning: {folder}: config.yaml cannot be read"
    for content, said in (
        (b"[", f"{warning} (ParserError)"),
        (b"- a", ""),
        (b"\xff", f"{warning} (UnicodeDecodeError)"),
    ):
        file.write_bytes(content)
        assert [cell.method for cell in read_cells(runs)] == ["tdef"]
        assert capsys.readouterr().err.startswith(said)
    file.unlink()
    assert [cell.method for cell in read_cells(runs)] == ["tdef"]
    assert capsys.readouterr().err == f"{warning} (FileNotFoundError); left out\n"


def test_hidden_folders_are_skipped_and_brackets_are_no_pattern(tmp_path: Path) -> None:
    write_small_table(tmp_path / "a[1]")
    write_run(tmp_path / "a[1]", ".old/I/synthetic/error/mild/bbbb", 0, 0.9)
    assert [cell.names[0] for cell in read_cells(tmp_path / "a[1]")] == ["svhn", "svhn"]


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        (".", {"tdef": [0, 1, 2], "mild": [0, 1]}),
        ("svhn", {"tdef": [0, 1, 2], "mild": [0, 1]}),
        ("svhn/I/synthetic/error/mild", {"mild": [0, 1]}),
        ("svhn/I/synthetic/error/mild/bbbb", {"mild": [0, 1]}),
        ("svhn/I/synthetic/error/mild/bbbb/seed=1", {"mild": [1]}),
    ],
)
def test_any_folder_of_runs(
    folder: str, found: dict[str, list[int]], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same runs, under the same names, from the root and from the folder they are in."""
    cells = read_cells(runs / folder)
    assert {cell.method: sorted(cell.runs) for cell in cells} == found
    assert {cell.block for cell in cells} == {("svhn", "I", "synthetic", "error")}
    monkeypatch.chdir(runs)
    here = read_cells(Path(folder))
    assert [(cell.names, sorted(cell.runs)) for cell in here] == [(cell.names, sorted(cell.runs)) for cell in cells]
    assert all(cell.config["method"]["name"] == cell.method for cell in here)


def test_a_folder_given_by_a_relative_path(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs / "svhn")
    assert [cell.names for cell in read_cells(Path("I"))] == [cell.names for cell in read_cells(runs)]


def test_a_runs_folder_is_no_setting(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs / "svhn/I/synthetic/error/mild/bbbb")
    assert folder_among(["seed=1", "seed=7"]) == (Path("seed=1"), ["seed=7"])


def test_a_key_of_hydra_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert folder_among(["hydra/launcher=joblib"]) == (Path("runs"), ["hydra/launcher=joblib"])
    with pytest.raises(L2DError, match=r"^b: one folder at a time; a was given before$"):
        folder_among(["a", "b"])


def test_folders_that_are_too_deep_are_other_peoples(runs: Path) -> None:
    """runs/bench/<commit>/ has runs of its own."""
    write_run(runs, "bench/1234567/svhn/I/synthetic/error/mild/bbbb", 0, 0.9)
    assert len(read_cells(runs)) == 2


def test_the_folder_above_runs(tmp_path: Path) -> None:
    write_small_table(tmp_path / "runs")
    assert [cell.names for cell in read_cells(tmp_path)] == [cell.names for cell in read_cells(tmp_path / "runs")]
    write_run(tmp_path / "old", "svhn/I/synthetic/error/mild/bbbb", 7, 0.9)
    with pytest.raises(L2DError, match=rf"^{tmp_path}: .*: {tmp_path}/old, {tmp_path}/runs$"):
        read_cells(tmp_path)


def test_markdown_and_latex(runs: Path) -> None:
    entries = summarise(read_cells(runs))
    text = markdown_tables(entries, TITLES)
    assert "### Simulated experts, error\n" in text
    assert "| SVHN | I | mild | 2 (few) | **0.0300 ± 0.0141** | 0.0254 ± 0.0016 | +2.9 |" in text
    assert "| SVHN | I | tdef | 3 | 0.0600 ± 0.0100 | 0.0468 ± 0.0015 | +8.8 |  | -0.3400 [-0.3648, -0.3152] |" in text
    tex = latex_tables(entries, TITLES)
    assert (
        r"mild & (I) & SVHN & \textbf{0.0300 $\pm$ 0.0141}$^\dagger$ & 0.0254 $\pm$ 0.0016 & 50.00 & 30.00 & 20.00 \\"
        in tex
    )
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 1
    for line in tex.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert line.count("&") - line.count(r"\&") == 7, line
    assert "a_b%{c}\\".translate(TEX) == r"a\_b\%\{c\}\textbackslash{}"
    assert "&#$^~".translate(TEX) == r"\&\#\$\^{}\~{}"
    odd = entry(entries, "mild") | {"label": "m_1", "setup": "s_1", "dataset": "d_1", "experts": "e_1"}
    assert r"\caption{e\_1, error.}" in latex_tables([odd], {})
    assert r"m\_1 & (s\_1) & d\_1 &" in latex_tables([odd], {})


def test_every_column_stands_under_its_name(runs: Path) -> None:
    cells = read_cells(runs)
    _, _, head, _, mild, _, *baselines = markdown_tables(summarise(cells), TITLES).splitlines()
    names = ["dataset", "setup", "method", "seeds", "deferral loss", "paper", "off by, std", "less tdef, paired, 95 %"]
    names += ["less best single, paired, 95 %", "of the oracle's gap", "to each expert, %"]
    assert head == f"| {' | '.join(names)} |"
    intervals = "-0.0250 [-0.0885, +0.0385] | -0.3700 [-0.4971, -0.2429] | 92%"
    told = f"0.0254 ± 0.0016 | +2.9 | {intervals} | 50.0 / 30.0 / 20.0"
    assert mild == f"| SVHN | I | mild | 2 (few) | **0.0300 ± 0.0141** | {told} |"
    without = ("nearest_neighbours", "category_table")  # images have neither
    titles = [f"*{title}*" for name, title in BASELINES.items() if name not in without]
    assert [row.split(" | ")[2] for row in baselines] == titles
    [found] = findings_of(cells)
    _, _, head, _, row, *_ = markdown_findings([dataclasses.replace(found, pays=False)], TITLES).splitlines()
    assert head == (
        "| dataset | setup | experts | cost | best method | deferral loss | best single expert | change | beats | level with |"
    )
    assert row == (
        "| SVHN | I | Simulated experts | error | **mild** | 0.0300 | 0.4000 | -92% (not significant) |  | tdef (too few seeds) |"
    )


def test_the_head_of_a_latex_table_fits_its_rows(runs: Path) -> None:
    """As wide as the most experts of a dataset."""
    entries = summarise(read_cells(runs))
    two = {**entry(entries, "mild"), "dataset": "other", "ratios": [0.25, 0.75]}
    lines = latex_tables([*entries, two], TITLES).splitlines()
    assert lines[3:10] == [
        r"  \caption{Simulated experts, error.}",
        r"  \centering",
        r"  \begin{tabular}{lllllrrr}",
        r"    \toprule",
        r"    Method & Setup & Dataset & Deferral loss & Paper & \multicolumn{3}{c}{Ratio of expert deferral (\%)} \\",
        r"    \cmidrule{6-8}",
        r"    & & & & & 1 & 2 & 3 \\",
    ]
    assert lines[11].endswith(r"& 25.00 & 75.00 & -- \\")


def test_a_baseline_is_never_bold_and_few_seeds_are_explained(runs: Path) -> None:
    write_run(runs, "cifar10/II/synthetic/error/mild/aaaa", 0, 0.4)  # as good as the best single expert
    write_run(runs, "svhn/II/synthetic/error/mild/aaaa", 0, 0.4)
    entries = summarise(read_cells(runs))
    assert markdown_tables(entries, {}).count("**0.4000**") == 2
    tex = latex_tables(entries, {})
    assert re.findall(r"\((\w+)\) & (\w+)", tex) == [("I", "svhn"), ("II", "cifar10"), ("II", "svhn")]
    assert tex.count("fewer seeds than wanted") == 1


def test_the_best_of_each_cell_is_bold(runs: Path) -> None:
    """Also where another dataset has lower losses."""
    for method, loss in (("mild", 0.8), ("tdef", 0.7)):
        write_run(runs, f"cifar10/I/synthetic/error/{method}/aaaa", 0, loss)
    entries = summarise(read_cells(runs))
    assert re.findall(r"(\w+) & \(I\) & (\w+) & \\textbf", latex_tables(entries, {})) == [("mild", "svhn")]
    assert re.findall(r"(\w+) & .*\\textbf", latex_tables(entries, {})) == ["tdef", "mild"]


def test_fewer_seeds_than_were_asked_for_are_few(runs: Path) -> None:
    cells = [dataclasses.replace(cell, wanted=tuple(range(4))) for cell in read_cells(runs)]
    assert entry(summarise(cells), "tdef")["few"]
    missing = FinishedCell(("svhn", "I", "synthetic", "error", "ce", "cccc"), runs, wanted=(0,))
    row = next(
        line for line in latex_tables(summarise([*cells, missing]), {}).splitlines() if line.startswith("    ce")
    )
    assert row.endswith(r"missing$^\dagger$ & -- & -- & -- & -- \\")
    assert r"{lllllr}" in latex_tables(summarise([missing]), {})  # a table in which nothing is finished


def test_the_hull_is_that_of_the_first_cell_with_the_most_seeds() -> None:
    def told(seeds: int, price: float) -> dict[str, Any]:
        alone = [{"price": price, "error_rate": 0.5}]
        return {**dict.fromkeys(("dataset", "setup", "experts", "cost"), "a"), "seeds": seeds, "experts_alone": alone}

    assert hulls_by_block([told(1, 1.0), told(2, 2.0), told(2, 3.0), told(1, 4.0)]) == {"a/a/a/a": [(2.0, 0.5)]}
    missing = {key: value for key, value in told(0, 1.0).items() if key != "experts_alone"}
    assert hulls_by_block([missing]) == {}


def write_findings(runs: Path) -> None:
    """Of five methods: tied (level) within a hair of best, significantly worse, once with one seed only."""
    losses = {"best": [0.1, 0.1, 0.1], "tied": [0.09, 0.11, 0.13], "worse": [0.2, 0.21, 0.2], "once": [0.9]}
    for method, values in losses.items():
        for seed, loss in enumerate(values):
            write_run(runs, f"svhn/I/synthetic/error/{method}/aaaa", seed, loss)


def test_findings(tmp_path: Path) -> None:
    write_findings(tmp_path)
    write_run(tmp_path, "svhn/II/synthetic/error/mild/aaaa", 0, 0.5)
    first, second = findings_of(read_cells(tmp_path))
    assert (first.dataset, first.setup, first.experts, first.cost) == ("svhn", "I", "synthetic", "error")
    assert (first.best, first.seeds, second.best) == ("best", 3, "mild")
    assert (first.beaten, first.level, first.untold) == (("worse",), ("tied",), ("once",))
    assert [first.mean, first.single, first.gain, second.gain] == pytest.approx([0.1, 0.4, 0.75, -0.25])
    assert (first.pays, second.pays) == (True, None)
    assert dataclasses.replace(first, single=0.0).gain == 0
    assert sentence(first) == (
        "svhn I synthetic error: best best 0.1000; best single expert 0.4000 (-75%); beats worse; level with tied;"
        " too few seeds to compare with once"
    )
    text = markdown_findings([first, second], TITLES)
    assert (
        "| SVHN | I | Simulated experts | error | **best** | 0.1000 | 0.4000 | -75% | worse | tied, once (too few seeds) |"
        in text
    )
    assert "| **mild** | 0.5000 | 0.4000 | +25% (too few seeds) |  |  |" in text


def test_of_many_methods_the_best_five_are_named(tmp_path: Path) -> None:
    """As after a search: m20 is the best, m00 the worst; of the others the odd ones are level with m20, the even ones beaten."""
    for place in range(21):
        noise = (-0.5, 0, 0.5) if place % 2 else (0, 0, 0)
        for seed, part in enumerate(noise):
            write_run(tmp_path, f"svhn/I/synthetic/error/m{place:02}/aaaa", seed, 0.9 - place / 50 + part)
    [found] = findings_of(read_cells(tmp_path))
    assert found.best == "m20"
    beaten, level = "m18, m16, m14, m12, m10 and 5 more", "m19, m17, m15, m13, m11 and 5 more"
    assert sentence(found).endswith(f"; beats {beaten}; level with {level}")
    few = dataclasses.replace(found, level=found.level[:4], untold=found.level[4:])
    partly = "m19, m17, m15, m13, m11 (too few seeds) and 5 more"
    assert f"| {beaten} | {partly} |" in markdown_findings([few], {})
    [shown] = page_data(html_page([], [few], [], "", {}))["findings"]
    assert (shown["beats"], shown["level_with"]) == (beaten, partly)
    assert len(shown["level"]) == 4  # the page counts in how many cases a method is level
    order = tuple((f"m{k:02}", k / 10) for k in range(20, 13, -1))
    assert dataclasses.replace(found, guarded_order=order).guard_words.endswith("m16 1.6000 and 2 more")


@pytest.mark.parametrize(
    ("ours", "below"), [([1, 1.1, 0.9], True), ([3, 3.1, 2.9], False), ([1, 3, 2], False), ([1], None), ([1, 1], None)]
)
def test_significance(ours: list[float], below: bool | None) -> None:
    """Against 2.2 in each seed: well below, above, on both sides, once only, and twice."""
    assert is_below(dict(enumerate(ours)), dict.fromkeys(range(3), 2.2)) is below


def test_names_without_a_title_stay_what_they_are(runs: Path) -> None:
    entries = summarise(read_cells(runs))
    assert "### synthetic, error\n" in markdown_tables(entries, {})
    assert "| svhn | I | mild |" in markdown_tables(entries, {})
    assert "(I) & svhn &" in latex_tables(entries, {})


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
    assert data["runs"] == 5
    assert data["names"] == TITLES
    assert data["entries"][0]["curve"] == [[1, 0.5], [2, 0.3]]
    assert data["title"] == "</script><b>"
    assert data["findings"][0]["change"] == "-92%"
    told = entry(data["entries"], "mild")["against_reference"]
    assert told == pytest.approx([-0.025, -0.08853102, 0.03853102], abs=1e-7)


def test_a_learning_curve_is_the_mean_of_the_seeds_that_have_the_epoch(tmp_path: Path) -> None:
    """The second seed stopped after one epoch, and one epoch of the first was not validated."""
    lines = {0: "1,0.5\n2,\n3,0.25\n", 1: "1,0.75\n", 2: None}
    for seed, text in lines.items():
        (tmp_path / f"seed={seed}").mkdir()
        if text is not None:
            (tmp_path / f"seed={seed}" / "history.csv").write_text(f"epoch,val/deferral_loss\n{text}")
    cell = FinishedCell(("a",), tmp_path, runs=dict.fromkeys(lines))  # type: ignore[arg-type]
    assert cell.learning_curve() == [(1, 0.625), (3, 0.25)]


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
    write_run(runs, "svhn/I/synthetic/error/mild/bbbb", 2, 0.03)
    cells = read_cells(runs)
    file = tmp_path / "index.html"
    file.write_text(html_page(summarise(cells), findings_of(cells), cells, "runs", TITLES), encoding="utf-8")
    shown = in_browser(file, "", tmp_path)
    assert shown.count("<figcaption>") - PAGE.read_text().count("<figcaption>") == 6
    assert "SVHN · setup I · synthetic · error · mild" in html.unescape(shown)
    assert "significantly in 1 of 1 case." in shown
    assert shown.index("<h2>Summary</h2>") < shown.index("<h2>All results</h2>")
    column = "[...document.querySelectorAll('th button')].find((b) => b.textContent.startsWith('deferral loss'))"
    order = "document.title = [...document.querySelectorAll('#table tbody tr')].map((r) => r.cells[4].textContent).join('|')"
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


def test_spread_over_seeds_is_what_statistics_says(runs: Path) -> None:
    assert entry(summarise(read_cells(runs)), "tdef")["std"] == pytest.approx(statistics.stdev([0.05, 0.06, 0.07]))
