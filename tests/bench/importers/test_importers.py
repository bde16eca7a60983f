"""Public benchmarks in their original formats, by hand and in small: each becomes the columns that dataset=table reads."""

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class

from import_benchmark import main
from importers.llmrouter import llmrouter_outcomes
from importers.llmrouterbench import llmrouterbench_outcomes
from importers.outcomes import Outcome, outcome_table, task_and_split
from importers.routellm import routellm_outcomes
from importers.routerbench import plain_prompt, routerbench_outcomes
from importers.routerdc import routerdc_outcomes
from l2d.config import compose
from l2d.data.importers.recorded import RecordedOutcomes
from l2d.data.sheet import read_sheet
from l2d.methods.method import Method
from l2d.utils.errors import L2DError

PROMPT = 'Which, "if any"?\nA. x\nB. y\nAnswer:'
RESPONSES = "prompt,mixtral,gpt-4\n" + "".join(
    f'"{number} {PROMPT.replace(chr(34), chr(34) * 2)}",{a},{b}\n'
    for number, (a, b) in enumerate([(True, True), (False, True), (True, False)])
)
WIDE = """sample_id,prompt,eval_name,gpt-4,org/b,gpt-4|model_response,org/b|model_response,gpt-4|total_cost,org/b|total_cost,oracle_model_to_route_to
mbpp.dev.1,['Write code.'],mbpp,1.0,0.0,['print(1)'],['no'],0.02,0.0001,gpt-4
mmlu.val.7,"['Which?', 'A or B']",mmlu-law,0.5,1.0,['A'],['B'],0.01,0.0002,org/b
"""


def put(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def question(text: str, a: float, b: float, **more: Any) -> dict[str, Any]:
    """As in RouterDC's lists."""
    return {"question": text, "scores": {"org/a": a, "org/b": b}, **more}


def answered(query: str, model: str, performance: float, **more: Any) -> str:
    """A line of LLMRouter."""
    row = {
        "task_name": "gsm8k", "query": query, "ground_truth": "4", "model_name": model, "response": "four",
        "token_num": 300, "input_tokens": 100, "output_tokens": 200, "performance": performance, **more,
    }  # fmt: skip
    return json.dumps(row) + "\n"


def result(model: str, *records: dict[str, Any], dataset: str = "aime", **more: Any) -> dict[str, Any]:
    """A file of LLMRouterBench."""
    about = {"model_name": model, "dataset_name": dataset, "split": "hybrid", "demo": False}
    return {"performance": 0.5, "counts": len(records), **about, "records": list(records), **more}


def record(index: int, score: float | None, cost: float | None = 0.001) -> dict[str, Any]:
    return {
        "index": index, "origin_query": f"{index}?", "prompt": f"Question: {index}?", "prediction": "42",
        "score": score, "prompt_tokens": 50, "completion_tokens": 20, "cost": cost,
    }  # fmt: skip


def saved(folder: Path, day: int, made: dict[str, Any]) -> Path:
    names = [made["dataset_name"], made["split"], made["model_name"]]
    return put(folder.joinpath(*names) / f"{'-'.join(names)}-202601{day:02}_101500.json", made)


def one_note(found: RecordedOutcomes, *words: str) -> bool:
    return len(found.notes) == 1 and all(word in found.notes[0] for word in words)


def test_routellm(tmp_path: Path) -> None:
    file = put(tmp_path / "mmlu_anatomy.csv", RESPONSES)
    assert routellm_outcomes([file]).columns == {
        "id": [0, 1, 2],
        "prompt": [f"{number} {PROMPT}" for number in range(3)],
        "correct_mixtral": [1, 0, 1],
        "correct_gpt-4": [1, 1, 0],
    }
    other = put(tmp_path / "mmlu_law.csv", RESPONSES.replace("True", "1").replace("False", "0"))
    both = routellm_outcomes([file, other])
    assert both.columns["id"] == [f"{name}/{row}" for name in ("mmlu_anatomy", "mmlu_law") for row in range(3)]
    assert both.columns["subject"] == ["mmlu_anatomy"] * 3 + ["mmlu_law"] * 3
    assert both.columns["correct_gpt-4"] == [1, 1, 0, 1, 1, 0]
    assert both.notes == []
    with pytest.raises(L2DError, match=r"mmlu_law\.csv: other columns .*correct_gpt-4, correct_gpt-5"):
        routellm_outcomes([file, put(other, RESPONSES.replace("gpt-4", "gpt-5"))])
    # Responses beside outcomes are left out, as in RouteLLM's GSM8K file; empty cells stay empty.
    found = routellm_outcomes([put(tmp_path / "r.csv", "prompt,a,b,a_response\nq,True,,so\nr,False,True,no\n")])
    assert found.columns == {"id": [0, 1], "prompt": ["q", "r"], "correct_a": [1, 0], "correct_b": [None, 1]}
    assert one_note(found, "1 question ", "not asked")


def test_routerdc(tmp_path: Path) -> None:
    """Tries stay shares; a probability is 0 where another answer was likelier, so any above 0 is right."""
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
    with pytest.raises(L2DError, match=r"^probability=law: .*arc_challenge, gsm8k"):
        routerdc_outcomes(files, ["law"])
    with pytest.raises(L2DError, match=r"^mbpp\.json: "):  # names no split, unlike the others
        routerdc_outcomes([*files, put(tmp_path / "mbpp.json", [question("q", 1, 0)])])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gsm8k-train.json", ("gsm8k", "train")),
        ("default_routing_train_data.jsonl", ("default_routing", "train")),
        ("x.val.json", ("x", "validation")),
        ("test.json", ("", "test")),
        ("latest.json", ("latest", None)),
    ],
)
def test_names_of_files(name: str, parts: tuple[str, str | None]) -> None:
    assert task_and_split(Path(name)) == parts


