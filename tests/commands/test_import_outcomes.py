"""Outcomes from elsewhere become a table that dataset=table reads; what does not fit is refused in one line."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from l2d.commands.import_outcomes import harness, routellm
from l2d.commands.import_outcomes import import_table as main
from l2d.config import compose
from l2d.data.sheet import read_sheet
from l2d.routing.build import make
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


def test_harness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Joined by doc_id, in the first one's order; what only one was asked is left out, and said."""
    files = two(tmp_path, [sample(i) for i in (3, 0, 1, 5)], [sample(i, acc=True) for i in (0, 1, 2, 3)])
    assert harness(files) == {
        "id": ["3", "0", "1"],
        "prompt": [f"question {i}\nAnswer:" for i in (3, 0, 1)],
        "answer": ["1", "0", "1"],
        "correct_a": [1, 1, 0],
        "correct_b": [1, 1, 1],
    }
    assert capsys.readouterr().err.startswith("2 questions are left out")


def test_harness_as_older_versions_wrote_it(tmp_path: Path) -> None:
    def old(doc_id: int) -> dict[str, Any]:
        return sample(doc_id, arguments=[[f"question {doc_id}\nAnswer:", " A"], ["other", " B"]])

    found = harness(two(tmp_path, [old(0)], [sample(0)]))
    assert found["prompt"] == ["question 0\nAnswer:"]


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
    chosen = harness(files, chosen="strict-match")
    assert (chosen["correct_a"], chosen["correct_b"], chosen["answer"]) == ([0], [0.25], ["#### 4"])
    assert harness(files, metric="acc_norm", chosen="flexible-extract")["correct_a"] == [0.5]
    with pytest.raises(
        L2DError, match=r"a\.jsonl: rows of several filters; .*filter=, of flexible-extract, strict-match"
    ):
        harness(files)
    with pytest.raises(L2DError, match=r"a\.jsonl: no rows of filter=loose"):
        harness(files, chosen="loose")


def test_chat_templates_may_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another wording of the same document is said; another document under the same id is refused."""
    reworded = sample(0, arguments={"gen_args_0": {"arg_0": "<user>question 0", "arg_1": "A"}})
    found = harness(two(tmp_path, [sample(0)], [reworded]))
    assert found["prompt"] == ["question 0\nAnswer:"]
    assert "1 prompts are worded differently" in capsys.readouterr().err
    other = {**reworded, "doc": {"question": "another"}}
    with pytest.raises(L2DError, match=r"^id 0: a and b were asked different questions"):
        harness(two(tmp_path, [sample(0)], [other]))
    for row in (one := sample(0)), reworded:
        del row["doc"]
    with pytest.raises(L2DError, match="different questions"):
        harness(two(tmp_path, [one], [reworded]))


def test_names_and_tasks_from_where_files_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ORG__MODEL/samples_TASK_TIME.jsonl: models by folder, several tasks of one model under each other."""
    files = []
    for folder in ("Qwen__Qwen2.5-7B", "Qwen__Qwen2.5-0.5B"):
        for task in ("mmlu_maths", "mmlu_history"):
            stamp = "2026-01-16T16-02-26.648276" if "7B" in folder else "2026-01-17T01-02-03.1"
            files.append(write(tmp_path / folder / f"samples_{task}_{stamp}.jsonl", [sample(0), sample(1)]))
    out = tmp_path / "t.csv"
    main(["harness", *map(str, files), f"out={out}"])
    sheet = read_sheet(out, ["prompt"])
    assert sheet.names == ["id", "prompt", "subject", "answer", "correct_Qwen2.5-7B", "correct_Qwen2.5-0.5B"]
    assert sheet.words("subject") == ["mmlu_maths", "mmlu_maths", "mmlu_history", "mmlu_history"]
    assert sheet.words("id") == ["mmlu_maths/0", "mmlu_maths/1", "mmlu_history/0", "mmlu_history/1"]
    said = capsys.readouterr().out
    assert "4 questions; right: Qwen2.5-7B 50.0%, Qwen2.5-0.5B 50.0%" in said
    assert said.endswith("dataset.text=prompt dataset.category=subject\n")


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

    assert harness(two(tmp_path, rows(), rows())).get("subject") == subjects
    tasks = [(name, write(tmp_path / name / "samples_mmlu_2026-01-16T16-02-26.6.jsonl", rows())) for name in "ab"]
    assert harness(tasks)["subject"] == (subjects or ["mmlu", "mmlu"])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"doc_id": 0', ""], r"a\.jsonl: line 1: not JSON"),
        ([json.dumps(sample(0)), "", "{]"], r"a\.jsonl: line 3: not JSON"),
        (["[1]"], r"a\.jsonl: line 1: not a JSON object"),
        ([""], r"a\.jsonl: no rows"),
        ([json.dumps(sample(0)), json.dumps(sample(0))], r"a\.jsonl: line 2: a second row with doc_id 0"),
        (['{"acc": 1}'], r"a\.jsonl: line 1: no doc_id"),
        ([json.dumps({**sample(0), "arguments": {}})], r"a\.jsonl: line 1: no prompt"),
        ([json.dumps({**sample(0), "acc": 3})], r"a\.jsonl: line 1: acc is 3; must be between"),
        ([json.dumps({**sample(0), "acc": ["x", "y"]})], r"a\.jsonl: line 1: acc is"),
        ([json.dumps(sample(9))], r"no id is common to all models \(a: 9; b: 0\)"),
    ],
)
def test_what_harness_refuses(tmp_path: Path, lines: list[str], words: str) -> None:
    files = two(tmp_path, [], [sample(0)])
    files[0][1].write_text("\n".join(lines))
    with pytest.raises(L2DError, match=words):
        harness(files)


