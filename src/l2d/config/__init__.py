"""From command-line arguments to typed values: composing, checking, identity. Nothing here imports torch."""

from l2d.config.checking import check, check_search
from l2d.config.composing import CONF, compose, groups, launchers, sweep_axes, titles, to_plain
from l2d.config.schema import Component, Experiment, Recipe, SearchSettings, Settings, Setup, Trainer

__all__ = ["CONF", "Component", "Experiment", "Recipe", "SearchSettings", "Settings", "Setup", "Trainer", "check"]
__all__ += ["check_search", "compose", "groups", "launchers", "sweep_axes", "titles", "to_plain"]
