"""l2d check: the roles that it finds, and a command that works."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.data.sets.test_confounded import log
from tests.data.sets.test_table import GOOD, Captured, Cells, write

from l2d.assembly.make import make_dataset
from l2d.commands.check import guessed_keys
from l2d.commands.main import main
from l2d.config import check, compose
from l2d.data.sets.table import Table
from l2d.logs.databases import open_database

QUERIES = ["write a python function", "what is the weather", "prove this theorem now", "tell me a joke"]


def messy(n: int = 60) -> Cells:
    """A log with names of its own."""
    rng = np.random.default_rng(0)
    return {
        "request_id": [f"r{i}" for i in range(n)],
        "ts": [f"2026-01-{1 + i % 28:02d}" + ("T12:00:00Z" if i % 2 else " 12:00:00") for i in range(n)],
        "user_query": [f"{QUERIES[i % 4]} {i}" if i % 20 else "" for i in range(n)],
        "model_used": [["haiku", "gpt-4o", "gpt4o"][i % 3] for i in range(n)],
        "thumbs": [["up", "down", "", "n/a", "1", "0"][i] for i in rng.integers(6, size=n)],
        "usd": [f"${value:.4f}" if value > 0.001 else "" for value in rng.uniform(0, 0.01, size=n)],
        "latency_ms": rng.integers(100, 2000, size=n).tolist(),
        "tenant": [["acme", "globex"][i] for i in rng.integers(2, size=n)],
        "user_id": [i % 7 for i in range(n)],
    }


def checked(path: Path, capsys: Captured, *keys: str, status: int = 0) -> tuple[dict[str, str], list[str], str]:
    """{column: its role}, the words of the command, and all that was printed."""
    if status:
        with pytest.raises(SystemExit) as left:
            main(["check", str(path), *keys])
        assert left.value.code == status
    else:
        main(["check", str(path), *keys])
    said = capsys.readouterr().out
    columns = [line.split() for line in said.split("\n\n")[1].splitlines() if line.startswith("  ")]
    command = next((line for line in said.splitlines() if line.startswith("  l2d train")), "")
    return {name: role for name, role, *_ in columns}, shlex.split(command)[2:], said


def table_of(words: list[str]) -> Table:
    found = make_dataset(check(compose(words)))
    assert isinstance(found, Table)
    return found


def test_a_log_with_other_names(tmp_path: Path, capsys: Captured) -> None:
    roles, words, said = checked(write(tmp_path, messy()), capsys)
    assert roles == {
        "request_id": "id", "ts": "time", "user_query": "text", "model_used": "expert", "thumbs": "correct", "usd": "price",
        "latency_ms": "latency", "tenant": "not", "user_id": "not",
    }  # fmt: skip
    assert "log" in said
    assert {"cost=columns", "cost.error_price=1"} < {*words}
    panel = table_of(words).load(Path()).panel
    assert panel is not None
    assert {*panel.names} == {"haiku", "gpt-4o"}  # the two spellings of one model are merged, as the command says
    assert any(word.startswith("dataset.merge=") for word in words)


def test_what_the_user_says_counts(tmp_path: Path, capsys: Captured) -> None:
    given = ["dataset.columns={expert: tenant}", "dataset.merge=[]", "dataset.test_fraction=0.3"]
    roles, words, _ = checked(write(tmp_path, messy()), capsys, *given)
    assert (roles["tenant"], roles["thumbs"]) == ("expert", "correct")
    assert {*given[1:]} < {*words}
    assert sorted(table_of(words).expert_names(Path())) == ["acme", "globex"]


def test_by_values_alone(tmp_path: Path, capsys: Captured) -> None:
    """Names that say nothing; two columns could be the expert, and a line says so."""
    names = ("a", "b", "c", "d", "e", "f", "g", "h", "i")
    cells = dict(zip(names, messy().values(), strict=True))
    roles, _, said = checked(write(tmp_path, cells), capsys)
    assert [roles[name] for name in "bcdef"] == ["time", "text", "expert", "correct", "price"]
    assert "dataset.columns={expert: h}" in said


def test_all_faults_and_their_rows(tmp_path: Path, capsys: Captured) -> None:
    cells = messy()
    cells["thumbs"][4], cells["usd"][7], cells["usd"][8] = "maybe", "cheap", "-$1"
    _, words, said = checked(write(tmp_path, cells), capsys, status=1)
    faults = [line for line in said.splitlines() if line.startswith("fault ")]
    assert len(faults) == 2
    assert "rows: 5," in faults[0]
    assert "2 of 60 rows: 8, 9," in faults[1]
    assert words  # what to run when they are corrected


@pytest.mark.parametrize("words", [("ja", "nein"), ("oui", "non")])
def test_grades_in_other_languages_are_one_fault_each(words: tuple[str, str], tmp_path: Path, capsys: Captured) -> None:
    cells, graded = messy(), [words[k % 3 % 2] for k in range(60)]
    log = write(tmp_path, {**cells, "thumbs": graded}, "log.csv")
    queries = write(tmp_path, {"x": [*range(60)], "correct_a": graded, "correct_b": [0, 1] * 30})
    for path, column in ((log, "thumbs"), (queries, "correct_a")):
        faults = [line for line in checked(path, capsys, status=1)[2].splitlines() if "fault" in line]
        assert len(faults) == 1
        assert all(told in faults[0] for told in (f"column {column}: ", *words))


def test_a_table_with_a_row_per_query(tmp_path: Path, capsys: Captured) -> None:
    cells = {**GOOD, "note": [QUERIES[i % 4] for i in range(10)], "price_a": [1] * 10, "price_b": [2] * 10}
    roles, words, _ = checked(write(tmp_path, cells), capsys)
    assert (roles["correct_a"], roles["note"], roles["x"]) == ("correct_a", "text", "not")
    assert {"dataset.text=note", "cost=columns"} < {*words}
    named = {"gpt": cells["correct_a"], "llama": cells["correct_b"], "x": cells["x"]}
    roles, words, _ = checked(write(tmp_path, named), capsys, "dataset.experts=[gpt,llama]", "dataset.features=[x]")
    assert (roles["gpt"], roles["x"]) == ("correct_gpt", "feature")
    assert table_of(words).expert_names(Path()) == ["gpt", "llama"]


def test_what_experts_said(tmp_path: Path, capsys: Captured) -> None:
    """The length of the query is no answer's."""
    said: Cells = {
        "llm_response": [f"it is {i}" for i in range(60)],
        "response_chars": [7] * 60,
        "avg_logprob": [-0.5] * 60,
    }
    cells = {**messy(), **said, "query_length": list(range(60))}
    roles, words, _ = checked(write(tmp_path, cells), capsys)
    assert [roles[name] for name in (*said, "query_length")] == ["answer", "length", "confidence", "not"]
    panel = table_of(words).load(Path()).panel
    assert panel is not None
    assert panel.train.replies is not None
    wide = {**GOOD, "answer_a": ["x"] * 10, "answer_b": ["y"] * 10, "length_words": list(range(10))}
    roles, _, _ = checked(write(tmp_path, wide), capsys)
    assert (roles["answer_a"], roles["length_words"]) == ("answer_a", "feature")


