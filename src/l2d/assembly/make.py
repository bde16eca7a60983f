"""From a component of the config to the object it describes: the one place where classes are looked up by name."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from l2d.config import Component, Experiment, Recipe
from l2d.data.dataset import DatasetBase
from l2d.utils.errors import L2DError, ParameterError


def make(component: Component, **offered: Any) -> Any:
    """The object, built from its own arguments and those of `offered` that its constructor takes."""
    factory = make_factory(component)
    taken = parameters_of(component, offered)
    with blaming(component):
        return factory(**{name: value for name, value in offered.items() if name in taken})


def make_dataset(experiment: Experiment) -> DatasetBase:
    dataset = make(experiment.dataset)
    if not isinstance(dataset, DatasetBase):
        raise ParameterError("dataset._target_", "must be a class that inherits from l2d.data.dataset.DatasetBase")
    if dataset.encoder is not None:  # not a key: it would change the name of the run's folder
        dataset.encoder.progress = experiment.settings.progress
    return dataset


@contextmanager
def blaming(component: Component) -> Iterator[None]:
    """Attribute errors to this component: a ParameterError gets its key, any other exception a note."""
    try:
        yield
    except ParameterError as error:
        where = f"{component.key}={component.name}" if not error.parameter and component.name else component.key
        raise error.under(where) from error.__cause__
    except L2DError:
        raise
    except Exception as error:
        error.add_note(f"in {component.key}={component.name or component.target} ({component.target})")
        raise


@contextmanager
def blaming_dataset(experiment: Experiment) -> Iterator[None]:
    """The same for the dataset. Errors of its encoder are reported under router.reads, if that is where the encoder comes from."""
    try:
        with blaming(experiment.dataset):
            yield
    except ParameterError as error:
        head, _, parameter = error.parameter.partition("dataset.encoder.")
        taken = experiment.plain["dataset"].get("encoder") == experiment.plain["router"].get("reads")
        if head or not parameter or not taken:
            raise
        raise ParameterError(f"router.reads.{parameter}", error.problem, error.value) from error.__cause__


def make_factory(component: Component) -> "partial[Any]":
    """The class with the component's own arguments, to be called with more."""
    found: Callable[..., Any] = find(component)
    return partial(found, **{name: built(value) for name, value in component.arguments.items()})


def built(value: Any) -> Any:
    if isinstance(value, Component):
        return make_factory(value) if value.partial else make(value)
    if isinstance(value, Recipe):
        return replace(value, optimizer=built(value.optimizer))
    if isinstance(value, dict):
        return {name: built(one) for name, one in value.items()}
    return [built(one) for one in value] if isinstance(value, list) else value


def find(component: Component) -> type[Any]:
    if not component.trusted:
        module = component.target.rpartition(".")[0]
        trust = f"if you trust it, name its module: trust=[{module!r}] in Python, on the command line --trust {module}"
        raise L2DError(f"{component.key}: {component.target} is not of l2d, so it was not imported; {trust}")
    module, _, name = component.target.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        missing = error.name if isinstance(error, ImportError) else None
        if missing is not None and not f"{module}.".startswith(f"{missing}."):
            raise  # the module exists, but something that it imports does not
        raise ParameterError(f"{component.key}._target_", "no such class", component.target) from error
    if not isinstance(found, type):
        raise ParameterError(f"{component.key}._target_", "is not a class", component.target)
    return found


def parameters_of(component: Component, offered: Iterable[str] = ()) -> set[str]:
    """The names of the constructor's parameters; with **kwargs, all of `offered` too."""
    found = inspect.signature(find(component)).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in found.values())
    return {*found, *(offered if takes_all else ())}
