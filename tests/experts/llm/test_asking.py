"""Each model is asked once; its answers are kept, and written to a table if wanted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.experts.llm.tiny_models import LETTERS, experts, questions, reference

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.data.arrays import Arrays
from l2d.data.sets.table import Table
from l2d.data.sheet import read_sheet, write_sheet
from l2d.experts.cache import Cache
from l2d.experts.llm import asking
from l2d.experts.llm.asking import outcome_columns
from l2d.experts.llm.models import load_language_model, parse_model_name
from l2d.experts.llm.scoring import LetterOutcomes
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.utils.errors import L2DError, ParameterError


def arrays(prompts: list[str], train: int = 9) -> Arrays:
    labels = torch.arange(len(prompts)) % 4
    blank = torch.zeros(len(prompts), 1)
    texts = (prompts[:train], prompts[train:])
    return Arrays(blank[:train], labels[:train], blank[train:], labels[train:], 4, texts=texts)


def request(folder: Path, data: Arrays) -> ExpertRequest:
    kept = Cache(folder / "experts", "x", {"seed": 1})
    return ExpertRequest(data, torch.arange(5), None, 0, kept, Path(), ComputeOptions())


def predictions(panel: Any) -> list[list[int]]:
    return torch.cat([panel.train.predictions, panel.test.predictions]).tolist()


@pytest.mark.slow
def test_the_panel(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The letters of the slow reference; errors are 1 where they are not the label; a second time no model is loaded."""
    prompts = questions(14)
    data = arrays(prompts)
    panel: Any = experts(folders).panel(request(tmp_path, data))
    expected = []
    for folder, chat in zip(folders, (True, False), strict=True):
        name = parse_model_name(str(folder))
        model, tokenizer = load_language_model(name, "float32", torch.device("cpu"), progress=False)
        expected.append(reference(model, tokenizer, prompts, LETTERS, chat).argmax(axis=1))
    assert panel.names == ("large", "small")
    assert predictions(panel) == np.stack(expected, axis=1).tolist()
    for answers, labels in ((panel.train, data.train_labels), (panel.test, data.test_labels)):
        assert answers.errors.tolist() == (answers.predictions != labels[:, None]).double().tolist()
    monkeypatch.setattr(asking, "load_language_model", lambda *_, **__: pytest.fail("its answers are there"))
    again = experts(folders[::-1]).panel(request(tmp_path, data))
    assert predictions(again) == np.stack(expected[::-1], axis=1).tolist()
    entries = sorted((tmp_path / "experts").iterdir())
    assert [entry.name.rpartition("-")[0] for entry in entries] == ["llm-large", "llm-small"]
    assert not [entry for entry in entries if (entry / "parts").exists()]