def test_a_column_per_expert_with_no_prefix(tmp_path: Path, capsys: Captured) -> None:
    cells: Cells = {
        "prompt": [f"{QUERIES[i % 4]} {i}" for i in range(20)],
        "gpt-4": [i % 2 for i in range(20)],
        "yi": [0, 1, 1, 1] * 5,
    }
    roles, words, _ = checked(write(tmp_path, cells), capsys)
    assert roles == {"prompt": "text", "gpt-4": "correct_gpt-4", "yi": "correct_yi"}
    assert table_of(words).expert_names(Path()) == ["gpt-4", "yi"]


@pytest.mark.parametrize("name", ["is_error", "thumbs_down", "failed", "wrong"])
def test_a_column_that_says_what_went_wrong(name: str, tmp_path: Path, capsys: Captured) -> None:
    """Its yes is a loss. In a table, columns such as failed are no guess, since others would be taken for the opposite."""
    bad = ["yes", "no", "no", "no"] * 15
    cells = {"query": [f"{QUERIES[i % 4]} {i}" for i in range(60)], "model": ["a", "b", "a"] * 20}
    cells |= {name: bad, "is_weekend": ["yes", "no"] * 30}
    roles, words, _ = checked(write(tmp_path, cells), capsys)
    assert roles[name] == "loss"
    panel = table_of(words).load(Path()).panel
    assert panel is not None
    assert np.nansum(panel.train.errors.numpy()) + np.nansum(panel.test.errors.numpy()) == 15
    wide: Cells = {"query": cells["query"], f"a_{name}": bad, f"b_{name}": bad[::-1], "is_weekend": ["yes", "no"] * 30}
    words = ["dataset=table", f"dataset.path={write(tmp_path, wide)}", "method=knn"]
    assert not [key for key in guessed_keys(words) if "experts" in key]


