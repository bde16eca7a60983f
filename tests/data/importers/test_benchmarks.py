"""Public benchmarks in their original formats, by hand and in small: each becomes the columns that dataset=table reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from l2d.data.importers.llmrouter import llmrouter_outcomes
from l2d.data.importers.llmrouterbench import llmrouterbench_outcomes
from l2d.data.importers.recorded import Outcome, outcome_table, task_and_split
from l2d.data.importers.routerbench import plain_prompt, routerbench_outcomes
from l2d.data.importers.routerdc import routerdc_outcomes
from l2d.utils.errors import L2DError


def put(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


# RouterDC: a JSON list per task and split.


def question(text: str, a: float, b: float, **more: Any) -> dict[str, Any]:
    return {"question": text, "scores": {"org/a": a, "org/b": b}, **more}


def test_routerdc(tmp_path: Path) -> None:
    """Tries stay shares; of probabilities, which are 0 where another answer was likelier, any above 0 is right."""
    files = [
        put(tmp_path / "gsm8k-train.json", [question("2 + 2?", 0.9, 0.3, cluster_id=1)]),
        put(tmp_path / "arc_challenge_test.json", [question("Why?", 0.004, 0), question("How?", 0, 0.98)]),
    ]
    found = routerdc_outcomes(files, ["arc_challenge"])
    assert found.columns == {
        "id": ["gsm8k-train/0", "arc_challenge_test/0", "arc_challenge_test/1"],
        "prompt": ["2 + 2?", "Why?", "How?"],
        "task": ["gsm8k", "arc_challenge", "arc_challenge"],
        "split": ["train", "test", "test"],
        "correct_org/a": [0.9, 1, 0],
        "correct_org/b": [0.3, 0, 1],
    }
    assert found.notes == []
    graded = routerdc_outcomes(files)
    assert graded.columns["correct_org/b"] == [0.3, 0, 0.98]
    assert [note.split(" ")[-1] for note in graded.notes] == ["arc_challenge"]


def test_preprocessed_files_of_llmrouter_have_no_task(tmp_path: Path) -> None:
    files = [put(tmp_path / f"{split}.json", [question(split, 1, 0.123)]) for split in ("train", "test")]
    found = routerdc_outcomes(files)
    assert list(found.columns) == ["id", "prompt", "split", "correct_org/a", "correct_org/b"]
    assert (found.columns["split"], found.notes) == (["train", "test"], [])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", r"mmlu_test\.json: not a JSON list"),
        ('{"question": "q"}', r"mmlu_test\.json: not a JSON list"),
        ("[1]", r"mmlu_test\.json: item 1: not a JSON object"),
        ('[{"scores": {"a": 1}}]', r"mmlu_test\.json: item 1: no question"),
        ('[{"question": 3, "scores": {"a": 1}}]', r"item 1: question is '3'; must be text"),
        ('[{"question": "q"}]', r"mmlu_test\.json: item 1: no scores"),
        ('[{"question": "q", "scores": {"a": 1, "b": 7}}]', r"item 1: scores of b is 7; must be between"),
        ('[{"question": "q", "scores": {"a": 1}}]', r"two models or more; there are a"),
    ],
)
def test_what_routerdc_refuses(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(L2DError, match=words):
        routerdc_outcomes([put(tmp_path / "mmlu_test.json", content)])


def test_tasks_and_splits_of_routerdc_are_named(tmp_path: Path) -> None:
    one = put(tmp_path / "mmlu_test.json", [question("q", 1, 0)])
    with pytest.raises(L2DError, match=r"^probability=law: no file of this task; there are mmlu"):
        routerdc_outcomes([one], ["law"])
    with pytest.raises(L2DError, match=r"^mbpp\.json: train or test"):
        routerdc_outcomes([one, put(tmp_path / "mbpp.json", [question("q", 1, 0)])])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gsm8k-train.json", ("gsm8k", "train")),
        ("arc_challenge_test.json", ("arc_challenge", "test")),
        ("default_routing_train_data.jsonl", ("default_routing", "train")),
        ("x.val.json", ("x", "validation")),
        ("test.json", ("", "test")),
        ("latest.json", ("latest", None)),
        ("MATH_prealgebra.json", ("MATH_prealgebra", None)),
    ],
)
def test_names_of_files(name: str, parts: tuple[str, str | None]) -> None:
    assert task_and_split(Path(name)) == parts


# LLMRouter: a JSON object per query and model.


def answered(query: str, model: str, performance: float, **more: Any) -> str:
    row = {
        "task_name": "gsm8k",
        "query": query,
        "ground_truth": "4",
        "metric": "GSM8K",
        "choices": None,
        "task_id": None,
        "model_name": model,
        "response": "four",
        "token_num": 300,
        "input_tokens": 100,
        "output_tokens": 200,
        "response_time": 0.5,
        "performance": performance,
        "embedding_id": 0,
        "user_id": None,
        "fig_id": None,
        **more,
    }
    return json.dumps(row) + "\n"


def test_llmrouter(tmp_path: Path) -> None:
    """Prices are dollars per million tokens: a costs 100·$1 + 200·$3 per million, b 100·$0.1 + 200·$0.2."""
    rows = [
        answered("2 + 2?", "a", 1.0),
        answered("2 + 2?", "b", 0.0),
        answered("3?", "b", 0.5),
        answered("3?", "a", 1),
    ]
    files = [
        put(tmp_path / "default_routing_train_data.jsonl", "".join(rows)),
        put(
            tmp_path / "default_routing_test_data.jsonl",
            answered("2 + 2?", "a", 0) + answered("2 + 2?", "b", 1) + answered("4?", "a", 1),
        ),
    ]
    models = {
        name: {"size": "7B", "input_price": i, "output_price": o} for name, i, o in (("a", 1, 3), ("b", 0.1, 0.2))
    }
    found = llmrouter_outcomes(files, put(tmp_path / "default_llm.json", models))
    prices = {name: found.columns.pop(name) for name in ("price_a", "price_b")}
    assert prices == {"price_a": pytest.approx([7e-4] * 4), "price_b": [*[pytest.approx(5e-5)] * 3, None]}
    assert found.columns == {
        "id": ["train/gsm8k/2 + 2?", "train/gsm8k/3?", "test/gsm8k/2 + 2?", "test/gsm8k/4?"],
        "prompt": ["2 + 2?", "3?", "2 + 2?", "4?"],
        "task": ["gsm8k"] * 4,
        "split": ["train", "train", "test", "test"],
        "correct_a": [1, 1, 0, 1],
        "correct_b": [0, 0.5, 1, None],
    }
    assert found.notes == ["1 question not asked of all models: their cells are empty, so the table is read as a log"]
    assert "price_a" not in llmrouter_outcomes(files).columns


def test_tokens_of_llmrouter_have_two_names(tmp_path: Path) -> None:
    def old(model: str) -> str:
        row = json.loads(answered("q", model, 1))
        row["prompt_tokens"], row["completion_tokens"] = row.pop("input_tokens"), row.pop("output_tokens")
        return json.dumps(row) + "\n"

    models = put(tmp_path / "llm.json", {key: {"input_price": 0, "output_price": 5} for key in "ab"})
    found = llmrouter_outcomes([put(tmp_path / "data.jsonl", old("a") + old("b"))], models)
    assert found.columns["price_b"] == [pytest.approx(1e-3)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", r"r\.jsonl: line 2: not a JSON object"),
        ('{"model_name": "b", "performance": 1}', r"r\.jsonl: line 2: no query"),
        ('{"query": "q", "performance": 1}', r"r\.jsonl: line 2: no model_name"),
        ('{"query": "q", "model_name": "b"}', r"r\.jsonl: line 2: no performance"),
        ('{"query": "q", "model_name": "b", "performance": 3}', r"line 2: performance is 3; must be between"),
        ('{"query": "q", "model_name": "c", "performance": 1}', r"llm\.json: no model c, which .*line 2 has"),
        ('{"query": "q", "model_name": "b", "performance": 1}', r"line 2: no input_tokens or prompt_tokens"),
        (answered("q", "b", 1, input_tokens=-1), r"line 2: input_tokens is -1; must be a price"),
        (answered("q", "d", 1), r"llm\.json: d: input_price is None"),
    ],
)
def test_what_llmrouter_refuses(tmp_path: Path, line: str, words: str) -> None:
    models: dict[str, Any] = {**{key: {"input_price": 1, "output_price": 1} for key in "ab"}, "d": {}}
    with pytest.raises(L2DError, match=words):
        llmrouter_outcomes(
            [put(tmp_path / "r.jsonl", answered("q", "a", 1) + line)], put(tmp_path / "llm.json", models)
        )


# RouterBench: a wide table.

HEADER = (
    "sample_id,prompt,eval_name,gpt-4,org/b,gpt-4|model_response,org/b|model_response,gpt-4|total_cost,org/b|total_cost"
)
WIDE = f"""{HEADER},oracle_model_to_route_to
mbpp.dev.1,['Write code.'],mbpp,1.0,0.0,['print(1)'],['no'],0.02,0.0001,gpt-4
mmlu.val.7,"['Which?', 'A or B']",mmlu-law,0.5,1.0,['A'],['B'],0.01,0.0002,org/b
"""


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_routerbench(tmp_path: Path, suffix: str) -> None:
    from pyarrow import csv, parquet

    file = put(tmp_path / "routerbench_0shot.csv", WIDE)
    if suffix == ".parquet":
        parquet.write_table(csv.read_csv(file), file := file.with_suffix(suffix))
    assert routerbench_outcomes([file]).columns == {
        "id": ["mbpp.dev.1", "mmlu.val.7"],
        "prompt": ["Write code.", "Which?\nA or B"],
        "task": ["mbpp", "mmlu-law"],
        "correct_gpt-4": [1, 0.5],
        "correct_org/b": [0, 1],
        "price_gpt-4": [0.02, 0.01],
        "price_org/b": [0.0001, 0.0002],
    }


def test_models_that_routerbench_did_not_ask(tmp_path: Path) -> None:
    gaps = WIDE.replace("mbpp,1.0,0.0,", "mbpp,1.0,,").replace("0.02,0.0001,", "0.02,,")
    found = routerbench_outcomes([put(tmp_path / "gaps.csv", gaps)])
    columns = found.columns
    assert (columns["correct_org/b"], columns["price_org/b"]) == ([None, 1], [None, 0.0002])
    assert [note.split(":")[0] for note in found.notes] == ["1 question not asked of all models"]


def test_a_model_of_routerbench_without_a_price(tmp_path: Path) -> None:
    """It is left out and named. If fewer than two models are left, nothing can be routed."""
    content = WIDE
    for before, cell in (("eval_name,", "c,"), ("mbpp,", "1,"), ("mmlu-law,", "0,")):
        content = content.replace(before, before + cell)
    three = put(tmp_path / "three.csv", content)
    found = routerbench_outcomes([three])
    assert found.notes == [f"{three}: c is left out: no column c|total_cost"]
    assert [name for name in found.columns if name.startswith("correct_")] == ["correct_gpt-4", "correct_org/b"]
    assert routerbench_outcomes([put(tmp_path / "two.csv", WIDE)]).notes == []


def test_several_files_of_routerbench(tmp_path: Path) -> None:
    files = [put(tmp_path / f"mbpp_{split}.csv", WIDE) for split in ("train", "test")]
    found = routerbench_outcomes(files).columns
    assert found["id"][1:3] == ["mbpp_train/mmlu.val.7", "mbpp_test/mbpp.dev.1"]
    assert found["split"] == ["train", "train", "test", "test"]
    other = put(tmp_path / "x_test.csv", WIDE.replace("gpt-4", "gpt-5"))
    with pytest.raises(
        L2DError, match=r"x_test\.csv: other columns than in .*mbpp_train\.csv: correct_gpt-4, correct_gpt-5"
    ):
        routerbench_outcomes([files[0], other])


def test_pickles_are_never_read(tmp_path: Path) -> None:
    with pytest.raises(
        L2DError,
        match=r"bench\.pkl: a pickle can run code .*read_pickle\('.*bench\.pkl'\)\.to_parquet\('.*bench\.parquet'\)",
    ):
        routerbench_outcomes([put(tmp_path / "bench.pkl", "not read")])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (WIDE.replace("|total_cost", "|cost"), r"no column MODEL\|total_cost; there are sample_id, prompt"),
        (WIDE.replace("eval_name", "task"), r"no column eval_name"),
        (WIDE.replace("org/b|total_cost", "org/b|cost"), r"no column org/b\|total_cost; .* only gpt-4 has a price"),
        (WIDE.replace("eval_name,gpt-4,", "eval_name,gpt,"), r"no column gpt-4; there are"),
        (
            WIDE.replace("mbpp,1.0,", "mbpp,9.0,"),
            r"column gpt-4: not between 0 \(wrong\) and 1 \(right\) in 1 of 2 rows: 1",
        ),
        (WIDE.replace("0.0001", "-1"), r"column org/b\|total_cost: negative in 1 of 2 rows: 1"),
        (WIDE.replace("0.0001", ""), r"column org/b\|total_cost: empty although org/b is not, in 1 of 2 rows: 1"),
        (WIDE.replace("['Write code.']", "[]"), r"column prompt: empty in rows 1"),
    ],
)
def test_what_routerbench_refuses(tmp_path: Path, content: str, words: str) -> None:
    file = put(tmp_path / "r.csv", content)
    with pytest.raises(L2DError, match=words) as caught:
        routerbench_outcomes([file])
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("plain", "plain"),
        ("[a list?", "[a list?"),
        ("[1, 2]", "[1, 2]"),
        (["x", "y"], "x\ny"),
        (None, ""),
        ("[" * 9999, "[" * 9999),
    ],
)
def test_prompts_of_routerbench(cell: object, text: str) -> None:
    assert plain_prompt(cell) == text


# LLMRouterBench: a file per dataset, split and model.


def result(model: str, *records: dict[str, Any], dataset: str = "aime", **more: Any) -> dict[str, Any]:
    return {
        "performance": 0.5,
        "counts": len(records),
        "model_name": model,
        "dataset_name": dataset,
        "split": "hybrid",
        "demo": False,
        "records": list(records),
        **more,
    }


def record(index: int, score: float | None, cost: float | None = 0.001) -> dict[str, Any]:
    return {
        "index": index,
        "origin_query": f"{index}?",
        "prompt": f"Question: {index}?",
        "prediction": "42",
        "ground_truth": "42",
        "score": score,
        "prompt_tokens": 50,
        "completion_tokens": 20,
        "cost": cost,
        "raw_output": "…",
    }


def saved(folder: Path, day: int, made: dict[str, Any]) -> Path:
    names = [made["dataset_name"], made["split"], made["model_name"]]
    return put(folder.joinpath(*names) / f"{'-'.join(names)}-202601{day:02}_101500.json", made)


def test_llmrouterbench(tmp_path: Path) -> None:
    """The latest of two results counts, demos do not; a missing score is wrong, as in the benchmark's own loader."""
    saved(tmp_path, 9, result("a", record(0, 0.0), record(1, 0.0)))
    saved(tmp_path, 10, result("a", record(0, 1.0, 0.02), record(1, None), record(2, 1.0)))
    saved(tmp_path, 11, result("a", record(0, 0.0), demo=True))
    saved(tmp_path, 3, result("b", record(1, 0.5, 0.0), record(0, 0.0)))
    saved(tmp_path, 3, result("a", record(0, 1.0), dataset="bbh"))
    saved(tmp_path, 3, result("b", record(0, 1.0), dataset="bbh"))
    found = llmrouterbench_outcomes([tmp_path])
    assert found.columns == {
        "id": ["aime/hybrid/0", "aime/hybrid/1", "aime/hybrid/2", "bbh/hybrid/0"],
        "prompt": ["Question: 0?", "Question: 1?", "Question: 2?", "Question: 0?"],
        "task": ["aime", "aime", "aime", "bbh"],
        "correct_a": [1, 0, 1, 1],
        "correct_b": [0, 0.5, None, 1],
        "price_a": [0.02, 0.001, 0.001, 0.001],
        "price_b": [0.001, 0, None, 0.001],
    }
    assert [note[:30] for note in found.notes] == ["1 question not asked of all mo", "1 answers have no score and co"]


