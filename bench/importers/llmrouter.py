"""LLMRouter's routing data (ulab-uiuc/LLMRouter): a JSON object per query and model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from importers.outcomes import Outcome, check_splits, dollars, outcome_table, task_and_split, wanted_text
from l2d.data.importers.recorded import RecordedOutcomes, json_lines, json_object, share_right
from l2d.utils.errors import L2DError

# Names of the numbers of tokens, in files of different versions.
TOKENS = {"input_price": ("input_tokens", "prompt_tokens"), "output_price": ("output_tokens", "completion_tokens")}
MILLION = 1_000_000  # tokens that a price is for


def llmrouter_outcomes(files: Sequence[Path], models: Path | None = None) -> RecordedOutcomes:
    """Rows of default_routing_train_data.jsonl and the like. models: default_llm.json, which has the prices per million tokens."""
    check_splits(files)
    prices = None if models is None else json_object(models.read_bytes(), str(models))
    return outcome_table(one for file in files for one in _row_outcomes(file, prices, models))


def _row_outcomes(file: Path, prices: Mapping[str, Any] | None, models: Path | None) -> Iterator[Outcome]:
    split = task_and_split(file)[1]
    for where, row in json_lines(file):
        prompt, model = wanted_text(row, "query", where), wanted_text(row, "model_name", where)
        if "performance" not in row:
            raise L2DError(f"{where}: no performance; is it a routing file of LLMRouter?")
        task = row.get("task_name")
        yield Outcome(
            key="/".join(str(part) for part in (split, task, prompt) if part),
            prompt=prompt,
            model=model,
            correct=share_right(row["performance"], "performance", where),
            price=None if prices is None else _price(row, model, prices, where, models),
            task=task if isinstance(task, str) and task.strip() else None,
            split=split,
        )


def _price(row: Mapping[str, Any], model: str, prices: Mapping[str, Any], where: str, models: Path | None) -> float:
    """The tokens of a row times the model's prices."""
    of_model = prices.get(model)
    if not isinstance(of_model, dict):
        raise L2DError(f"{models}: no model {model}, which {where} has")
    total = 0.0
    for name, keys in TOKENS.items():
        key = next((key for key in keys if key in row), None)
        if key is None:
            raise L2DError(f"{where}: no {' or '.join(keys)}, which prices need; leave out --models")
        total += dollars(row[key], key, where) * dollars(of_model.get(name), f"{model}: {name}", str(models)) / MILLION
    return total
