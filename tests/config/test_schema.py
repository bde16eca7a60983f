"""The types say what the files of conf/ hold: no key of one without the other."""

from dataclasses import fields, replace
from typing import Any

import pytest
import yaml

from l2d.config import CONF, Experiment, Recipe, SearchSettings, Settings, Setup, Trainer, check, compose
from l2d.config.checking import COMPONENTS


def keys(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def content(file: str) -> dict[str, Any]:
    found = yaml.safe_load((CONF / file).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_keys_without_a_group() -> None:
    assert {*content("base.yaml")} - {"defaults", "tune", "hydra"} == keys(Settings)


def test_keys_of_a_search() -> None:
    assert {*content("base.yaml")["tune"]} == keys(SearchSettings)


@pytest.mark.parametrize(("group", "kind"), [("recipe", Recipe), ("trainer", Trainer), ("setup", Setup)])
def test_every_file_of_a_group_has_every_key(group: str, kind: type) -> None:
    for file in (CONF / group).glob("*.yaml"):
        assert {*content(f"{group}/{file.name}")} - {"defaults"} == keys(kind), file.name


def test_the_other_groups_are_components() -> None:
    composed = {key for key in compose() if key != "tune"}
    assert composed == {*COMPONENTS, *keys(Settings), "setup", "recipe", "trainer"}
    assert {*COMPONENTS, "setup", "recipe", "trainer", "settings", "plain"} <= keys(Experiment)


def test_every_component_may_come_from_a_module_of_ones_own() -> None:
    """l2d_mine is such a module, although it begins like l2d's own."""
    experiment = check(compose())
    for part in COMPONENTS:
        own = replace(getattr(experiment, part), target="l2d_mine.things.Mine")
        assert replace(experiment, **{part: own}).own_modules == {"l2d_mine.things"}, part
