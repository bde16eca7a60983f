"""Language models as experts on multiple-choice questions: each answers with the letter that it finds likeliest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import expert_errors
from l2d.data.arrays import Answers, Arrays, Panel
from l2d.data.sheet import write_sheet
from l2d.experts.cache import Cache
from l2d.experts.llm.models import DTYPES, ModelName, load, parse
from l2d.experts.llm.scoring import SCORING, SUFFIX, Outcomes, score_letters
from l2d.experts.request import Request
from l2d.learning.learner import on_gpu
from l2d.utils.errors import L2DError, check_choice
from l2d.utils.out_of_memory import free_memory


@dataclass(frozen=True)
class Asked:
    """Questions that models were asked, and what came of it. labels: int [n], places among the letters. split: train or test, and
    subjects: what it is about, per question."""

    prompts: Sequence[str]
    labels: np.ndarray
    letters: Sequence[str]
    outcomes: dict[str, Outcomes]
    split: Sequence[str] | None = None
    subjects: Sequence[str] | None = None


@dataclass(frozen=True)
class Entry:
    """Where a model's answers are kept, and whether it was asked just now."""

    cache: Cache
    new: bool


@dataclass(frozen=True)
class AskedPanel(Panel):
    """entries: one per expert."""

    entries: tuple[Entry, ...] = ()


class LLMExperts:
    """models: folders, or names on the hub, perhaps with @REVISION. letters: what the choices are called; labels are places among
    them. chat: ask through the model's chat template, if it has one. dtype: auto is bfloat16 on a GPU and float32 on a CPU.
    table: a .csv or .parquet file for the outcomes of every question, or None.

    What a model answers is kept by model, dtype, letters and questions, whichever models stand beside it. Nothing is drawn: the
    seed is that of the validation split.
    """

    def __init__(
        self,
        *,
        seed: int | None,
        models: Sequence[str],
        letters: Sequence[str],
        chat: bool,
        dtype: str,
        batch_size: int,
        table: str | None,
    ) -> None:
        if isinstance(models, str) or not models:
            raise L2DError(f"experts.models={models}: must be a list, [a,b]")
        if len(letters) < 2 or len({str(letter) for letter in letters}) < len(letters):
            raise L2DError(f"experts.letters={list(letters)}: must be two or more different ones, [A,B,C,D]")
        if batch_size < 1:
            raise L2DError(f"experts.batch_size={batch_size}: must be at least 1")
        check_choice("experts.dtype", dtype, ("auto", *DTYPES))
        self.models = [parse(str(model)) for model in models]
        self.names = tuple(model.short for model in self.models)
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise L2DError(f"experts.models: more than one is called {', '.join(twice)}; rename a folder")
        if table is not None and Path(table).suffix.lower() not in (".csv", ".parquet"):
            raise L2DError(f"experts.table={table}: must end in .csv or .parquet")
        self.seed, self.letters, self.chat = seed, [str(letter) for letter in letters], chat
        self.dtype, self.batch_size, self.table = dtype, batch_size, table

    def identity(self) -> str:
        """Different for models that may answer otherwise, where the config does not say so already: a folder may come to hold other
        weights. No model is loaded; of a name on the hub nothing is known but the name."""
        return json.dumps([SCORING, *(model.identity() for model in self.models)])

    def panel(self, request: Request) -> AskedPanel:
        arrays = request.arrays
        if arrays.panel is not None:
            raise L2DError("experts=llm: these data say already what their experts answered; use experts=table")
        train, test = self._texts(arrays)
        if request.coverage is not None:
            raise L2DError("setup.coverage: language models have no classes of their own; leave setup=own")
        prompts = [*train, *test]
        found = {name: self._outcomes(request, model, prompts) for name, model in self._named()}
        outcomes = {name: one for name, (one, _) in found.items()}
        if self.table is not None:
            labels = torch.cat([arrays.train_labels, arrays.test_labels]).numpy()
            split = ["train"] * len(train) + ["test"] * len(test)
            known = arrays.train_categories is not None and arrays.categories is not None
            subjects = [*(arrays.train_categories or ()), *(arrays.categories or ())] if known else None
            asked = Asked(prompts, labels, self.letters, outcomes, split, subjects)
            outcomes_table(Path(self.table).expanduser(), asked)
        answers = torch.from_numpy(np.stack([one.answers for one in outcomes.values()], axis=1))
        return AskedPanel(
            self.names,
            _answers(answers[: len(train)], arrays.train_labels),
            _answers(answers[len(train) :], arrays.test_labels),
            entries=tuple(entry for _, entry in found.values()),
        )

    def _named(self) -> list[tuple[str, ModelName]]:
        return list(zip(self.names, self.models, strict=True))

    def _texts(self, arrays: Arrays) -> tuple[list[str], list[str]]:
        if arrays.texts is None:
            raise L2DError(
                "experts=llm: needs a dataset of questions with text, such as dataset=mmlu; outcomes that exist"
                " come in through dataset=table (l2d import --help)"
            )
        for texts, labels in zip(arrays.texts, (arrays.train_labels, arrays.test_labels), strict=True):
            if len(texts) != len(labels):
                raise L2DError(f"experts=llm: {len(texts):,} questions but {len(labels):,} labels")
            if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < len(self.letters)):
                raise L2DError(
                    f"experts.letters={self.letters}: the labels go from {int(labels.min())} to {int(labels.max())};"
                    f" they must be places among the letters, 0 to {len(self.letters) - 1}"
                )
        return arrays.texts

    def _outcomes(self, request: Request, model: ModelName, prompts: list[str]) -> tuple[Outcomes, Entry]:
        """Of one model, from the cache or by asking it."""
        gpu = on_gpu(request.machine.accelerator)
        dtype = self.dtype if self.dtype != "auto" else "bfloat16" if gpu else "float32"
        identity = {
            "experts": "llm",
            **model.identity(),
            "dtype": dtype,
            "chat": self.chat,
            "scoring": SCORING,
            "suffix": SUFFIX,
            "letters": self.letters,
            "questions": fingerprint_of_texts(prompts),
        }
        cache = replace(request.cache, title=f"llm-{model.short}", identity=identity)
        new = False

        def make() -> dict[str, np.ndarray]:
            nonlocal new
            new = True
            device, progress = torch.device("cuda" if gpu else "cpu"), request.machine.progress
            network, tokenizer = load(model, dtype, device, progress=progress)
            try:
                outcomes = score_letters(
                    network,
                    tokenizer,
                    prompts,
                    self.letters,
                    batch_size=self.batch_size,
                    progress=progress,
                    chat=self.chat,
                    parts=cache.parts,
                    title=model.short,
                )
                commit = str(getattr(network.config, "_commit_hash", None) or "")
            finally:
                del network
                free_memory()  # another model, or the router, comes next on the same device
            return {**outcomes.arrays(), "commit": np.array(commit)}

        made = cache.get(make)
        made.pop("commit", None)
        return Outcomes(**made), Entry(cache, new)


