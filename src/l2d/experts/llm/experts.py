"""Language models as experts on multiple-choice questions: each answers with the letter that it finds likeliest."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from l2d.data.arrays import Panel
from l2d.experts.llm.models import SCORING, parse_model_name
from l2d.experts.request import ExpertRequest, Experts
from l2d.utils.errors import ParameterError
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
        self.seed, self.chat, self.dtype, self.batch_size, self.table = seed, chat, dtype, batch_size, table
        self.models, self.letters = [parse_model_name(model) for model in models], [str(letter) for letter in letters]
        self.names = tuple(model.short for model in self.models)
        if len({*self.letters}) < len(letters):
            raise ParameterError("letters", "must all be different", self.letters)
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ParameterError("models", f"more than one is called {', '.join(twice)}; rename a folder")
        if table is not None and Path(table).suffix.lower() not in (".csv", ".parquet"):
            raise ParameterError("table", "must end in .csv or .parquet", table)

    @staticmethod
    def expert_names(coverage: Sequence[float] | None, *, models: Sequence[str], **_: object) -> tuple[str, ...]:  # noqa: ARG004
        return tuple(parse_model_name(model).short for model in models)

    def identity(self) -> str:
        """Changes when a folder holds other weights than before, so that answers may differ. Nothing is loaded."""
        return json.dumps([SCORING, *(model.identity() for model in self.models)])

    def panel(self, request: ExpertRequest) -> Panel:
        from l2d.experts.llm.asking import ask_panel

        return ask_panel(self, request)