def test_a_missing_metric_names_those_present(tmp_path: Path) -> None:
    row = {**sample(0), "f1": 0.5, "bleu": 0.1}
    del row["acc"]
    with pytest.raises(L2DError, match=r"line 1: no acc or exact_match; choose with metric=, of f1, bleu$"):
        harness(two(tmp_path, [row], [row]))
    with pytest.raises(L2DError, match=r"no em; choose with metric=, of acc$"):
        harness(two(tmp_path, [sample(0)], [sample(0)]), metric="em")


def test_one_model_is_not_enough(tmp_path: Path) -> None:
    (_, file), (_, other) = two(tmp_path, [sample(0)], [sample(1)])
    with pytest.raises(L2DError, match="all files are of one model, a; name models with NAME=FILE"):
        harness([("a", file), ("a", other)])
    with pytest.raises(L2DError, match="a second row of a with id 0"):
        harness([("a", file), ("a", file)])


PROMPT = 'Which, "if any"?\nA. x\nB. y\nAnswer:'
RESPONSES = "prompt,mixtral-8x7b-instruct-v0.1,gpt-4-1106-preview\n" + "".join(
    f'"{number} {PROMPT.replace(chr(34), chr(34) * 2)}",{a},{b}\n'
    for number, (a, b) in enumerate([(True, True), (False, True), (True, False)])
)


def test_routellm(tmp_path: Path) -> None:
    file = tmp_path / "mmlu_anatomy.csv"
    file.write_text(RESPONSES)
    found = routellm([file])
    assert found == {
        "id": [0, 1, 2],
        "prompt": [f"{number} {PROMPT}" for number in range(3)],
        "correct_mixtral-8x7b-instruct-v0.1": [1, 0, 1],
        "correct_gpt-4-1106-preview": [1, 1, 0],
    }
    other = tmp_path / "mmlu_law.csv"
    other.write_text(RESPONSES.replace("True", "1").replace("False", "0"))
    both = routellm([file, other])
    assert both["id"] == [f"{name}/{row}" for name in ("mmlu_anatomy", "mmlu_law") for row in range(3)]
    assert both["subject"] == ["mmlu_anatomy"] * 3 + ["mmlu_law"] * 3
    assert both["correct_gpt-4-1106-preview"] == [1, 1, 0, 1, 1, 0]


