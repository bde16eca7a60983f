"""Logs with a row per answer, worked out by hand."""

import json
from pathlib import Path

import pytest
import torch
from tests.data.sets.test_table import Cells, load, table, whole, write

from l2d.data.sets.long_log import is_long
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


def close(found: torch.Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.jsonl"])
def test_a_row_per_query(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    if name.endswith("jsonl"):
        rows = [{key: cells[i] for key, cells in LOG.items()} for i in range(5)]
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    else:
        path = write(tmp_path, LOG, name)
    arrays = load(path, split="split")
    assert arrays.panel is not None
    assert arrays.panel.names == ("big", "small")
    close(whole(arrays, "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])
    close(whole(arrays, "prices"), [[0.02, 0.001], [0.03, NAN], [NAN, 0.002], [0.02, NAN]])
    close(whole(arrays, "latencies"), [[1.5, 0.5], [2.5, NAN], [NAN, 0.25], [1.0, NAN]])
    close(whole(arrays, "propensities"), [[0.5, 0.5], [0.25, NAN], [NAN, 0.75], [1.0, NAN]])
    assert torch.cat([arrays.train_inputs, arrays.test_inputs]).tolist() == [[1], [2], [3], [4]]  # not the tokens
    assert table(path, split="split").expert_names(Path()) == ["big", "small"]
    assert "a log of 5 answers, made into 4 rows, one per query" in capsys.readouterr().err


def test_costs_are_losses_if_nothing_else_is(tmp_path: Path) -> None:
    """Beside correct, they are money."""
    cells = {key: LOG[key] for key in ("id", "x", "expert", "split")}
    alone = load(write(tmp_path, {**cells, "cost": [0.5, 1.5, 0, 0, 1]}), split="split")
    close(whole(alone, "errors"), [[0.5, 0], [1.5, NAN], [NAN, 0], [1, NAN]])
    assert alone.panel is not None
    assert alone.panel.train.prices is None
    beside = load(write(tmp_path, {**cells, "cost": [0.5, 1.5, 0, 0, 1], "correct": LOG["correct"]}), split="split")
    close(whole(beside, "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])
    close(whole(beside, "prices"), [[0.5, 0], [1.5, NAN], [NAN, 0], [1, NAN]])


def test_a_misspelt_column_of_an_answer(tmp_path: Path) -> None:
    """Else the costs would be losses, and the propensities an input of the router. A line that was written twice changes nothing."""
    cells = {key: LOG[key] for key in ("id", "x", "expert", "split")}
    twice = {
        key: [*values, values[0]] for key, values in {**cells, "corect": LOG["correct"], "cost": LOG["price"]}.items()
    }
    with pytest.raises(L2DError, match=r"column corect: did you mean correct\? Rename it if it is something else$"):
        load(write(tmp_path, {**twice, "cost": [*twice["cost"][:-1], 9.0]}), split="split")
    with pytest.raises(L2DError, match=r"column propensty: did you mean propensity\? Rename "):
        load(write(tmp_path, {**cells, "correct": LOG["correct"], "propensty": LOG["propensity"]}), split="split")
    graded = {**cells, "correct": LOG["correct"], "los": LOG["price"]}
    assert load(write(tmp_path, graded), split="split").panel is not None  # an outcome is there
    for name in ("Correct", "CORRECT", "is_correct", "Correctness", "was_correct", "label_correct"):
        with pytest.raises(L2DError, match=rf"column {name}: did you mean correct\?"):
            load(write(tmp_path, {**cells, name: LOG["correct"], "cost": LOG["price"]}), split="split")
    with pytest.raises(L2DError, match=r"column Loss: did you mean loss\?"):
        load(write(tmp_path, {**cells, "Loss": LOG["correct"], "cost": LOG["price"]}), split="split")
    slight = ("score", "corrections", "corrected", "incorrect", "user_id", "lossy", "gloss", "loss1", "predictions")
    others = dict.fromkeys(slight, LOG["correct"])
    assert load(write(tmp_path, {**cells, "cost": LOG["price"], **others}), split="split").panel is not None


def test_without_an_id_every_row_is_a_query(tmp_path: Path) -> None:
    cells = {key: cells for key, cells in LOG.items() if key != "id"}
    close(
        whole(load(write(tmp_path, cells), split="split"), "errors"), [[0, NAN], [1, NAN], [NAN, 1], [NAN, 0], [0, NAN]]
    )


def test_what_differs_between_answers_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {**LOG, "temperature": [0.1, 0.2, 0.3, 0.4, 0.5]}
    arrays = load(write(tmp_path, cells), split="split")
    assert arrays.train_inputs.shape == (3, 1)
    assert "temperature: differs between answers to one query" in capsys.readouterr().err


def test_a_query_has_the_time_of_its_first_answer(tmp_path: Path) -> None:
    cells = {**{key: cells for key, cells in LOG.items() if key != "split"}, "time": [1, 2, 9, 3, 4]}
    arrays = load(write(tmp_path, cells), split_by="time", test_fraction=0.25)
    assert arrays.test_inputs.tolist() == [[4]]


def test_the_same_answer_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agreeing ones are one; others are refused."""
    again = {key: [*cells, cells[1]] for key, cells in LOG.items()}
    close(whole(load(write(tmp_path, again), split="split"), "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])
    said = "a log of 5 answers, made into 4 rows, one per query; left out 1 row with an answer that came before\n"
    assert said in capsys.readouterr().err
    again["correct"][-1] = 1
    said = (
        r"rows 2 and 6 have the same id and expert, big, but correct is 0 and 1 \(row 1 is the first below the header\)"
    )
    with pytest.raises(L2DError, match=said):
        load(write(tmp_path, again), split="split")


def test_the_same_answer_in_other_words(tmp_path: Path) -> None:
    """Numbers are compared as numbers."""
    again = {key: [*cells, cells[1]] for key, cells in LOG.items()}
    again["correct"] = [{1: "yes", 0: "no"}.get(cell, cell) for cell in LOG["correct"]] + ["No"]
    close(whole(load(write(tmp_path, again), split="split"), "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])


def test_an_answer_that_was_graded_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The outcome counts wherever it stands, and the propensities stay."""
    for first, second in (("", LOG["correct"][1]), (LOG["correct"][1], "")):
        again = {key: [*cells, cells[1]] for key, cells in LOG.items()}
        again["correct"] = [LOG["correct"][0], first, *LOG["correct"][2:], second]
        again["latency"] = [*LOG["latency"], 9.0]  # of two attempts, the one with the outcome counts
        arrays = load(write(tmp_path, again), split="split")
        close(whole(arrays, "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])
        close(whole(arrays, "latencies"), [[1.5, 0.5], [9.0 if first == "" else 2.5, NAN], [NAN, 0.25], [1.0, NAN]])
        assert "propensities are estimated anew" not in capsys.readouterr().err


def test_another_price_of_the_same_answer(tmp_path: Path) -> None:
    again = {key: [*cells, cells[1]] for key, cells in LOG.items()}
    again["price"][-1] = 0.5
    with pytest.raises(L2DError, match=r"the same id and expert, big, but price is 0.03 and 0.5"):
        load(write(tmp_path, again), split="split")


def test_two_prices_of_an_answer(tmp_path: Path) -> None:
    with pytest.raises(L2DError, match="columns price, usd: two prices of an answer; keep one"):
        load(write(tmp_path, {**LOG, "usd": [1] * 5}), split="split")


def test_one_expert_only(tmp_path: Path) -> None:
    with pytest.raises(L2DError, match="column expert: only one expert, big; routing needs the answers of two or more"):
        load(write(tmp_path, {**LOG, "expert": ["big"] * 5, "id": list("abcde")}), split="split")


def test_which_tables_are_logs() -> None:
    assert is_long(["id", "expert", "correct"])
    assert is_long(["expert", "cost"])
    assert not is_long(["expert", "x"])
    assert is_long(["expert", "correct", "correct_answer"])
    assert not is_long(["expert", "correct", "correct_a", "correct_b"])


@pytest.mark.parametrize("name", ["correct_answer", "correct_option", "loss_fn", "prediction_length"])
def test_a_column_that_begins_as_an_outcome(name: str, tmp_path: Path) -> None:
    """It makes no expert, and the router does not see it unless it is named."""
    path = write(tmp_path, {**LOG, name: [7, 8, 7, 9, 9]})
    arrays = load(path, split="split")
    assert arrays.panel is not None
    assert arrays.panel.names == ("big", "small")
    assert arrays.train_inputs.tolist() == [[1], [2], [3]]
    assert load(path, split="split", features=["x", name]).train_inputs.tolist() == [[1, 7], [2, 8], [3, 9]]


def test_right_answers_beside_predictions(tmp_path: Path) -> None:
    cells = {**{key: cells for key, cells in LOG.items() if key != "correct"}, "prediction": ["A", "B", "B", "A", "C"]}
    path = write(tmp_path, {**cells, "correct_answer": ["A", "A", "A", "A", "C"]})
    close(whole(load(path, split="split", label="correct_answer"), "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])


def test_a_grade_keeps_what_the_answer_knew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that has only the id, the expert and the grade. What comes with the grade, as here the judge's mark, is no input."""
    graded = {"id": "q2", "expert": "big", "correct": LOG["correct"][1], "mark": 9}
    cells = {**LOG, "mark": [1, "", 1, 3, 4]}
    again = {key: [*values, graded.get(key, "")] for key, values in cells.items()}
    again["correct"][1] = ""
    arrays = load(write(tmp_path, again), split="split")
    close(whole(arrays, "errors"), [[0, 1], [1, NAN], [NAN, 0], [0, NAN]])
    close(whole(arrays, "prices"), [[0.02, 0.001], [0.03, NAN], [NAN, 0.002], [0.02, NAN]])
    close(whole(arrays, "latencies"), [[1.5, 0.5], [2.5, NAN], [NAN, 0.25], [1.0, NAN]])
    close(whole(arrays, "propensities"), [[0.5, 0.5], [0.25, NAN], [NAN, 0.75], [1.0, NAN]])
    assert torch.cat([arrays.train_inputs, arrays.test_inputs]).tolist() == [[1], [2], [3], [4]]
    assert "mark: differs between answers to one query" in capsys.readouterr().err


def test_rows_of_one_answer_that_disagree_beside_an_empty_cell(tmp_path: Path) -> None:
    again = {key: [*cells, cells[1], cells[1]] for key, cells in LOG.items()}
    again["correct"][1] = again["correct"][5] = again["price"][6] = ""
    again["price"][5] = 0.5
    with pytest.raises(L2DError, match=r"rows 6 and 7 have the same id and expert, big, but price is 0.5 and 0.03"):
        load(write(tmp_path, again), split="split")


def test_answers_without_a_grade_leave_the_propensities_of_others_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Although one query has two answers: an expert was asked on the rows that are left out, and only its outcome is missing."""
    cells = {**LOG, "correct": [1, "", 0, 1, 1]}
    arrays = load(write(tmp_path, cells), split="split")
    close(whole(arrays, "propensities"), [[0.5, 0.5], [NAN, 0.75], [1.0, NAN]])
    said = capsys.readouterr().err
    assert "left out 1 row without any outcome (taken to be missing at random)\n" in said
    assert "estimated" not in said


@pytest.mark.parametrize("propensity", [0.5, ""])
def test_queries_of_which_only_some_answers_have_a_grade(
    propensity: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then an outcome is known less often than its expert was asked, also if no row is left out. An answer without a grade may lack
    the propensity too."""
    cells = {**LOG, "correct": [1, 0, "", 1, 1], "propensity": [0.5, 0.25, propensity, 0.75, 1.0]}
    path = write(tmp_path, cells)
    arrays = load(path, split="split")
    assert arrays.panel is not None
    assert arrays.panel.train.propensities is None
    assert arrays.train_inputs.shape == (3, 1)
    said = "propensities are estimated anew: 1 of 4 queries have answers with and without correct\n"
    assert said in capsys.readouterr().err


def test_answers_without_a_grade_of_experts_that_are_left_out(tmp_path: Path) -> None:
    cells = {key: [*cells, cells[0], cells[1]] for key, cells in LOG.items()}
    cells |= {"expert": [*LOG["expert"], "other", "other"], "correct": [*LOG["correct"], "", 1]}
    arrays = load(write(tmp_path, cells), split="split", experts=["big", "small"], features=["x"])
    close(whole(arrays, "propensities"), [[0.5, 0.5], [0.25, NAN], [NAN, 0.75], [1.0, NAN]])


def test_two_spellings_of_an_expert_that_is_left_out(tmp_path: Path) -> None:
    """Nobody asks for its answers; a second spelling of an expert that is used would lose some of them."""
    cells = {key: [*cells, cells[0], cells[1]] for key, cells in LOG.items()}
    path = write(tmp_path, {**cells, "expert": [*LOG["expert"], "other", "Other"]})
    panel = load(path, split="split", experts=["big", "small"], features=["x"]).panel
    assert panel is not None
    assert panel.names == ("big", "small")
    with pytest.raises(L2DError, match="column expert: other and Other differ only in capitals or spaces"):
        load(path, split="split", experts=["big", "other"], features=["x"])


def test_without_one_of_the_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it was not asked, the log does not say how likely it was. What is wrong with its answers does not matter."""
    cells = {key: [*cells, cells[1], cells[4]] for key, cells in LOG.items()}
    cells |= {
        "id": [*LOG["id"], "q5", "q6"],
        "expert": [*LOG["expert"], "other", "other"],
        "price": [*LOG["price"], "", "?"],
    }
    arrays = load(write(tmp_path, cells), split="split", experts=["big", "small"], features=["x"])
    assert arrays.panel is not None
    assert arrays.panel.train.propensities is None
    said = capsys.readouterr().err
    assert "left out 2 rows without an outcome of big, small\n" in said
    assert "propensities are estimated anew: experts that are left out were asked too" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"price": [1, 1, 1, 1, ""]}, r"column price: empty although correct is not, in 1 of 5 rows: 5 "),
        ({"correct": [1, 0, 7, 1, 1]}, r"column correct: not between 0 \(wrong\) and 1 \(right\) in 1 of 5 rows: 3,"),
        ({"latency": [1, 1, 1, -1, 1]}, r"column latency: negative in 1 of 5 rows: 4,"),
        ({"propensity": [1, 1, 1.5, 1, 1]}, r"column propensity: not above 0 and at most 1 in 1 of 5 rows: 3,"),
        (
            {"expert": ["big", "Big ", "small", "small", "Big"]},
            r"column expert: big and Big differ only in capitals or spaces; spell them alike; in 1 of 5 rows: 1,",
        ),
        (
            {"query": ["a", "b", "c", "d", "e"]},
            r"column query: rows 1 and 3 have the same id, q1, but differ; correct one",
        ),
    ],
)
def test_messages_have_the_names_and_rows_of_the_file(changes: Cells, said: str, tmp_path: Path) -> None:
    cells = {"query": ["a", "b", "a", "c", "d"], **LOG, **changes}
    with pytest.raises(L2DError, match=said):
        load(write(tmp_path, cells), split="split", text="query")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"split_by": "tme"}, r"^split_by=tme: no such column in .*; did you mean time\?$"),
        ({"features": ["price"]}, r"^features=price: belongs to the answers, and a router decides before"),
        ({"experts": ["big", "smal"]}, r"^experts=smal: unknown expert; did you mean small\?$"),
        ({"experts": ["big"]}, r"^experts=\['big'\]: 1 expert; routing needs at least 2$"),
    ],
)
def test_columns_that_are_not_there(given: dict[str, object], said: str, tmp_path: Path) -> None:
    cells = {key: cells for key, cells in LOG.items() if key != "split"}
    with pytest.raises(ParameterError, match=said):
        load(write(tmp_path, cells), **given)


def test_what_is_known_after_the_answer_may_be_named(tmp_path: Path) -> None:
    cells = {key: [cells[i] for i in (0, 1, 3, 4)] for key, cells in LOG.items()}
    arrays = load(write(tmp_path, cells), split="split", features=["x", "tokens"])
    assert arrays.train_inputs.tolist() == [[1, 11], [2, 12], [3, 14]]


@pytest.mark.parametrize(("name", "dollars"), [("price", False), ("cost", False), ("usd", True), ("cost_usd", True)])
def test_names_of_prices_say_dollars(
    name: str, dollars: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {(name if key == "price" else key): cells for key, cells in LOG.items()}
    panel = load(write(tmp_path, cells), split="split").panel
    assert panel is not None
    assert panel.dollars is dollars
    said = capsys.readouterr().err
    assert f"prices: {name} (they count with cost=columns); beside the outcomes: latency, propensity\n" in said


@pytest.mark.parametrize("name", ["Tokens", "loss", "is_correct", "Correct", "Time", "Expert"])
def test_what_came_with_the_answer_is_no_input(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However it is written, even if each query has one answer, unless it is named."""
    single = {key: [cells[i] for i in (1, 3, 4)] for key, cells in LOG.items()}
    path = write(tmp_path, {**single, name: [1.0, 0.0, 1.0]})
    assert load(path, split="split").train_inputs.tolist() == [[2], [3]]
    assert f"{name} (dataset.features can name columns of numbers)\n" in capsys.readouterr().err
    assert load(path, split="split", features=["x", name]).train_inputs.tolist() == [[2, 1], [3, 0]]
    assert f"{name} (dataset" not in capsys.readouterr().err


@pytest.mark.parametrize("chances", [[0.5, "", 0.5, "", 1], [""] * 5])
def test_propensities_of_some_answers(
    chances: list[float | str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    panel = load(write(tmp_path, {**LOG, "propensity": chances}), split="split").panel
    assert panel is not None
    assert panel.train.propensities is None
    lacking = chances.count("")
    said = f"propensities are estimated anew: {lacking} of 5 outcomes have none; fill them in to use yours\n"
    assert capsys.readouterr().err.count(said) == 1


def test_a_price_in_capitals_beside_costs_that_are_losses(tmp_path: Path) -> None:
    cells = {key: LOG[key] for key in ("id", "x", "expert", "split")}
    with pytest.raises(L2DError, match=r"column Price: did you mean price\?"):
        load(write(tmp_path, {**cells, "cost": [0.5] * 5, "Price": [0.1] * 5}), split="split")


def test_a_second_price_in_capitals_is_no_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(write(tmp_path, {**LOG, "Cost": [9.0] * 5}), split="split")
    assert "Cost (dataset.features can name columns of numbers)\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Price", "Latency", "USD"])
def test_money_and_latency_in_capitals(name: str, tmp_path: Path) -> None:
    cells = {key: LOG[key] for key in ("id", "x", "expert", "correct", "split")}
    with pytest.raises(L2DError, match=f"column {name}: did you mean {name.lower()}?"):
        load(write(tmp_path, {**cells, name: LOG["price"]}), split="split")


def test_a_column_that_begins_as_an_outcome_is_no_expert_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A query without an outcome, and propensities that stay."""
    cells = {**LOG, "correct": [1, None, 0, 1, 1], "correct_answer": [2, 2, 2, 3, 4]}
    for given in (LOG | {"correct": cells["correct"]}, cells):
        arrays = load(write(tmp_path, given, "log.parquet"), split="split")
        assert arrays.panel is not None
        assert arrays.panel.train.propensities is not None
        assert "left out were asked too" not in capsys.readouterr().err
