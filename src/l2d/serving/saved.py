"""A router in a folder of its own: what `router.save` writes, and `Router.load` and `l2d route` read."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2d.networks.network import Network
from l2d.runs.folder import SAVED, RunFolder
from l2d.serving.exported import FILE, HELD_OUT, write_weights
from l2d.serving.score import RouterScore
from l2d.utils.errors import ParameterError
from l2d.utils.files import clear_folder, write_json
from l2d.utils.version import own_version

if TYPE_CHECKING:
    from l2d.serving.router import Router


def save_router(router: "Router", folder: Path) -> None:
    """config.yaml, the weights, what the network keeps beside them, and router.json, which is written last."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / SAVED).exists())):
        raise ParameterError("folder", "is there already, and is no saved router", folder)
    folder.mkdir(parents=True, exist_ok=True)
    clear_folder(folder, first=SAVED, keep=[])
    RunFolder(folder).write_config(router.config)
    weights = {f"{part}.{name}": value for part, values in parts_of(router).items() for name, value in values.items()}
    write_weights(folder / FILE, weights, router.description)
    assert isinstance(router.network, Network)
    router.network.keep(folder)
    validation = None if router.validation is None else router.validation.as_dict()
    write_json(folder / SAVED, {"version": own_version(), "experts": list(router.experts), "validation": validation})


def parts_of(router: "Router") -> dict[str, dict[str, Any]]:
    """The tensors of the file, by part."""
    held_out = (
        {} if router.held_out is None else {name: value.contiguous() for name, value in vars(router.held_out).items()}
    )
    return {"method": router.method.state_dict(), "network": router.network.state_dict(), HELD_OUT: held_out}


def read_validation(folder: Path) -> RouterScore | None:
    """How the router did on the rows that were held out from its training; None for the router of a run."""
    if not (folder / SAVED).exists():
        return None
    found = json.loads((folder / SAVED).read_text(encoding="utf-8"))["validation"]
    return None if found is None else RouterScore.from_dict(found)
