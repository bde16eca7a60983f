"""Columns with other names, names of experts that are nearly equal, what is missing, and words as features."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.sets.test_table import GOOD, Captured, Cells, load, panel_of, table, whole, write

from l2d.data.sets.outcomes import near_names
from l2d.utils.errors import L2DError, ParameterError

NAN = float("nan")
LOG: Cells = {
    "request_id": ["q1", "q2", "q3", "q4", "q5"],
    "ts": ["2026-01-01", "2026-01-02T00:00:00Z", "2026-01-03 00:00:00", "1767484800", "2026-01-05"],
    "user_query": ["one two", "three", "four", "five", "six"],
    "model_used": ["big", "small", "big", "small", "big "],
    "thumbs": ["up", "👎", "n/a", "yes", "0"],
    "usd": ["$0.02", "0.001 USD", "-", "0.003", ""],
    "latency_ms": ["1,500 ms", "0.5 s", "250", "", "n/a"],
    "tenant": ["acme", "acme", "", "globex", "globex"],
}
COLUMNS = {
    "expert": "model_used", "correct": "thumbs", "price": "usd", "latency": "latency_ms", "time": "ts", "id": "request_id",
}  # fmt: skip


def load_log(folder: Path, cells: Cells | None = None, **changes: Any) -> Any:
    return load(write(folder, cells or LOG), **{"columns": COLUMNS, "text": "user_query", "split_by": "ts", **changes})


def close(found: torch.Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


def test_roles_words_and_units(tmp_path: Path, capsys: Captured) -> None:
    """The query without a grade is left out. A price that is missing is the mean of the others, where there are too few rows to
    expect another; so is a latency."""
    arrays = load_log(tmp_path)
    assert panel_of(arrays).names == ("big", "small")
    close(whole(arrays, "errors"), [[0, NAN], [NAN, 1], [NAN, 0], [1, NAN]])
    close(whole(arrays, "prices"), [[0.02, NAN], [NAN, 0.001], [NAN, 0.003], [0.02, NAN]])
    close(whole(arrays, "latencies"), [[1.5, NAN], [NAN, 0.5], [NAN, 0.5], [1.5, NAN]])
    assert panel_of(arrays).unit.dollars
    assert arrays.train_ids.tolist() == ["q1", "q2", "q4"]  # q5 is the latest
    said = capsys.readouterr().err
    assert all(
        word in said for word in ("expert: model_used", "correct: thumbs", "time: ts", "prices: usd", "latency_ms")
    )
    assert table(write(tmp_path, LOG), columns=COLUMNS).expert_names(Path()) == ["big", "small"]


def test_keys_among_the_roles(tmp_path: Path) -> None:
    both = load_log(tmp_path, text=None, columns={**COLUMNS, "text": "user_query"})
    assert both.seen == load_log(tmp_path).seen
    with pytest.raises(ParameterError, match=r"^text=tenant: .*user_query"):
        load_log(tmp_path, text="tenant", columns={**COLUMNS, "text": "user_query"})


def test_the_file_has_such_a_column_itself(tmp_path: Path) -> None:
    """The one that the user names counts, and other outcomes and prices do not."""
    cells = {**LOG, "id": [1] * 5, "correct": [1] * 5, "loss": [3] * 5, "cost": [9] * 5}
    found, expected = load_log(tmp_path, cells), load_log(tmp_path)
    for part in ("errors", "prices"):
        close(whole(found, part), whole(expected, part).tolist())


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"expert": "model"}, r"^columns\.expert=model: .*model_used"),
        ({"experts": "model_used"}, r"^columns\.experts: .*expert\?"),
        ({"id": "ts", "time": "ts"}, "^columns="),
    ],
)
def test_roles_that_cannot_be(columns: dict[str, str], key: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=key):
        load_log(tmp_path, columns=columns, split_by=None)


def test_names_that_are_nearly_equal(tmp_path: Path, capsys: Captured) -> None:
    """Two that differ in signs are noted and stay two; capitals are refused; dataset.merge makes them one."""
    assert near_names(["gpt4o", "gpt-4o", "gpt-4o", "GPT-4o", "gpt-4"]) == [["gpt-4o", "gpt4o", "GPT-4o"]]
    cells = {**LOG, "model_used": ["gpt-4o", "small", "gpt4o", "small", "gpt4o "], "thumbs": [1, 0, 1, 1, 0]}
    assert panel_of(load_log(tmp_path, {**cells, "usd": [1] * 5})).names == ("gpt-4o", "small", "gpt4o")
    assert "dataset.merge=[[gpt4o,gpt-4o]]" in capsys.readouterr().err
    merged = load_log(tmp_path, cells, merge=[["gpt-4o", "gpt4o"]])
    assert panel_of(merged).names == ("gpt-4o", "small")
    close(whole(merged, "errors"), [[0, NAN], [NAN, 1], [0, NAN], [NAN, 0], [1, NAN]])
    with pytest.raises(L2DError, match=r"dataset\.merge"):
        load_log(tmp_path, {**LOG, "model_used": ["Big", "small", "big", "small", "big"]})
    with pytest.raises(ParameterError, match=r"^merge=bigg: .*big\?"):
        load_log(tmp_path, merge=[["big", "bigg"]])
    with pytest.raises(ParameterError, match=r"^merge="):
        load(write(tmp_path, GOOD), merge=[["a", "b"]])


def test_rows_without_a_text_are_left_out(tmp_path: Path, capsys: Captured) -> None:
    """But the text of another answer to the same query is its text."""
    cells = {**LOG, "user_query": ["one two", " ", "four", "five", "six"], "thumbs": [1] * 5}
    assert load_log(tmp_path, cells).train_ids.tolist() == ["q1", "q3", "q4"]
    assert "left out 1 row without a text" in capsys.readouterr().err
    again = {name: [*values, values[1]] for name, values in cells.items()}
    again |= {"model_used": [*LOG["model_used"], "big"], "user_query": [*cells["user_query"], "three"]}
    assert len(load_log(tmp_path, again).train_inputs) == 4


def test_all_faults_at_once(tmp_path: Path) -> None:
    cells = {
        **LOG,
        "thumbs": ["up", "maybe", 1, 0, 7],
        "usd": [1, "cheap", -1, 1, 1],
        "user_query": ["a", "b", "c", "d", "e"],
    }
    with pytest.raises(L2DError) as caught:
        load_log(tmp_path, cells, label="tenant")
    message = str(caught.value)
    assert "\n" not in message
    assert message.count("column thumbs") == 2
    assert message.count("column usd") == 2
    assert message.count("column tenant") == 1
    assert "5 faults" in message


def test_words_as_features(tmp_path: Path) -> None:
    """One 0/1 number for each word; an empty cell has zeros. Yes and no are numbers."""
    cells = {
        **GOOD,
        "tenant": ["acme", "globex", ""] * 3 + ["acme"],
        "paid": ["yes", "no"] * 5,
        "split": ["train"] * 9 + ["test"],
    }
    arrays = load(write(tmp_path, cells), features=["y", "tenant", "paid"], split="split")
    assert arrays.train_inputs[:4].tolist() == [[0, 1, 0, 1], [0.125, 0, 1, 0], [0.25, 0, 0, 1], [0.375, 1, 0, 0]]
    assert arrays.seen.columns == ("y", "tenant=acme", "tenant=globex", "paid")
    many = {**GOOD, "word": [f"word {i}" for i in range(10)] * 1}
    wide = {name: values * 6 for name, values in many.items()} | {
        "id": [*range(60)],
        "word": [f"w{i}" for i in range(60)],
    }
    with pytest.raises(L2DError, match="column word: 60 different"):
        load(write(tmp_path, wide), features=["word"])


def test_prices_that_are_missing_are_expected_from_the_inputs(tmp_path: Path) -> None:
    """The price of a is 1 + 2x. A regression on 200 rows expects about that where it is missing."""
    x = [i / 200 for i in range(200)]
    cells: Cells = {
        "x": x, "correct_a": [i % 2 for i in range(200)], "correct_b": [1] * 200, "price_b": [0.5] * 200,
        "price_a": ["" if i % 10 == 3 else 1 + 2 * value for i, value in enumerate(x)], "split": ["train"] * 199 + ["test"],
    }  # fmt: skip
    found = whole(load(write(tmp_path, cells), split="split", features=["x"]), "prices")
    expected = torch.tensor([[1 + 2 * value, 0.5] for value in x], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=0.2, rtol=0)
    assert float((found - expected)[3::10, 0].abs().max()) > 0  # they are estimates