def test_results_without_cost_have_no_prices(tmp_path: Path) -> None:
    files = [saved(tmp_path, 1, result("a", record(0, 1))), saved(tmp_path, 1, result("b", record(0, 1, None)))]
    assert list(llmrouterbench_outcomes(files).columns) == ["id", "prompt", "task", "correct_a", "correct_b"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", r"r\.json: not a JSON object"),
        ({**result("a"), "model_name": None}, r"r\.json: no model_name"),
        ({**result("a"), "records": None}, r"r\.json: no records"),
        (result("a", {"score": 1}), r"r\.json: record 1: no index"),
        (result("a", {"index": 0, "score": 1}), r"r\.json: record 1: no prompt"),
        (result("a", record(0, 55.0)), r"r\.json: record 1: score is 55\.0; must be between"),
        (result("a", record(0, 1, -2.0)), r"r\.json: record 1: cost is -2\.0; must be a price"),
    ],
)
def test_what_llmrouterbench_refuses(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(L2DError, match=words):
        llmrouterbench_outcomes([put(tmp_path / "r.json", content)])


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=r"no \.json files"):
        llmrouterbench_outcomes([tmp_path])


# What they share.


def test_the_first_of_repeated_outcomes_is_kept() -> None:
    rows = [Outcome("k", "q", model, correct) for model, correct in (("a", 1.0), ("a", 0.0), ("b", 0.5))]
    found = outcome_table(rows)
    assert (found.columns["correct_a"], found.columns["correct_b"]) == ([1], [0.5])
    assert found.notes[0].startswith("1 outcomes are left out")


def test_questions_in_common_are_needed() -> None:
    with pytest.raises(L2DError, match="no question of a was asked of another model too; its ids are k"):
        outcome_table([Outcome("k", "q", "a", 1.0), Outcome("l", "q", "b", 1.0)])
    with pytest.raises(L2DError, match="two models or more; there are none"):
        outcome_table([])
