"""Recorded outcomes become columns; what does not fit is refused in one line that names the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from l2d.data.importers.harness import harness_outcomes, model_of_file
from l2d.data.importers.routellm import routellm_outcomes
from l2d.utils.errors import L2DError


def sample(doc_id: int, **changes: Any) -> dict[str, Any]:
    """As lm-evaluation-harness 0.4 writes them for a multiple-choice task, in short."""
    return {
        "doc_id": doc_id,
        "doc": {"question": f"question {doc_id}", "choices": ["x", "y"], "answer": doc_id % 2},
        "target": doc_id % 2,
        "arguments": {
            "gen_args_0": {"arg_0": f"question {doc_id}\nAnswer:", "arg_1": " A"},
            "gen_args_1": {"arg_0": f"question {doc_id}\nAnswer:", "arg_1": " B"},
        },
        "resps": [[["-1.5", "True"]], [["-2.5", "False"]]],
        "filtered_resps": [["-1.5", "True"], ["-2.5", "False"]],
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": "d",
        "prompt_hash": "p",
        "target_hash": "t",
        "acc": float(doc_id % 3 == 0),
        **changes,
    }


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def two(tmp_path: Path, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[tuple[str, Path]]:
    return [("a", write(tmp_path / "a.jsonl", first)), ("b", write(tmp_path / "b.jsonl", second))]


def test_harness(tmp_path: Path) -> None:
    """Joined by doc_id, in the first one's order; what only one was asked stays empty for the other, and is noted."""
    files = two(tmp_path, [sample(i) for i in (3, 0, 1, 5)], [sample(i, acc=i % 2 == 0) for i in (0, 1, 2, 3)])
    # as Windows writes it, with a blank line
    files[1][1].write_bytes(files[1][1].read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    found = harness_outcomes(files)
    assert found.columns == {
        "id": ["3", "0", "1", "5", "2"],
        "prompt": [f"question {i}\nAnswer:" for i in (3, 0, 1, 5, 2)],
        "answer": ["1", "0", "1", "1", "0"],
        "correct_a": [1, 1, 0, 0, None],
        "correct_b": [0, 1, 0, None, 1],
    }
    assert [note.split(":")[0] for note in found.notes] == ["2 questions not asked of all models"]


def test_harness_as_older_versions_wrote_it(tmp_path: Path) -> None:
    def old(doc_id: int) -> dict[str, Any]:
        return sample(doc_id, arguments=[[f"question {doc_id}\nAnswer:", " A"], ["other", " B"]])

    found = harness_outcomes(two(tmp_path, [old(0)], [sample(0)]))
    assert found.columns["prompt"] == ["question 0\nAnswer:"]


def test_other_metrics_and_filters(tmp_path: Path) -> None:
    """exact_match without being told; a share of several tries stays one; of two filters one is chosen."""

    def rows(strict: float, flexible: float) -> list[dict[str, Any]]:
        made = []
        for name, value in (("strict-match", strict), ("flexible-extract", flexible)):
            row = sample(7, filter=name, exact_match=value, acc_norm=0.5, target="#### 4")
            del row["acc"]
            made.append(row)
        return made

    files = two(tmp_path, rows(0, 1), rows(0.25, 0))
    chosen = harness_outcomes(files, filter="strict-match").columns
    assert (chosen["correct_a"], chosen["correct_b"], chosen["answer"]) == ([0], [0.25], ["#### 4"])
    assert harness_outcomes(files, metric="acc_norm", filter="flexible-extract").columns["correct_a"] == [0.5]
    for row in (both := rows(0, 1)):
        row["acc"] = 0.75
    found = harness_outcomes([("a", write(tmp_path / "both.jsonl", both)), files[1]], filter="strict-match")
    assert found.columns["correct_a"] == [0.75]  # acc, if there are both
    with pytest.raises(L2DError, match=r"^filter: .*a\.jsonl .*flexible-extract, strict-match"):
        harness_outcomes(files)
    with pytest.raises(L2DError, match=r"a\.jsonl: no rows .*loose"):
        harness_outcomes(files, filter="loose")


def test_chat_templates_may_differ(tmp_path: Path) -> None:
    """Another wording of the same document is noted; another document under the same id is refused."""
    reworded = sample(0, arguments={"gen_args_0": {"arg_0": "<user>question 0", "arg_1": "A"}})
    found = harness_outcomes(two(tmp_path, [sample(0)], [reworded]))
    assert found.columns["prompt"] == ["question 0\nAnswer:"]
    assert found.notes == ["1 prompts differ from model to model (chat templates?); those of the first model are kept"]
    other = {**reworded, "doc": {"question": "another"}}
    with pytest.raises(L2DError, match=r"^id 0: a and b were asked different questions"):
        harness_outcomes(two(tmp_path, [sample(0)], [other]))
    for row in (one := sample(0)), reworded:
        del row["doc"]
    with pytest.raises(L2DError, match="different questions"):
        harness_outcomes(two(tmp_path, [one], [reworded]))


def test_several_tasks_of_one_model(tmp_path: Path) -> None:
    """ORG__MODEL/samples_TASK_TIME.jsonl: models by folder, tasks under each other."""
    files = []
    for folder in ("Qwen__Qwen2.5-7B", "Qwen__Qwen2.5-0.5B"):
        for task in ("mmlu_maths", "mmlu_history"):
            stamp = "2026-01-16T16-02-26.648276" if "7B" in folder else "2026-01-17T01-02-03.1"
            files.append(write(tmp_path / folder / f"samples_{task}_{stamp}.jsonl", [sample(0), sample(1)]))
    found = harness_outcomes([(model_of_file(file), file) for file in files]).columns
    assert list(found) == ["id", "prompt", "subject", "answer", "correct_Qwen2.5-7B", "correct_Qwen2.5-0.5B"]
    assert found["subject"] == ["mmlu_maths", "mmlu_maths", "mmlu_history", "mmlu_history"]
    assert found["id"] == ["mmlu_maths/0", "mmlu_maths/1", "mmlu_history/0", "mmlu_history/1"]
    assert model_of_file(tmp_path / "small.jsonl") == "small"
    assert model_of_file(tmp_path / "plain" / "samples_mmlu.jsonl") == "plain"  # no ORG__ before it


def test_a_model_is_known_from_within_its_folder_and_by_any_way_of_writing_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "org__small"
    for stamp in ("2026-01-16T16-02-26.648276", "2026-01-16T16:02:26"):
        file = write(folder / f"samples_law_{stamp}.jsonl", [sample(0)])
        found = harness_outcomes([("a", file), ("b", write(tmp_path / "samples_law.jsonl", [sample(0)]))])
        assert found.columns["subject"] == ["law"]
        assert found.columns["id"] == ["0"]  # one task, so no TASK/ before it
        monkeypatch.chdir(folder)
        assert model_of_file(Path(file.name)) == "small"


@pytest.mark.parametrize(
    ("key", "subjects"), [("subject", ["law", "art"]), ("category", ["law", "art"]), ("topic", None)]
)
def test_subjects_are_the_documents_own(tmp_path: Path, key: str, subjects: list[str] | None) -> None:
    """Rather than the task's, which a file called a.jsonl does not have."""

    def rows() -> list[dict[str, Any]]:
        made = [sample(0), sample(1)]
        for row, name in zip(made, ("law", "art"), strict=True):
            row["doc"][key] = name
        return made

    assert harness_outcomes(two(tmp_path, rows(), rows())).columns.get("subject") == subjects
    tasks = [(name, write(tmp_path / name / "samples_mmlu_2026-01-16T16-02-26.6.jsonl", rows())) for name in "ab"]
    assert harness_outcomes(tasks).columns["subject"] == (subjects or ["mmlu", "mmlu"])


def test_the_subject_comes_before_the_wider_category(tmp_path: Path) -> None:
    doc = {"category": "history", "subject": "rome"}
    assert harness_outcomes(two(tmp_path, [sample(0, doc=doc)], [sample(0, doc=doc)])).columns["subject"] == ["rome"]


def test_answers_that_are_not_all_known_are_left_out(tmp_path: Path) -> None:
    rows = [sample(0), sample(1, target=None)]
    assert list(harness_outcomes(two(tmp_path, rows, rows)).columns) == ["id", "prompt", "correct_a", "correct_b"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"doc_id": 0', ""], r"a\.jsonl: line 1: not a JSON object"),
        ([json.dumps(sample(0)), "", "{]"], r"a\.jsonl: line 3: not a JSON object"),
        (["[1]"], r"a\.jsonl: line 1: not a JSON object"),
        ([""], r"a\.jsonl: no rows"),
        ([json.dumps(sample(0)), json.dumps(sample(0))], r"a\.jsonl: line 2: a second row of a with id 0"),
        (['{"acc": 1}'], r"a\.jsonl: line 1: no doc_id"),
        ([json.dumps({**sample(0), "arguments": {}})], r"a\.jsonl: line 1: no prompt"),
        ([json.dumps({**sample(0), "acc": 3})], r"a\.jsonl: line 1: acc is 3; must be between"),
        ([json.dumps({**sample(0), "acc": ["x", "y"]})], r"a\.jsonl: line 1: acc is"),
        ([json.dumps(sample(9))], r"no question of a was asked of another model too; its ids are 9$"),
    ],
)
def test_what_harness_refuses(tmp_path: Path, lines: list[str], words: str) -> None:
    files = two(tmp_path, [], [sample(0)])
    files[0][1].write_text("\n".join(lines))
    with pytest.raises(L2DError, match=words):
        harness_outcomes(files)


