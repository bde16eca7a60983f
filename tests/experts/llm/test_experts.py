"""Language models as experts, as far as nothing has to be loaded for it."""

import shutil
import sys
from pathlib import Path

import pytest
from tests.experts.llm.tiny_models import LETTERS, experts

from l2d.assembly.fingerprints import data_fingerprint
from l2d.assembly.make import make, make_dataset
from l2d.config import check, compose
from l2d.data.sheet import write_sheet
from l2d.experts.llm.experts import LLMExperts
from l2d.utils.errors import ParameterError


@pytest.mark.parametrize(
    "bad", ["letters=[A]", "letters=[A,A]", "dtype=float8", "models=[]", "models=[gpt2,other/gpt2]", "table=out.xlsx"]
)
def test_bad_values(bad: str) -> None:
    key = bad.partition("=")[0] if "[" in bad else bad  # a list is shown in another way
    with pytest.raises(ParameterError, match=rf"^experts\.{key}\b"):
        make(check(compose(["dataset=mmlu", "experts=llm", f"experts.{bad}"])).experts)


def test_other_weights_are_another_run(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded to tell. Of data that know their experts' answers only the data count."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    folder = tmp_path / "large"
    shutil.copytree(folders[0], folder)
    write_sheet(tmp_path / "q.csv", {"prompt": ["q"], "subject": ["law"], "answer": ["A"]})
    given = ["dataset=mmlu", f"dataset.path={tmp_path / 'q.csv'}", "router=mlp", "progress=false"]

    others = ("experts=table", "seed=0", f"experts.models=[{folder},a]")
    experiments = [check(compose([*given, more])) for more in others]
    before = [*map(data_fingerprint, experiments)]
    assert len(set(before)) == 3
    assert before[0] == make_dataset(experiments[0]).fingerprint(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    after = [*map(data_fingerprint, experiments)]
    assert after[:2] == before[:2]
    assert after[2] != before[2]
    write_sheet(tmp_path / "q.csv", {"prompt": ["another"], "subject": ["law"], "answer": ["A"]})
    assert not {*after} & {*map(data_fingerprint, experiments)}


def test_the_config() -> None:
    """Nothing is loaded by building it."""
    made: LLMExperts = make(check(compose(["experts=llm", "setup=own"])).experts)
    assert made.names == ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")
    assert (made.letters, made.chat, made.dtype, made.seed) == (LETTERS, True, "auto", None)
    made = make(check(compose(["dataset=mmlu", "experts=llm", "experts.letters=[1,2,3,4]"])).experts)
    assert made.letters == ["1", "2", "3", "4"]
    assert experts([Path("gpt2")], letters=["a", "B"]).letters == ["a", "B"]  # as they stand in the questions
