"""l2d prepare: download and prepare a dataset, and do nothing else."""

from typing import Any

from l2d.commands.hydra_command import HydraCommand, run_hydra_command
from l2d.config import check
from l2d.utils.errors import under

EXAMPLES = ["l2d prepare dataset=svhn data_dir=data"]
COMMAND = HydraCommand("prepare", "train", "Download and prepare a dataset.", EXAMPLES)


def prepare_job(cfg: Any) -> None:
    from l2d.assembly.make import make_dataset

    experiment = check(cfg)
    with under("dataset"):
        arrays = make_dataset(experiment).load(experiment.data_dir)
    for split, inputs in (("train", arrays.train_inputs), ("test", arrays.test_inputs)):
        shape = list(inputs.shape[1:])
        print(f"{experiment.dataset.name} {split}: {len(inputs):,} inputs {shape}, {arrays.num_classes} classes")


def main(arguments: list[str]) -> None:
    run_hydra_command(COMMAND, prepare_job, arguments)
