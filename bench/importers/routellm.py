"""RouteLLM's evaluations (Ong et al. 2024): CSV files with a column of True and False per model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from importers.outcomes import known_or_none, stacked
from l2d.data.importers.recorded import Columns, RecordedOutcomes
from l2d.data.sheet import read_sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import listed


def routellm_outcomes(files: Sequence[Path]) -> RecordedOutcomes:
    """The columns of all files. With several files, each is a subject."""
    return stacked({file: _responses(file, one_of_several=len(files) > 1) for file in files})


def _responses(file: Path, one_of_several: bool) -> Columns:
    """Columns called MODEL_response are left out."""
    sheet = read_sheet(file, ["prompt"])
    if "prompt" not in sheet.columns:
        raise L2DError(f"{file}: no column prompt; there are {listed(sheet.names)}")
    part: Columns = {"id": list(range(len(sheet))), "prompt": sheet.texts("prompt")}
    if one_of_several:
        part["id"] = [f"{file.stem}/{row}" for row in part["id"]]
        part["subject"] = [file.stem] * len(sheet)
    for name in [name for name in sheet.names if name != "prompt" and not name.endswith("_response")]:
        values = sheet.numbers(name, gaps=True)
        sheet.refuse(name, "neither True nor False", (values != 0) & (values != 1) & ~np.isnan(values))
        part[f"correct_{name}"] = known_or_none(values)
    return part
