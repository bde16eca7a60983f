"""The numbers of a report: means, references, baselines and findings, by hand."""

import dataclasses
import itertools
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics_example import example_metrics, example_score
from tests.run_folders import baselines_of, write_run, write_small_table

from l2d.analysis.report.averages import lower_hull, paired_interval
from l2d.analysis.report.compare import findings_of, is_below, sentence, summarise
from l2d.analysis.report.paper import paper_results
from l2d.analysis.report.read import read_cells
from l2d.analysis.report.tables import markdown_findings, markdown_tables
from l2d.core.results import ExpertAlone


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
    assert mild["paper"] == {"mean": 0.0254, "std": 0.0016}
    assert mild["off_by_std"] == pytest.approx((0.03 - 0.0254) / 0.0016)
    # differences -.03 and -.02: t(.975, 1) = 12.706, s = .0070711
    assert mild["against_reference"] == pytest.approx((-0.025, -0.0885, 0.0385), abs=1e-4)
    assert "against_reference" not in tdef
    assert mild["reference"] == "tdef"
    # less the best single expert's .4: differences -.38 and -.36, -.35, -.34 and -.33
    assert mild["against_single"] == pytest.approx((-0.37, -0.4971, -0.2429), abs=1e-4)
    assert tdef["against_single"] == pytest.approx((-0.34, -0.3648, -0.3152), abs=1e-4)
    assert [mild["of_gap"], tdef["of_gap"]] == pytest.approx([0.37 / 0.4, 0.34 / 0.4])  # the oracle's is 0
    assert entry(entries, "oracle")["mean"] == 0
    assert entry(entries, "best single expert")["mean"] == pytest.approx(0.4)
    baselines = {"oracle", "best single expert", "random expert", "majority expert"}
    assert {one["label"] for one in entries if one["kind"] == "baseline"} == baselines
    write_run(runs, "svhn/I/synthetic/error/mild/eeee", 0, 0.01, {}, evaluation="cross_validate")
    costs = [one["cost"] for one in summarise(read_cells(runs)) if one["label"] == "oracle"]
    assert costs == ["error (evaluation=holdout)", "error (evaluation=cross_validate)"]


def test_pairs_need_common_seeds() -> None:
    assert paired_interval({0: 1.0, 1: 2.0}, {1: 1.0, 2: 5.0}) is None
    assert paired_interval({0: 1.0, 1: 2.0, 7: 9.0}, {0: 0.5, 1: 1.5}) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("n", [2, 10])
def test_intervals_are_those_of_scipy_stats(n: int) -> None:
    from scipy import stats

    ours, theirs = ({seed: ((seed * factor) % 7) / 10 for seed in range(n)} for factor in (3, 5))
    found = stats.ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval()
    mean = statistics.fmean([ours[s] - theirs[s] for s in ours])
    assert paired_interval(ours, theirs) == pytest.approx((mean, *found))


def test_the_papers_file_is_the_papers() -> None:
    known = paper_results()
    assert known["cifar10", "III", "synthetic", "error", "mild"].mean == 0.0903
    assert known["svhn", "III", "synthetic", "error", "tdef"].mean == 0.0684
    assert len([key for key in known if key[2:4] == ("synthetic", "error_plus_cost")]) == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ({"I/mild/a": {"method": {"name": "mild", "rho": 5.2}}, "I/mild/b": {"method": {"name": "mild", "rho": 1}}},
         ["mild (rho=5.2)", "mild (rho=1)"]),
        ({"I/mild/a": {}, "II/mild/b": {"method": {"name": "mild", "rho": 5.2}}}, ["mild", "mild"]),
        ({"I/mild/a": {}, "I/mild/b": {"missing": "ips"}}, ["mild (default)", "mild (missing=ips)"]),
        ({"I/ce/a": {}, "I/ce/b": {}}, ["ce (a)", "ce (b)"]),
    ],
    ids=["different ρ", "different blocks", "the default beside another", "the same settings"],
)  # fmt: skip
def test_labels_differ_within_a_block(cells: dict[str, Any], labels: list[str], tmp_path: Path) -> None:
    for name, config in cells.items():
        setup, method, variant = name.split("/")
        write_run(tmp_path, f"svhn/{setup}/synthetic/error/{method}/{variant}", 0, 0.1, config)
    assert [one["label"] for one in summarise(read_cells(tmp_path)) if one["kind"] == "router"] == labels


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("costs", "named"),
    [
        ([{"prices": [0.1, 0, 0]}], [""]),
        ([{"prices": [0.1, 0, 0]}, {"prices": [0.3, 0, 0]}], [" (prices=[0.1, 0, 0])", " (prices=[0.3, 0, 0])"]),
        ([{"prices": {"small": price, "large": 1}} for price in (0.1, 0.3)],
         [" (prices.large=1 prices.small=0.1)", " (prices.large=1 prices.small=0.3)"]),
        ([{"prices": "coverage", "scale": scale} for scale in (0.5, 1.0)],
         [" (prices=coverage scale=0.5)", " (prices=coverage)"]),
        ([{"scale": 1.0, "latency_price": 0.1}], [" (latency_price=0.1)"]),  # always: it is no money
    ],
    ids=str,
)  # fmt: skip
def test_other_prices_are_another_block(costs: list[dict[str, Any]], named: list[str], tmp_path: Path) -> None:
    """Their oracle and best single expert are others. The only prices of their name need not be named."""
    for place, cost in enumerate(costs):
        write_run(tmp_path, f"svhn/I/synthetic/error_plus_cost/mild/aaa{place}", 0, 0.1, {"cost": cost})
    entries = summarise(read_cells(tmp_path))
    assert [one["cost"] for one in entries if one["label"] == "oracle"] == [f"error_plus_cost{text}" for text in named]
    if "scale" in named[0]:  # the paper's prices are those of scale 1
        assert [one["paper"] is None for one in entries if one["kind"] == "router"] == [True, False]


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