def test_what_train_guesses(tmp_path: Path) -> None:
    """Experts and the text of a table, if nothing says so: no grade of a log, and nothing beside a key of the user's."""
    prompts = [f"{QUERIES[i % 4]} {i}" for i in range(20)]
    right: Cells = {"gpt-4": [i % 2 for i in range(20)], "yi": [0, 1, 1, 1] * 5}
    wide: Cells = {f"correct_{name}": cells for name, cells in right.items()}
    lengths: Cells = {"chars_gpt-4": list(range(20)), "chars_yi": list(range(20)), "question": prompts}
    experts, text = "dataset.experts=[gpt-4, yi]", "dataset.text=question"
    asked: Cells = {"question": prompts, "expert": ["a", "b"] * 10, "correct": [1, 0, 0, 1] * 5}
    for cells, found in (
        ({**right, "question": prompts}, [experts, text]),
        ({**wide, **lengths}, [text]),
        ({**wide, **lengths, "x": list(range(20))}, []),
        ({**wide, "x": list(range(20))}, []),
        (asked, [text]),
        (messy(), []),
    ):
        words = ["dataset=table", f"dataset.path={write(tmp_path, cells)}"]
        assert guessed_keys([*words, "method=knn"]) == found
        assert guessed_keys([*words, "dataset.category=question"]) == []


def test_a_column_of_scores_per_expert(tmp_path: Path, capsys: Captured) -> None:
    """Shares, not right or wrong, and beside them a column of few words that could be the expert of a log."""
    cells: Cells = {
        "Prompt Text": [f"{QUERIES[i % 4]} {i}" for i in range(20)],
        "Sprache": ["de", "en"] * 10,
        **{
            f"Score {name}": [0.1 * (i % k) if i % 7 else None for i in range(20)]
            for name, k in (("a 7b", 3), ("b", 8))
        },
    }
    roles, words, _ = checked(write(tmp_path, cells, "t.parquet"), capsys)
    assert len(roles) == 3  # by their first words
    assert table_of(words).expert_names(Path()) == ["Score a 7b", "Score b"]


def test_most_of_its_cells_say_what_a_column_is(tmp_path: Path, capsys: Captured) -> None:
    """Two outcomes that are no grade are a fault of these cells. A log of one expert has an expert; prices may have commas."""
    cells = messy()
    cells["Ergebnis"] = [["fail", "pass"][i % 2] for i in range(58)] + ["error"] * 2
    cells["Kosten"] = [f"0,{i + 1:04} USD" for i in range(60)]
    del cells["thumbs"], cells["usd"]
    roles, _, said = checked(write(tmp_path, cells), capsys, status=1)
    assert (roles["Ergebnis"], roles["Kosten"]) == ("correct", "price")
    assert "2 of 60 rows: 59, 60" in said
    roles, _, said = checked(write(tmp_path, {**messy(), "model_used": ["one"] * 60}), capsys, status=1)
    assert roles["model_used"] == "expert"
    assert "only one expert" in said


def test_a_column_that_tells_who_was_asked_is_named(tmp_path: Path, capsys: Captured) -> None:
    said = checked(write(tmp_path, log()), capsys)[2]
    assert "'dataset.confounders=[tenant]'" in said
    for cells, key in ((log(propensity=[0.5] * 300), "dataset.text=query"), (log(), "dataset.confounders=[tenant]")):
        assert "WARNING" not in checked(write(tmp_path, cells), capsys, key)[2]