def test_what_makes_another_entry(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of a folder does not; weights, dtype, letters, chat, questions and the way of asking do."""
    data = arrays(questions(14))
    blank = LetterOutcomes(np.zeros(14, dtype=np.int64), np.zeros((14, 4)), np.zeros(14), np.zeros(14))
    monkeypatch.setattr(asking, "score_letters", lambda *_, **__: blank)
    monkeypatch.setattr(asking, "free_memory", lambda: None)

    def entries(*chosen: Path, data: Arrays = data, **options: Any) -> int:
        experts(list(chosen), **options).panel(request(tmp_path, data))
        return len(list(tmp_path.glob("experts/*")))

    moved = tmp_path / "elsewhere" / "large"
    moved.parent.mkdir()
    moved.symlink_to(folders[0])
    assert entries(folders[0]) == 1
    assert entries(moved) == 1
    assert entries(folders[0], batch_size=3) == 1
    assert entries(folders[0], chat=False) == 2
    assert entries(folders[0], dtype="bfloat16") == 3
    assert entries(folders[0], letters=["D", "C", "B", "A"]) == 4
    assert entries(folders[0], data=arrays(questions(14)[::-1])) == 5
    assert entries(folders[1]) == 6
    for number, constant in enumerate(("SUFFIX", "SCORING"), start=7):
        monkeypatch.setattr(asking, constant, "other")
        assert entries(folders[0]) == number


def test_a_model_is_asked_as_it_was_configured(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def noted(network: Any, _: Any, prompts: list[str], letters: list[str], **options: Any) -> LetterOutcomes:
        asked.update(options, dtype=network.dtype, letters=letters)
        return LetterOutcomes(np.zeros(len(prompts), dtype=np.int64), *[np.zeros(len(prompts))] * 3)

    monkeypatch.setattr(asking, "score_letters", noted)
    given = {"chat": False, "batch_size": 3, "letters": ["D", "C", "B", "A"]}
    experts(folders[:1], dtype="bfloat16", **given).panel(request(tmp_path, arrays(questions(14))))
    assert asked.pop("parts").parent.parent == tmp_path / "experts"
    assert asked == {**given, "dtype": torch.bfloat16, "progress": False}


def test_where_a_model_runs_and_where_its_table_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """auto is bfloat16 on a GPU and float32 elsewhere. The training rows come first, and ~ is the user's own folder."""
    asked: list[str] = []

    def noted(_: Any, __: Any, dtype: str, prompts: list[str], *___: Any) -> dict[str, np.ndarray]:
        asked.append(dtype)
        number = len(prompts)
        found = LetterOutcomes(np.zeros(number, dtype=np.int64), np.full((number, 4), 0.25), *[np.zeros(number)] * 2)
        return {**vars(found)}

    monkeypatch.setattr(asking, "run_model", noted)
    monkeypatch.setenv("HOME", str(tmp_path))
    for gpu in (True, False):
        monkeypatch.setattr(asking, "on_gpu", lambda _, gpu=gpu: gpu)
        panel = experts([Path("a/b")], table="~/t.CSV").panel(request(tmp_path, arrays(questions(14))))
    assert asked == ["bfloat16", "float32"]
    assert panel.train.errors.sum() + panel.test.errors.sum() == 14 - 4  # the label is A in rows 0, 4, 8 and 12
    assert read_sheet(tmp_path / "t.CSV").words("split") == ["train"] * 9 + ["test"] * 5


def test_what_is_refused(folders: list[Path], tmp_path: Path) -> None:
    data = arrays(questions(14))
    asked_for = request(tmp_path, data)
    for change, words in (
        ({"arrays": replace(data, texts=None)}, "^experts=llm: .*text"),
        ({"arrays": replace(data, train_labels=data.train_labels - 1)}, r"^letters=.* -1 to 3"),
        ({"coverage": [0.5, 0.5]}, r"^setup\.coverage: "),
    ):
        with pytest.raises(L2DError, match=words):
            experts(folders).panel(replace(asked_for, **change))
    with pytest.raises(ParameterError, match=r"^letters=.*0 to 3.*0 to 2$"):
        experts(folders, letters=["A", "B", "C"]).panel(asked_for)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ParameterError, match=r"^models=.*no config\.json"):
        experts([tmp_path / "empty"]).panel(asked_for)


@pytest.mark.slow
def test_the_table_comes_back(folders: list[Path], tmp_path: Path) -> None:
    """Through dataset=table, with text and split named, the experts make the same errors."""
    data, file = arrays(questions(14)), tmp_path / "outcomes.parquet"
    panel = experts(folders, table=str(file)).panel(request(tmp_path, data))
    sheet = read_sheet(file, ["prompt"])
    assert sheet.names[:4] == ["id", "prompt", "answer", "split"]
    chances = [f"probability_{letter}" for letter in LETTERS]
    columns = ["correct", "answer", *chances, "tokens", "seconds"]
    assert sheet.names[4:12] == [f"{name}_large" for name in columns]
    assert sheet.texts("prompt") == questions(14)
    total = sum(sheet.numbers(f"{name}_small") for name in chances)
    np.testing.assert_allclose(total, 1, atol=1e-5)
    cfg = compose(["dataset=table", f"dataset.path={file}", "dataset.text=prompt", "dataset.split=split"])
    table: Table = make(check(cfg).dataset)
    back: Any = table.load(tmp_path)
    assert back.panel.names == panel.names
    assert torch.equal(back.panel.train.errors, panel.train.errors)
    assert torch.equal(back.panel.test.errors, panel.test.errors)


def test_the_table_by_hand(tmp_path: Path) -> None:
    chances = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float32)
    outcomes = {"m": LetterOutcomes(np.array([1, 0]), chances, np.array([7, 9]), np.array([0.5, 0.25]))}
    told = {"subject": ["law", "art"]}
    found = outcome_columns(['say "a",\nor b', "c"], np.array([1, 1]), ["A", "B"], outcomes, told)
    write_sheet(tmp_path / "t.csv", found)
    lines = (tmp_path / "t.csv").read_text().replace('"', "").splitlines()
    columns = ["correct", "answer", "probability_A", "probability_B", "tokens", "seconds"]
    assert lines[0].split(",") == ["id", "prompt", "answer", "subject", *(f"{name}_m" for name in columns)]
    assert lines[-2:] == ["or b,B,law,1,B,0.25,0.75,7,0.5", "1,c,B,art,0,A,0.5,0.5,9,0.25"]
