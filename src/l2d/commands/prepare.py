"""Download and prepare a dataset, and do nothing else: l2d prepare dataset=svhn data_dir=data."""

from pathlib import Path

from omegaconf import DictConfig

from l2d.commands.hydra_command import run_command
from l2d.routing.build import make_dataset


def job(cfg: DictConfig) -> None:
    arrays = make_dataset(cfg).load(Path(cfg.data_dir).expanduser())
    for split, images in (("train", arrays.train_inputs), ("test", arrays.test_inputs)):
        print(
            f"{cfg.dataset.name} {split}: {len(images):,} images {list(images.shape[1:])}, {arrays.num_classes} classes"
        )


def main(_: list[str]) -> None:
    run_command(job, "Download and prepare a dataset.", module="l2d.data.prepare")