def test_the_numbers_of_an_entry_are_means_over_its_seeds(tmp_path: Path) -> None:
    """The second seed collapsed. A probability of 1 belongs into the last bin."""
    cell, oracle = "svhn/I/synthetic/error_plus_cost/mild/aaaa", example_score(0.0, [0.2, 0.3, 0.5])
    first = {"confusion": [[4, 0, 0], [0, 2, 0], [0, 0, 1]], "calibration": [[0.5, 0.95, 0.9], [0.5, 0.15, 0.1]]}
    second = {"confusion": [[2, 2, 0], [0, 4, 0], [1, 0, 1]], "calibration": [[1.0, 1.0, 0.7]], "collapsed_expert": 1}
    write_run(tmp_path, cell, 0, 0.3, error_rate=0.1, mean_price=0.2, **first)
    baselines = dataclasses.replace(baselines_of(0.4), oracle=oracle)
    alike = [ExpertAlone("expert", error_rate=0.6, price=0.5, standard_error=0.1)] * 3
    write_run(tmp_path, cell, 1, 0.9, error_rate=0.3, mean_price=0.6, **second, baselines=baselines, experts=alike)
    entries = summarise(read_cells(tmp_path))
    mild = entry(entries, "mild")
    assert (mild["error_rate"], mild["mean_price"]) == pytest.approx((0.2, 0.4))
    assert mild["confusion"] == [[3, 1, 0], [0, 3, 0], [0.5, 0, 1]]
    assert mild["oracle_ratios"] == pytest.approx([0.4, 0.3, 0.3])
    low, high = mild["calibration"]
    assert (low, high) == (pytest.approx([0.25, 0.15, 0.1]), pytest.approx([0.75, 1.475 / 1.5, 1.15 / 1.5]))
    assert [tuple(one.values()) for one in mild["experts_alone"]] == [
        pytest.approx((error, 0.25)) for error in (0.5, 0.65, 0.7)
    ]
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
    guarded = {"mean": pytest.approx(0.35), "std": pytest.approx(0.3 / 2**0.5), "constant": 1}
    assert entry(entries, "mild")["guarded"] == guarded
    assert "| 0.3500 ± 0.2121 (in 1 of 2 seeds " in markdown_tables(entries, {})


def write_guarded(runs: Path) -> None:
    fallback = dataclasses.replace(example_metrics(0.3, p=3).guarded, constant="expert 1")
    for seed in range(2):
        write_run(runs, "svhn/I/synthetic/error/mild/aaaa", seed, 0.1, guarded=fallback)
        write_run(runs, "svhn/I/synthetic/error/plugin/aaaa", seed, 0.2)
        write_run(runs, "svhn/I/synthetic/error/ce/aaaa", seed, 0.25)


def test_the_guard_may_change_the_order(tmp_path: Path) -> None:
    """mild has .1, guarded .3; plugin and ce, which the guard leaves as they are, .2 and .25. Every method has a guarded loss if
    one has; where the guard changes nothing it is the loss itself."""
    write_guarded(tmp_path)
    entries = summarise(read_cells(tmp_path))
    for method, loss, constant in (("plugin", 0.2, 0), ("mild", 0.3, 2)):
        assert entry(entries, method)["guarded"] == {"mean": pytest.approx(loss), "std": 0, "constant": constant}
    [found] = findings_of(read_cells(tmp_path))
    assert found.best == "mild"
    assert [found.mean, found.guarded] == pytest.approx([0.1, 0.3])
    for text in (sentence(found), markdown_findings([found], {})):
        assert "0.3000" in text


