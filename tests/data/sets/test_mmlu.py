"""Questions: real ones from a file, simulated ones; no question on two sides of a split."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from tests.data.sets.test_table import Reader, panel_of
from tests.running import assembled

from l2d.assembly.fingerprints import data_fingerprint
from l2d.config import check, compose, sweep_axes
from l2d.core.costs import cheapest
from l2d.data.sets import mmlu
from l2d.data.sets.mmlu import MMLU
from l2d.data.sets.mmlu_sim import CHANCES, PATTERNS, MMLUSim, apportioned, simulated_outcomes
from l2d.data.text.encoders import Hashed
from l2d.runs.cells import make_cells
from l2d.runs.sweep import list_only
from l2d.utils.errors import L2DError, ParameterError

DEFAULTS: dict[str, Any] = {
    "path": None, "experts": ["a", "b"], "outcome": "correct", "features": None, "text": "prompt", "encoder": Hashed(),
    "image": None, "image_size": 32, "label": "answer", "category": "subject", "only": None, "split": None, "split_by": None,
    "test_fraction": 0.3333,
}  # fmt: skip
SHARES = {"error": (0.822, 0.128, 0.05), "llm": (0.312, 0.12, 0.568)}  # the paper's


@pytest.mark.slow
@pytest.mark.parametrize("cost", SHARES)
def test_simulated_models_have_the_papers_oracle_shares(cost: str) -> None:
    data = assembled(compose(["dataset=mmlu_sim", f"cost={cost}"]))
    costs = torch.cat([data.train.costs, data.validation.costs, data.test.costs])
    assert len(costs) == 3000
    shares = torch.bincount(cheapest(costs), minlength=3) / len(costs)
    assert shares.tolist() == pytest.approx(SHARES[cost], abs=5e-4)
    assert all("simulated" in name for name in data.panel.names)


def test_the_subject_may_be_the_label_of_simulated_questions() -> None:
    """Same questions, same outcomes, same test rows."""
    letter = MMLUSim(questions=300, encoder=Hashed(), label="answer").load(Path())
    subject = MMLUSim(questions=300, encoder=Hashed(), label="subject").load(Path())
    assert (letter.num_classes, subject.num_classes) == (4, 5)
    assert len(letter.test_labels) == pytest.approx(100, abs=5)  # a third, but for questions that occur twice
    assert len(letter.train_labels) + len(letter.test_labels) == 300
    assert {*letter.test_labels.tolist()} == {0, 1, 2, 3}
    assert torch.equal(letter.test_inputs, subject.test_inputs)
    assert letter.categories == subject.categories
    names = sorted(set(subject.categories or ()))
    assert [names[label] for label in subject.test_labels.tolist()] == list(subject.categories or ())
    by_letter, by_subject = panel_of(letter).test, panel_of(subject).test
    assert torch.equal(by_letter.errors, by_subject.errors)


def test_what_the_simulation_refuses_and_is() -> None:
    with pytest.raises(ParameterError, match=r"^encoder: "):
        MMLUSim(questions=300, encoder=None, label="answer")
    made = [(100, Hashed()), (100, Reader()), (101, Hashed())]  # a folder may come to hold other weights
    assert len({MMLUSim(questions=n, encoder=one, label="answer").fingerprint(Path()) for n, one in made}) == 3
    assert sum(CHANCES) == pytest.approx(1)
    assert len(set(PATTERNS)) == len(PATTERNS) == 8
    assert apportioned(np.array([0.5, 0.3, 0.2]), 7).tolist() == [4, 2, 1]
    assert apportioned(np.full(64, 1 / 64), 32).tolist() == [1] * 32 + [0] * 32  # ties go by place, on every machine


def test_a_fifth_of_the_outcomes_do_not_depend_on_the_question() -> None:
    """The strong model alone is right on 31.2 %, so on all of the first kind's share of the others; of the fourth kind it is 12 %,
    before the 88 % on which all three fail. On the fifth that is shuffled it is right as often as anywhere, 67.2 %."""
    kinds, patterns = simulated_outcomes(20_000, np.random.default_rng(0))
    strong = np.array([pattern[0] for pattern in PATTERNS])[patterns]
    assert np.bincount(kinds).tolist() == [2000] * 10
    assert strong.mean() == pytest.approx(0.672)
    assert strong[kinds == 0].mean() == pytest.approx(0.8 + 0.2 * 0.672, abs=0.02)
    assert strong[kinds == 3].mean() == pytest.approx(0.8 * 0.12 + 0.2 * 0.672, abs=0.03)


def questions(folder: Path, **changes: str) -> Path:
    file = folder / "questions.csv"
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, ["id", "subject", "prompt", "answer", "a", "b"])
        writer.writeheader()
        for i in range(60):
            row = {"id": i, "subject": f"topic {i % 3}", "prompt": f"question {i // 2}?", "answer": "ABC"[i % 3]}
            writer.writerow({**row, "a": i % 2, "b": int(i % 5 == 0), **(changes if i == 0 else {})})
    return file


def with_header(file: Path, experts: str) -> Path:
    """With other names of the columns of experts."""
    first, *rows = file.read_text().splitlines()
    file.write_text("\n".join([first.replace(",a,b", f",{experts}"), *rows]))
    return file


def mmlu_data(file: Path, *overrides: str) -> list[str]:
    given = ["dataset=mmlu", f"dataset.path={file}", "dataset.experts=[a,b]", "experts=table", "router=hashed"]
    return [*given, "dataset.only=null", "validation_fraction=0.2", *overrides]


def load(file: Path, **changes: Any) -> Any:
    return MMLU(**{**DEFAULTS, "path": str(file), **changes}).load(Path())


@pytest.mark.parametrize("fold", ["null", "2/4"])
def test_a_question_that_occurs_twice_is_on_one_side(tmp_path: Path, fold: str) -> None:
    data = assembled(compose(mmlu_data(questions(tmp_path), f"fold={fold}")))
    seen = [{tuple(row) for row in split.inputs.tolist()} for split in (data.train, data.validation, data.test)]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 30  # no question is on two sides
    assert sum(map(len, (data.train, data.validation, data.test))) == 60


def test_subjects_and_letters(tmp_path: Path) -> None:
    arrays = load(questions(tmp_path), only=["topic 1"])
    assert len(arrays.train_labels) + len(arrays.test_labels) == 20
    assert {*arrays.train_labels.tolist()} == {1}  # B, though it is the only letter there
    assert arrays.num_classes == 4
    assert {*(arrays.categories or ())} == {"topic 1"}
    # For methods that go by a label; the letters are not looked at then.
    arrays = load(questions(tmp_path, answer="E"), label="subject")
    assert arrays.num_classes == 3
    assert {*arrays.train_labels.tolist()} == {0, 1, 2}
    assert [f"topic {label}" for label in arrays.test_labels.tolist()] == list(arrays.categories or ())
    assert load(questions(tmp_path), label="subject", only=["topic 1", "topic 2"]).num_classes == 2


@pytest.mark.parametrize(
    ("header", "changes"),
    [
        ("a,b", {"outcome": "prediction"}),
        ("a,b", {"experts": None}),  # language models would be asked
        ("correct_a,prediction_b", {"experts": None}),  # one expert with letters is enough
    ],
)
def test_letters_are_not_compared_with_subjects(header: str, changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^label=subject: .*label=answer"):
        load(with_header(questions(tmp_path), header), label="subject", **changes)


def test_columns_of_experts(tmp_path: Path) -> None:
    """Without outcomes there is no panel yet. Experts may be named without what their columns hold."""
    assert load(questions(tmp_path), experts=None).panel is None
    named = with_header(questions(tmp_path), "correct_a,correct_b")
    assert panel_of(load(named, experts=["a", "b"])).names == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"answer": "E"}, {}, "column answer: none of A, B, C, D in 1 of 60 rows: 1,"),
        ({}, {"encoder": None}, "^text=prompt: "),
        ({}, {"label": None}, "^label: missing"),
        ({"a": "1.5"}, {}, "column a: not between"),
    ],
    ids=str,
)
def test_bad_questions(changes: dict[str, str], arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=words):
        load(questions(tmp_path, **changes), **arguments)


def test_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched once; what was fetched is read like any other table, without outcomes."""
    prompts = [f"q{i}" for i in range(9)]
    asked = [{"id": list("012345678"), "subject": ["s"] * 9, "prompt": prompts, "answer": ["A"] * 9}]
    monkeypatch.setattr(mmlu, "hub_questions", asked.pop)
    dataset = MMLU(**{**DEFAULTS, "experts": None})
    known = dataset.fingerprint(tmp_path)
    assert dataset.fingerprint(tmp_path) == known != ""
    arrays: Any = dataset.load(tmp_path)
    assert sorted([*arrays.texts[0], *arrays.texts[1]]) == prompts
    assert arrays.panel is None


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not reached, or reached and refused: one line, and nothing is left behind that looks like a file."""
    dataset = MMLU(**{**DEFAULTS, "experts": None})
    monkeypatch.setattr(mmlu, "is_kept", lambda *_, **__: False)
    monkeypatch.setattr(mmlu, "unreachable", lambda *_, **__: "the hub is asleep")
    with pytest.raises(ParameterError, match=r"^path: .*cais/mmlu .*the hub is asleep"):
        dataset.load(tmp_path)

    def refused(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(mmlu, "unreachable", lambda *_, **__: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refused)
    with pytest.raises(ParameterError, match=r"^path: .*PermissionError"):
        dataset.load(tmp_path)
    assert not list((tmp_path / "mmlu").glob("*.parquet"))


def test_rows_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub numbers the right choice; a question is put with its choices."""
    file = tmp_path / "all.parquet"
    rows = [{"question": "Which?", "subject": "law", "choices": list("wxyz"), "answer": answer} for answer in (0, 3)]
    parquet.write_table(pa.Table.from_pylist(rows), file)
    asked: list[tuple[Any, ...]] = []

    def ask(*names: str, repo_type: str = "model") -> str:
        asked.append((*names, repo_type))
        return ""

    monkeypatch.setattr(mmlu, "is_kept", ask)
    monkeypatch.setattr(mmlu, "unreachable", ask)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *given, **said: ask(*given, **said) or str(file))
    prompt = "Which?\nA. w\nB. x\nC. y\nD. z"
    columns = {"id": ["0", "1"], "subject": ["law"] * 2, "prompt": [prompt] * 2, "answer": ["A", "D"]}
    assert mmlu.hub_questions() == columns
    assert asked == [(mmlu.HUB, mmlu.HUB_FILE, "dataset")] * 3


