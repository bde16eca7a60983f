"""Dataclasses from what dataclasses.asdict and JSON made of them. Light: pydantic is imported only when it is needed."""

import json
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def from_plain(kind: type[T], content: Any) -> T:
    """An object of this dataclass; ValueError if the content is of other types."""
    return adapter(kind).validate_json(json.dumps(content), strict=True)  # type: ignore[arg-type]  # it is hashable


@cache
def adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
