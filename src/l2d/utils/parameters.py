"""Types of parameters, which signatures declare: tau: NonNegative, rewards: Literal["sum_others", "complement"].

They are plain annotations, and pydantic checks values against them. config/signatures.py reads the signatures from the source,
so that a wrong value is reported without importing torch. It resolves names of this module, of typing, and builtins."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Le, Lt, MinLen, MultipleOf
from typing_extensions import TypedDict

from l2d.utils.errors import NO_VALUE, ParameterError

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
Factory = Callable[..., Any]  # a class with some arguments given, to be called with the others
Letters = Annotated[list[str | int], MinLen(2)]  # YAML reads [1, 2] as numbers
Name = str | int  # of a column or a category; YAML reads 2024 as a number
PriceNames = dict[str, NonNegative]
NoiseKind = Literal["multiplicative", "additive"]
Rewards = Literal["sum_others", "complement"]  # the kinds of c̄_k: l2d.core.costs


class RhoRule(TypedDict):
    """ρ_k = total·share_k + offset, or `values` instead of the rule (conf/method/mild.yaml)."""

    rule: Literal["uniform", "theory"]
    total: float
    offset: float
    counts: Literal["cheapest", "reward_mass"]
    groups: list[list[Count]] | None
    values: list[Positive] | None


# A type with a config of its own does not inherit the one in _adapter.
RhoRule.__pydantic_config__ = {"extra": "forbid", "strict": True, "allow_inf_nan": False}  # type: ignore[attr-defined]

if TYPE_CHECKING:  # callers have plain dicts
    Rho = float | Sequence[float] | Mapping[str, Any]
else:
    Rho = Positive | list[Positive] | RhoRule

# Instead of pydantic's own words.
SENTENCES = {"missing": "is missing", "extra_forbidden": "unknown key"}
SENTENCES["callable_type"] = "must be a mapping that names a class, _target_: MODULE.CLASS"

BRANCHES = ("float", "int", "str", "bool", "none", "RhoRule", "Upstream")


def check_value(parameter: str, value: object, kind: Any) -> None:
    """Refuse a value that does not fit `kind`, an annotation that may have bounds."""
    from pydantic import PydanticUserError, ValidationError

    try:
        _adapter(kind).validate_python(value)
    except PydanticUserError:
        return  # pydantic cannot check by this annotation (it is in quotes, say): left to the class
    except ValidationError as errors:
        problem = clearest_problem(errors.errors(include_url=False))
        numbered = [f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in problem.path]
        raise ParameterError(parameter + "".join(numbered), problem.sentence, problem.value) from None


class Problem(NamedTuple):
    """One of pydantic's errors. path: keys and places (from 0). value: NO_VALUE where none is."""

    path: tuple[str | int, ...]
    sentence: str
    value: object


def clearest_problem(errors: Sequence[Any]) -> Problem:
    """The most telling one of a ValidationError's errors, in plain words."""
    found = max(errors, key=lambda error: len(error["loc"]))  # in a union: the branch that fits best
    return Problem(
        path=tuple(part for part in found["loc"] if not _is_branch(part)),
        sentence=SENTENCES.get(found["type"], found["msg"].replace("Input should be", "must be")),
        value=NO_VALUE if found["type"] in ("missing", "extra_forbidden") else found["input"],
    )


def _is_branch(part: object) -> bool:
    """pydantic puts the names of a union's members between the real keys: 'float', 'list[constrained-int]', 'RhoRule', '~one'."""
    return isinstance(part, str) and (part.startswith(("~", "constrained-")) or "[" in part or part in BRANCHES)


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))


__all__ = ["Annotated", "Ge"]
