"""`l2d COMMAND …`, which is also `python -m l2d COMMAND …`: finds the command and hands it the rest of the line."""

import sys
from collections.abc import Sequence
from importlib import import_module

from l2d.utils.errors import unknown
from l2d.utils.version import own_version

# command: (module, what it does)
COMMANDS = {
    "train": ("train", "train a router and score it on the test split; -m for sweeps"),
    "tune": ("tune", "search ρ or other keys by validation deferral loss"),
    "experts": ("experts", "train or read a setup's experts, and say how good they are"),
    "prepare": ("prepare", "download and prepare a dataset"),
    "import": ("import_outcomes", "turn recorded outcomes of language models into a table"),
    "report": ("report", "tables and plots of finished runs"),
    "curve": ("curve", "error against price of finished runs"),
    "theory": ("theory", "the paper's bounds and consistency results, in numbers and pictures"),
    "route": ("route", "ask a trained router which expert gets a query"),
    "dashboard": ("dashboard", "build the Weights & Biases workspace"),
}


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {meaning}" for name, (_, meaning) in COMMANDS.items()]
    return "\n".join(
        [
            "Two-stage learning to defer: train a router over fixed experts.",
            "",
            "usage: l2d COMMAND [ARGUMENTS ...]",
            "       l2d COMMAND --help",
            "       l2d --version",
            "",
            "commands:",
            *lines,
        ]
    )


def console(*before: str) -> None:
    """The command line of a process. before: words that go before it."""
    main([*before, *sys.argv[1:]])


def main(arguments: Sequence[str]) -> None:
    given = list(arguments)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    if not given or given[0] in ("-h", "--help"):
        print(overview())
        return
    if given[0] == "--version":
        print(f"l2d {own_version()}")
        return
    command, *rest = given
    if command not in COMMANDS:
        sys.exit(f"error: {command}: {unknown('command', command, COMMANDS)}")
    import_module(f"l2d.commands.{COMMANDS[command][0]}").main(rest)