def test_without_tdef_methods_are_compared_with_the_best(tmp_path: Path) -> None:
    """The best of those that differ in the method alone: not with the noisy ce, which has the least loss of all."""
    losses = {"ce/aaaa": (0.2, 0.3), "mild/aaaa": (0.1, 0.1), "plugin/aaaa": (0.3, 0.5)}
    for cell, values in losses.items():
        for seed, loss in enumerate(values):
            write_run(tmp_path, f"svhn/I/synthetic/error/{cell}", seed, loss)
    write_run(tmp_path, "svhn/I/synthetic/error/ce/bbbb", 0, 0.01, {"cost": {"noise": 0.2}})
    entries = summarise(read_cells(tmp_path))
    plugin, mild = entry(entries, "plugin"), entry(entries, "mild")
    assert (plugin["reference"], plugin["against_reference"][0]) == ("mild", pytest.approx(0.3))
    assert "against_reference" not in mild


@pytest.mark.parametrize(
    ("mean", "said"), [(0.399, "+0%"), (0.401, "+0%"), (0.4, "+0%"), (0.36, "-10%"), (0.44, "+10%")]
)
def test_no_change_is_not_below_zero(mean: float, said: str, runs: Path) -> None:
    [found] = findings_of(read_cells(runs))
    assert dataclasses.replace(found, mean=mean).texts["change"].split()[0] == said


def test_findings(tmp_path: Path) -> None:
    """tied (level) within a hair of best, significantly worse, once with one seed only."""
    losses = {"best": [0.1, 0.1, 0.1], "tied": [0.09, 0.11, 0.13], "worse": [0.2, 0.21, 0.2], "once": [0.9]}
    for method, values in losses.items():
        for seed, loss in enumerate(values):
            write_run(tmp_path, f"svhn/I/synthetic/error/{method}/aaaa", seed, loss)
    write_run(tmp_path, "svhn/II/synthetic/error/mild/aaaa", 0, 0.5)
    first, second = findings_of(read_cells(tmp_path))
    assert (first.dataset, first.setup, first.experts, first.cost) == ("svhn", "I", "synthetic", "error")
    assert (first.best, first.seeds, second.best) == ("best", 3, "mild")
    assert (first.beaten, first.level, first.untold) == (("worse",), ("tied",), ("once",))
    assert [first.mean, first.single] == pytest.approx([0.1, 0.4])
    assert [one.texts["change"].split()[0] for one in (first, second)] == ["-75%", "+25%"]
    assert (first.pays, second.pays) == (True, None)
    assert dataclasses.replace(first, single=0.0).texts["change"].split()[0] == "0%"
    for words in ("svhn I synthetic error", "0.1000", "0.4000; change -75%", "beats worse", "not beaten tied", "once"):
        assert words in sentence(first)


def test_of_many_methods_the_best_five_are_named(tmp_path: Path) -> None:
    """As after a search: m20 is the best, m00 the worst; of the others the odd ones are level with m20, the even ones beaten."""
    for place in range(21):
        noise = (-0.5, 0, 0.5) if place % 2 else (0, 0, 0)
        for seed, part in enumerate(noise):
            write_run(tmp_path, f"svhn/I/synthetic/error/m{place:02}/aaaa", seed, 0.9 - place / 50 + part)
    [found] = findings_of(read_cells(tmp_path))
    assert found.best == "m20"
    beaten, level = "m18, m16, m14, m12, m10 and 5 more", "m19, m17, m15, m13, m11 and 5 more"
    assert sentence(found).endswith(f"; beats {beaten}; not beaten {level}")
    few = dataclasses.replace(found, level=found.level[:4], untold=found.level[4:])
    shown = few.texts
    assert (shown["beats"], shown["not_beaten"]) == (beaten, "m19, m17, m15, m13, m11 (too few seeds) and 5 more")


@pytest.mark.parametrize(
    ("ours", "below"), [([1, 1.1, 0.9], True), ([3, 3.1, 2.9], False), ([1, 3, 2], False), ([1], None), ([1, 1], None)]
)
def test_significance(ours: list[float], below: bool | None) -> None:
    """Against 2.2 in each seed: well below, above, on both sides, once only, and twice."""
    assert is_below(dict(enumerate(ours)), dict.fromkeys(range(3), 2.2)) is below


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