def test_llmrouter(tmp_path: Path) -> None:
    """Prices are dollars per million tokens: a costs 100·$1 + 200·$3 per million, b 100·$0.1 + 200·$0.2."""
    train = [("2 + 2?", "a", 1.0), ("2 + 2?", "b", 0.0), ("3?", "b", 0.5), ("3?", "a", 1)]
    test = [("2 + 2?", "a", 0), ("2 + 2?", "b", 1), ("4?", "a", 1)]
    files = [
        put(tmp_path / f"default_routing_{split}_data.jsonl", "".join(answered(*row) for row in rows))
        for split, rows in (("train", train), ("test", test))
    ]
    models = {"a": {"input_price": 1, "output_price": 3}, "b": {"input_price": 0.1, "output_price": 0.2}}
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
    assert one_note(found, "1 question ", "not asked")
    assert "price_a" not in llmrouter_outcomes(files).columns
    # Tokens have two names.
    rows = "".join(answered("q", model, 1) for model in "ab")
    rows = rows.replace("input_tokens", "prompt_tokens").replace("output_tokens", "completion_tokens")
    listed = put(tmp_path / "llm.json", {key: {"input_price": 0, "output_price": 5} for key in "ab"})
    found = llmrouter_outcomes([put(tmp_path / "data.jsonl", rows)], listed)
    assert found.columns["price_b"] == [pytest.approx(1e-3)]


def test_routerbench(tmp_path: Path) -> None:
    found = routerbench_outcomes([put(tmp_path / "routerbench_0shot.csv", WIDE)])
    assert found.columns == {
        "id": ["mbpp.dev.1", "mmlu.val.7"],
        "prompt": ["Write code.", "Which?\nA or B"],
        "task": ["mbpp", "mmlu-law"],
        "correct_gpt-4": [1, 0.5],
        "correct_org/b": [0, 1],
        "price_gpt-4": [0.02, 0.01],
        "price_org/b": [0.0001, 0.0002],
    }
    assert found.notes == []


def test_models_of_routerbench_without_outcomes_or_prices(tmp_path: Path) -> None:
    gaps = WIDE.replace("mbpp,1.0,0.0,", "mbpp,1.0,,").replace("0.02,0.0001,", "0.02,,")
    found = routerbench_outcomes([put(tmp_path / "gaps.csv", gaps)])
    assert (found.columns["correct_org/b"], found.columns["price_org/b"]) == ([None, 1], [None, 0.0002])
    assert one_note(found, "1 question ", "not asked")
    third = WIDE.replace("eval_name,", "eval_name,c,").replace("mbpp,", "mbpp,1,").replace("mmlu-law,", "mmlu-law,0,")
    found = routerbench_outcomes([put(tmp_path / "three.csv", third)])
    assert [name for name in found.columns if name.startswith("correct_")] == ["correct_gpt-4", "correct_org/b"]


