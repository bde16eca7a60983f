"""A router in a folder of its own: what `router.save` writes, and `Router.load` and `l2d route` read."""

import json
import shutil
import tempfile
from pathlib import Path

import torch

from l2d.core.budget import OperatingPoint
from l2d.router.score import RouterScore
from l2d.router.trained import TrainedRouter
from l2d.runs.artifact.drift import TRAINING_INPUTS
from l2d.runs.artifact.exported import FILE, HELD_OUT, READING, write_weights
from l2d.runs.folder import SAVED, RunFolder
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import write_json
from l2d.utils.text import own_version


def save_router(router: TrainedRouter, folder: Path) -> None:
    """Write all files, router.json last. An earlier router is replaced when they are complete; other files in the folder stay."""
    empty = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not empty and not all((folder / name).is_file() for name in (SAVED, FILE)):
        raise ParameterError("folder", "exists and is not a saved router; choose another folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as place:
        write_router(router, Path(place))
        (folder / SAVED).unlink(missing_ok=True)
        for part in sorted(Path(place).iterdir(), key=lambda part: part.name == SAVED):
            if (folder / part.name).is_dir():
                shutil.rmtree(folder / part.name)
            part.replace(folder / part.name)


def write_router(router: TrainedRouter, folder: Path) -> None:
    RunFolder(folder).write_config(router.config)
    held_out = {} if router.held_out is None else router.held_out.tensors()
    inputs = {} if router.training_inputs is None else vars(router.training_inputs)
    learned = {} if router.encoder is None else router.encoder.state
    parts = {"method": router.method.state_dict(), "network": router.network.state_dict(), HELD_OUT: held_out}
    parts |= {TRAINING_INPUTS: inputs, READING: {name: torch.from_numpy(array) for name, array in learned.items()}}
    weights = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
    write_weights(folder / FILE, weights, router.description)
    router.network.keep(folder)
    found = {"validation": router.validation, "operating_point": router.operating_point}
    about = {name: None if part is None else part.as_dict() for name, part in found.items()}
    write_json(folder / SAVED, {"version": own_version(), "experts": list(router.experts), "raw": router.raw, **about})


def read_saved(folder: Path) -> tuple[RouterScore | None, OperatingPoint | None, bool]:
    """The router's score on held-out rows and what it spends within its budget, None for a run's router; whether it is raw."""
    if not (folder / SAVED).exists():
        return None, None, False
    try:
        found = json.loads((folder / SAVED).read_text(encoding="utf-8"))
        score, point = found["validation"], found.get("operating_point")
        validation = None if score is None else RouterScore.from_dict(score)
        return validation, None if point is None else OperatingPoint.from_dict(point), found.get("raw") is True
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise L2DError(f"{folder / SAVED}: damaged ({type(error).__name__}); save the router again") from error
