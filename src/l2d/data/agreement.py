"""Which answers of experts agree: the rules of dataset.agree. Light: imports torch and scikit-learn only to use them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.data.cells import EMPTY, NUMBER
from l2d.utils.errors import ParameterError, unknown

if TYPE_CHECKING:
    from l2d.core.replies import Replies

RULES = ("exact", "within:0.01", "json:FIELD", "similar:0.8", "MODULE.FUNCTION")
OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
AMOUNT = re.compile(rf"\$?\s*({NUMBER})\s*\$?\s*(%?)")
LONGEST_EXPONENT = 4  # of a number, beyond which it is a word: Decimal does not take any
GRAMS = (3, 5)  # characters, for similar:
PAIRS = 10_000  # of texts, compared at a time
Key = Hashable  # what is compared; None: no answer
Agree = Callable[[Any, Any], bool]


class Agreement:
    """exact: equal after normalising. within:0.01: numbers may differ by that share of the larger one, all else is exact.
    json:FIELD: this field of JSON answers is equal. similar:0.8: cosine of hashed n-grams of characters, at least.
    MODULE.FUNCTION of the user's own: takes two answers, returns whether they agree. None, NaN and empty text are no answer."""

    def __init__(self, rule: str = "exact") -> None:
        self.rule = rule
        self.name, _, self.value = rule.partition(":")
        self.is_own = OWN.fullmatch(rule) is not None
        if self.name in ("within", "similar"):
            if not re.fullmatch(r"0?\.\d+|[01](\.0*)?", self.value):
                raise ParameterError("agree", f"needs a number from 0 to 1, such as {self.name}:0.5", rule)
        elif rule != "exact" and not (self.name == "json" and self.value) and not self.is_own:
            raise ParameterError("agree", unknown("rule", rule, RULES), rule)

    def kinds(self, answers: Sequence[Sequence[Any]]) -> np.ndarray:
        """int64 [n, p]: the place of the first answer in the row that each agrees with, its own if there is none; −1: no answer."""
        texts = [[as_text(answer) for answer in row] for row in answers]
        keys: list[list[Key]] = [[*row] for row in texts]
        agree = own_function(self.rule) if self.is_own else None
        if self.name == "similar":
            agree = similar(texts, float(self.value))
        elif not self.is_own:
            read = partial(json_field, field=self.value) if self.name == "json" else lambda text: text
            known = {text: normalised(read(text)) for text in {text for row in texts for text in row}}
            keys = [[known[text] for text in row] for row in texts]
            agree = within(Decimal(self.value)) if self.name == "within" else None
        found = [numbered(row, agree) for row in keys]
        return np.array(found, dtype=np.int64).reshape(len(keys), len(keys[0]) if keys else 0)


def as_text(answer: Any) -> str | None:
    text = "" if answer is None else str(answer)
    return None if text.strip().lower() in (*EMPTY, "<na>") else text  # pandas' missing value


def numbered(keys: Sequence[Key], agree: Agree | None) -> list[int]:
    """The kinds of one row."""
    if agree is None:
        place_of: dict[Key, int] = {None: -1}
        return [place_of.setdefault(key, place) for place, key in enumerate(keys)]
    found: list[int] = []
    for place, key in enumerate(keys):
        earlier = (k for k, one in enumerate(keys[:place]) if one is not None and agree(one, key))
        first = None if key is None else next(earlier, None)
        found.append(-1 if key is None else place if first is None else found[first])
    return found


def normalised(text: str | None) -> Key:
    """A number, a percentage, or words without capitals, repeated spaces and a full stop at the end."""
    words = "" if text is None else " ".join(text.casefold().replace("−", "-").split()).removesuffix(".").rstrip()
    match = AMOUNT.fullmatch(words.replace("-$", "$-"))
    if match and len(match[1].partition("e")[2]) <= LONGEST_EXPONENT:
        number = Decimal(match[1].replace(",", ""))
        return (number, "%") if match[2] else number
    return words if words not in EMPTY else None


