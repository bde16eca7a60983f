"""What a parameter may be: said once, in the signature of the class that takes it, and checked before anything is built.

    def __init__(self, *, tau: NonNegative, rewards: Literal["sum_others", "complement"]) -> None: ...

The types below are plain annotations; pydantic checks values against them. config/signatures.py reads the signatures off the
source, so that a wrong value is answered without importing torch. It resolves names of this module, of typing, and builtins.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen, MultipleOf

from l2d.utils.errors import ParameterError

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]  # both ends allowed
ProperShare = Annotated[float, Gt(0), Lt(1)]  # neither end allowed
ShareBelowOne = Annotated[float, Ge(0), Lt(1)]
Count = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0), Lt(2**32)]
EvenWidth = Annotated[int, Ge(2), MultipleOf(2)]
Names = Annotated[list[str], MinLen(1)]

# pydantic's kinds of error, as plain sentences; what is not here is said in pydantic's own words.
SENTENCES = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be greater than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
    "multiple_of": "must be a multiple of {multiple_of:g}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "sequence_str": "must be a list",
    "is_instance_of": "must be a list or a mapping",
    "dict_type": "must be a mapping",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "too_short": "must have at least {min_length} entries",
    "unexpected_keyword_argument": "unknown key",
}

PLAIN = ("float", "int", "str", "bool", "none")


def check(parameter: str, value: object, kind: Any) -> None:
    """Refuse a value that is not of this kind: an annotation, perhaps with bounds."""
    from pydantic import ValidationError

    try:
        _adapter(kind).validate_python(value)
    except ValidationError as errors:
        found = errors.errors(include_url=False)
        deepest = max(found, key=lambda error: len(error["loc"]))  # of a union, the branch that fits best
        path = [str(part) for part in deepest["loc"] if not _is_branch(part)]
        sentence = SENTENCES.get(deepest["type"])
        problem = sentence.format(**deepest.get("ctx", {})) if sentence else deepest["msg"]
        numbered = [f"[{int(part) + 1}]" if part.isdigit() else f".{part}" for part in path]
        raise ParameterError(parameter + "".join(numbered), problem, deepest["input"]) from None


def _is_branch(part: object) -> bool:
    """pydantic puts the names of a union's members between the real keys: 'float', 'list[constrained-int]', '~rule'."""
    return isinstance(part, str) and (part.startswith(("~", "constrained-")) or "[" in part or part in PLAIN)


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))


__all__ = [
    "Annotated",
    "Any",
    "Count",
    "EvenWidth",
    "Ge",
    "Gt",
    "Le",
    "Literal",
    "Lt",
    "Mapping",
    "Names",
    "NonNegative",
    "NonNegativeInt",
    "Positive",
    "ProperShare",
    "Seed",
    "Sequence",
    "Share",
    "ShareBelowOne",
    "check",
]
