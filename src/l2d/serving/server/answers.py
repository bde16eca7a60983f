"""What clients are answered about a choice."""

from typing import Any, overload

from l2d.serving.choices import Choice

DIGITS = 6  # significant ones; routers compute in 32 bits, which have seven


@overload
def six_digits(number: float) -> float: ...
@overload
def six_digits(number: None) -> None: ...
def six_digits(number: float | None) -> float | None:
    """As a person would write it: 0.36, not 0.36000001430511475."""
    return None if number is None else float(f"{number:.{DIGITS}g}")


def ranking_of(choice: Choice) -> list[dict[str, Any]]:
    """All experts, the chosen one first: expected_cost = expected_error + price_weight · price. None where it is not known."""
    known = {
        "expected_error": choice.expected_errors,
        "price": choice.expected_prices,
        "expected_cost": choice.expected_costs,
        "posterior": choice.posterior,
    }
    return [
        {"expert": name, **{key: six_digits((values or {}).get(name)) for key, values in known.items()}}
        for name in choice.ranking
    ]
