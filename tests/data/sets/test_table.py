"""A table: what is read, how it is divided, and whole runs on one."""

import csv
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from omegaconf import DictConfig
from PIL import Image
from pyarrow import parquet
from sklearn.model_selection import train_test_split
from tests.running import build, train

from l2d.config import compose
from l2d.core.prices import price_hint
from l2d.data.arrays import Arrays, Seen
from l2d.data.inputs import row_inputs, sheet_inputs
from l2d.data.sets.outcomes import MONEY, class_numbers
from l2d.data.sets.table import Table
from l2d.data.sheet import read_sheet
from l2d.data.splits import split
from l2d.data.text.encoders import HASHES, Hashed
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.plain import from_plain

ROOT = Path(__file__).resolve().parents[3]
Cells = dict[str, list[Any]]
Tiny = Callable[..., DictConfig]
Captured = pytest.CaptureFixture[str]

# Ten rows; the even ones are for a, the odd ones for b.
GOOD: Cells = {
    "id": list(range(10)),
    "x": [float(i % 2) for i in range(10)],
    "y": [i / 8 for i in range(10)],
    "note": ["some text"] * 10,
    "correct_a": [1 - i % 2 for i in range(10)],
    "correct_b": [i % 2 for i in range(10)],
}
SPLIT = {"split": "split"}
DEFAULTS: dict[str, Any] = {
    "path": None, "experts": None, "outcome": "correct", "features": None, "text": None, "encoder": Hashed(), "image": None,
    "image_size": 32, "label": None, "category": None, "only": None, "split": None, "split_by": None, "test_fraction": 0.2,
}  # fmt: skip


def write(folder: Path, cells: Cells, name: str = "table.csv") -> Path:
    path = folder / name
    if path.suffix.lower() == ".parquet":
        parquet.write_table(pa.table(cells), path)
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(cells)
        writer.writerows(zip(*cells.values(), strict=True))
    return path


def table(path: Path | None, **changes: Any) -> Table:
    return Table(**{**DEFAULTS, "path": None if path is None else str(path), **changes})


def load(path: Path, **changes: Any) -> Any:
    """Arrays, whose optional parts need no assertion before they are compared."""
    return table(path, **changes).load(Path())


def panel_of(arrays: Arrays) -> Any:
    return arrays.panel


def whole(arrays: Arrays, part: str) -> torch.Tensor:
    """Errors or prices of the training rows, then of the test rows."""
    panel = panel_of(arrays)
    return torch.cat([getattr(panel.train, part), getattr(panel.test, part)])


def in_order(cells: Cells) -> Cells:
    """With a split column that keeps the rows in their order: the last two are the test split."""
    n = len(next(iter(cells.values())))
    return {**cells, "split": ["train"] * (n - 2) + ["test"] * 2}


def without(*columns: str) -> Cells:
    return {name: cells for name, cells in GOOD.items() if name not in columns}


def separable(n: int) -> Cells:
    """a is right where x > 0, b elsewhere: a router can be perfect, the best expert is right half the time."""
    x = np.random.default_rng(0).uniform(-1, 1, size=n)
    cells: Cells = {"x": x.tolist(), "noise": np.random.default_rng(1).normal(size=n).tolist()}
    return {**cells, "correct_a": (x > 0).astype(int).tolist(), "correct_b": (x <= 0).astype(int).tolist()}


