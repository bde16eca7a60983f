"""A fine-tuned text router, whole: trained, killed, resumed, moved, and asked where its encoder is gone."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from tests.running import folder_of as folder
from tests.running import train
from tests.tiny_encoders import WORDS, write_encoder

from l2d.assembly.module import RouterModule as Learning
from l2d.commands.route import main
from l2d.config import compose
from l2d.networks.text import KEPT
from l2d.router.router import Router
from l2d.utils.errors import L2DError

pytest.importorskip("transformers")
N, TEST = 160, 40


def table(folder: Path) -> tuple[Path, list[str]]:
    """Expert b is right where there is a war, a elsewhere; the texts of the test rows too."""
    rng = np.random.default_rng(0)
    file, texts = folder / "queries.csv", []
    others = [word for word in WORDS if word != "war"]
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["prompt", "correct_a", "correct_b", "x", "split"])
        for i in range(N):
            words, war = list(rng.choice(others, size=rng.integers(2, 30))), i % 3 == 0
            texts.append(" ".join(["war" if war and place % 2 == 0 else word for place, word in enumerate(words)]))
            writer.writerow([texts[-1], int(not war), int(war), i, "train" if i < N - TEST else "test"])
    return file, texts[N - TEST :]


Make = Callable[..., DictConfig]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A config over a table and a tiny encoder in a folder of the test's own."""
    file, _ = table(tmp_path)
    write_encoder(tmp_path / "bert")
    given = ["dataset=table", f"dataset.path={file}", "dataset.text=prompt", "dataset.split=split"]
    given += ["router=minilm_tuned", f"router.model={tmp_path / 'bert'}", "router.reads.max_length=32"]
    given += [
        "recipe.epochs=3",
        "recipe.batch_size=16",
        "recipe.optimizer.lr=0.01",
        "progress=false",
        "trainer.accelerator=cpu",
    ]
    return lambda *more: compose([*given, f"runs_dir={tmp_path / 'runs'}", *more])


@pytest.mark.slow
def test_learns_and_is_asked_where_its_encoder_is_gone(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = make("method=ce")
    metrics = train(cfg)
    assert metrics["deferral_loss"] < metrics["baselines"]["best_single"]["deferral_loss"] - 0.2
    with (folder(cfg) / "history.csv").open() as lines:
        losses = [float(row["train/loss"]) for row in csv.DictReader(lines)]
    assert losses[2] < losses[1] < losses[0]
    with np.load(folder(cfg) / "test.npz") as saved:
        decisions, posterior = saved["decisions"], saved["posterior"]
    run = Path(shutil.move(folder(cfg), tmp_path / "elsewhere"))
    shutil.rmtree(tmp_path / "bert")
    router = Router.load(run)
    queries = table(tmp_path)[1]
    choices = router.route(queries)
    assert [choice.expert for choice in choices] == [router.experts[k] for k in decisions]
    np.testing.assert_allclose([list((choice.posterior or {}).values()) for choice in choices], posterior, rtol=1e-4)
    assert router.route(queries[3:4])[0].expert == choices[3].expert  # alone, and so of another width
    capsys.readouterr()
    main([str(run), "--text", queries[0], "--text", "war " * 25_000])
    assert capsys.readouterr().out.splitlines()[1].startswith(f"1,{choices[0].expert},")
    (run / KEPT / "tokenizer.json").write_text("{")
    with pytest.raises(L2DError, match=r"model=.*elsewhere/encoder: cannot be loaded") as caught:
        Router.load(run).route(["war"])
    assert "\n" not in str(caught.value)


class Crash(Exception):
    pass


@pytest.mark.slow
def test_same_seed_same_bytes_killed_or_not(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a checkpoint after every epoch, however short
    monkeypatch.setattr("l2d.lightning.checkpoints.SHARE", float("inf"))
    first, again, broken = (make(f"runs_dir={tmp_path / name}") for name in ("first", "again", "broken"))
    train(first)
    torch.rand(7)  # other draws in the same process
    train(again)
    real, calls = Learning.losses, 0

    def crashing(self: Learning, *batch: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 18:  # of 7 batches an epoch, in the third
            raise Crash
        return real(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(Learning, "losses", crashing)
        with pytest.raises(Crash):
            train(broken)
    assert not (folder(broken) / "metrics.json").exists()
    train(broken)
    for file in ("metrics.json", "history.csv", "test.npz", "model.safetensors"):
        wanted = (folder(first) / file).read_bytes()
        assert (folder(again) / file).read_bytes() == wanted, file
        assert (folder(broken) / file).read_bytes() == wanted, file
    assert (folder(broken) / KEPT / "config.json").exists()


def slow(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("dataset.features=[x]", r"^router=text_encoder: reads one text"),
        slow(f"router.model={Path(__file__).parent}", r"^router\.reads\.model=.*tests/assembly: cannot be loaded"),
        slow("router.reads.max_length=100", r"^router\.reads\.max_length=100: .* 64 tokens"),
    ],
)
def test_mistakes_leave_no_folder(override: str, said: str, make: Make, tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=said) as caught:
        train(make(override))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_other_weights_are_another_run(make: Make, tmp_path: Path) -> None:
    train(make("recipe.epochs=1"))
    write_encoder(tmp_path / "bert", dtype=torch.bfloat16)
    with pytest.raises(L2DError, match="was run on other data"):
        train(make("recipe.epochs=1"))
