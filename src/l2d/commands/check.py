"""l2d check FILE: what a table or a log is, which column plays which role, all its faults, and the command that trains on it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from l2d.config import Component, check, compose
from l2d.config.composing import override_text
from l2d.data.confounders import warning
from l2d.data.sets.guess import GRADES, ROLES, Guess, Kinds, experts_by_value, guess_roles, kinds_of
from l2d.data.sets.long_log import AFTER, EXPERT, REPLY, is_long
from l2d.data.sets.outcomes import MONEY, OF_AN_EXPERT, OUTCOMES, SAID, near_names, reply_columns
from l2d.data.sets.table_columns import AFTERWARDS, IDS, KEYS, check_role, free_columns
from l2d.data.sets.table_columns import ROLES as RENAMED
from l2d.data.sets.table_rows import TableRows
from l2d.data.sheet import KINDS, Sheet, file_problem, read_header, read_sheet
from l2d.utils.errors import L2DError, under
from l2d.utils.text import counted, listed
from l2d.utils.user_errors import OneLineParser, answering

DESCRIPTION = """Say what a file is, which column plays which role and why, all faults of its cells, and the command that trains on
it. Roles are guessed from names and values; give those that you know better. The status is 1 if there are faults."""
EXAMPLES = """examples:
  l2d check log.csv
  l2d check log.csv 'dataset.columns={expert: model_used, correct: thumbs}'
  l2d check log.sqlite                                  the log of l2d serve"""
OF_QUERIES = ("time", "text", "category")  # roles in a table with a row per query
OF_ANSWERS = (*OF_QUERIES, "id", EXPERT, *OUTCOMES, "price", "latency", "propensity", *REPLY)


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
        if is_server_log(path):
            from l2d.assembly.make import make

            said = make(dataset_of(path, options.keys, "log")).summary()
            words = " ".join(["l2d train dataset=log", path_key(path), *map(quote, options.keys)])
            print(f"the log of l2d serve, or its export\n{said}\n\nrun:\n  {words}")
        elif not check_table(path, options.keys):
            sys.exit(1)


def is_server_log(path: Path) -> bool:
    """True for the log of l2d serve, and for its export."""
    export = {EXPERT, "propensity", "router_choice"}
    if not path.is_file() or path.suffix.lower() in KINDS:
        return path.is_file() and export <= {*read_header(path).names}
    with path.open("rb") as file:
        return file.read(6) == b"SQLite"


def check_table(path: Path, keys: Sequence[str]) -> bool:
    """True if the file can be trained on."""
    dataset = dataset_of(path, keys)
    named, sheet = dataset.arguments, read_sheet(path)
    own, kinds, guesses, found = found_roles(sheet, named)
    roles, size = {guess.role: guess.column for guess in guesses}, counted(len(sheet), "row")
    if not own and (EXPERT not in roles or not {*OUTCOMES} & {*roles}):
        check_experts(sheet, named["experts"] or [])
        print(f"{path}: neither a table nor a log; {size}\n")
        tell_roles(sheet.names, kinds, guesses, {})
        grades = [name for name in kinds if "few" in kinds[name] and name.lower() in ROLES["correct"][0].split()]
        if EXPERT in roles and grades:
            words = sorted({*sheet.words(grades[0], gaps=True)})
            words = [repr(word) for word in words if word and word.strip().lower() not in GRADES]
            print(f"\nfault 1: column {grades[0]}: neither right nor wrong: {listed(words, 2)}; write 1, 0 or yes, no")
            return False
        lacks = "who answered (expert)" if EXPERT not in roles else "how good an answer was (correct, prediction, loss)"
        print(f"\nno column says {lacks}; name it: dataset.columns={{expert: COLUMN, correct: COLUMN}}")
        print("or, if each expert has a column: dataset.experts=[COLUMN, COLUMN]")
        return False
    rows, faults = read(replace(dataset, arguments={**named, **found}), path)
    print(f"{path}: {'a table with a row per query' if own else 'a log with a row per answer'}; {size}\n")
    used = dict.fromkeys(rows.seen.features if rows else (), "feature")
    used |= dict.fromkeys(named["confounders"] or [], "confounder")
    unused = tell_roles(sheet.names, kinds, guesses, own | used)
    for names in found.get("merge", []):
        print(f"nearly equal names of experts: {listed(names)}; the command makes them one")
    print("".join(f"\nfault {number}: {text}" for number, text in enumerate(faults, start=1)) or "\nno faults")
    if rows and rows.amounts and not faults and "propensities" not in rows.amounts:
        free = [name for name in unused if name.casefold() not in AFTER and not IDS.fullmatch(name)]
        asked = ~np.isnan(rows.amounts["errors"])
        if told := warning(rows.sheet, free, asked, [expert.name for expert in rows.experts]):
            print(f"\n{told}")
    priced = "price" in roles or any(role.startswith(MONEY) for role in own.values())
    losses = any(role.startswith("loss") for role in (*roles, *own.values()))
    tell_command(path, keys, found, ["cost=columns"] * priced + ["cost.error_price=1"] * (priced and not losses))
    return not faults


def dataset_of(path: Path, keys: Sequence[str] = (), kind: str = "table") -> Component:
    return check(compose([f"dataset={kind}", f"dataset.path={override_text(str(path))}", *keys])).dataset


def found_roles(sheet: Sheet, named: Mapping[str, Any]) -> tuple[dict[str, str], Kinds, list[Guess], dict[str, Any]]:
    """Roles of experts' columns, kinds and guesses of the others, and the keys that the user would have to add."""
    given = {**{key: named[key] for key in KEYS if named[key] is not None}, **(named["columns"] or {})}
    for role, column in given.items():
        with under("dataset"):
            check_role(role)
        group = "dataset.columns" if role in (named["columns"] or {}) else "dataset"
        sheet.check_column(f"{group}.{role}", str(column))
    kinds = {name: kinds_of(sheet, name) for name in sheet.names}
    own = columns_of_experts(sheet.names, named["experts"] or [], named["outcome"])
    if {*map(str, named["experts"] or [])} & {*sheet.names}:
        check_experts(sheet, named["experts"])
    alike = [] if own or named["columns"] or named["experts"] else experts_by_value(kinds)
    own = own or columns_of_experts(sheet.names, alike, "correct")
    kinds = {name: kind for name, kind in kinds.items() if name not in own}
    guesses = guess_roles(kinds, given, OF_QUERIES if own else OF_ANSWERS)
    roles = {guess.role: guess.column for guess in guesses}
    return own, kinds, guesses, missing_keys(sheet, roles, named) | ({"experts": alike} if alike else {})


