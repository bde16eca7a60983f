"""Trained experts that take a moment, and what they are asked."""

from pathlib import Path

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.data.arrays import Arrays
from l2d.data.splits import split
from l2d.experts.cache import Cache
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.experts.trained import TrainedExperts

TINY = ["setup=severe", "experts=trained", "experts.network.width=2", "experts.recipe.epochs=2", "progress=false"]
BATCH = "experts.recipe.batch_size=256"


def experts(*overrides: str) -> TrainedExperts:
    made: TrainedExperts = make(check(compose([*TINY, BATCH, *overrides])).experts)
    return made


def request(folder: Path, arrays: Arrays, seed: int = 0, coverage: tuple[float, ...] = (0.9, 0.1)) -> ExpertRequest:
    train, _ = split(arrays, 0.1, seed)
    return ExpertRequest(arrays, train, coverage, seed, Cache(folder, "x", {"seed": seed}), Path(), ComputeOptions())