def test_features_and_experts_are_found_by_name(tmp_path: Path, capsys: Captured) -> None:
    """ID in capitals is an id too."""
    shouted = {("ID" if name == "id" else name): cells for name, cells in in_order(GOOD).items()}
    for cells in (shouted, in_order(GOOD)):
        arrays = load(write(tmp_path, cells), **SPLIT)
        assert arrays.train_inputs.dtype == torch.float32
        inputs = torch.cat([arrays.train_inputs, arrays.test_inputs])
        assert inputs.tolist() == [[i % 2, i / 8] for i in range(10)]  # x and y: not id, not the text
    assert panel_of(arrays).names == ("a", "b")
    assert whole(arrays, "errors").tolist() == [[i % 2, 1 - i % 2] for i in range(10)]
    assert panel_of(arrays).train.prices is None
    assert (arrays.train_labels.tolist(), arrays.num_classes) == ([-1] * 8, 0)
    assert (
        "a (correct), b (correct); the router sees: x, y; the split: split; not used: id, note\n"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("extra", [{"label": ["cat", "dog"] * 5}, {"flag": [True, False] * 5}])
def test_csv_and_parquet_are_the_same(tmp_path: Path, extra: Cells) -> None:
    cells = {**GOOD, **extra, "third": [1 / 3 + i for i in range(10)]}
    label = "label" if "label" in extra else None
    first, second = (load(write(tmp_path, cells, name), label=label) for name in ("t.csv", "t.parquet"))
    for name in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert torch.equal(whole(first, "errors"), whole(second, "errors"))
    assert first.train_inputs.shape == (8, 3 + ("flag" in extra))


def test_parquet_of_pandas_with_an_index_and_categories(tmp_path: Path) -> None:
    """pandas keeps an index as one more column, and categories as a dictionary; neither is a feature."""
    cells = {**GOOD, "label": pa.array(["cat", "dog"] * 5).dictionary_encode(), "__index_level_0__": list(range(10))}
    arrays = load(write(tmp_path, cells, "t.parquet"), label="label")
    assert (arrays.train_inputs.shape, arrays.num_classes) == ((8, 2), 2)


def test_outcomes_of_every_kind(tmp_path: Path) -> None:
    """Worked out by hand. Correctness: 1 − value. Predictions: 1 where they differ from the label, compared as numbers where they
    are numbers, and 1 for what is not a label at all. Costs: as they are."""
    cells: Cells = {
        "x": [1, 2, 3, 4],
        "answer": ["3", "3", "7", "7"],
        "correct_mean": [1, 0.75, 0, 0.5],
        "correct_word": ["true", "False", "Yes", "no"],
        "prediction_p": ["3.0", "7", " 7", "none of them"],
        "loss_c": [0, 2.5, 0.125, 1e-3],
    }
    arrays = load(write(tmp_path, in_order(cells)), **SPLIT, label="answer")
    expected = [[0, 0, 0, 0], [0.25, 1, 1, 2.5], [1, 0, 0, 0.125], [0.5, 1, 1, 1e-3]]
    assert whole(arrays, "errors").tolist() == expected
    assert panel_of(arrays).names == ("mean", "word", "p", "c")
    assert torch.cat([arrays.train_labels, arrays.test_labels]).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("outcome", "errors"), [("correct", [[0, 1], [1, 0]]), ("loss", [[1, 0], [0, 1]]), ("prediction", [[1, 0], [1, 0]])]
)
def test_named_columns(tmp_path: Path, outcome: str, errors: list[list[int]]) -> None:
    """The same columns, read as each of the three; the label is 0, 1."""
    cells: Cells = {"x": [1, 2, 1, 2], "label": [0, 1, 0, 1], "gpt": [1, 0, 1, 0], "llama": [0, 1, 0, 1]}
    given = {"experts": ["gpt", "llama"], "outcome": outcome, "label": "label", **SPLIT}
    with pytest.raises(ParameterError, match=r"^features: missing"):
        load(write(tmp_path, in_order(cells)), **given)
    arrays = load(write(tmp_path, in_order(cells)), features=["x"], **given)
    assert whole(arrays, "errors").tolist() == errors * 2
    assert arrays.train_inputs.tolist() == [[1], [2]]