def test_what_is_known_after_an_answer_is_no_feature(tmp_path: Path, capsys: Captured) -> None:
    cells: Cells = {"x": list(range(10)), "answer_a": [1] * 10, "price_a": [2] * 10, "confidence_a": [0.5] * 10}
    _, _, said = checked(write(tmp_path, cells), capsys, status=1)
    assert [line.split()[0] for line in said.splitlines() if "dataset.features" in line] == ["x"]


@pytest.mark.parametrize("experts", ["[a,c]", "[c,d]"])
def test_experts_that_are_no_columns(experts: str, tmp_path: Path) -> None:
    cells: Cells = {"text": [f"{QUERIES[i % 4]} {i}" for i in range(20)], "a": [0, 1] * 10, "b": [1, 0] * 10}
    with pytest.raises(SystemExit, match=r"dataset\.experts=c"):
        main(["check", str(write(tmp_path, cells)), f"dataset.experts={experts}"])


def test_no_table_at_all(tmp_path: Path, capsys: Captured) -> None:
    _, words, said = checked(write(tmp_path, {"x": [1, 2], "y": [3, 4]}), capsys, status=1)
    assert words == []
    assert "dataset.columns={expert" in said


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["method=knn"], "method=knn"),
        (["dataset.columns={expert: modle_used}"], "model_used"),
        (["dataset.columns={corect: thumbs}"], r"dataset\.columns\.corect: .*correct"),
        (["dataset.text=questoin"], r"dataset\.text=questoin: .*"),
        (["dataset.txt=x"], "dataset.txt"),
    ],
)
def test_keys_that_cannot_be(keys: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=said):
        main(["check", str(write(tmp_path, messy())), *keys])


def test_the_log_of_the_server(tmp_path: Path, capsys: Captured) -> None:
    """It is read as training reads it, so that what training refuses is refused here too."""
    n = 60
    cells: Cells = {
        "id": [*range(n)], "prompt": [f"question {k}" for k in range(n)], "expert": ["a", "b"] * (n // 2),
        "router_choice": ["a"] * n, "correct": [1, 0] * (n // 2), "propensity": [0.5] * n,
    }  # fmt: skip
    file = write(tmp_path, cells)
    main(["check", str(file), "dataset.test_fraction=0.3"])
    said = capsys.readouterr().out
    assert f"dataset=log dataset.path={file} dataset.test_fraction=0.3" in said
    assert "60 decisions" in said
    for place, (wrong, key) in enumerate([(7, "propensity"), (1.0, "explored")]):
        (folder := tmp_path / str(place)).mkdir()
        with pytest.raises(SystemExit, match=key):
            main(["check", str(write(folder, {**cells, "propensity": [wrong] * n}))])
    open_database(tmp_path / "log.sqlite").close()
    with pytest.raises(SystemExit, match="no decision"):
        main(["check", str(tmp_path / "log.sqlite")])


@pytest.mark.parametrize("end", ["xlsx", "json"])
def test_a_file_that_is_neither_a_table_nor_a_log(end: str, tmp_path: Path) -> None:
    (tmp_path / f"outcomes.{end}").write_text("hello")
    with pytest.raises(SystemExit, match=rf"outcomes\.{end}: .*\.csv, .*\.parquet or \.jsonl$"):
        main(["check", str(tmp_path / f"outcomes.{end}")])


def test_grades_that_nobody_understands(tmp_path: Path, capsys: Captured) -> None:
    """A column with grades is at fault; a column of reasons is not taken for grades."""
    words: Cells = {"prompt": QUERIES * 10, "model": ["a", "b"] * 20}
    for name, wanted in (("thumbs", ("thumbs", "'nope'")), ("score_reason", ("dataset.columns", "correct"))):
        with pytest.raises(SystemExit):
            main(["check", str(write(tmp_path, {**words, name: ["nope", "Good", "meh", "nope"] * 10}))])
        said = capsys.readouterr().out
        assert all(word in said for word in wanted)
        assert "'Good'" not in said


def test_columns_without_latin_letters(tmp_path: Path, capsys: Captured) -> None:
    cells: Cells = {"问题": QUERIES * 10, "%": [0.5] * 40, "correct_a": [0, 1] * 20, "correct_b": [1, 0] * 20}
    roles, _, _ = checked(write(tmp_path, cells), capsys)
    assert {"问题", "%"} <= {*roles}
