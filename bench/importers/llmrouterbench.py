"""LLMRouterBench's results (Li et al. 2026): a JSON file per dataset, split and model, with a record per question."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from importers.outcomes import Outcome, dollars, outcome_table, wanted_text
from l2d.data.importers.recorded import RecordedOutcomes, json_object, share_right
from l2d.utils.errors import L2DError


def llmrouterbench_outcomes(paths: Sequence[Path]) -> RecordedOutcomes:
    """paths: result files, and folders of them. The latest result for a dataset, split and model counts; demos are left out. The
    split is the source's, not one for routers, so it is only part of the id."""
    latest: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}
    for file in _result_files(paths):
        result = json_object(file.read_bytes(), str(file))
        if not result.get("demo"):
            key = tuple(wanted_text(result, name, str(file)) for name in ("dataset_name", "split", "model_name"))
            latest[key] = file, result
    unscored = 0
    outcomes: list[Outcome] = []
    for (dataset, split, model), (file, result) in latest.items():
        for where, record in _records(file, result):
            unscored += record.get("score") is None
            outcomes.append(_outcome(record, dataset, split, model, where))
    found = outcome_table(outcomes)
    notes = [f"{unscored:,} answers have no score and count as wrong"] if unscored else []
    return RecordedOutcomes(found.columns, [*found.notes, *notes])


def _result_files(paths: Sequence[Path]) -> list[Path]:
    """Sorted by name, which ends with the time. In folders, all .json files."""
    found: list[Path] = []
    for path in paths:
        inside = [*path.rglob("*.json")] if path.is_dir() else [path]
        if not inside:
            raise L2DError(f"{path}: no .json files in this folder")
        found += inside
    return sorted(found, key=lambda file: (file.name, file))


def _records(file: Path, result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    records = result.get("records")
    if not isinstance(records, list):
        raise L2DError(f"{file}: no records; is it a result file of LLMRouterBench?")
    for number, record in enumerate(records, start=1):
        where = f"{file}: record {number:,}"
        if not isinstance(record, dict) or "index" not in record:
            raise L2DError(f"{where}: no index")
        yield where, record


def _outcome(record: dict[str, Any], dataset: str, split: str, model: str, where: str) -> Outcome:
    asked = record.get("prompt") or record.get("origin_query")
    if not asked:
        raise L2DError(f"{where}: no prompt")
    score, cost = record.get("score"), record.get("cost")
    return Outcome(
        key=f"{dataset}/{split}/{record['index']}",
        prompt=asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False),
        model=model,
        correct=0.0 if score is None else share_right(score, "score", where),
        price=None if cost is None else dollars(cost, "cost", where),
        task=dataset,
    )