def test_some_of_the_experts(tmp_path: Path) -> None:
    """In the order asked for, with their prices; those left out are no features."""
    cells = {**GOOD, "correct_c": [1] * 10, "price_a": [0.1] * 10, "price_b": [0.2] * 10, "price_c": [0.3] * 10}
    arrays = load(write(tmp_path, cells), experts=["correct_c", "correct_a"])
    assert panel_of(arrays).names == ("c", "a")
    assert whole(arrays, "prices").tolist() == [[0.3, 0.1]] * 10
    assert arrays.train_inputs.shape == (8, 2)
    with pytest.raises(ParameterError, match=r"^features: missing"):
        load(write(tmp_path, {**cells, "gpt": [1] * 10, "llama": [0] * 10}), experts=["correct_c", "gpt"])


def test_the_label_may_be_the_category(tmp_path: Path) -> None:
    path = write(tmp_path, in_order({**GOOD, "topic": [["war", "art"][i % 2] for i in range(10)]}))
    arrays = load(path, **SPLIT, label="topic", category="topic")
    assert (arrays.seen.features, arrays.num_classes) == (("x", "y"), 2)
    assert arrays.train_labels.tolist() == [1, 0] * 4  # in the order of the words
    assert arrays.test_labels.tolist() == [1, 0]
    assert (arrays.train_categories, arrays.categories) == (("war", "art") * 4, ("war", "art"))


def test_a_split_column(tmp_path: Path) -> None:
    words = ["train", "Test", "val", "TRAIN", "dev", "test", "train", "valid", "validation", "train"]
    arrays = load(write(tmp_path, {**GOOD, "part": words}), split="part")
    assert (8 * arrays.test_inputs[:, 1]).tolist() == [1, 5]
    assert (8 * arrays.train_inputs[:, 1]).tolist() == [0, 2, 3, 4, 6, 7, 8, 9]
    assert (8 * arrays.train_inputs[arrays.validation, 1]).tolist() == [2, 4, 7, 8]


def test_without_a_split_column_the_test_rows_are_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of scikit-learn. The table may lie in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, GOOD)
    path = Path("~/table.csv")
    assert len(load(path, test_fraction=0.5).test_inputs) == 5
    _, rows = train_test_split(np.arange(10), test_size=0.2, stratify=[-1] * 10, random_state=0)
    for _ in range(2):
        assert (8 * load(path).test_inputs[:, 1]).tolist() == sorted(rows.tolist())


@pytest.mark.parametrize("labels", [[0] * 9 + [1], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]])
def test_labels_too_rare_or_too_many_to_stratify_by(tmp_path: Path, labels: list[int]) -> None:
    """The test split or the validation split has no room for a row of each."""
    arrays = load(write(tmp_path, {**GOOD, "label": labels}), label="label")
    kept, held_out = split(arrays, 0.2, seed=0)
    assert (len(kept), len(held_out), len(arrays.test_labels)) == (6, 2, 2)
    assert arrays.num_classes == len(set(labels))


@pytest.mark.parametrize(
    "times", [list(range(10, 0, -1)), [f"2026-01-{11 - day:02d}T00:00:00+01:00" for day in range(1, 11)]]
)
def test_the_latest_rows_are_for_testing(times: list[object], tmp_path: Path, capsys: Captured) -> None:
    """Worked out by hand: rows run backwards in time, so the first two are the latest. The time is no feature. The mean error of a
    stays 1/2; its variance is 2/7 on 8 rows and 1/2 on 2, and 1.96 · √(2/7/8 + 1/2/2) = 1.0476."""
    cells: Cells = {"x": list(range(10)), "when": times, "correct_a": [1, 0] * 5, "correct_b": [1] * 10}
    arrays = load(write(tmp_path, cells), split_by="when")
    assert sorted(arrays.test_inputs.flatten().tolist()) == [0, 1]
    assert sorted(arrays.train_inputs.flatten().tolist()) == list(range(2, 10))
    assert "a 0.5000 to 0.5000 (+0.0000 ± 1.0476)" in capsys.readouterr().err


