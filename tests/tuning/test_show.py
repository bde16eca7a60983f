"""The tables of a search."""

from tests.metrics_example import example_metrics

from l2d.tuning.show import Trial, ablation_table

LOSSES = {"tuned": {0: 0.1, 1: 0.2}, "tdef": {0: 0.3, 1: 0.3}}
RUNS = {
    name: {
        seed: example_metrics(loss, ratios=[0.5, 0.5], method_buffers={"rho": [1.0, 1.0]})
        for seed, loss in some.items()
    }
    for name, some in LOSSES.items()
}


def rows(text: str) -> dict[str, list[str]]:
    _, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {name: cells for name, *cells in lines}


def test_the_table_by_hand() -> None:
    """The differences from tdef are −0.2 and −0.1: −0.15 ± 12.706·0.05 by t of one degree of freedom."""
    found = rows(ablation_table(RUNS, "tdef"))
    shown = ["1 1", "50.0 / 50.0"]
    assert found["tuned"] == ["2", "0.1500 ± 0.0707", "-0.1500 [-0.7853, +0.4853]", *shown]
    assert found["tdef"] == ["2", "0.3000 ± 0.0000", "", *shown]
    other = {"tuned": {**RUNS["tuned"], 1: example_metrics(0.2, ratios=[1.0, 0.0])}}
    assert rows(ablation_table(other, None))["tuned"][-1] == "75.0 / 25.0"


def test_names_of_trials() -> None:
    names = [Trial(settings, 0.1, 1).name for settings in ({}, {"method.tau": 0.5, "seed": 1})]
    assert names == ["as it is", "method.tau=0.5 seed=1"]
