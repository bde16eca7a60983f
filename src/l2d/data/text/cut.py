"""Texts that are longer than what a router reads of each."""

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any


def longer(tokenizer: Any, texts: Sequence[str], lengths: Sequence[int], most: int) -> list[str]:
    """Which texts have more than `most` tokens. lengths: in tokens, after cutting; only texts of full length are read again."""
    full = [text for text, length in zip(texts, lengths, strict=True) if length >= most]
    if not full:
        return []
    tokens = tokenizer(full, truncation=True, max_length=most + 1)["input_ids"]
    return [text for text, found in zip(full, tokens, strict=True) if len(found) > most]


def note_of_cut(cut: int, n: int, most: int) -> str | None:
    if not cut:
        return None
    return f"{cut:,} of {n:,} texts have more than the {most} tokens that the router reads, and were cut (max_length)"


@cache
def say_once(note: str | None) -> None:
    """The runs of a sweep read the same texts."""
    if note is not None:
        print(note, file=sys.stderr)