def test_rows_of_one_text_are_on_one_side_of_the_time(tmp_path: Path) -> None:
    """The text that came again late is as old as its first row: the rows at times 4 and 5 are the latest, not the one at 6."""
    cells: Cells = {"prompt": ["old", "b c", "d e", "f g", "new", "old"], "t": [1, 2, 3, 4, 5, 6]}
    cells |= {"correct_a": [1] * 6, "correct_b": [0] * 6, "id": [*"012345"]}
    arrays = load(write(tmp_path, cells), split_by="t", text="prompt", test_fraction=0.3)
    assert arrays.ids.tolist() == ["3", "4"]


def test_text_is_hashed(tmp_path: Path) -> None:
    cells = {**GOOD, "query": ["how tall is it", "a poem, please"] * 5}
    arrays = load(write(tmp_path, in_order(cells)), text="query", **SPLIT)
    assert (arrays.train_inputs.shape, arrays.train_inputs.dtype) == ((8, 2 * HASHES), torch.float32)
    assert torch.equal(arrays.train_inputs[0], arrays.test_inputs[0])  # the same text
    assert not torch.equal(arrays.train_inputs[0], arrays.train_inputs[1])
    both = load(write(tmp_path, in_order(cells)), text="query", features=["y"], **SPLIT)
    assert torch.equal(both.train_inputs[:, 1:], arrays.train_inputs)
    assert both.train_inputs[:, 0].tolist() == [i / 8 for i in range(8)]


def test_images(tmp_path: Path) -> None:
    """Grey, with another size and in a folder beside the table: RGB of the size asked for."""
    (tmp_path / "pictures").mkdir()
    for i in range(10):
        Image.new("L", (20, 12), color=10 * i).save(tmp_path / "pictures" / f"{i}.png")
    cells = in_order({**GOOD, "file": [f"pictures/{i}.png" for i in range(10)]})
    arrays = load(write(tmp_path, cells), image="file", image_size=16, **SPLIT)
    assert (arrays.train_inputs.shape, arrays.train_inputs.dtype) == ((8, 16, 16, 3), torch.uint8)
    assert arrays.test_inputs[:, 0, 0].tolist() == [[80] * 3, [90] * 3]


class Reader(Hashed):
    """As Hashed, with an identity of its own."""

    def identity(self) -> str:
        return "another"


@pytest.mark.parametrize("name", ["t.csv", "t.PARQUET"])
def test_experts_are_known_from_the_header_alone(tmp_path: Path, name: str) -> None:
    """In the order of the file or of `experts`; what is wrong with the header is refused as for the whole file."""
    path = write(tmp_path, {**GOOD, "correct_c": [None] * 10}, name)
    assert table(path).expert_names(Path()) == ["a", "b", "c"]
    assert table(path, experts=["correct_b", "a"]).expert_names(Path()) == ["b", "a"]
    with pytest.raises(ParameterError, match=r"^experts=gpt: no such column"):
        table(path, experts=["a", "gpt"]).expert_names(Path())
    with pytest.raises(L2DError, match="only one expert, a"):
        table(write(tmp_path, without("correct_b"), name)).expert_names(Path())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(L2DError, match=rf"{name}: cannot be read"):
        table(path).expert_names(Path())


def test_fingerprint(tmp_path: Path) -> None:
    """It covers the file's bytes, and the encoder if there is text for it to read."""
    path = write(tmp_path, GOOD)
    before = table(path).fingerprint(Path())
    assert len(before) == 16
    assert table(path).fingerprint(Path()) == table(path, encoder=Reader()).fingerprint(Path()) == before
    read = [table(path, text="note", encoder=encoder).fingerprint(Path()) for encoder in (Hashed(), Reader())]
    assert read[0] == before != read[1]
    path.write_text(path.read_text().replace("0.125", "0.25"))
    assert table(path).fingerprint(Path()) != before
    load(path)
    for missing in (Path("nowhere.csv"), None):
        with pytest.raises(ParameterError, match=r"^path[=:]"):
            table(missing).fingerprint(Path())


