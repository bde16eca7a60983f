"""RouteLLM's evaluations (Ong et al. 2024): CSV files with a column of True and False per model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from l2d.data.importers.recorded import Columns, RecordedOutcomes, empty_outcomes, known_or_none
from l2d.data.sheet import read_sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import listed


def routellm_outcomes(files: Sequence[Path]) -> RecordedOutcomes:
    """CSV files of RouteLLM's evaluations: a column prompt, and a column of True and False per model. With several files, each
    is a subject."""
    columns: Columns = {}
    for file in files:
        part = _responses(file, one_of_several=len(files) > 1)
        if columns and list(part) != list(columns):
            raise L2DError(f"{file}: other models than in {files[0]}: {listed([n for n in part if n not in columns])}")
        for name, cells in part.items():
            columns.setdefault(name, []).extend(cells)
    return RecordedOutcomes(columns, empty_outcomes(columns))


def _responses(file: Path, one_of_several: bool) -> Columns:
    """Columns called MODEL_response are left out."""
    sheet = read_sheet(file, ["prompt"])
    if "prompt" not in sheet.columns:
        raise L2DError(f"{file}: no column prompt; there are {listed(sheet.names)}")
    names = [name for name in sheet.names if name != "prompt" and not name.endswith("_response")]
    part: Columns = {"id": list(range(len(sheet))), "prompt": sheet.texts("prompt")}
    if one_of_several:
        part["id"] = [f"{file.stem}/{row}" for row in part["id"]]
        part["subject"] = [file.stem] * len(sheet)
    for name in names:
        values = sheet.numbers(name, gaps=True)
        sheet.refuse(name, "neither True nor False", (values != 0) & (values != 1) & ~np.isnan(values))
        part[f"correct_{name}"] = known_or_none(values)
    return part
