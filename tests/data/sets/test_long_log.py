"""Logs with a row per answer, worked out by hand."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.sets.test_table import Captured, Cells, panel_of, table, whole, write
from tests.data.sets.test_table import load as load_table

from l2d.data.arrays import Arrays
from l2d.data.sets.long_log import is_long
from l2d.data.sheet import write_sheet
from l2d.utils.errors import L2DError, ParameterError

NAN = float("nan")
LOG: Cells = {
    "id": ["q1", "q2", "q1", "q3", "q4"],
    "x": [1.0, 2.0, 1.0, 3.0, 4.0],
    "expert": ["big", "big", "small", "small", "big"],
    "correct": [1, 0, 0, 1, 1],
    "price": [0.02, 0.03, 0.001, 0.002, 0.02],
    "latency": [1.5, 2.5, 0.5, 0.25, 1.0],
    "propensity": [0.5, 0.25, 0.5, 0.75, 1.0],
    "tokens": [11, 12, 13, 14, 15],
    "time": [1.0, 2.0, 1.0, 3.0, 4.0],
    "split": ["train", "train", "train", "train", "test"],
}


QUERIES: Cells = {key: LOG[key] for key in ("id", "x", "expert", "split")}
AGAIN: Cells = {key: [*cells, cells[1]] for key, cells in LOG.items()}  # the second answer twice
ERRORS: list[list[float]] = [[0, 1], [1, NAN], [NAN, 0], [0, NAN]]
PRICES = [[0.02, 0.001], [0.03, NAN], [NAN, 0.002], [0.02, NAN]]
LATENCIES = [[1.5, 0.5], [2.5, NAN], [NAN, 0.25], [1.0, NAN]]
PROPENSITIES = [[0.5, 0.5], [0.25, NAN], [NAN, 0.75], [1.0, NAN]]


def load(path: Path, **changes: Any) -> Any:
    """With the split column of the log."""
    return load_table(path, **{"split": "split", **changes})


def but(*columns: str) -> Cells:
    return {key: cells for key, cells in LOG.items() if key not in columns}


def close(found: torch.Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.jsonl"])
def test_a_row_per_query(name: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / name
    if name.endswith("jsonl"):
        rows = [{key: cells[i] for key, cells in LOG.items()} for i in range(5)]
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    else:
        path = write(tmp_path, LOG, name)
    arrays = load(path)
    assert panel_of(arrays).names == ("big", "small")
    check_panel(arrays)
    assert torch.cat([arrays.train_inputs, arrays.test_inputs]).tolist() == [[1], [2], [3], [4]]  # not the tokens
    assert table(path).expert_names(Path()) == ["big", "small"]
    assert "5 answers, made into 4 rows" in capsys.readouterr().err


def check_panel(arrays: Arrays) -> None:
    """All that LOG says of the answers."""
    known = {"errors": ERRORS, "prices": PRICES, "latencies": LATENCIES, "propensities": PROPENSITIES}
    for part, expected in known.items():
        close(whole(arrays, part), expected)


def test_costs_are_losses_if_nothing_else_is(tmp_path: Path) -> None:
    """Beside correct, they are money."""
    costs: Cells = {**QUERIES, "cost": [0.5, 1.5, 0, 0, 1]}
    expected = [[0.5, 0], [1.5, NAN], [NAN, 0], [1, NAN]]
    alone = load(write(tmp_path, costs))
    close(whole(alone, "errors"), expected)
    assert panel_of(alone).train.prices is None
    beside = load(write(tmp_path, {**costs, "correct": LOG["correct"]}))
    close(whole(beside, "errors"), ERRORS)
    close(whole(beside, "prices"), expected)


@pytest.mark.parametrize(("name", "meant"), [("corect", "correct"), ("is_correct", "correct"), ("Price", "price")])
def test_a_misspelt_outcome_beside_costs(name: str, meant: str, tmp_path: Path) -> None:
    """Else the costs would be losses. A line that was written twice changes nothing."""
    cells = {**QUERIES, name: LOG["correct"], "cost": LOG["price"]}
    twice = {key: [*values, values[0]] for key, values in cells.items()}
    for given in (cells, {**twice, "cost": [*cells["cost"], 9.0]}):
        with pytest.raises(L2DError, match=rf"column {name}: did you mean {meant}\?"):
            load(write(tmp_path, given))


@pytest.mark.parametrize("name", ["propensty", "Latency", "USD"])
def test_a_misspelt_column_beside_an_outcome(name: str, tmp_path: Path) -> None:
    """Else the propensities would be an input of the router, and money and latencies would be lost."""
    meant = "propensity" if name[0] == "p" else name.lower()
    with pytest.raises(L2DError, match=rf"column {name}: did you mean {meant}"):
        load(write(tmp_path, {**QUERIES, "correct": LOG["correct"], name: LOG["propensity"]}))


@pytest.mark.parametrize("ids", [["12.1", "12.10", "0e12", "0e13"], ["1", "01", "1.0", "1e0"]])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_ids_are_compared_as_they_are_written(ids: list[str], name: str, tmp_path: Path) -> None:
    rows = [
        {"id": one, "x": k, "expert": expert, "correct": k % 2} for k, one in enumerate(ids) for expert in ("a", "b")
    ]
    lines = [",".join(map(str, row.values())) for row in rows]
    text = "\n".join(map(json.dumps, rows)) if name == "t.jsonl" else "\n".join(["id,x,expert,correct", *lines])
    (tmp_path / name).write_text(text)
    assert sorted(whole(load_table(tmp_path / name), "errors").tolist()) == [[0, 0], [0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize("ids", [["a", None, "b", "c"], [1, None, 2, 3]])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_an_id_that_is_missing(ids: list[Any], name: str, tmp_path: Path) -> None:
    """Else answers to different queries would be merged."""
    cells = {"id": ids, "x": [1, 2, 3, 4], "expert": ["a", "b", "a", "b"], "correct": [1, 0, 1, 1]}
    if name == "t.jsonl":
        lines = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    else:
        write_sheet(tmp_path / name, cells)
    with pytest.raises(L2DError, match="column id: empty in 1 of 4 rows"):
        load_table(tmp_path / name)


def test_one_long_cell_does_not_make_all_long(tmp_path: Path) -> None:
    """Columns of 20,000 cells as wide as the longest would take 8 GB."""
    cells = {"id": [*range(20_000)], "expert": ["a", "b"] * 10_000, "correct": [0, 1, 1, 0] * 5_000}
    cells |= {"x": [*range(20_000)], "note": ["y" * 100_000, *["n", "m"] * 9_999, "o"]}
    path, soft = write(tmp_path, cells), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30, soft[1]))
    try:
        assert load_table(path).panel is not None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, soft)


def test_columns_that_are_no_slips(tmp_path: Path) -> None:
    slight = ("score", "corrections", "corrected", "incorrect", "user_id", "lossy", "gloss", "loss1", "predictions")
    cells = {**QUERIES, "cost": LOG["price"], **dict.fromkeys(slight, LOG["correct"])}
    assert load(write(tmp_path, cells)).panel is not None


def test_without_an_id_every_row_is_a_query(tmp_path: Path) -> None:
    expected = [[0, NAN], [1, NAN], [NAN, 1], [NAN, 0], [0, NAN]]
    close(whole(load(write(tmp_path, but("id"))), "errors"), expected)


def test_what_differs_between_answers(tmp_path: Path, capsys: Captured) -> None:
    cells = {**LOG, "temperature": [0.1, 0.2, 0.3, 0.4, 0.5]}
    arrays = load(write(tmp_path, cells))
    assert arrays.train_inputs.shape == (3, 1)
    assert "temperature: differs" in capsys.readouterr().err
    cells = {**but("split"), "time": [1, 2, 9, 3, 4]}
    arrays = load(write(tmp_path, cells), split=None, split_by="time", test_fraction=0.25)
    assert arrays.test_inputs.tolist() == [[4]]


def test_the_same_answer_twice(tmp_path: Path, capsys: Captured) -> None:
    """Agreeing ones are one, also in other words: numbers are compared as numbers."""
    words = {**AGAIN, "correct": [*({1: "yes", 0: "no"}[cell] for cell in LOG["correct"]), "No"]}
    for cells in (AGAIN, words):
        close(whole(load(write(tmp_path, cells)), "errors"), ERRORS)
        said = capsys.readouterr().err
        assert all(words in said for words in ("5 answers, made into 4 rows", "1 row "))


@pytest.mark.parametrize("first", ["", LOG["correct"][1]])
def test_an_answer_that_was_graded_later(first: object, tmp_path: Path, capsys: Captured) -> None:
    """The outcome counts wherever it stands, and the propensities stay."""
    second = LOG["correct"][1] if first == "" else ""
    cells = {**AGAIN, "correct": [LOG["correct"][0], first, *LOG["correct"][2:], second]}
    cells["latency"] = [*LOG["latency"], 9.0]  # of two attempts, the one with the outcome counts
    arrays = load(write(tmp_path, cells))
    close(whole(arrays, "errors"), ERRORS)
    close(whole(arrays, "latencies"), [[1.5, 0.5], [9.0 if first == "" else 2.5, NAN], [NAN, 0.25], [1.0, NAN]])
    assert "estimated" not in capsys.readouterr().err


THRICE: Cells = {key: [*cells, cells[1], cells[1]] for key, cells in LOG.items()}
EMPTY_CELLS: Cells = {**THRICE, "correct": [1, "", 0, 1, 1, "", 0], "price": [*LOG["price"], 0.5, ""]}


@pytest.mark.parametrize("column", ["correct", "price"])
@pytest.mark.parametrize(("time", "first"), [(1.5, False), (9.0, True), ("", True)])
def test_of_two_calls_the_first_counts(column: str, time: object, first: bool, tmp_path: Path) -> None:
    """By the time, if every row has one; else by the place in the file. Row 2 asked at 2.0."""
    cells = {**AGAIN, column: [*LOG[column], 1], "time": [*LOG["time"], time]}
    part = {"correct": "errors", "price": "prices"}[column]
    expected = {"correct": 1, "price": 0.03} if first else {"correct": 0, "price": 1}
    assert whole(load(write(tmp_path, cells)), part)[1, 0] == expected[column]


def test_a_call_without_an_outcome_is_not_the_first(tmp_path: Path) -> None:
    """Row 7 has the outcome, and the price of row 2."""
    close(whole(load(write(tmp_path, EMPTY_CELLS)), "prices"), PRICES)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({**LOG, "usd": [1] * 5}, "columns price, usd: "),
        ({**LOG, "expert": ["big"] * 5, "id": list("abcde")}, ": only one expert, big"),
    ],
)
def test_two_prices_or_one_expert(cells: Cells, words: str, tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=words):
        load(write(tmp_path, cells))


def test_which_tables_are_logs() -> None:
    assert all(map(is_long, (["id", "expert", "correct"], ["expert", "cost"], ["expert", "correct", "correct_answer"])))
    assert not any(map(is_long, (["expert", "x"], ["expert", "correct", "correct_a", "correct_b"])))


@pytest.mark.parametrize("name", ["correct_answer", "prediction_length"])
def test_a_column_that_begins_as_an_outcome(name: str, tmp_path: Path) -> None:
    """It makes no expert, and the router does not see it unless it is named."""
    path = write(tmp_path, {**LOG, name: [7, 8, 7, 9, 9]})
    arrays = load(path)
    assert panel_of(arrays).names == ("big", "small")
    assert arrays.train_inputs.tolist() == [[1], [2], [3]]
    assert load(path, features=["x", name]).train_inputs.tolist() == [[1, 7], [2, 8], [3, 9]]


def test_right_answers_beside_predictions(tmp_path: Path) -> None:
    cells = {**but("correct"), "prediction": ["A", "B", "B", "A", "C"], "correct_answer": ["A", "A", "A", "A", "C"]}
    close(whole(load(write(tmp_path, cells), label="correct_answer"), "errors"), ERRORS)


def test_a_grade_keeps_what_the_answer_knew(tmp_path: Path, capsys: Captured) -> None:
    """A row that has only the id, the expert and the grade. What comes with the grade, as here the judge's mark, is no input."""
    graded = {"id": "q2", "expert": "big", "correct": LOG["correct"][1], "mark": 9}
    cells = {**LOG, "mark": [1, "", 1, 3, 4]}
    again = {key: [*values, graded.get(key, "")] for key, values in cells.items()}
    again["correct"][1] = ""
    arrays = load(write(tmp_path, again))
    check_panel(arrays)
    assert torch.cat([arrays.train_inputs, arrays.test_inputs]).tolist() == [[1], [2], [3], [4]]
    assert "mark: differs" in capsys.readouterr().err