def test_names_and_labels_may_be_numbers(tmp_path: Path) -> None:
    cells = {**GOOD, "2024": [1.0] * 10, "year": [2019, 2020] * 5}
    arrays = load(write(tmp_path, cells), features=[2024, "y"], category="year", only=[2020])
    assert arrays.seen.features == ("2024", "y")
    assert {*(arrays.categories or ())} == {"2020"}
    # Coverage takes the classes in order: 10 after 9, words after numbers.
    assert class_numbers(["10", "2", "b", "0", "a", "2"], 6)[0].tolist() == [2, 1, 4, 0, 3, 1]


@pytest.mark.parametrize("mark", [",", ";"])
def test_queries_have_the_decimal_commas_of_the_training_rows(mark: str, tmp_path: Path) -> None:
    """x has decimal commas, y those between thousands."""
    rows = ["x;y;correct_a;correct_b", *(f'"{k},5";"1,{k}00";1;0' for k in range(9))]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(row.replace(";", mark) for row in rows).replace('"1,', '"1' if mark == ";" else '"1,'))
    seen = load(path, features=["x", "y"]).seen
    assert row_inputs([{"x": "1,500", "y": "1,500"}], seen, Hashed().embed).tolist() == [[1.5, 1500]]
    sheet = read_sheet(write(tmp_path, {"x": ["1,500"], "y": ["1,500"]}))
    assert sheet_inputs(sheet, seen, (2,), Hashed().embed).tolist() == [[1.5, 1500]]
    assert from_plain(Seen, asdict(seen)).commas == ("x",)


def test_columns_known_after_the_answer_are_no_features(tmp_path: Path, capsys: Captured) -> None:
    later = {f"{kind}_a": [1.0] * 10 for kind in ("answer", "probability", "tokens", "seconds", "latency", "Correct")}
    later["answer_b"] = [2.0] * 10
    prices = {"price_a": [1.0] * 10, "price_b": [0.0] * 10}
    for more in (later, prices):
        assert load(write(tmp_path, {**separable(10), **more})).seen.features == ("x", "noise")
        assert ("prices: price_a, price_b (" in capsys.readouterr().err) == (more is prices)


@pytest.mark.parametrize("prefix", MONEY)
def test_names_of_money(prefix: str, tmp_path: Path) -> None:
    """None of them makes an expert, and a router does not see them. Some say dollars."""
    arrays = load(write(tmp_path, {**GOOD, f"{prefix}a": [0.5] * 10, f"{prefix}b": [0.25] * 10}))
    assert panel_of(arrays).names == ("a", "b")
    assert panel_of(arrays).unit.dollars is ("usd" in prefix)
    assert whole(arrays, "prices").tolist() == [[0.5, 0.25]] * 10
    assert arrays.train_inputs.shape == (8, 2)


