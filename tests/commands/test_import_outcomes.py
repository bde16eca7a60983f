"""l2d import: flags, what is printed, and a table that dataset=table reads."""

import shlex
from pathlib import Path

import pytest
import torch
from tests.commands.refusals import refused
from tests.data.importers.test_harness import sample, two, write

from l2d.commands.import_outcomes import main, named_file
from l2d.data.sets.table import Table
from l2d.data.sheet import read_sheet
from l2d.data.text.encoders import Hashed


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_table_is_read_by_the_dataset(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = two(tmp_path, [sample(i) for i in range(20)], [sample(i, acc=i % 2) for i in range(21)])
    out = tmp_path / "made here" / f"t{suffix}"
    main(["harness", *(f"{name}={file}" for name, file in files), "--out", str(out)])
    printed = capsys.readouterr()
    first, command = printed.out.splitlines()
    assert first == f"{out}: 21 questions; right: a 35.0%, b 47.6%"
    assert shlex.split(command)[2:] == ["dataset=table", f"dataset.path={out}", "dataset.text=prompt", "method=mix"]
    assert printed.err.startswith("1 question ")
    table = Table(
        path=str(out), experts=None, outcome="correct", features=None, text="prompt", encoder=Hashed(), image=None,
        image_size=32, label=None, category=None, only=None, split=None, split_by=None, test_fraction=0.2,
    )  # fmt: skip
    panel = table.load(tmp_path).panel
    assert panel is not None
    assert panel.names == ("a", "b")
    errors = torch.cat([panel.train.errors, panel.test.errors])
    assert errors.nansum(dim=0).tolist() == [13, 11]  # of a, 0, 3, …, 18 are right
    assert errors.isnan().sum(dim=0).tolist() == [1, 0]


def test_models_are_named_by_flag_folder_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a=b.jsonl"), [sample(0)])
    assert named_file("small=x/y.jsonl") == ("small", Path("x/y.jsonl"))
    assert named_file("a=b.jsonl") == ("a=b", Path("a=b.jsonl"))  # a file of that very name
    assert named_file("org__model/samples_mmlu.jsonl")[0] == "model"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named_file("small=~/y.jsonl") == ("small", tmp_path / "y.jsonl")  # which no shell has expanded


def test_metric_filter_and_subject(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [sample(i, filter=name, f1=0.5, doc={"subject": "law"}) for i in range(2) for name in ("strict", "loose")]
    files = two(tmp_path, rows, rows)
    out = tmp_path / "t.csv"
    given = [*(f"{name}={file}" for name, file in files), "--out", str(out)]
    main(["harness", *given, "--metric", "f1", "--filter", "loose"])
    sheet = read_sheet(out, ["prompt"])
    assert sheet.numbers("correct_a").tolist() == [0.5, 0.5]
    assert sheet.words("subject") == ["law", "law"]
    assert capsys.readouterr().out.endswith("dataset.category=subject method=mix\n")


def test_bad_commands() -> None:
    assert "SOURCE" in refused(main)
    assert "no.jsonl: No such file" in refused(main, "harness", "a=no.jsonl", "b=no.jsonl", "--out", "t.csv")


@pytest.mark.parametrize("out", ["~/a.jsonl", "t.xlsx"])
def test_bad_output_files(tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is read is not overwritten; other kinds of table are refused."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    two(tmp_path, [sample(0)], [sample(0)])
    before = (tmp_path / "a.jsonl").read_bytes()
    with pytest.raises(SystemExit, match=r"a\.jsonl: .*read|t\.xlsx: .*\.parquet"):
        main(["harness", "a=~/a.jsonl", "b=~/b.jsonl", "--out", out])
    assert (tmp_path / "a.jsonl").read_bytes() == before
    assert not (tmp_path / "t.xlsx").exists()