def test_several_files_of_routerbench(tmp_path: Path) -> None:
    files = [put(tmp_path / f"mbpp_{split}.csv", WIDE) for split in ("train", "test")]
    found = routerbench_outcomes(files).columns
    assert found["id"][1:3] == ["mbpp_train/mmlu.val.7", "mbpp_test/mbpp.dev.1"]
    assert found["split"] == ["train", "train", "test", "test"]


def test_prompts_of_routerbench() -> None:
    for same in ("plain", "[a list?", "[1, 2]", "[" * 9999):
        assert plain_prompt(same) == same
    assert (plain_prompt(["x", "y"]), plain_prompt(None)) == ("x\ny", "")


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
    assert [note.split()[:2] for note in found.notes] == [["1", "question"], ["1", "answers"]]
    files = [saved(tmp_path, 1, result("a", record(0, 1))), saved(tmp_path, 1, result("b", record(0, 1, None)))]
    assert list(llmrouterbench_outcomes(files).columns) == ["id", "prompt", "task", "correct_a", "correct_b"]


def test_outcomes_of_one_question() -> None:
    """The first of repeated outcomes is kept. Models need questions in common."""
    found = outcome_table(Outcome("k", "q", model, correct) for model, correct in (("a", 1.0), ("a", 0.0), ("b", 0.5)))
    assert (found.columns["correct_a"], found.columns["correct_b"]) == ([1], [0.5])
    assert one_note(found, "1 outcomes")
    with pytest.raises(L2DError, match=r"no question of a .* k$"):
        outcome_table([Outcome("k", "q", "a", 1.0), Outcome("l", "q", "b", 1.0)])
    with pytest.raises(L2DError, match="none"):
        outcome_table([])


def llmrouter_priced(files: Sequence[Path]) -> RecordedOutcomes:
    models: dict[str, Any] = {**{key: {"input_price": 1, "output_price": 1} for key in "ab"}, "d": {}}
    return llmrouter_outcomes(files, put(files[0].parent / "llm.json", models))


FIRST = answered("q", "a", 1)


@pytest.mark.parametrize(
    ("importer", "name", "content", "words"),
    [
        (routellm_outcomes, "r.csv", "question,a,b\nq,True,True\n", "no column prompt; .*question, a, b"),
        (routellm_outcomes, "r.csv", "prompt,a,b\nq,True,0.5\n", "column b: neither True nor False"),
        (routerdc_outcomes, "mmlu_test.json", '{"question": "q"}', "not a JSON list"),
        (routerdc_outcomes, "mmlu_test.json", [{"scores": {"a": 1}}], "item 1: no question"),
        (routerdc_outcomes, "mmlu_test.json", [{"question": "q"}], "item 1: no scores"),
        (llmrouter_priced, "r.jsonl", FIRST + "{", "line 2: not a JSON object"),
        (llmrouter_priced, "r.jsonl", FIRST + '{"model_name": "b", "performance": 1}', "line 2: no query"),
        (llmrouter_priced, "r.jsonl", FIRST.replace("input_tokens", "in"), "no input_tokens or prompt_tokens"),
        (llmrouter_priced, "r.jsonl", FIRST + answered("q", "b", 1, input_tokens=-1), "line 2: input_tokens is -1"),
        (routerbench_outcomes, "r.csv", WIDE.replace("|total_cost", "|cost"), r"MODEL\|total_cost; .*sample_id, prompt"),
        (routerbench_outcomes, "r.csv", WIDE.replace("eval_name", "task"), "no column eval_name"),
        (routerbench_outcomes, "r.csv", WIDE.replace("b|total_cost", "b|cost"), "only gpt-4 "),
        (routerbench_outcomes, "r.csv", WIDE.replace("mbpp,1.0,", "mbpp,9.0,"), "column gpt-4: .* 1 of 2 rows: 1"),
        (routerbench_outcomes, "r.csv", WIDE.replace("0.0001", "-1"), r"org/b\|total_cost: negative .* 1 of 2 rows: 1"),
        (routerbench_outcomes, "r.csv", WIDE.replace("['Write code.']", "[]"), "column prompt: empty in rows 1"),
        (routerbench_outcomes, "r.pkl", "not read", r"pickle .*'.*r\.pkl'.*'.*r\.parquet'"),
        (llmrouterbench_outcomes, "r.json", {**result("a"), "model_name": None}, "no model_name"),
        (llmrouterbench_outcomes, "r.json", {**result("a"), "records": None}, "no records"),
        (llmrouterbench_outcomes, "r.json", result("a", {"score": 1}), "record 1: no index"),
        (llmrouterbench_outcomes, "r.json", result("a", record(0, 55.0)), r"record 1: score is 55\.0"),
        (llmrouterbench_outcomes, "r.json", result("a", record(0, 1, -2.0)), r"record 1: cost is -2\.0"),
    ],
)  # fmt: skip
def test_refused_files(
    tmp_path: Path, importer: Callable[[list[Path]], RecordedOutcomes], name: str, content: Any, words: str
) -> None:
    file = put(tmp_path / name, content)
    with pytest.raises(L2DError, match=words) as caught:
        importer([file])
    assert str(caught.value).startswith(str(file))


