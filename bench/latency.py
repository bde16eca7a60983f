"""The routers whose speed bench/serve.py measures."""

from pathlib import Path
from typing import Any

from l2d.assembly.make import make_dataset
from l2d.config import check, compose
from records import trained

DATA = ["dataset=mmlu_sim", "dataset.questions=1600"]
ROUTERS = {"mlp": DATA, "minilm": [*DATA, "router=minilm"]}


def prepared(overrides: list[str], folder: Path) -> tuple[Path, Any]:
    """The folder of a run of one epoch, since the weights do not change the time, and at least 512 texts to ask it about."""
    where = [f"runs_dir={folder / 'runs'}", f"data_dir={folder / 'data'}", "progress=false", "trainer.accelerator=cpu"]
    overrides = [*overrides, *where, "recipe.epochs=1"]
    run, _ = trained(overrides)
    texts = make_dataset(check(compose(overrides))).load(folder / "data").texts
    assert texts is not None
    return run.path, texts[1]