def asleep(*_: object, **__: object) -> str:
    raise AssertionError("the hub was asked")


NAMED = "cost.prices={llama-2-7b: 0, llama-2-13b: 1, llama-3-70b: 2}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [["experiment=table3"], ["dataset=mmlu", "setup=llama", "cost=error_plus_cost", NAMED]]
)
def test_a_dry_run_fetches_no_questions(given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists its runs, none of which would fail; a run that is not a dry one asks for them before anything else."""
    monkeypatch.setattr(mmlu, "hub_questions", asleep)
    places = [f"data_dir={tmp_path / 'data'}", f"runs_dir={tmp_path / 'runs'}"]
    grid = [(*given, f"method={method}", "dry_run=true") for method in ("tdef", "mild")]
    cells = make_cells(grid, lambda overrides: compose([*overrides, *places]))
    assert [cell.problem for cell in cells] == [""] * 2
    list_only(cells, force=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertionError, match="the hub was asked"):
        data_fingerprint(check(compose([*given, *places])))


@pytest.mark.slow
def test_what_is_here_is_looked_at_in_a_dry_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of one's own, or questions that were fetched before; a file that is not there would fail."""
    places = [f"data_dir={tmp_path}", "dataset=mmlu", "setup=llama", "dry_run=true"]
    with pytest.raises(L2DError, match=r"^dataset\.path="):
        data_fingerprint(check(compose([*places, f"dataset.path={tmp_path / 'none.csv'}"])))
    (tmp_path / "mmlu").mkdir()
    (tmp_path / "mmlu" / "questions.parquet").write_bytes(b"a")
    monkeypatch.setattr(mmlu, "hub_questions", asleep)
    known = data_fingerprint(check(compose(places)))
    assert len(known) == 16
    (tmp_path / "mmlu" / "questions.parquet").write_bytes(b"b")
    assert data_fingerprint(check(compose(places))) not in ("", known)


@pytest.mark.slow
def test_table_3_is_the_papers() -> None:
    """Section 6.2 and its appendix: router, epochs, rate, optimizer, subjects, models, prices, methods."""
    chosen = compose(["experiment=table3", "cost=llm"])
    assert (chosen.router.name, chosen.router.model) == ("text_encoder", "microsoft/deberta-v3-xsmall")
    assert (chosen.router.pretrained, chosen.dataset.encoder.name) == (True, "tokens")
    assert (chosen.recipe.epochs, chosen.recipe.optimizer.lr) == (5, 5e-5)
    assert chosen.recipe.optimizer._target_ == "torch.optim.AdamW"
    assert list(chosen.dataset.only) == ["high_school_mathematics", "high_school_world_history"]
    models = [f"Qwen/Qwen2.5-{size}-Instruct" for size in ("7B", "1.5B", "0.5B")]
    assert (chosen.experts.name, list(chosen.experts.models)) == ("llm", models)
    assert list(chosen.cost.prices) == [1.0, 0.6, 0.1]
    axes = sweep_axes(["experiment=table3"])
    assert (axes["cost"], axes["method"]) == ("error,llm", "tdef,mild,ce,cwce,ldam,mild_uniform,tdef_uniform")
    # The same cells for recorded outcomes, with the frozen encoder.
    chosen = compose(["experiment=mmlu_outcomes", "setup=llama"])
    assert (chosen.router.name, chosen.dataset.encoder.name, chosen.recipe.epochs) == ("mlp", "embeddings", 20)
    assert sweep_axes(["experiment=mmlu_outcomes"]) == axes


@pytest.mark.slow
def test_the_papers_experiments_take_language_models(tmp_path: Path) -> None:
    """Noise is on the prices that a setup brings, as cost=llm has them; extreme finds its own."""
    file = tmp_path / "outcomes.csv"
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["subject", "prompt", "answer", "llama-3-70b", "llama-2-13b", "llama-2-7b"])
        for i in range(60):
            subject = "high_school_mathematics" if i % 2 else "high_school_world_history"
            writer.writerow([subject, f"question {i}?", "ABCD"[i % 4], *(int(i % (k + 2) > 0) for k in range(3))])
    given = ["dataset=mmlu", f"dataset.path={file}", "setup=llama", "router=mlp"]
    noise: Any = assembled(compose(["experiment=noise", *given, "cost.noise=0.2"]))
    assert noise.prices.tolist() == [1.0, 0.6, 0.1]
    assert torch.equal(noise.train.costs, assembled(compose([*given, "cost=llm_noise"])).train.costs)
    extreme: Any = assembled(compose(["experiment=extreme", *given])).cost_facts
    assert extreme.target == 0.95
    curve = compose(["experiment=price_curve", *given, "cost.scale=0.5"])
    assert (curve.cost.name, list(curve.cost.prices), curve.cost.scale) == ("error_plus_cost", [1.0, 0.6, 0.1], 0.5)
