"""`l2d COMMAND …`, which is also `python -m l2d COMMAND …`: finds the command and hands it the rest of the line."""

import atexit
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from l2d.utils.errors import unknown
from l2d.utils.text import own_version

# command: (module, what it does)
COMMANDS = {
    "train": ("train", "train a router and score it on rows that it did not see; -m for sweeps"),
    "tune": ("tune", "search ρ or other keys by validation deferral loss"),
    "experts": ("experts", "train or read a setup's experts, and print how good they are"),
    "prepare": ("prepare", "download and prepare a dataset"),
    "check": ("check", "what a table or log is: roles of its columns, faults, and the command that trains on it"),
    "import": ("import_outcomes", "turn recorded outcomes of language models into a table"),
    "report": ("report", "tables and plots of finished runs"),
    "curve": ("curve", "error against price of finished runs"),
    "route": ("route", "ask a trained router which expert gets a query"),
    "add": ("add", "one more expert for a trained router, from a few outcomes or none"),
    "serve": ("serve", "a trained router as a service, and a gateway for OpenAI clients"),
    "evaluate": ("evaluate", "what a router is worth, by the outcomes in the log of l2d serve"),
    "log": ("log", "decisions and outcomes of l2d serve, as a table for training"),
    "dashboard": ("dashboard", "build the Weights & Biases workspace"),
}
USAGE = """Two-stage learning to defer: train a router over fixed experts.

usage: l2d COMMAND [ARGUMENTS ...]
       l2d COMMAND --help
       l2d --version

commands:"""


def console(*before: str) -> None:
    """before: words that go before those of the command line."""
    done = False

    def leave() -> None:
        """Skip freeing what torch imported, which takes a second or more. After an error Python ends as usual."""
        if done and not has_children():
            try:
                for stream in filter(None, (sys.stdout, sys.stderr)):
                    stream.flush()
            except OSError:  # Python's own end reports it
                return
            os._exit(0)

    atexit.register(leave)  # first, so that it runs after the functions that libraries register
    main([*before, *sys.argv[1:]])
    done = True


def has_children() -> bool:
    """True if a process that this one started still runs: only Python's own end stops them all."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def main(arguments: Sequence[str]) -> None:
    command, *rest = arguments or ["--help"]
    if command == "help":
        command, *rest = [*rest, "--help"]
    if command in ("-h", "--help", "--version"):
        lines = [USAGE, *(f"  {name:<9}  {meaning}" for name, (_, meaning) in COMMANDS.items())]
        try:
            print(f"l2d {own_version()}" if command == "--version" else "\n".join(lines), flush=True)
        except BrokenPipeError:  # its reader has gone (`| head`)
            from l2d.utils.user_errors import end_quietly  # only now: it imports Hydra, which takes longer

            end_quietly()
    elif command in COMMANDS:
        import_module(f"l2d.commands.{COMMANDS[command][0]}").main(rest)
    else:
        sys.exit(f"error: {command}: {unknown('command', command, COMMANDS)}")