def test_empty_outcomes_were_not_asked(tmp_path: Path, capsys: Captured) -> None:
    """Worked out by hand. A row without any outcome is left out. Prices, latencies and propensities may be empty there too."""
    kinds = ("price", "latency", "propensity")
    cells: Cells = {
        "x": [1, 2, 3, 4, 5],
        "answer": ["cat", "dog", "cat", "dog", "dog"],
        "correct_a": ["1", "", "0", "", "nan"],
        "prediction_b": ["cat", "cat", "", "", ""],
        "loss_c": ["", "", "0.5", "", "2"],
        **{f"{kind}_b": ["0.5", "0.5", "", "", "0.5"] for kind in kinds},
        **{f"{kind}_{name}": ["0.25"] * 5 for kind in kinds for name in "ac"},
        "split": ["train", "train", "train", "train", "test"],
    }
    arrays = load(write(tmp_path, cells), label="answer", split="split")
    nan = float("nan")
    expected = torch.tensor([[0, 0, nan], [nan, 1, nan], [1, nan, 0.5], [nan, nan, 2]])
    torch.testing.assert_close(whole(arrays, "errors"), expected.double(), equal_nan=True)
    # two were asked on one row, so perhaps none was on the row that is left out
    assert panel_of(arrays).train.propensities is None
    for part in ("prices", "latencies"):
        found = whole(arrays, part)
        assert found[:, 0].tolist() == [0.25] * 4
        assert found[:2, 1].tolist() == [0.5, 0.5]
        assert found[2, 1].isnan()
    printed = capsys.readouterr().err
    assert "left out 1 row " in printed
    assert "propensities are estimated anew" in printed


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_ids_are_no_features(name: str, tmp_path: Path, capsys: Captured) -> None:
    """If their name says so, whether they repeat or not; in a Parquet file they may be numbers written as text."""
    numbers = [7 * i + 1000 for i in range(10)]
    ids: Cells = {"request_id": numbers, "Query_ID": [str(one) for one in numbers], "uuid": numbers}
    ids |= {"row_uuid": numbers, "customer_id": [1, *range(1, 10)]}
    words: Cells = {"trace_id": [f"t-{i}" for i in range(10)], "order_id": [*map(str, range(9)), "none yet"]}
    others: Cells = {"valid": numbers, "id_card": numbers}
    path = write(tmp_path, {**without("y"), **ids, **words, **others}, name)
    assert load(path).seen.features == ("x", *others)
    assert f"not used: id, note, {', '.join([*ids, *words])}" in capsys.readouterr().err
    assert load(path, features=["x", "request_id"]).seen.features == ("x", "request_id")


def test_a_text_that_no_router_reads_is_hinted_at(tmp_path: Path, capsys: Captured) -> None:
    """If most cells differ and have several words, and nobody named what the router sees."""
    cells = {
        **GOOD,
        "request": [f"r-{i}" for i in range(10)],
        **{f"answer_{name}": [f"it is {i}" for i in range(10)] for name in "ab"},
    }
    path = write(tmp_path, {**cells, "query": [f"what is {i}" for i in range(10)]})
    load(path)
    assert "dataset.text=query" in capsys.readouterr().err
    for named in ({"features": ["x"]}, {"text": "query"}):
        load(path, **named)
    load(write(tmp_path, cells))
    assert "dataset.text" not in capsys.readouterr().err


@pytest.mark.parametrize(("prices", "hinted"), [([0.004, 0.001], True), ([0.004, 0.011], False), ([0.0, 0.0], False)])
def test_prices_that_hardly_count(prices: list[float], hinted: bool) -> None:
    assert price_hint({"cost": {"scale": 1}}, prices, [0.3, 0.5]).startswith("cost.error_price: ") == hinted


# Whole runs


def test_parts_that_need_the_label_name_its_key(tmp_path: Path) -> None:
    given = ["dataset=table", f"dataset.path={write(tmp_path, in_order(GOOD))}", "dataset.split=split"]
    given += ["validation_fraction=0.3", "recipe.batch_size=4", "trainer.accelerator=cpu", "method=plugin"]
    with pytest.raises(L2DError, match=r"dataset\.label"):
        build(compose(given))


@pytest.mark.slow
def test_a_finished_run_notices_another_file_or_none(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, separable(100))
    config = tiny("dataset=table", f"dataset.path={path}", "recipe.epochs=1")
    assert train(config) == train(config)
    with pytest.raises(L2DError, match=r"^dataset\.path=.*typo\.csv: "):
        train(tiny("dataset=table", f"dataset.path={tmp_path / 'typo.csv'}", "recipe.epochs=1"))
    write(tmp_path, separable(101))
    with pytest.raises(L2DError, match="data"):
        train(config)


@pytest.mark.slow
def test_the_example_makes_a_table_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    script = [sys.executable, str(ROOT / "examples" / "make_table.py"), str(path)]
    subprocess.run(script, check=True, capture_output=True)
    arrays = load(path)
    assert arrays.train_inputs.shape == (1600, 6)
    assert whole(arrays, "prices").shape == (2000, 3)