def test_responses_beside_outcomes_are_left_out(tmp_path: Path) -> None:
    """As in RouteLLM's GSM8K file."""
    file = tmp_path / "gsm8k.csv"
    file.write_text("prompt,a,b,a_response,b_response\nq,True,False,so and so,no\n")
    assert list(routellm([file])) == ["id", "prompt", "correct_a", "correct_b"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("question,a,b\nq,True,True\n", r"no column prompt; there are question, a, b"),
        ("prompt,a\nq,True\n", r"two or more columns of True and False beside prompt, has a"),
        ("prompt,a,b\nq,True,maybe\n", r"column b: not a number, nor true or false in 1 of 1 rows"),
        ("prompt,a,b\nq,True,0.5\n", r"column b: neither True nor False"),
        ("prompt,a,b\nq,True,\n", r"column b: empty"),
        ("prompt,a,b\nq,True\n", r"not the header's 3 cells"),
        ("", "is empty"),
    ],
)
def test_what_routellm_refuses(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "r.csv"
    file.write_text(content)
    with pytest.raises(L2DError, match=words) as caught:
        routellm([file])
    assert str(caught.value).startswith(str(file))


def test_files_of_different_models_are_not_put_together(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(RESPONSES)
    other.write_text(RESPONSES.replace("gpt-4-1106-preview", "gpt-5"))
    with pytest.raises(L2DError, match=r"other\.csv: other models than in .*: correct_gpt-5"):
        routellm([one, other])
    with pytest.raises(L2DError, match="two rows with one id"):
        routellm([one, one])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_table_is_read_by_the_dataset(tmp_path: Path, suffix: str) -> None:
    files = two(tmp_path, [sample(i) for i in range(20)], [sample(i, acc=i % 2) for i in range(20)])
    out = tmp_path / f"t{suffix}"
    main(["harness", *(f"{name}={file}" for name, file in files), f"out={out}"])
    cfg = compose(["dataset=table", f"dataset.path={out}", "dataset.text=prompt"])
    panel = make(cfg.dataset).load(tmp_path).panel
    assert panel.names == ("a", "b")
    assert float(panel.train.errors[:, 0].sum() + panel.test.errors[:, 0].sum()) == 13  # 0, 3, …, 18 are right
    assert float(panel.train.errors[:, 1].sum() + panel.test.errors[:, 1].sum()) == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "^nothing: must be harness or routellm"),
        (["helm"], "^helm: must be harness or routellm"),
        (["harness", "out=t.csv"], "^harness: no files"),
        (["harness", "a.jsonl"], "^out: missing"),
        (["harness", "--force", "a.jsonl", "out=t.csv"], "^--force: unknown flag"),
        (["harness", "a=no.jsonl", "b=no.jsonl", "out=t.csv"], r"^no\.jsonl: no such file"),
        (["routellm", "no.csv", "out=t.csv"], r"^no\.csv: no such file"),
    ],
)
def test_bad_commands(arguments: list[str], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        main(arguments)


def test_other_kinds_of_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(RESPONSES)
    with pytest.raises(L2DError, match=r"must end in \.csv or \.parquet"):
        main(["routellm", str(tmp_path / "r.csv"), f"out={tmp_path / 't.xlsx'}"])


@pytest.mark.slow
def test_the_command(command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command(*arguments, module="l2d.commands.import_outcomes", tiny=False)

    (tmp_path / "r.csv").write_text(RESPONSES)
    done = run("routellm", "r.csv", "out=t.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "t.csv: 3 questions; right: mixtral-8x7b-instruct-v0.1 66.7%, gpt-4-1106-preview 66.7%"
    )
    assert "usage: l2d import harness" in run("--help").stdout
    bad = run("routellm", "missing.csv", "out=t.csv")
    assert bad.returncode == 1
    assert bad.stderr.startswith("error: missing.csv: no such file")
    assert bad.stderr.count("\n") == 1
