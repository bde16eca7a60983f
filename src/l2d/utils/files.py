"""Atomic writes: a file is whole or absent, whatever happens while it is written."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

TEMPORARY = ".tmp"
CANDIDATES = "candidates.txt"  # in a run's folder: what method=auto compared


def user_path(text: str) -> Path:
    """The path of a flag or a key: the shell expands no ~ behind an equals sign."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 (unlike Path's, it leaves ~$name as it is)


@contextmanager
def alone(lock_file: Path, waiting: str) -> Iterator[None]:
    """One process at a time; the others print `waiting` once and wait. The lock ends with the process, even if it is killed."""
    lock = filelock.FileLock(lock_file)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        print(waiting, file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def clear_folder(folder: Path, first: str, keep: Collection[str]) -> None:
    """Remove everything in a folder except `keep`. The file `first` goes first, so that a half-cleared folder never looks whole."""
    (folder / first).unlink(missing_ok=True)
    for entry in (entry for entry in folder.iterdir() if entry.name not in keep):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place in one step. An OSError names `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is None or str(error.filename or temporary) != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # on a full disk, it names no file
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Sorted keys and no NaN, so that equal content is equal bytes and every reader can parse it."""
    write_text(path, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")