def json_field(text: str | None, field: str) -> str | None:
    """The field of the JSON object in a text, which may have words around it; None if there is none."""
    try:
        value = None if text is None else json.loads(text[text.find("{") : text.rfind("}") + 1]).get(field)
    except (ValueError, RecursionError):
        return None
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)


def within(share: Decimal) -> Agree:
    def agree(one: Any, two: Any) -> bool:
        if isinstance(one, tuple) and isinstance(two, tuple):  # percentages
            one, two = one[0], two[0]
        numbers = isinstance(one, Decimal) and isinstance(two, Decimal)
        return one == two or bool(numbers and abs(one - two) <= share * max(abs(one), abs(two)))

    return agree


def similar(texts: Sequence[Sequence[Key]], least: float) -> Agree:
    """The cosines of all texts that stand in one row."""
    from sklearn.feature_extraction.text import HashingVectorizer

    rows = [[text for text in row if text is not None] for row in texts]
    number = {text: place for place, text in enumerate(dict.fromkeys(text for row in rows for text in row))}
    pairs, close = sorted({(number[one], number[two]) for row in rows for one, two in combinations(row, 2)}), set()
    vectorizer = HashingVectorizer(analyzer="char_wb", ngram_range=GRAMS, n_features=2**18)
    vectors: Any = vectorizer.transform(number) if pairs else None
    for begin in range(0, len(pairs), PAIRS):
        one, two = np.array(part := pairs[begin : begin + PAIRS]).T
        cosines = np.asarray(vectors[one].multiply(vectors[two]).sum(axis=1)).ravel()
        close |= {pair for pair, cosine in zip(part, cosines, strict=True) if cosine >= least}
    return lambda one, two: one == two or (number[one], number[two]) in close


def own_function(rule: str) -> Agree:
    """A function of the user's own. What its module merely imports from another package is refused, as for classes."""
    module, _, name = rule.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ParameterError("agree", f"{error}; rules are {', '.join(RULES)}", rule) from error
    origin = str(getattr(found, "__module__", None))
    if not callable(found) or origin.partition(".")[0] != module.partition(".")[0]:
        raise ParameterError("agree", f"is not a function of {module}", rule)

    def agree(one: Key, two: Key) -> bool:
        try:
            return bool(found(one, two))
        except Exception as error:
            told = f"fails on {str(one)[:40]!r} and {str(two)[:40]!r}: {type(error).__name__}: {error}"
            raise ParameterError("agree", " ".join(told.split()), rule) from error

    return agree


@dataclass(frozen=True)
class Said:
    """What p experts said on n rows, [n, p] all: answers as text or None; confidence and length float64 or NaN."""

    answers: np.ndarray | None
    confidence: np.ndarray
    length: np.ndarray

    @staticmethod
    def experts_without(answers: np.ndarray) -> list[int]:
        """Those without any answer, while others have some."""
        some = (answers != None).any(axis=0)  # noqa: E711 (of each cell)
        return [k for k, any_at_all in enumerate(some.tolist()) if some.any() and not any_at_all]

    def replies(self, asked: np.ndarray, agreement: Agreement) -> Replies:
        """asked: bool [n, p]. An answer has the length of its text, if no other is known."""
        import torch

        from l2d.core.replies import Replies

        length, kinds = self.length, np.full(asked.shape, -1)
        if self.answers is not None:
            answers = self.answers.copy()
            answers[~asked] = None
            kinds = agreement.kinds(answers.tolist())
            own = [[len(answer or "") for answer in row] for row in answers]
            length = np.where(np.isnan(length), own, length)
        signals = np.where(asked[..., None], np.stack([np.log1p(length), self.confidence], axis=-1), np.nan)
        return Replies(torch.from_numpy(kinds), torch.from_numpy(signals.astype(np.float32)))