def test_other_refusals(tmp_path: Path) -> None:
    rows = put(tmp_path / "r.jsonl", FIRST + answered("q", "c", 1))
    with pytest.raises(L2DError, match=r"llm\.json: no model c, .*line 2"):
        llmrouter_priced([rows])
    with pytest.raises(L2DError, match=r"llm\.json: d: input_price is None"):
        llmrouter_priced([put(rows, answered("q", "d", 1))])
    with pytest.raises(L2DError, match=r"two models .* are a$"):
        routerdc_outcomes([put(tmp_path / "x.json", [{"question": "q", "scores": {"a": 1}}])])
    (tmp_path / "empty").mkdir()
    with pytest.raises(L2DError, match=r"empty: no \.json files"):
        llmrouterbench_outcomes([tmp_path / "empty"])


@pytest.fixture
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of all of them in the working directory."""
    monkeypatch.chdir(tmp_path)
    put(Path("responses.csv"), RESPONSES)
    for split in ("train", "test"):
        put(Path(f"law_{split}.json"), [question(split, 0.3, 0)])
        put(Path(f"routing_{split}_data.jsonl"), answered(split, "a", 1) + answered(split, "b", 0))
    put(Path("bench.csv"), WIDE)
    put(Path("llm.json"), {name: {"input_price": 1, "output_price": 2} for name in "ab"})
    for model in "ab":
        saved(Path("results"), 1, result(model, record(0, 1.0)))


TASK, PRICED = "dataset.category=task", "cost=columns cost.error_price=1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "right", "keys"),
    [
        ("routellm responses.csv", "mixtral 66.7%, gpt-4 66.7%", ""),
        ("routerdc law_train.json", "org/a 30.0%, org/b 0.0%", TASK),  # no rows to test on
        ("llmrouter routing_train_data.jsonl --models llm.json", "a 100.0%, b 0.0%", f"{TASK} {PRICED}"),
        ("routerbench bench.csv", "gpt-4 75.0%, org/b 50.0%", f"{TASK} {PRICED}"),
        ("llmrouterbench results", "a 100.0%, b 100.0%", f"{TASK} {PRICED}"),
    ],
)
@pytest.mark.usefixtures("benchmarks")
def test_the_command(arguments: str, right: str, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The training command names the columns that are there, and a method that takes other prices later."""
    main([*arguments.split(), "--out", "t.csv"])
    first, *others, command = capsys.readouterr().out.splitlines()
    assert first == f"t.csv: {len(read_sheet(Path('t.csv')))} questions; right: {right}"
    assert ("dollars" in " ".join(others)) == ("cost=columns" in keys)
    words = shlex.split(command)
    assert {*words[2:]} == {"dataset=table", "dataset.path=t.csv", "dataset.text=prompt", "method=mix", *keys.split()}
    method = get_class(compose(words[2:])["method"]["_target_"])
    assert issubclass(method, Method)
    assert method.takes_prices_later


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("routellm a.csv --metric acc --out t.csv", "--metric"),
        ("llmrouter no.jsonl --models no.json --out t.csv", "no.json: No such file"),
        ("routerbench bench.csv --out bench.csv", "--out=bench.csv: "),
        ("llmrouter other.jsonl --models llm.json --out llm.json", "--out=llm.json: "),
    ],
)
@pytest.mark.usefixtures("benchmarks")
def test_bad_commands(arguments: str, words: str) -> None:
    before = {file: file.read_bytes() for file in Path().glob("*.*")}
    with pytest.raises(SystemExit, match=r"^error: ") as caught:
        main(arguments.split())
    assert words in str(caught.value.code)
    assert {file: file.read_bytes() for file in Path().glob("*.*")} == before
