"""The types say what the files of conf/ hold: no key of one without the other."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

from l2d.config import CONF, Experiment, Recipe, SearchSettings, Settings, Setup, Trainer, check, compose
from l2d.config.checking import COMPONENTS
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import check_value


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


CHOICES: dict[tuple[type, str], list[str]] = {
    (Recipe, "schedule"): ["constant", "cosine", "one_cycle"],
    (Recipe, "augment"): ["none", "crop", "crop_flip"],
    (Recipe, "precision"): ["32-true", "bf16-mixed", "16-mixed"],
    (Recipe, "compile"): ["false", "default", "max-autotune-no-cudagraphs"],
    (Trainer, "data_on_device"): ["auto", "true", "false"],
    (Settings, "decision"): ["argmax", "posterior"],
    (Settings, "sampling"): ["none", "over", "under"],
    (Settings, "aux"): ["none", "label", "experts"],
    (Settings, "checkpoint"): ["last", "best", "best_loss"],
    (SearchSettings, "search"): ["paper", "optuna"],
}


@pytest.mark.parametrize(("kind", "key"), CHOICES)
def test_every_choice_is_allowed_and_named_where_another_is_refused(kind: type, key: str) -> None:
    hint = get_type_hints(kind, include_extras=True)[key]
    for choice in CHOICES[kind, key]:
        check_value(key, choice, hint)
    with pytest.raises(ParameterError) as caught:
        check_value(key, "other", hint)
    assert re.findall("'(.+?)'", str(caught.value)) == CHOICES[kind, key]


def test_the_other_groups_are_components() -> None:
    composed = {key for key in compose() if key != "tune"}
    assert composed == {*COMPONENTS, *keys(Settings), "setup", "recipe", "trainer"}
    assert {*COMPONENTS, "setup", "recipe", "trainer", "settings", "plain"} <= keys(Experiment)


@pytest.mark.parametrize("kind", [Settings, SearchSettings])
def test_every_key_has_its_line_in_the_help(kind: type) -> None:
    for field in fields(kind):
        assert len(field.metadata["help"]) > 10, field.name


def test_what_was_checked_stays_as_it_is() -> None:
    experiment = check(compose())
    for part in (experiment, experiment.settings, experiment.recipe, experiment.method):
        with pytest.raises(AttributeError):
            part.seed = 3  # type: ignore[misc,union-attr]


@pytest.mark.slow
def test_folders() -> None:
    experiment = check(compose(["runs_dir='~/a'", "data_dir='~/b'"]))
    assert (experiment.runs_dir, experiment.data_dir) == (Path.home() / "a", Path.home() / "b")
    experiment = check(compose(["runs_dir=a", "data_dir=b"]))
    assert (experiment.runs_dir, experiment.data_dir) == (Path("a"), Path("b"))


def test_every_component_may_come_from_a_module_of_ones_own() -> None:
    """l2d_mine is such a module, although it begins like l2d's own."""
    experiment = check(compose())
    for part in COMPONENTS:
        own = replace(getattr(experiment, part), target="l2d_mine.things.Mine")
        assert replace(experiment, **{part: own}).own_modules == {"l2d_mine.things"}, part