def test_answers_without_a_grade_leave_the_propensities_of_others_alone(tmp_path: Path, capsys: Captured) -> None:
    """Although one query has two answers: an expert was asked on the rows that are left out, and only its outcome is missing."""
    cells = {**LOG, "correct": [1, "", 0, 1, 1]}
    arrays = load(write(tmp_path, cells))
    close(whole(arrays, "propensities"), [[0.5, 0.5], [NAN, 0.75], [1.0, NAN]])
    printed = capsys.readouterr().err
    assert "left out 1 row " in printed
    assert "estimated" not in printed


@pytest.mark.parametrize("propensity", [0.5, ""])
def test_queries_of_which_only_some_answers_have_a_grade(propensity: object, tmp_path: Path, capsys: Captured) -> None:
    """Then an outcome is known less often than its expert was asked, also if no row is left out. An answer without a grade may lack
    the propensity too."""
    cells = {**LOG, "correct": [1, 0, "", 1, 1], "propensity": [0.5, 0.25, propensity, 0.75, 1.0]}
    arrays = load(write(tmp_path, cells))
    assert panel_of(arrays).train.propensities is None
    assert arrays.train_inputs.shape == (3, 1)
    assert "propensities are estimated anew: 1 of 4 queries" in capsys.readouterr().err


