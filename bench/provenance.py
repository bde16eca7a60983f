"""The code, the machine and the versions behind a measured figure."""

import os
import platform
import subprocess
from pathlib import Path

import pytorch_lightning as pl
import torch

ROOT = Path(__file__).resolve().parent.parent


def commit() -> str:
    """The commit measured, marked if src/ or conf/ had uncommitted changes."""
    if "L2D_COMMIT" in os.environ:  # where the source was copied without its history
        return os.environ["L2D_COMMIT"]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "conf")
        return git("rev-parse", "--short=10", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """The GPU's name, or the CPU's with its cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{_cpu()}, {len(os.sched_getaffinity(0))} cores"


def _cpu() -> str:
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        return next(line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("Model name"))
    except (OSError, subprocess.CalledProcessError, StopIteration):
        return platform.machine()


def versions() -> str:
    return f"Python {platform.python_version()}, torch {torch.__version__}, pytorch-lightning {pl.__version__}"


def about(command: str) -> dict[str, str]:
    """The columns of a measured row: the command, the code, the machine, the versions."""
    return {"command": command, "commit": commit(), "machine": machine(), "versions": versions()}
