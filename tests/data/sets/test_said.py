"""What experts said, from a table with a row per query and from a log with a row per answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.data.sets.test_long_log import LOG
from tests.data.sets.test_table import GOOD, Captured, Cells, load, panel_of, write

from l2d.core.replies import Replies
from l2d.data.arrays import Arrays
from l2d.utils.errors import L2DError, ParameterError

NAN = float("nan")
SAID: Cells = {
    **GOOD,
    "answer_a": ["yes", "No.", "1,000", "", "5", *"vwxyz"],
    "answer_b": ["Yes.", "yes", "1000", "x", "5.04", *"VWXYz"],
    "confidence_a": [-0.5, *[2] * 8, "n/a"],
    "length_b": [100, *[""] * 9],
    "split": ["train"] * 9 + ["test"],
}
CHAT: Cells = {
    **{name: LOG[name] for name in ("id", "x", "expert", "correct", "split")},
    "answer": ["Paris", "4", "paris.", "5", "x"],
    "confidence": [0.9, -1, "", 0.1, 2],
    "length": [7, "", 3, 1, 1],
}


def replies(arrays: Arrays) -> Replies:
    """Of all rows."""
    panel = panel_of(arrays)
    return panel.train.replies.followed_by(panel.test.replies)


def refused(folder: Path, cells: Cells, **changes: Any) -> str:
    with pytest.raises(L2DError) as caught:
        load(write(folder, cells), **{"split": "split" if "split" in cells else None, **changes})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_column_per_expert(tmp_path: Path, capsys: Captured) -> None:
    arrays = load(write(tmp_path, SAID), split="split")
    found = replies(arrays)
    assert found.kinds.tolist() == [[0, 0], [0, 1], [0, 0], [-1, 1], [0, 1], *[[0, 0]] * 5]
    signals = found.signals.numpy()
    np.testing.assert_allclose(np.expm1(signals[:4, :, 0]), [[3, 100], [3, 3], [5, 4], [0, 1]], rtol=1e-6)
    np.testing.assert_allclose(signals[[0, 1, 9], :, 1], [[-0.5, NAN], [2, NAN], [NAN, NAN]])
    assert arrays.seen.features == ("x", "y")
    assert "answer_a" in capsys.readouterr().err
    near = replies(load(write(tmp_path, SAID), split="split", agree="within:0.01"))
    assert near.kinds[4].tolist() == [0, 0]


def test_without_answers_there_are_no_replies(tmp_path: Path) -> None:
    assert panel_of(load(write(tmp_path, GOOD))).train.replies is None


def test_predictions_are_answers(tmp_path: Path) -> None:
    cells = {**GOOD, "truth": ["u", "v"] * 5, "prediction_c": ["u"] * 10, "prediction_d": ["u", "v"] * 5}
    arrays = load(
        write(tmp_path, cells),
        experts=["prediction_c", "prediction_d"],
        outcome="prediction",
        label="truth",
        features=["x"],
    )
    assert sorted(replies(arrays).kinds.tolist()) == [[0, 0]] * 5 + [[0, 1]] * 5


def test_confidence_alone(tmp_path: Path) -> None:
    """Answers are not known then."""
    found = replies(load(write(tmp_path, {**GOOD, "confidence_b": [-3] * 10})))
    assert (found.kinds == -1).all()
    assert found.signals[:, 1, 1].tolist() == [-3] * 10
    assert found.signals[:, 0].isnan().all()


def test_where_an_expert_was_not_asked(tmp_path: Path, capsys: Captured) -> None:
    """An answer without an outcome is not used, and a line counts such answers."""
    found = replies(load(write(tmp_path, {**SAID, "correct_a": ["", *GOOD["correct_a"][1:]]}), split="split"))
    assert found.kinds[0].tolist() == [-1, 1]
    assert found.signals[0, 0].isnan().all()
    assert "1 answer without" in capsys.readouterr().err


def test_columns_that_only_look_so_stay_features(tmp_path: Path) -> None:
    """Their names end in no expert's."""
    more = {"length_words": list(range(10)), "confidence_class": list(range(10))}
    assert load(write(tmp_path, {**SAID, **more}), split="split").seen.features == ("x", "y", *more)


