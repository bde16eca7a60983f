"""l2d import: flags, what is printed, and a table that dataset=table reads."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import get_class
from tests.data.importers.test_benchmarks import WIDE, answered, put, question, record, result, saved
from tests.data.importers.test_imported import RESPONSES, sample, two, write

from l2d.commands.import_outcomes import given_to_hydra, main, named_file
from l2d.config import compose
from l2d.data.sets.table import Table
from l2d.data.sheet import read_sheet
from l2d.data.text.encoders import Hashed
from l2d.methods.method import Method


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_table_is_read_by_the_dataset(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = two(tmp_path, [sample(i) for i in range(20)], [sample(i, acc=i % 2) for i in range(21)])
    out = tmp_path / "made here" / f"t{suffix}"
    main(["harness", *(f"{name}={file}" for name, file in files), "--out", str(out)])
    said = capsys.readouterr()
    assert said.out.startswith(f"{out}: 21 questions; right: a 35.0%, b 47.6%\n")
    assert said.out.endswith(f"l2d train dataset=table 'dataset.path={out}' dataset.text=prompt method=mix\n")
    assert said.err.startswith("1 question not asked of all models: ")
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


def test_a_path_can_be_given_to_hydra() -> None:
    assert given_to_hydra("a/b c-1.csv") == "a/b c-1.csv"
    assert given_to_hydra("a,b (1).csv") == "'a,b (1).csv'"


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


def test_the_method_that_is_advised_takes_other_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the command that is printed, as Hydra reads it."""
    out = tmp_path / "t.csv"
    main(["routerbench", str(put(tmp_path / "bench.csv", WIDE)), "--out", str(out)])
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    method = get_class(compose(command[2:])["method"]["_target_"])
    assert issubclass(method, Method)
    assert method.takes_prices_later


def test_every_note_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = SimpleNamespace(columns={"id": ["x", "y"], "correct_a": [1, 0]}, notes=["one thing", "another"])
    monkeypatch.setattr("l2d.commands.import_outcomes.routellm_outcomes", lambda _: found)
    main(["routellm", "r.csv", "--out", str(tmp_path / "t.csv")])
    said = capsys.readouterr()
    assert said.err == "one thing\nanother\n"
    assert said.out.startswith(f"{tmp_path}/t.csv: 2 questions; right: a 50.0%\n")


def test_benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that is printed names the columns that are there; dollars are said to be dollars."""
    monkeypatch.chdir(tmp_path)
    for split in ("train", "test"):
        put(Path(f"law_{split}.json"), [question(split, 0.3, 0)])
        put(Path(f"routing_{split}_data.jsonl"), answered(split, "a", 1) + answered(split, "b", 0))
    put(Path("bench.csv"), WIDE)
    put(Path("llm.json"), {name: {"input_price": 1, "output_price": 2} for name in "ab"})
    for model in "ab":
        saved(Path("results"), 1, result(model, record(0, 1.0)))
    dollars, train = (
        "\nprices are in dollars: cost.error_price=1 says that a wrong answer costs $1;",
        "\nl2d train dataset=table dataset.path=t.csv dataset.text=prompt",
    )
    for arguments, words in [
        (
            ["routerdc", "law_train.json", "law_test.json", "--probability", "law"],
            "2 questions; right: org/a 100.0%, org/b 0.0%",
        ),
        (
            ["routerdc", "law_train.json", "law_test.json"],
            f"{train} dataset.category=task dataset.split=split method=mix\n",
        ),
        (["routerdc", "law_train.json"], f"{train} dataset.category=task method=mix\n"),  # there is nothing to test on
        (
            ["llmrouter", "routing_train_data.jsonl", "routing_test_data.jsonl"],
            "category=task dataset.split=split method=mix\n",
        ),
        (["llmrouter", "routing_train_data.jsonl", "--models", "llm.json"], dollars),
        (["routerbench", "bench.csv"], f"{train} dataset.category=task method=mix cost=columns cost.error_price=1\n"),
        (["routerbench", "bench.csv"], dollars),
        (["llmrouterbench", "results"], "right: a 100.0%, b 100.0%"),
    ]:
        main([*arguments, "--out", "t.csv"])
        assert words in capsys.readouterr().out
        assert len(read_sheet(Path("t.csv"))) > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "SOURCE"),
        (["helm"], "helm"),
        (["harness", "--out", "t.csv"], "FILE"),
        (["harness", "a.jsonl"], "--out"),
        (["routellm", "a.csv", "--metric", "acc", "--out", "t.csv"], "--metric"),
        (["harness", "--force", "a.jsonl", "--out", "t.csv"], "--force"),
        (["harness", "a=no.jsonl", "b=no.jsonl", "--out", "t.csv"], "no.jsonl: No such file"),
        (["routellm", "no.csv", "--out", "t.csv"], "no.csv: no such file"),
        (["routerdc", "no_test.json", "--out", "t.csv"], "no_test.json: No such file"),
        (["llmrouter", "no.jsonl", "--models", "no.json", "--out", "t.csv"], "no.json: No such file"),
        (["routerbench", "no.pkl", "--out", "t.csv"], "no.pkl: a pickle"),
        (["llmrouterbench", "no", "--out", "t.csv"], "no: No such file"),
    ],
)
def test_bad_commands(arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    line = str(caught.value.code)
    assert line.startswith("error: ")
    assert "\n" not in line
    assert words in line


def test_what_is_read_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "rb.csv", WIDE)
    monkeypatch.setenv("HOME", str(tmp_path))
    for source in ("routerbench", "harness", "llmrouter"):
        given = ["other.jsonl", "--models", str(file)] if source == "llmrouter" else ["other.csv", "~/rb.csv"]
        for out in (str(file), "~/rb.csv"):
            with pytest.raises(SystemExit) as caught:
                main([source, *given, "--out", out])
            assert f"--out={file}: is a file that is read, and would be lost" in str(caught.value)
    assert file.read_text() == WIDE


def test_other_kinds_of_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(RESPONSES)
    with pytest.raises(SystemExit, match=r"t\.xlsx: must end in \.csv or \.parquet"):
        main(["routellm", str(tmp_path / "r.csv"), "--out", str(tmp_path / "t.xlsx")])


def test_help_needs_no_torch() -> None:
    code = (
        "import sys, json; from l2d.commands.import_outcomes import main\n"
        "try: main(['harness', '--help'])\n"
        "finally: print(json.dumps([name for name in ('torch', 'sklearn', 'pyarrow') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("usage: l2d import harness")
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = [sys.executable, "-m", "l2d", "import", *arguments]
        return subprocess.run(script, capture_output=True, text=True, check=False, cwd=tmp_path)

    (tmp_path / "r.csv").write_text(RESPONSES)
    done = run("routellm", "r.csv", "--out", "t.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "t.csv: 3 questions; right: mixtral-8x7b-instruct-v0.1 66.7%, gpt-4-1106-preview 66.7%"
    )
    assert run("--help").stdout.startswith("usage: l2d import")
    bad = run("routellm", "missing.csv", "--out", "t.csv")
    assert bad.returncode == 1
    assert bad.stderr.startswith("error: missing.csv: no such file")
    assert bad.stderr.count("\n") == 1
