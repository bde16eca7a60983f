"""What clients are answered about a choice."""

from typing import Any

from l2d.router.choices import Choice
from l2d.utils.text import six_digits


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