@pytest.mark.parametrize("column", ["answer_a", "confidence_a", "length_b"])
def test_a_router_must_not_see_them(column: str, tmp_path: Path) -> None:
    assert f"features={column}" in refused(tmp_path, SAID, features=[column])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confidence_a": [1] * 9 + ["inf"]}, ["column confidence_a", "finite", ": 10,"]),
        ({"confidence_a": [1] * 9 + ["sure"]}, ["column confidence_a", "'sure'"]),
        ({"length_b": [-1] * 10}, ["column length_b", "negative"]),
        ({"answer_b": [""] * 10}, ["column answer_b", "no answer"]),
        ({"answer_c": ["x"] * 10}, ["column answer_c", "correct_c"]),
        ({"Confidence_b": [1] * 10}, ["column Confidence_b", "confidence_b?"]),
        ({"confidance_b": [1] * 10}, ["column confidance_b", "confidence_b?"]),
    ],
)
def test_what_is_refused(changes: Cells, words: list[str], tmp_path: Path) -> None:
    message = refused(tmp_path, {**SAID, **changes})
    assert all(word in message for word in words), message


def test_answers_of_some_experts(tmp_path: Path) -> None:
    assert "answer_b" in refused(tmp_path, {name: cells for name, cells in SAID.items() if name != "answer_b"})


def test_a_rule_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^agree=exat: "):
        load(write(tmp_path, SAID), agree="exat")


def test_a_log(tmp_path: Path) -> None:
    """q1 has two answers, the others one."""
    arrays = load(write(tmp_path, CHAT), split="split")
    found = replies(arrays)
    assert found.kinds.tolist() == [[0, 0], [0, -1], [-1, 1], [0, -1]]
    signals = found.signals.numpy()
    np.testing.assert_allclose(np.expm1(signals[..., 0]), np.array([[7, 3], [1, NAN], [NAN, 1], [1, NAN]]), rtol=1e-6)
    np.testing.assert_allclose(signals[..., 1], [[0.9, NAN], [-1, NAN], [NAN, 0.1], [2, NAN]], rtol=1e-6)
    assert arrays.seen.features == ("x",)


def test_roles_in_a_log(tmp_path: Path) -> None:
    names = {"answer": "reply", "confidence": "p", "length": "chars"}
    cells = {names.get(name, name): column for name, column in CHAT.items()}
    found, expected = (
        replies(load(write(tmp_path, one), split="split", columns=columns))
        for one, columns in ((cells, names), (CHAT, None))
    )
    assert found.kinds.tolist() == expected.kinds.tolist()
    np.testing.assert_array_equal(found.signals.numpy(), expected.signals.numpy())


def test_in_a_log_the_answer_may_be_the_right_one_and_the_length_the_querys(tmp_path: Path) -> None:
    """If the user says so, or if there is no answer."""
    cells = {**CHAT, "answer": ["u", "v", "u", "u", "v"], "length": [7, 3, 7, 1, 1]}
    labelled = load(write(tmp_path, {**cells, "confidence": [1] * 5}), split="split", label="answer")
    assert labelled.num_classes == 2
    assert (replies(labelled).kinds == -1).all()
    without = {name: column for name, column in cells.items() if name not in ("answer", "confidence")}
    found = load(write(tmp_path, without), split="split")
    assert found.seen.features == ("x", "length")
    assert panel_of(found).train.replies is None


def test_of_two_answers_of_one_expert_the_first_counts(tmp_path: Path) -> None:
    twice = {name: [*column, column[0]] for name, column in CHAT.items()}
    again = load(write(tmp_path, {**twice, "answer": [*CHAT["answer"], "London"]}), split="split")
    assert torch.equal(replies(again).kinds, replies(load(write(tmp_path, twice), split="split")).kinds)
    assert len(replies(again).kinds) == 4
    assert "Answer" in refused(
        tmp_path, {"Answer" if name == "answer" else name: column for name, column in CHAT.items()}
    )