def _answers(predictions: Tensor, labels: Tensor) -> Answers:
    return Answers(expert_errors(predictions, labels), predictions)


def fingerprint_of_texts(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(len(content).to_bytes(8, "big") + content)  # the length: no two lists of texts are one
    return digest.hexdigest()[:16]


def outcomes_table(path: Path, asked: Asked) -> None:
    """A row per question, for dataset=table with dataset.text=prompt (and dataset.split=split, dataset.category=subject where
    these are known)."""
    right = [asked.letters[label] for label in asked.labels]
    columns: dict[str, Sequence[object]] = {"id": range(len(right)), "prompt": asked.prompts, "answer": right}
    if asked.subjects is not None:
        columns["subject"] = asked.subjects
    if asked.split is not None:
        columns["split"] = asked.split
    for name, outcomes in asked.outcomes.items():
        columns[f"correct_{name}"] = (outcomes.answers == asked.labels).astype(int).tolist()
        columns[f"answer_{name}"] = [asked.letters[answer] for answer in outcomes.answers]
        for letter, values in zip(asked.letters, outcomes.probabilities.T, strict=True):
            columns[f"probability_{letter}_{name}"] = values.tolist()
        columns[f"tokens_{name}"] = outcomes.tokens.tolist()
        columns[f"seconds_{name}"] = outcomes.seconds.tolist()
    write_sheet(path, columns)
