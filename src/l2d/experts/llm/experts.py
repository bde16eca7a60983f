"""Language models as experts on multiple-choice questions: each answers with the letter that it finds likeliest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from l2d.experts.llm.models import SCORING, LanguageModels, parse_model_name
from l2d.experts.request import Experts
from l2d.utils.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from l2d.experts.llm.asking import LanguageModelPanel
    from l2d.experts.request import ExpertRequest
    from l2d.utils.parameters import Count, Letters, Names, Seed


class LLMExperts(Experts):
    """The keys are explained in conf/experts/llm.yaml. Nothing is random: the seed only draws the validation split."""

    def __init__(
        self,
        *,
        seed: Seed | None,
        models: Names,
        letters: Letters,
        chat: bool,
        dtype: Literal["auto", "float32", "bfloat16", "float16"],
        batch_size: Count,
        table: str | None,
    ) -> None:
        names, words = self.expert_names(None, models=models), [str(letter) for letter in letters]
        if len({*words}) < len(words):
            raise ParameterError("letters", "must all be different", words)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ParameterError("models", f"more than one is called {', '.join(twice)}; rename a folder")
        if table is not None and Path(table).suffix.lower() not in (".csv", ".parquet"):
            raise ParameterError("table", "must end in .csv or .parquet", table)
        parsed = tuple(parse_model_name(model) for model in models)
        self.seed, self.asked = seed, LanguageModels(parsed, words, chat, dtype, batch_size, table)

    @staticmethod
    def expert_names(coverage: Sequence[float] | None, *, models: Sequence[str], **_: object) -> tuple[str, ...]:  # noqa: ARG004
        return tuple(parse_model_name(model).short for model in models)

    def identity(self) -> str:
        """Changes when a folder holds other weights than before, so that answers may differ. Nothing is loaded."""
        return json.dumps([SCORING, *(model.identity() for model in self.asked.models)])

    def panel(self, request: ExpertRequest) -> LanguageModelPanel:
        from l2d.experts.llm.asking import ask_panel

        return ask_panel(self.asked, request)
