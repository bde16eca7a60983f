"""l2d experts: make a setup's experts and print how good they are."""

from typing import TYPE_CHECKING, Any

from l2d.commands.hydra_command import HydraCommand, run_hydra_command
from l2d.config import check
from l2d.lightning.quick_imports import import_quickly
from l2d.utils.errors import L2DError
from l2d.utils.text import aligned

if TYPE_CHECKING:
    from l2d.assembly.assemble import Splits

COMMAND = HydraCommand(
    name="experts",
    config="experts",
    description="Train the experts of a setup, or read them, and say how good they are.",
    examples=[
        "l2d experts dataset=cifar10 setup=I",
        "l2d experts setup=III experts.fraction=0.05 experts.cross_fit=5 experts.recipe.epochs=30",
        "l2d experts -m setup=I,II,III,severe",
        "l2d experts setup=III force=true      again, although they are there",
    ],
)
SPLITS = ("train", "validation", "test")


def accuracy_table(splits: "Splits") -> str:
    """Per expert and split, the share of right answers on its own classes, on the others, overall."""
    from l2d.core.metrics import accuracy_by_expert

    header, rows = ["right answers"], [[name] for name in splits.panel.names]
    for name in SPLITS:
        split = getattr(splits, name)
        header += [f"{name}: {column}" for column in ("own", "others", "overall")]
        found = accuracy_by_expert(split.answers.errors, split.labels, splits.panel.knows)
        for row, shares in zip(rows, found, strict=True):
            row += ["-" if value is None else f"{value:.2%}" for value in shares]
    return aligned(header, rows)


def experts_job(cfg: Any) -> None:
    experiment = check(cfg)
    if experiment.settings.dry_run:
        raise L2DError("dry_run: there is nothing to list here; leave it out")
    import_quickly()
    from l2d.assembly.build import make_splits
    from l2d.lightning.learner import ended_by_signals

    with ended_by_signals():
        splits = make_splits(experiment, renew_experts=experiment.settings.force)
    rows = ", ".join(f"{len(getattr(splits, name)):,} {name}" for name in SPLITS)
    names = f"{experiment.dataset.name}, setup {experiment.setup.name}, experts={experiment.experts.name}"
    print(f"{names}; rows: {rows}\n\n{accuracy_table(splits)}")


def main(arguments: list[str]) -> None:
    run_hydra_command(COMMAND, experts_job, arguments)