def test_experts_that_are_left_out(tmp_path: Path) -> None:
    cells = {key: [*cells, cells[0], cells[1]] for key, cells in LOG.items()}
    cells |= {"expert": [*LOG["expert"], "other", "Other"], "correct": [*LOG["correct"], "", 1]}
    arrays = load(write(tmp_path, cells), experts=["big", "small"], features=["x"])
    close(whole(arrays, "propensities"), PROPENSITIES)


def test_without_one_of_the_experts(tmp_path: Path, capsys: Captured) -> None:
    """Where it was not asked, the log does not say how likely it was. What is wrong with its answers does not matter."""
    cells = {key: [*cells, cells[1], cells[4]] for key, cells in LOG.items()}
    cells |= {"id": [*LOG["id"], "q5", "q6"], "expert": [*LOG["expert"], "other", "other"]}
    cells["price"] = [*LOG["price"], "", "?"]
    arrays = load(write(tmp_path, cells), experts=["big", "small"], features=["x"])
    assert panel_of(arrays).train.propensities is None
    printed = capsys.readouterr().err
    assert "left out 2 rows without an outcome of big, small" in printed
    assert "propensities are estimated anew" in printed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"correct": [1, 0, 7, 1, 1]}, "column correct: .* 1 of 5 rows: 3,"),
        ({"latency": [1, 1, 1, -1, 1]}, "column latency: negative in 1 of 5 rows: 4,"),
        ({"propensity": [1, 1, 1.5, 1, 1]}, "column propensity: .* 1 of 5 rows: 3,"),
        ({"expert": ["big", "Big ", "small", "small", "Big"]}, "column expert: .* Big, big.* 3 of 5 rows: 1, 2, 5,"),
        ({"query": ["a", "b", "c", "d", "e"]}, "column query: .* rows: 3,"),
    ],
)
def test_messages_have_the_names_and_rows_of_the_file(changes: Cells, words: str, tmp_path: Path) -> None:
    cells = {"query": ["a", "b", "a", "c", "d"], **LOG, **changes}
    with pytest.raises(L2DError, match=words):
        load(write(tmp_path, cells), text="query")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"split_by": "tme"}, r"^split_by=tme: .* time\?$"),
        ({"features": ["price"]}, r"^features=price: belongs to the answers"),
        ({"experts": ["big", "smal"]}, r"^experts=smal: .* small\?$"),
        ({"experts": ["big"]}, r"^experts=\['big'\]: 1 expert;"),
    ],
)
def test_columns_that_are_not_there(given: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=words):
        load(write(tmp_path, but("split")), split=None, **given)