def test_a_missing_metric_names_those_present(tmp_path: Path) -> None:
    row = {**sample(0), "f1": 0.5, "bleu": 0.1, "metrics": ["f1", "bleu"]}
    del row["acc"]
    with pytest.raises(L2DError, match=r"^metric: .*a\.jsonl: line 1 .*acc or exact_match.* f1, bleu$"):
        harness_outcomes(two(tmp_path, [row], [row]))
    with pytest.raises(L2DError, match=r"^metric: .* em; .* acc$"):
        harness_outcomes(two(tmp_path, [sample(0)], [sample(0)]), metric="em")


def test_one_model_is_not_enough(tmp_path: Path) -> None:
    (_, file), (_, other) = two(tmp_path, [sample(0)], [sample(1)])
    with pytest.raises(L2DError, match="all files are of one model, a; name models with NAME=FILE"):
        harness_outcomes([("a", file), ("a", other)])
    with pytest.raises(L2DError, match="a second row of a with id 0"):
        harness_outcomes([("a", file), ("a", file)])


PROMPT = 'Which, "if any"?\nA. x\nB. y\nAnswer:'
RESPONSES = "prompt,mixtral-8x7b-instruct-v0.1,gpt-4-1106-preview\n" + "".join(
    f'"{number} {PROMPT.replace(chr(34), chr(34) * 2)}",{a},{b}\n'
    for number, (a, b) in enumerate([(True, True), (False, True), (True, False)])
)


