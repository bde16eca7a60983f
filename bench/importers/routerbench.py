"""RouterBench's columns (Hu et al. 2024): MODEL for how right, MODEL|total_cost for the price in dollars."""

import ast
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from importers.outcomes import check_splits, known_or_none, stacked, task_and_split
from l2d.data.importers.recorded import Columns, RecordedOutcomes
from l2d.data.sheet import Sheet, read_sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

PRICE = "|total_cost"
ABOUT_QUESTION = ("sample_id", "prompt", "eval_name")
PICKLES = (".pkl", ".pickle")
# Reading a pickle runs what is in it, so it is not done here.
EXPORT = "import pandas; pandas.read_pickle('{0}.pkl').to_parquet('{0}.parquet')"


def routerbench_outcomes(files: Sequence[Path]) -> RecordedOutcomes:
    """Several files must have the same models; ids are then FILE/sample_id. A model without a price is left out."""
    check_splits(files)
    return stacked({file: _scored(_exported(file), one_of_several=len(files) > 1) for file in files})


def _exported(file: Path) -> Sheet:
    if file.suffix.lower() in PICKLES:
        export = EXPORT.format(file.with_suffix(""))
        raise L2DError(
            f'{file}: a pickle can run code when it is read; if you trust it, export it: python -c "{export}"'
        )
    sheet = read_sheet(file, ABOUT_QUESTION)
    models = _models(sheet)
    for name in (*ABOUT_QUESTION, *models) if models else (f"MODEL{PRICE}",):
        if name not in sheet.columns:
            raise L2DError(f"{file}: no column {name}; there are {listed(sheet.names)}")
    if len(models) < 2:
        raise L2DError(
            f"{file}: routing needs two models or more, and only {models[0]} has a column {models[0]}{PRICE}"
        )
    return sheet


def _models(sheet: Sheet) -> list[str]:
    return [name.removesuffix(PRICE) for name in sheet.names if name.endswith(PRICE)]


def _scored(sheet: Sheet, one_of_several: bool) -> Columns:
    file, models = sheet.path, _models(sheet)
    ids = sheet.words("sample_id")
    part: Columns = {
        "id": [f"{file.stem}/{one}" for one in ids] if one_of_several else ids,
        "prompt": _prompts(sheet),
        "task": sheet.words("eval_name"),
    }
    if split := task_and_split(file)[1]:
        part["split"] = [split] * len(sheet)
    for model in models:
        right = sheet.numbers(model, gaps=True)
        sheet.refuse(model, "not between 0 (wrong) and 1 (right)", (right < 0) | (right > 1))
        part[f"correct_{model}"] = known_or_none(right)
    for model in models:
        column, right = f"{model}{PRICE}", sheet.numbers(model, gaps=True)
        price = sheet.numbers(column, gaps=True)
        sheet.refuse(column, f"empty although {model} is not,", np.isnan(price) & ~np.isnan(right))
        sheet.refuse(column, "negative", price < 0)
        part[f"price_{model}"] = known_or_none(price)
    return part


def _prompts(sheet: Sheet) -> list[str]:
    """A prompt is a list of turns, or such a list written as text."""
    prompts = [plain_prompt(cell) for cell in sheet.columns["prompt"].to_pylist()]
    if empty := [row for row, prompt in enumerate(prompts, start=1) if not prompt.strip()]:
        raise L2DError(f"{sheet.path}: column prompt: empty in rows {listed(empty)}")
    return prompts


def plain_prompt(cell: object) -> str:
    """The text of ['one turn'], of ["one", "another"] or of a plain cell."""
    turns = cell
    if isinstance(cell, str) and cell.startswith("["):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):  # a text that only begins like a list
            turns = ast.literal_eval(cell)  # reads literals and runs nothing
    if isinstance(turns, list) and all(isinstance(turn, str) for turn in turns):
        return "\n".join(turns)
    return "" if cell is None else str(cell)
