"""Files that are either whole or absent, whatever happens while they are written."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Sorted keys and no NaN, so that equal content is equal bytes and every reader can parse it."""
    write_text(path, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")