def test_routellm(tmp_path: Path) -> None:
    file = tmp_path / "mmlu_anatomy.csv"
    file.write_text(RESPONSES)
    assert routellm_outcomes([file]).columns == {
        "id": [0, 1, 2],
        "prompt": [f"{number} {PROMPT}" for number in range(3)],
        "correct_mixtral-8x7b-instruct-v0.1": [1, 0, 1],
        "correct_gpt-4-1106-preview": [1, 1, 0],
    }
    other = tmp_path / "mmlu_law.csv"
    other.write_text(RESPONSES.replace("True", "1").replace("False", "0"))
    both = routellm_outcomes([file, other]).columns
    assert both["id"] == [f"{name}/{row}" for name in ("mmlu_anatomy", "mmlu_law") for row in range(3)]
    assert both["subject"] == ["mmlu_anatomy"] * 3 + ["mmlu_law"] * 3
    assert both["correct_gpt-4-1106-preview"] == [1, 1, 0, 1, 1, 0]


def test_responses_beside_outcomes_are_left_out(tmp_path: Path) -> None:
    """As in RouteLLM's GSM8K file."""
    file = tmp_path / "gsm8k.csv"
    file.write_text("prompt,a,b,a_response,b_response\nq,True,False,so and so,no\n")
    assert list(routellm_outcomes([file]).columns) == ["id", "prompt", "correct_a", "correct_b"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("question,a,b\nq,True,True\n", r"no column prompt; there are question, a, b"),
        ("prompt,a,b\nq,True,maybe\n", r"column b: not a number, nor true, false, yes or no in 1 of 1 rows"),
        ("prompt,a,b\nq,True,0.5\n", r"column b: neither True nor False"),
        ("prompt,a,b\nq,True\n", r"Row #2: Expected 3 columns"),
        ("", "Empty CSV file"),
    ],
)
def test_what_routellm_refuses(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "r.csv"
    file.write_text(content)
    with pytest.raises(L2DError, match=words) as caught:
        routellm_outcomes([file])
    assert str(caught.value).startswith(str(file))


def test_files_of_different_models_are_not_put_together(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(RESPONSES)
    other.write_text(RESPONSES.replace("gpt-4-1106-preview", "gpt-5"))
    with pytest.raises(L2DError, match=r"other\.csv: other models than in .*: correct_gpt-5"):
        routellm_outcomes([one, other])


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A folder or nothing where a file should be. Commands answer to an OSError that names its file with one line."""
    good = write(tmp_path / "good.jsonl", [sample(0)])
    (tmp_path / "folder.csv").mkdir()
    for file in (tmp_path / "folder.csv", tmp_path / "none.csv"):
        with pytest.raises(L2DError, match=rf"{file.name}: no such file"):
            routellm_outcomes([file])
        with pytest.raises(OSError, match=str(file)) as caught:
            harness_outcomes([("a", good), ("b", file)])
        assert caught.value.filename is not None


def test_models_that_routellm_did_not_ask(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("prompt,a,b\nq,True,\nr,False,True\n")
    found = routellm_outcomes([tmp_path / "r.csv"])
    assert (found.columns["correct_a"], found.columns["correct_b"]) == ([1, 0], [None, 1])
    assert [note.split(":")[0] for note in found.notes] == ["1 question not asked of all models"]
    (tmp_path / "r.csv").write_text(RESPONSES)
    assert routellm_outcomes([tmp_path / "r.csv"]).notes == []


def test_a_question_need_not_be_common_to_all(tmp_path: Path) -> None:
    """b shares a question with each of the others, which share none with each other. The prompt is that of the first asked."""
    files = two(tmp_path, [sample(0)], [sample(0), sample(1)])
    found = harness_outcomes([*files, ("c", write(tmp_path / "c.jsonl", [sample(1)]))])
    assert found.columns["prompt"] == ["question 0\nAnswer:", "question 1\nAnswer:"]
    assert [found.columns[f"correct_{name}"] for name in "abc"] == [[1, None], [1, 0], [None, 0]]
    other = sample(1, doc={"question": "another"}, arguments={"gen_args_0": {"arg_0": "other", "arg_1": "A"}})
    with pytest.raises(L2DError, match=r"^id 1: b and c were asked different questions"):
        harness_outcomes([*files, ("c", write(tmp_path / "c.jsonl", [other]))])
