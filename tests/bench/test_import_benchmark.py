"""Public benchmarks in their original formats, by hand and in small: each becomes the columns that dataset=table reads."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class

from import_benchmark import (
    keswani_outcomes,
    main,
    openl2d_outcomes,
    routerdc_outcomes,
    task_and_split,
)
from l2d.config import compose
from l2d.data.sheet import read_sheet, write_sheet
from l2d.utils.errors import L2DError


def put(file: Path, content: Any) -> Path:
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def question(text: str, a: float, b: float, **more: Any) -> dict[str, Any]:
    """As in RouterDC's lists."""
    return {"question": text, "scores": {"org/a": a, "org/b": b}, **more}


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
    assert routerdc_outcomes(files).columns["correct_org/b"] == [0.3, 0, 0.98]
    some = routerdc_outcomes(
        [put(tmp_path / "x.json", [question("q", 1, 0), {"question": "r", "scores": {"org/a": 1}}])]
    )
    assert (some.columns["correct_org/b"], "split" in some.columns, len(some.notes)) == ([0, None], False, 1)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gsm8k-train.json", ("gsm8k", "train")),
        ("x.val.json", ("x", "validation")),
        ("test.json", ("", "test")),
        ("latest.json", ("latest", None)),
    ],
)
def test_names_of_files(name: str, parts: tuple[str, str | None]) -> None:
    assert task_and_split(Path(name)) == parts


def test_openl2d(tmp_path: Path) -> None:
    people, said = tmp_path / "data/preprocessed.parquet", tmp_path / "synthetic_experts/expert_team"
    for folder in (people.parent, said):
        folder.mkdir(parents=True)
    write_sheet(people, {"age": [39, 50], "sex": ["Male", "Female"], "income": [0, 1]})
    write_sheet(said / "expert_predictions.parquet", {"standard#0": [0, 0], "biased#1": [1, 1]})
    assert openl2d_outcomes([tmp_path]).columns == {
        "id": [0, 1],
        "prompt": ["age: 39; sex: Male", "age: 50; sex: Female"],
        "age": [39, 50],
        "sex": ["Male", "Female"],
        "correct_standard#0": [1.0, 0.0],
        "correct_biased#1": [0.0, 1.0],
    }


def test_keswani(tmp_path: Path) -> None:
    """The first column has no name; an annotator without an answer is left out."""
    lines = ",Tweet,True Label,Dialect,Expert 1,Expert 2,Expert 3\n0,hello,1,0,1,-,-\n1,go away,0,1,1,0,-\n"
    found = keswani_outcomes([put(tmp_path / "all_results.csv", lines)])
    assert found.columns == {
        "id": [0, 1],
        "prompt": ["hello", "go away"],
        "correct_Expert 1": [1.0, 0.0],
        "correct_Expert 2": [None, 1.0],
    }


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("mmlu_test.json", '{"question": "q"}', "RouterDC"),
        ("mmlu_test.json", [{"scores": {"a": 1}}], "question"),
        ("mmlu_test.json", [{"question": "q", "scores": {"a": 2}}], "a is 2"),
    ],
)
def test_refused_files(tmp_path: Path, name: str, content: Any, words: str) -> None:
    file = put(tmp_path / name, content)
    with pytest.raises(L2DError, match=words) as caught:
        routerdc_outcomes([file])
    assert str(caught.value).startswith(str(file))


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The training command names the columns that are there, and a method that takes other prices later."""
    monkeypatch.chdir(tmp_path)
    put(Path("law_train.json"), [question("q", 0.3, 0)])
    main(["routerdc", "law_train.json", "--out", "t.csv"])
    first, *_, command = capsys.readouterr().out.splitlines()
    assert first == f"t.csv: {len(read_sheet(Path('t.csv')))} questions; right: org/a 30.0%, org/b 0.0%"
    words = shlex.split(command)
    keys = {"dataset=table", "dataset.path=t.csv", "dataset.text=prompt", "method=mix", "dataset.category=task"}
    assert {*words[2:]} == keys  # no rows to test on
    assert get_class(compose(words[2:])["method"]["_target_"]).takes_prices_later  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match=r"^error: --out=law"):
        main(["routerdc", "law_train.json", "--out", "law_train.json"])