def test_what_is_known_after_the_answer_may_be_named(tmp_path: Path) -> None:
    cells = {key: [cells[i] for i in (0, 1, 3, 4)] for key, cells in LOG.items()}
    arrays = load(write(tmp_path, cells), features=["x", "tokens"])
    assert arrays.train_inputs.tolist() == [[1, 11], [2, 12], [3, 14]]


@pytest.mark.parametrize(("name", "dollars"), [("cost", False), ("cost_usd", True)])
def test_names_of_prices_say_dollars(name: str, dollars: bool, tmp_path: Path, capsys: Captured) -> None:
    cells = {(name if key == "price" else key): cells for key, cells in LOG.items()}
    assert panel_of(load(write(tmp_path, cells))).unit.dollars is dollars
    printed = capsys.readouterr().err
    assert f"prices: {name} (" in printed
    assert ": latency, propensity\n" in printed


@pytest.mark.parametrize("name", ["Tokens", "is_correct"])
def test_what_came_with_the_answer_is_no_input(name: str, tmp_path: Path, capsys: Captured) -> None:
    """However it is written, even if each query has one answer, unless it is named."""
    single = {key: [cells[i] for i in (1, 3, 4)] for key, cells in LOG.items()}
    path = write(tmp_path, {**single, name: [1.0, 0.0, 1.0]})
    assert load(path).train_inputs.tolist() == [[2], [3]]
    assert f"{name} (dataset.features" in capsys.readouterr().err
    assert load(path, features=["x", name]).train_inputs.tolist() == [[2, 1], [3, 0]]
    assert f"{name} (dataset" not in capsys.readouterr().err


def test_propensities_of_some_answers(tmp_path: Path, capsys: Captured) -> None:
    cells = {**LOG, "propensity": [0.5, "", 0.5, "", 1]}
    assert panel_of(load(write(tmp_path, cells))).train.propensities is None
    assert capsys.readouterr().err.count("propensities are estimated anew: 2 of 5 outcomes") == 1


def test_a_column_that_begins_as_an_outcome_is_no_expert_left_out(tmp_path: Path, capsys: Captured) -> None:
    """A query without an outcome, and propensities that stay."""
    cells = {**LOG, "correct": [1, None, 0, 1, 1], "correct_answer": [2, 2, 2, 3, 4]}
    for given in (LOG | {"correct": cells["correct"]}, cells):
        arrays = load(write(tmp_path, given, "log.parquet"))
        assert panel_of(arrays).train.propensities is not None
        assert "estimated" not in capsys.readouterr().err
