"""Asks language models the questions of a dataset, each model once, and caches the answers."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from l2d.core.costs import expert_errors
from l2d.core.out_of_memory import free_memory
from l2d.data.arrays import Answers, Panel
from l2d.data.sheet import write_sheet
from l2d.experts.llm.models import SCORING, ModelName, load_language_model
from l2d.experts.llm.scoring import SUFFIX, LetterOutcomes, score_letters
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.lightning.learner import on_gpu
from l2d.utils.errors import L2DError, ParameterError


def ask_panel(experts: Any, request: ExpertRequest) -> Panel:
    """The answers of all models to the questions of both splits. experts: an LLMExperts."""
    arrays = request.arrays
    train, test = check_questions(request, experts.letters)
    prompts, right = [*train, *test], (arrays.train_labels, arrays.test_labels)
    asked = [ask_model(experts, model, prompts, request) for model in experts.models]
    outcomes = dict(zip(experts.names, asked, strict=True))
    if experts.table is not None:
        subjects = [*(arrays.train_categories or ()), *(arrays.categories or ())]
        told = {"subject": subjects} if subjects else {}
        told["split"] = ["train"] * len(train) + ["test"] * len(test)
        columns = outcome_columns(prompts, torch.cat(right).numpy(), experts.letters, outcomes, told)
        write_sheet(Path(experts.table).expanduser(), columns)
    answers = torch.from_numpy(np.stack([one.answers for one in outcomes.values()], axis=1)).tensor_split([len(train)])
    learned, judged = (Answers(expert_errors(part, labels), part) for part, labels in zip(answers, right, strict=True))
    return Panel(experts.names, learned, judged)


def check_questions(request: ExpertRequest, letters: Sequence[str]) -> tuple[list[str], list[str]]:
    """The training and the test questions, after checking that language models can answer them."""
    arrays = request.arrays
    if arrays.panel is not None or arrays.texts is None:
        raise L2DError("experts=llm: needs questions with text and without outcomes, such as dataset=mmlu")
    if request.coverage is not None:
        raise L2DError("setup.coverage: language models have no classes of their own; use setup=own")
    low, high = (int(part) for part in torch.cat([arrays.train_labels, arrays.test_labels]).aminmax())
    if low < 0 or high >= len(letters):
        problem = f"the labels go from {low} to {high}; they must be indices of the letters, 0 to {len(letters) - 1}"
        raise ParameterError("letters", problem, list(letters))
    return arrays.texts


def ask_model(experts: Any, model: ModelName, prompts: list[str], request: ExpertRequest) -> LetterOutcomes:
    """The outcomes of one model, from the cache or by asking it."""
    auto = "bfloat16" if on_gpu(request.compute.accelerator) else "float32"
    dtype = auto if experts.dtype == "auto" else experts.dtype
    identity = {"experts": "llm", **model.identity(), "dtype": dtype, "chat": experts.chat, "scoring": SCORING}
    identity |= {"suffix": SUFFIX, "letters": experts.letters, "questions": fingerprint_of_texts(prompts)}
    cache = replace(request.cache, title=f"llm-{model.short}", identity=identity)
    return LetterOutcomes(**cache.get(lambda: run_model(experts, model, dtype, prompts, request.compute, cache.parts)))


def run_model(
    experts: Any, model: ModelName, dtype: str, prompts: list[str], compute: ComputeOptions, parts: Path
) -> dict[str, np.ndarray]:
    """Load a model, ask it, and free it: the next model, or the router, needs the memory."""
    device = torch.device("cuda" if on_gpu(compute.accelerator) else "cpu")
    network, tokenizer = load_language_model(model, dtype, device, progress=compute.progress)
    try:
        how: Any = {"batch_size": experts.batch_size, "progress": compute.progress, "chat": experts.chat}
        return vars(score_letters(network, tokenizer, prompts, experts.letters, parts=parts, **how))
    finally:
        del network
        free_memory()


def fingerprint_of_texts(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(len(content).to_bytes(8, "big") + content)  # the length tells ["ab", "c"] from ["a", "bc"]
    return digest.hexdigest()[:16]


def outcome_columns(
    prompts: Sequence[str],
    labels: np.ndarray,
    letters: Sequence[str],
    outcomes: Mapping[str, LetterOutcomes],
    told: Mapping[str, Sequence[str]],
) -> dict[str, Sequence[object]]:
    """A table with a row per question, for dataset=table with dataset.text=prompt. labels: int [n], indices of the letters. told:
    more columns about the questions, for dataset.split=split and, if it is there, dataset.category=subject."""
    columns: dict[str, Sequence[object]] = {"id": range(len(labels)), "prompt": prompts}
    columns |= {"answer": [letters[label] for label in labels], **told}
    for name, one in outcomes.items():
        columns[f"correct_{name}"] = (one.answers == labels).astype(int).tolist()
        columns[f"answer_{name}"] = [letters[answer] for answer in one.answers]
        for letter, values in zip(letters, one.probabilities.T, strict=True):
            columns[f"probability_{letter}_{name}"] = values.tolist()
        columns[f"tokens_{name}"] = one.tokens.tolist()
        columns[f"seconds_{name}"] = one.seconds.tolist()
    return columns
