"""l2d check FILE: what a table or a log is, which column plays which role, all its faults, and the command that trains on it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from l2d.commands.import_outcomes import given_to_hydra
from l2d.config import Component, check, compose
from l2d.data.sets.guess import Facts, Guess, facts_of, guess_roles, kind_of_unused, role_by_name
from l2d.data.sets.long_log import EXPERT
from l2d.data.sets.outcomes import OUTCOMES, near_names
from l2d.data.sets.table_columns import KEYS
from l2d.data.sets.table_columns import ROLES as RENAMED
from l2d.data.sheet import KINDS, Sheet, read_header, read_sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import counted, listed
from l2d.utils.user_errors import OneLineParser, answering

DESCRIPTION = """Say what a file is, which column plays which role and why, all faults of its cells, and the command that trains on
it. Roles are guessed from names and values; give those that you know better. The status is 1 if there are faults."""
EXAMPLES = """examples:
  l2d check log.csv
  l2d check log.csv 'dataset.columns={expert: model_used, correct: thumbs}'
  l2d check log.sqlite                                  the log of l2d serve"""
OF_QUERIES = ("id", "time", "text", "category")  # roles in a table with a row per query
OF_ANSWERS = (EXPERT, *OUTCOMES, "price", "latency", "propensity")


def main(arguments: Sequence[str]) -> None:
    with answering():
        parser = OneLineParser(prog="l2d check", description=DESCRIPTION, epilog=EXAMPLES)
        parser.add_argument("file", metavar="FILE", help="a .csv, .parquet or .jsonl file, or the log of l2d serve")
        keys = "keys of dataset=table, as for l2d train"
        parser.add_argument("keys", metavar="dataset.KEY=VALUE", nargs="*", help=keys)
        options = parser.parse_args(arguments)
        if wrong := [key for key in options.keys if not key.startswith("dataset.")]:
            raise L2DError(f"{wrong[0]}: give keys of the dataset, such as dataset.text=query")
        path = Path(options.file).expanduser()
        sound = check_server_log(path) if is_server_log(path) else check_table(path, options.keys)
        sys.stdout.flush()
        if not sound:
            sys.exit(1)


def is_server_log(path: Path) -> bool:
    """True for the log of l2d serve and for its export."""
    if not path.is_file() or path.suffix.lower() not in KINDS:
        return path.is_file()
    names = read_header(path).names
    return {EXPERT, "propensity", "router_choice"} <= {*names}


def check_server_log(path: Path) -> bool:
    from l2d.logs.rows import left_out_note, read_rows

    rows = read_rows(path)
    print(
        f"{path}: the log of l2d serve; {counted(len(rows), 'decision')} with an outcome{left_out_note(rows.left_out)}"
    )
    print(f"experts: {listed(rows.expert_names)}\n\nrun:\n  l2d train dataset=log {path_key(path)}")
    return True


def check_table(path: Path, keys: Sequence[str]) -> bool:
    """True if the file can be trained on."""
    experiment = check(compose(["dataset=table", f"dataset.path={given_to_hydra(str(path))}", *keys]))
    named, sheet = experiment.dataset.arguments, read_sheet(path)
    given = {**{key: named[key] for key in KEYS if named[key] is not None}, **(named["columns"] or {})}
    for role, column in given.items():
        sheet.check_column(f"dataset.columns.{role}", str(column))
    wide = is_wide(sheet.names, named["experts"])
    own = {name: role for name in sheet.names if (role := role_by_name(name)) and wide}
    own |= dict.fromkeys(named["experts"] or [], named["outcome"]) if wide else {}
    facts = [facts_of(sheet, name) for name in sheet.names if name not in own]
    guesses = guess_roles(facts, given, OF_QUERIES if wide else (*OF_QUERIES, *OF_ANSWERS))
    roles = {guess.role: guess.column for guess in guesses}
    log = not wide and EXPERT in roles and bool({*OUTCOMES} & {*roles})
    kind = (
        "a table with a row per query"
        if wide
        else "a log with a row per answer"
        if log
        else "neither a table nor a log"
    )
    print(f"{path}: {kind}; {counted(len(sheet), 'row')}\n")
    tell_roles(sheet, facts, guesses, own)
    if not wide and not log:
        lacks = (
            "who answered (expert)" if EXPERT not in roles else "how good an answer was (correct, prediction or loss)"
        )
        print(f"\nno column says {lacks}; name it: dataset.columns={{expert: COLUMN, correct: COLUMN}}")
        print("or, if each expert has a column: dataset.experts=[COLUMN, COLUMN]")
        return False
    missing = missing_keys(sheet, roles, named)
    words = [key for key in keys if key.partition("=")[0] not in {f"dataset.{key}" for key in missing}]
    words += [f"dataset.{key}={as_override(value)}" for key, value in missing.items()]
    sys.stdout.flush()
    faults = faults_of(replace(experiment.dataset, arguments={**named, **missing}), path)
    print("".join(f"\nfault {number}: {text}" for number, text in enumerate(faults, start=1)) or "\nno faults")
    tell_command(
        path, words, "price" in roles or any(role.startswith("price") for role in own.values()), "loss" in roles
    )
    return not faults


def is_wide(names: Sequence[str], experts: Sequence[str] | None) -> bool:
    """True if each expert has a column."""
    outcomes = [name for name in names if name.startswith(tuple(f"{kind}_" for kind in OUTCOMES))]
    return len(outcomes) > 1 or (experts is not None and {*map(str, experts)} <= {*names})


def tell_roles(sheet: Sheet, facts: Sequence[Facts], guesses: Sequence[Guess], own: Mapping[str, str]) -> None:
    """A line for each column, and what is not sure."""
    found = {guess.column: (guess.role, guess.why) for guess in guesses} | {
        name: (role, "its name") for name, role in own.items()
    }
    unused = {one.name: ("not used", kind_of_unused(one)) for one in facts if one.name not in found}
    lines = [(name, *(found | unused)[name]) for name in sheet.names]
    widths = [max(len(line[place]) for line in lines) for place in (0, 1)]
    for name, role, why in lines:
        print(f"  {name:<{widths[0]}}  {role:<{widths[1]}}  {why}".rstrip())
    for guess in guesses:
        if guess.others:
            print(
                f"not sure: {guess.role} may be {listed(guess.others)}: dataset.columns={{{guess.role}: {guess.others[0]}}}"
            )


def missing_keys(sheet: Sheet, roles: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, Any]:
    """{key: value} beside those that the user gave: roles of columns with other names, and experts whose names are nearly equal."""
    given = named["columns"] or {}
    columns = {role: column for role, column in roles.items() if role in given or (role in RENAMED and role != column)}
    found: dict[str, Any] = {"columns": columns} if columns != given else {}
    found |= {key: roles[key] for key in KEYS if key in roles and key not in given and named[key] is None}
    alike = near_names(sheet.words(roles[EXPERT], gaps=True)) if EXPERT in roles and named["merge"] is None else []
    for names in alike:
        apart = f"without dataset.merge they are {len(names)} experts"
        print(f"nearly equal names of experts: {listed(names)}; the command makes them one ({apart})")
    return {**found, "merge": alike} if alike else found


def as_override(value: Any) -> str:
    """A column, columns or {role: column} in Hydra's words."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{role}: {as_override(column)}" for role, column in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_override, value)) + "]"
    return given_to_hydra(str(value))


def faults_of(dataset: Component, path: Path) -> list[str]:
    """All that training would refuse. Notes go to stderr, as in training."""
    from l2d.assembly.make import blaming, make

    try:
        with blaming(dataset):
            sheet = make(dataset).read(Path()).sheet
    except L2DError as error:
        return [str(error).removeprefix(f"{path}: ")]
    return list((sheet.faults or {}).values())


def path_key(path: Path) -> str:
    return quote(f"dataset.path={given_to_hydra(str(path))}")


def tell_command(path: Path, words: Sequence[str], priced: bool, losses: bool) -> None:
    prices = ["cost=columns"] * priced + ["cost.error_price=1"] * (priced and not losses)
    print("\nrun:\n  " + " ".join(["l2d train dataset=table", path_key(path), *map(quote, words), *prices]))
    if "cost.error_price=1" in prices:
        print("  (cost.error_price=1: a wrong answer counts as $1; put in your own)")
