"""The reference pages, generated from the code and conf/.

docs/hooks.py replaces each mark `<!-- generated: NAME -->` by its PART when the site is built.
"""

import ast
import contextlib
import io
import os
import re
import sys
import textwrap
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import yaml

from l2d.commands.main import COMMANDS, main
from l2d.config import CONF, Recipe, SearchSettings, Settings, Setup, Trainer, compose, groups, launchers
from l2d.config.signatures import find_class, read_signature
from l2d.core import results
from l2d.utils.parameters import RhoRule

ROOT = Path(__file__).resolve().parent.parent
# Groups without a class: their keys are those of a dataclass.
SCHEMAS = {"recipe": Recipe, "setup": Setup, "trainer": Trainer}
# Keys that name a class or are for reports: a user does not set them.
OWN_KEYS = {"_target_", "_partial_", "name", "about", "defaults", "hydra"}


# Types as words


def in_words(kind: Any) -> str:
    """An annotation for a reader: "number > 0", "`over` or `under`"."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        base, *bounds = inner
        return f"{in_words(base)} {' and '.join(filter(None, map(bound_in_words, bounds)))}".strip()
    if origin in (typing.Union, types.UnionType):
        return " or ".join(filter(None, dict.fromkeys(map(in_words, inner))))
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is list:
        return "list of " + re.sub(r"\b(number|text|list)\b", r"\1s", in_words(inner[0]))
    if origin is dict or (isinstance(kind, type) and typing.is_typeddict(kind)):
        return "mapping"
    if kind is Recipe or origin is not None:
        return ""
    return {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null"}.get(kind, "")


def bound_in_words(bound: Any) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    for name, sign in signs.items():
        if hasattr(bound, name):
            value = getattr(bound, name)
            return f"{sign} {'2³²' if value == 2**32 else value}"
    return f"multiple of {bound.multiple_of}" if hasattr(bound, "multiple_of") else ""


# Files of conf/


@dataclass(frozen=True)
class Key:
    """A key of a file in conf/: its value as written there, and the comment beside it."""

    value: str
    comment: str


@dataclass(frozen=True)
class Choice:
    """A file of conf/. target: its class, or "". keys: its own and those of the files that it extends. brings: choices that it
    makes in other groups."""

    name: str
    meaning: str
    target: str
    keys: Mapping[str, Key]
    brings: Sequence[str]


def read_choice(group: str, name: str) -> Choice:
    file = CONF / group / f"{name}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    keys: dict[str, Key] = {}
    brings: list[str] = []
    target = ""
    for entry in content.get("defaults", []):
        if isinstance(entry, str):
            if entry != "_self_":
                parent = read_choice(group, entry)
                keys |= parent.keys
                target = parent.target
            continue
        [(place, chosen)] = entry.items()
        other, _, key = place.removeprefix("override ").removeprefix("/").partition("@")
        if place.startswith("override "):
            brings.append(f"{other}={chosen}")
        else:
            keys[key] = Key(str(chosen), f"a choice of the group `{other}`, with all its keys")
    for key, found in file_keys(file):
        # A number in place of a mapping, or the other way round, replaces the whole.
        keys = {old: one for old, one in keys.items() if not replaces(key, found, old, one)}
        earlier = keys.get(key)
        keys[key] = Key(found.value, found.comment or (earlier.comment if earlier else ""))
    target = keys.pop("_target_", Key(target, "")).value
    return Choice(name, groups()[group][name], target, keys, brings)


def replaces(key: str, found: Key, old: str, one: Key) -> bool:
    return (bool(found.value) and old.startswith(f"{key}.")) or (key.startswith(f"{old}.") and bool(one.value))


def file_keys(file: Path) -> Iterator[tuple[str, Key]]:
    """(dotted key, its value and comment) in the order of a file."""
    text = file.read_text(encoding="utf-8")
    tree = yaml.compose(text)
    if isinstance(tree, yaml.MappingNode):
        yield from node_keys(tree, "", text)


def node_keys(node: yaml.MappingNode, prefix: str, text: str) -> Iterator[tuple[str, Key]]:
    for name, value in node.value:
        key = f"{prefix}{name.value}"
        if name.value in OWN_KEYS - {"_target_"}:
            continue
        line = text.splitlines()[name.start_mark.line]
        comment = "" if node.flow_style else next(iter(re.findall(r"\s#\s+(.*)$", line)), "")
        if isinstance(value, yaml.MappingNode):
            if comment:
                yield key, Key("", comment)
            yield from node_keys(value, f"{key}.", text)
        elif isinstance(value, yaml.SequenceNode):
            yield (
                key,
                Key(
                    "[" + ", ".join(text[one.start_mark.index : one.end_mark.index] for one in value.value) + "]",
                    comment,
                ),
            )
        else:
            yield key, Key(text[value.start_mark.index : value.end_mark.index], comment)


def kind_of_key(group: str, choice: Choice, key: str) -> str:
    if group in SCHEMAS:
        return in_words(typing.get_type_hints(SCHEMAS[group], include_extras=True).get(key))
    outer, _, inner = key.rpartition(".")
    target = choice.keys[f"{outer}._target_"].value if f"{outer}._target_" in choice.keys else choice.target
    if outer == "rho":
        return in_words(typing.get_type_hints(RhoRule, include_extras=True)[inner])
    signature = (read_signature(target) if target else None) or {}
    return in_words(signature[inner].kind) if inner in signature else ""


def cell(text: str) -> str:
    """Text within a table. docs/NAME.md becomes a link; docs/hooks.py knows where from."""
    linked = re.sub(r"\bdocs/(\w+)\.md\b", r"[\1](docs:\1.md)", text)
    return linked.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", *(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)), ""]


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def key_table(group: str, choices: Sequence[Choice]) -> list[str]:
    """A row per key, a column per choice."""
    kinds: dict[str, str] = {}
    for choice in choices:
        for key in choice.keys:
            kinds[key] = kinds.get(key) or kind_of_key(group, choice, key)
    rows = []
    for key, kind in kinds.items():
        values = [code(choice.keys[key].value) if key in choice.keys else "" for choice in choices]
        rows.append([code(f"{group}.{key}"), cell(kind), cell(comment_on(key, choices)), *values])
    return table(["key", "may be", "what it is", *(code(choice.name) for choice in choices)], rows) if rows else []


def comment_on(key: str, choices: Sequence[Choice]) -> str:
    """The comment on a key. Where the files have several, each with the names of its choices."""
    if key.endswith("._target_"):
        return "the class"
    by_comment: dict[str, list[str]] = defaultdict(list)
    with_key = [choice for choice in choices if key in choice.keys]
    for choice in with_key:
        by_comment[choice.keys[key].comment].append(choice.name)
    said = {comment: names for comment, names in by_comment.items() if comment}
    if len(said) == 1 and 2 * len(next(iter(said.values()))) > len(with_key):
        return next(iter(said))
    return "; ".join(f"{', '.join(map(code, names))}: {comment}" for comment, names in said.items())


def first_sentence(target: str) -> str:
    definition = find_class(target)
    text = " ".join(((ast.get_docstring(definition) if definition else None) or "").split())
    return next(iter(re.findall(r"^(.*?(?<!et al)\.)(?= |$)", text)), text)


def group_section(group: str) -> list[str]:
    choices = [read_choice(group, name) for name in groups()[group]]
    rows = [
        [code(f"{group}={choice.name}"), cell(choice.meaning), " ".join(map(code, choice.brings))] for choice in choices
    ]
    sets = any(choice.brings for choice in choices)
    lines = [
        f"## {group}",
        *table(["choice", "what it is", *(["sets"] if sets else [])], [row if sets else row[:2] for row in rows]),
    ]
    by_class: dict[str, list[Choice]] = defaultdict(list)
    for choice in choices:
        by_class[choice.target].append(choice)
    for target, same in by_class.items():
        keys = key_table(group, same)
        if keys:
            if target:
                lines += [f"### {target.rpartition('.')[2]}", "", f"`{target}`. {first_sentence(target)}"]
            lines += keys
    return lines


def experiment_section() -> list[str]:
    rows = []
    for name, meaning in groups()["experiment"].items():
        content = yaml.safe_load((CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8"))
        axes = ((content.get("hydra") or {}).get("sweeper") or {}).get("params") or {}
        fixed = [
            f"{place.removeprefix('override /')}={chosen}"
            for entry in content.get("defaults", [])
            for place, chosen in entry.items()
        ]
        fixed += [f"{key}={value}" for key, value in flat(content) if key.split(".")[0] not in ("defaults", "hydra")]
        swept = "<br>".join(code(f"{key}={value}") for key, value in axes.items())
        rows.append([code(f"experiment={name}"), cell(meaning), swept, "<br>".join(map(code, fixed))])
    return ["## experiment", *table(["choice", "what it is", "sweeps over", "sets"], rows)]


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else value


def settings_table(kind: type, defaults: Any, prefix: str = "") -> list[str]:
    hints = typing.get_type_hints(kind, include_extras=True)
    rows = [
        [
            code(prefix + one.name),
            cell(in_words(hints[one.name])),
            code(shown(defaults[one.name])),
            cell(one.metadata["help"]),
        ]
        for one in fields(kind)
    ]
    return table(["key", "may be", "default", "what it is"], rows)


def shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def configuration() -> str:
    defaults = compose(name="tune")
    lines = ["## Keys of every run", *settings_table(Settings, defaults)]
    lines += ["## Keys of a search", "", "For `l2d tune`.", *settings_table(SearchSettings, defaults.tune, "tune.")]
    for group in groups():
        lines += experiment_section() if group == "experiment" else group_section(group)
    rows = [[code(f"hydra/launcher={name}"), cell(meaning)] for name, meaning in launchers().items()]
    return "\n".join([*lines, "## hydra/launcher", *table(["choice", "what it is"], rows)])


# Commands


def help_of(*arguments: str) -> str:
    """The help of a command, at a width that fits a page."""
    out, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*arguments, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return out.getvalue().rstrip()


def commands() -> str:
    lines = []
    for name, (_, meaning) in COMMANDS.items():
        lines += [
            f"## l2d {name}",
            "",
            cell(meaning[0].upper() + meaning[1:]) + ".",
            "",
            "```text",
            help_of(name),
            "```",
            "",
        ]
    return "\n".join(lines)


# metrics.json


@cache
def result_classes() -> dict[str, ast.ClassDef]:
    tree = ast.parse(Path(results.__file__).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}


def result_fields(name: str) -> Iterator[tuple[str, str, str, bool]]:
    """(field, type, comment, whether it may be absent), those of the base classes first."""
    source = Path(results.__file__).read_text(encoding="utf-8").splitlines()
    node = result_classes()[name]
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in result_classes():
            yield from result_fields(base.id)
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            comment = source[one.lineno - 1].partition("  # ")[2]
            yield one.target.id, ast.unparse(one.annotation), comment, one.value is not None


def metrics() -> str:
    """RunMetrics, then every class that it holds, each once."""
    lines, waiting = [], ["RunMetrics"]
    for name in waiting:
        rows = []
        for field, kind, comment, optional in result_fields(name):
            inner = [word for word in re.findall(r"\w+", kind) if word in result_classes()]
            waiting += [word for word in inner if word not in waiting]
            links = f" → {', '.join(f'[{word}](#{word.lower()})' for word in inner)}" if inner else ""
            rows.append(
                [
                    code(field),
                    f"`{kind}`{links}".replace("|", "\\|"),
                    cell(comment),
                    "where there is one" if optional else "always",
                ]
            )
        about = ast.get_docstring(result_classes()[name]) or ""
        lines += [f"## {name}", "", " ".join(about.split()), *table(["key", "type", "what it is", "in the file"], rows)]
    return "\n".join(lines)


# The house


def floors() -> list[list[str]]:
    """The rooms of the package, the lowest floor first, as tests/test_layering.py has them."""
    with contextlib.suppress(ValueError):
        sys.path.remove(str(ROOT))
    sys.path.insert(0, str(ROOT))
    from tests.test_layering import FLOORS

    return FLOORS


def room_purpose(room: str) -> str:
    module = ast.parse((ROOT / "src" / "l2d" / room / "__init__.py").read_text(encoding="utf-8"))
    text = " ".join((ast.get_docstring(module) or "").split())
    return re.split(r"\.(?: |$)", text)[0].replace("`", "")


def house() -> str:
    """The rooms, floor by floor, as a picture that needs no script."""
    width, gap, top = 960, 6, 60
    parts = [
        f'<path d="M {gap} {top - gap} L {width / 2} 2 L {width - gap} {top - gap} Z" class="roof"/>',
        f'<text x="{width / 2}" y="{top - 18}" class="room">l2d</text>',
    ]
    for here in floors()[::-1]:
        wide = (width - gap * (len(here) + 1)) / len(here)
        lines = {room: textwrap.wrap(room_purpose(room), int(wide / 6.6)) for room in here}
        height = 36 + 14 * max(map(len, lines.values()))
        for place, room in enumerate(here):
            left = gap + place * (wide + gap)
            middle = f'x="{left + wide / 2:.1f}"'
            parts.append(f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{height}" rx="4" class="wall"/>')
            parts.append(f'<text {middle} y="{top + 22}" class="room">{room}</text>')
            for number, line in enumerate(lines[room]):
                parts.append(f'<text {middle} y="{top + 39 + 14 * number}" class="purpose">{escape(line)}</text>')
        top += height + gap
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" role="img">'
    title = "<title>The rooms of l2d, floor by floor</title>"
    return "\n".join(['<div class="house">', start, title, *parts, "</svg>", "</div>"])


def rooms() -> str:
    plan = floors()[::-1]
    rows = [
        [str(len(plan) - level), code(f"{room}/"), cell(room_purpose(room))]
        for level, here in enumerate(plan)
        for room in here
    ]
    return "\n".join(table(["floor", "room", "what is in it"], rows))


# Methods


def methods(*names: str) -> str:
    """Choices of the group `method` beside what conf/ says of them."""
    known = groups()["method"]
    return "\n".join(table(["`method=`", "what it is"], [[code(name), cell(known[name])] for name in names]))


PARTS: dict[str, Callable[..., str]] = {
    "configuration": configuration,
    "commands": commands,
    "metrics": metrics,
    "house": house,
    "rooms": rooms,
    "methods": methods,
}
MARK = re.compile(r"^<!-- generated: (\w+)((?: \w+)*) -->$", re.MULTILINE)


def fill(markdown: str) -> str:
    """A page with its marks replaced."""
    return MARK.sub(lambda found: PARTS[found[1]](*found[2].split()), markdown)
