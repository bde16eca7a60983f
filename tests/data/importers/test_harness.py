"""Sample files of lm-evaluation-harness become columns; others are refused by file and line."""

import json
from pathlib import Path
from typing import Any

import pytest

from l2d.data.importers.harness import harness_outcomes, model_of_file
from l2d.utils.errors import L2DError


def sample(doc_id: int, **changes: Any) -> dict[str, Any]:
    """As lm-evaluation-harness 0.4 writes them for a multiple-choice task, in short."""
    asked = {"arg_0": f"question {doc_id}\nAnswer:"}
    return {
        "doc_id": doc_id,
        "doc": {"question": f"question {doc_id}", "choices": ["x", "y"], "answer": doc_id % 2},
        "target": doc_id % 2,
        "arguments": {"gen_args_0": {**asked, "arg_1": " A"}, "gen_args_1": {**asked, "arg_1": " B"}},
        "filter": "none",
        "metrics": ["acc"],
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
    assert [note.split(" not")[0] for note in found.notes] == ["2 questions"]


def test_harness_as_older_versions_wrote_it(tmp_path: Path) -> None:
    old = sample(0, arguments=[["question 0\nAnswer:", " A"], ["other", " B"]])
    assert harness_outcomes(two(tmp_path, [old], [sample(0)])).columns["prompt"] == ["question 0\nAnswer:"]


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
    with pytest.raises(L2DError, match=r"^filter=None: .*a\.jsonl: flexible-extract, strict-match"):
        harness_outcomes(files)
    with pytest.raises(L2DError, match=r"^filter=loose: .*a\.jsonl"):
        harness_outcomes(files, filter="loose")


def test_chat_templates_may_differ(tmp_path: Path) -> None:
    """The first model's prompt stays; another document under the same id is refused."""
    reworded = sample(0, arguments={"gen_args_0": {"arg_0": "<user>question 0", "arg_1": "A"}})
    found = harness_outcomes(two(tmp_path, [sample(0)], [reworded]))
    assert found.columns["prompt"] == ["question 0\nAnswer:"]
    other = {**reworded, "doc": {"question": "another"}}
    with pytest.raises(L2DError, match=r"^id 0: a and b "):
        harness_outcomes(two(tmp_path, [sample(0)], [other]))
    for row in (one := sample(0)), reworded:
        del row["doc"]
    with pytest.raises(L2DError, match=r"^id 0: a and b "):
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
    # A subject comes before the wider category. Answers that are not all known are left out.
    rows = [sample(i, doc={"category": "history", "subject": "rome"}, target=i or None) for i in range(2)]
    found = harness_outcomes(two(tmp_path, rows, rows)).columns
    assert list(found) == ["id", "prompt", "subject", "correct_a", "correct_b"]
    assert found["subject"] == ["rome", "rome"]


def test_models_and_tasks_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "org__small" / "samples_law_2026-01-16T16:02:26.jsonl", [sample(0)])
    found = harness_outcomes([("a", file), ("b", write(tmp_path / "samples_law.jsonl", [sample(0)]))]).columns
    assert (found["subject"], found["id"]) == (["law"], ["0"])  # one task, so no TASK/ before the id
    monkeypatch.chdir(file.parent)
    assert model_of_file(Path(file.name)) == "small"


@pytest.mark.parametrize(("key", "subjects"), [("category", ["law", "art"]), ("topic", None)])
def test_subjects_are_the_documents_own(tmp_path: Path, key: str, subjects: list[str] | None) -> None:
    """Rather than the task's, which a file called a.jsonl does not have."""
    rows = [sample(0), sample(1)]
    for row, name in zip(rows, ("law", "art"), strict=True):
        row["doc"][key] = name
    assert harness_outcomes(two(tmp_path, rows, rows)).columns.get("subject") == subjects
    tasks = [(name, write(tmp_path / name / "samples_mmlu_2026-01-16T16-02-26.6.jsonl", rows)) for name in "ab"]
    assert harness_outcomes(tasks).columns["subject"] == (subjects or ["mmlu", "mmlu"])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([json.dumps(sample(0)), "", "{]"], r"a\.jsonl: line 3: not a JSON object"),
        ([""], r"^filter=None: .*a\.jsonl: .*no rows"),
        ([json.dumps(sample(0)), json.dumps(sample(0))], r"a\.jsonl: line 2: a second row of a with id 0"),
        (['{"acc": 1}'], r"a\.jsonl: line 1: no doc_id"),
        ([json.dumps({**sample(0), "arguments": {}})], r"a\.jsonl: line 1: .*no prompt"),
        ([json.dumps({**sample(0), "acc": 3})], r"a\.jsonl: line 1: acc is 3"),
        ([json.dumps(sample(9))], r"no question of a .* 9$"),
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
    with pytest.raises(L2DError, match="one model, a;"):
        harness_outcomes([("a", file), ("a", other)])
    with pytest.raises(OSError, match="none") as caught:
        harness_outcomes([("a", file), ("b", tmp_path / "none")])
    assert caught.value.filename is not None  # so that commands answer with one line


def test_a_question_need_not_be_common_to_all(tmp_path: Path) -> None:
    """b shares a question with each of the others, which share none with each other. The prompt is that of the first asked."""
    files = two(tmp_path, [sample(0)], [sample(0), sample(1)])
    found = harness_outcomes([*files, ("c", write(tmp_path / "c.jsonl", [sample(1)]))])
    assert found.columns["prompt"] == ["question 0\nAnswer:", "question 1\nAnswer:"]
    assert [found.columns[f"correct_{name}"] for name in "abc"] == [[1, None], [1, 0], [None, 0]]
    other = sample(1, doc={"question": "another"}, arguments={"gen_args_0": {"arg_0": "other", "arg_1": "A"}})
    with pytest.raises(L2DError, match=r"^id 1: b and c "):
        harness_outcomes([*files, ("c", write(tmp_path / "c.jsonl", [other]))])