def check_experts(sheet: Sheet, experts: Sequence[Any]) -> None:
    for name in experts:
        sheet.check_column("dataset.experts", str(name))


def guessed_keys(arguments: Sequence[str]) -> list[str]:
    """What `l2d train dataset=table dataset.path=FILE` and nothing else could not do without: the experts, if columns of right
    and wrong do not say so by their names, and the text, if there is nothing else that a router sees."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    path = Path(given.get("dataset.path", "")).expanduser()
    others = [key for key in given if key.startswith(("dataset.", "setup", "experiment")) and key != "dataset.path"]
    if given.get("dataset") != "table" or others or file_problem(path):
        return []
    dataset, sheet = dataset_of(path), read_sheet(path)
    columns = columns_of_experts(sheet.names, [], "correct")
    by_name = bool(columns) or is_long(sheet.names)
    experts = [name.removeprefix("correct_") for name in columns]
    if by_name and free_columns(replace(sheet, faults={}), [*columns, *([] if columns else AFTER)], experts):
        return []
    own, _, _, found = found_roles(sheet, dataset.arguments)
    if not own and not by_name:
        return []  # which column is the grade is not guessed
    keys = [f"dataset.{key}={override_text(found[key])}" for key in ("experts", *KEYS) if key in found]
    if keys:
        print(f"{path}: columns are guessed; l2d check {quote(str(path))} says why: {' '.join(map(quote, keys))}")
    return keys


def tell_command(path: Path, keys: Sequence[str], found: Mapping[str, Any], prices: Sequence[str]) -> None:
    """keys: given by the user; found: those to add or replace."""
    words = [key for key in keys if key.partition("=")[0] not in {f"dataset.{key}" for key in found}]
    words += [f"dataset.{key}={override_text(value)}" for key, value in found.items()]
    print("\nrun:\n  " + " ".join(["l2d train dataset=table", path_key(path), *map(quote, words), *prices]))
    if len(prices) > 1:
        print("  (cost.error_price=1: a wrong answer counts as $1; put in your own)")


def columns_of_experts(names: Sequence[str], experts: Sequence[str], outcome: str) -> dict[str, str]:
    """{column: role} in a table with a row per query; empty for a log."""
    outcomes = [name for name in names if name.startswith(tuple(f"{kind}_" for kind in OUTCOMES))]
    own = {str(name): f"{outcome}_{name}" for name in experts if str(name) in names}
    said = reply_columns(names, map(str, experts))
    begun = {name: name for name in names if name.startswith(OF_AN_EXPERT) or name == "id" or name in said}
    return begun | own if len(outcomes) > 1 or len(own) > 1 else {}


def tell_roles(names: Sequence[str], kinds: Kinds, guesses: Sequence[Guess], own: Mapping[str, str]) -> list[str]:
    """A line for each column, and what is not sure. Return the columns that are not used."""
    found = {guess.column: (guess.role, guess.why) for guess in guesses}
    found |= {name: (role, "") for name, role in own.items()}
    for name, kind in kinds.items():
        told = kind.get("few", kind.get("amounts"))
        early = told and not name.lower().startswith((*AFTERWARDS, *SAID))
        use = f"{told}; dataset.features or confounders can name it" if early else ", ".join(kind.values())
        found.setdefault(name, ("not used", use))
    widths = [max(map(len, column)) for column in (found, [role for role, _ in found.values()])]
    for name, (role, why) in ((name, found[name]) for name in names):
        print(f"  {name:<{widths[0]}}  {role:<{widths[1]}}  {why}".rstrip())
    for guess in (guess for guess in guesses if guess.others):
        other = f"dataset.columns={{{guess.role}: {guess.others[0]}}}"
        print(f"not sure: {guess.role} may be {listed(guess.others)}: {other}")
    return [name for name, (role, _) in found.items() if role == "not used"]


def missing_keys(sheet: Sheet, roles: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, Any]:
    """{key: value} beside those that the user gave: roles of columns with other names, and experts whose names are nearly equal."""
    given = named["columns"] or {}
    columns = {role: column for role, column in roles.items() if role in given or (role in RENAMED and role != column)}
    found: dict[str, Any] = {"columns": columns} if columns != given else {}
    found |= {key: roles[key] for key in KEYS if key in roles and key not in given and named[key] is None}
    alike = near_names(sheet.words(roles[EXPERT], gaps=True)) if EXPERT in roles and named["merge"] is None else []
    return {**found, "merge": alike} if alike else found


def read(dataset: Component, path: Path) -> tuple[TableRows | None, list[str]]:
    """The rows that training would read, and all that it would refuse. Notes go to stderr, as in training."""
    from l2d.assembly.make import blaming, make

    faults: dict[tuple[str, str], str] = {}
    try:
        with blaming(dataset):
            return make(dataset).read(Path(), faults), [*faults.values()]
    except L2DError as error:
        return None, [*faults.values(), str(error).removeprefix(f"{path}: ")]


def path_key(path: Path) -> str:
    return quote(f"dataset.path={override_text(str(path))}")
