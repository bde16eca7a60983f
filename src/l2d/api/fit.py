"""`l2d.fit`: a router from arrays. The walk is that of `l2d train`, in a folder that is gone afterwards."""

import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from l2d.assembly.build import assemble_rows
from l2d.assembly.make import make
from l2d.config import Component, Experiment, check, compose
from l2d.config.composing import override_text
from l2d.config.signatures import forget_sources
from l2d.data.arrays import Answers
from l2d.data.given import (
    Matrix,
    as_array,
    kind_of,
    make_arrays,
    names_of_experts,
    read_inputs,
    read_outcomes,
    read_propensities,
)
from l2d.data.sets.outcomes import price_hint
from l2d.experts.cache import Cache
from l2d.lightning.learner import ended_by_signals
from l2d.lightning.random_state import interruptible, random_state_kept
from l2d.methods.method import Method
from l2d.router.repriced import prices_in_order
from l2d.router.router import Router
from l2d.router.score import score_decisions
from l2d.runs.folder import RunFolder
from l2d.training.score import score_router
from l2d.training.walk import Source, train
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.user_errors import MISTAKES, one_line

# For each kind of input: the router and its recipe, unless the caller says otherwise.
ROUTERS = {"rows": ("mlp", "table"), "texts": ("mlp", "table"), "images": ("resnet18_slim", "small")}


def fit(
    X: Any,
    costs: Matrix | None = None,
    *,
    errors: Matrix | None = None,
    prices: Matrix | Mapping[str, float] | None = None,
    propensities: Matrix | None = None,
    labels: Any = None,
    experts: Sequence[str] | None = None,
    text: str | None = None,
    method: str | type[Method] = "mild",
    router: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    validation_fraction: float = 0.1,
    seed: int = 0,
    accelerator: str = "auto",
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Router:
    """Train a router that sends each input to the expert with the least expected cost.

    No file is left behind, and the caller's random state stays as it was. The training is that of `l2d train`: a share of the
    rows is held out for validation, and the guard that is fitted to those rows sends everything to the best single expert unless
    the router is cheaper there.

    Args:
        X: The inputs: numbers [n, features] as an array, a tensor or a DataFrame; images as uint8 [n, height, width, channels]; or
            a list of texts.
        costs: [n, p], what each of the p experts would cost on each input, 0 or more; NaN where it was not asked. Rows without any
            outcome are left out, and a line says how many. Give this, or `errors` and `prices`.
        errors: [n, p], how wrong each expert is: 0 or 1, or a loss; NaN where it was not asked.
        prices: [p], or by the experts' names, {"small": 0.1, "large": 0.3}; [n, p] where they differ between inputs. In units of
            one error; in dollars with options={"cost.error_price": 2}, where a wrong answer costs $2.
        propensities: [n, p] or [p], the chance with which each expert was asked, for costs or errors with NaN. Default: estimated
            from the inputs. The router is then judged by doubly robust estimates.
        labels: The true class of each input, for methods that learn it (plugin, label_regression).
        experts: Their names. Default: the columns of a DataFrame of costs, or expert 1, expert 2, …
        text: The column of a DataFrame that holds a text.
        method: The loss: a name of `l2d train --help` (mild, tdef, ce, plugin, …), or a class of your own, a subclass of
            `l2d.Method`. Its arguments are options: {"method.margin": 0.5}.
        router: The network, a name of `l2d train --help`. Default: mlp for numbers and texts, resnet18_slim for images.
        epochs: Passes over the rows. Default: the recipe's, 20 for numbers and texts.
        batch_size: Rows per step. Default: the recipe's, 512 for numbers and texts.
        learning_rate: Of the optimizer. Default: the recipe's, 0.001 for numbers and texts.
        validation_fraction: The share of the rows that is held out.
        seed: Of everything drawn. The same seed gives the same router on the same CPU with the same number of threads.
        accelerator: auto, cpu or gpu.
        progress: Whether to show a progress bar, in a terminal or a notebook.
        options: Any other key of `l2d train`, such as {"method.rho.offset": 2, "decision": "posterior"}.

    Returns:
        The router. `router.guard_note` says what the guard does to all choices, None if nothing; `router.raw = True` turns the
        guard off. `router.validation` is its score on the held-out rows. The guard was fitted to these rows, so use
        `router.score` with rows of your own for the final figure.

    Example:
        >>> import numpy as np, l2d
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1)  # each expert is right on one half
        >>> router = l2d.fit(X, costs, epochs=30, progress=False)
        >>> [choice.expert for choice in router.route([[-1, 0], [1, 0]])]
        ['expert 1', 'expert 2']
    """
    refuse_bad_cells("costs" if errors is None else "errors", costs if errors is None else errors)
    wrong, _ = read_outcomes(costs, errors, None, gaps=True)
    names = names_of_experts(costs if errors is None else errors, experts, wrong.shape[1])
    listed_prices = prices_in_order(prices, names) if isinstance(prices, Mapping) else prices
    _, paid = read_outcomes(costs, errors, listed_prices, gaps=True)
    chances = read_propensities(propensities, wrong)
    given = {
        "seed": seed,
        "validation_fraction": validation_fraction,
        "progress": progress,
        "trainer.accelerator": accelerator,
        "recipe.epochs": epochs,
        "recipe.batch_size": batch_size,
        "recipe.optimizer.lr": learning_rate,
    }
    experiment = make_experiment(kind_of(X, text), method, router, paid, given, options or {})
    if experiment.settings.stop_after is not None:
        raise ParameterError(
            "stop_after", "is for runs that are resumed later; use epochs", experiment.settings.stop_after
        )
    if experiment.settings.evaluation == "cross_validate":
        raise ParameterError(
            "evaluation", "is for runs on a table; l2d.fit holds validation rows out", "cross_validate"
        )
    if paid is not None:
        mean_prices, mean_errors = (values.reshape(-1, len(names)).nanmean(0).tolist() for values in (paid, wrong))
        if hint := price_hint(experiment.plain["cost"], mean_prices, mean_errors, 'options={"cost.error_price": 0.02}'):
            print(hint, file=sys.stderr)
    inputs, seen, groups = read_inputs(X, text, embedder(experiment))
    by_row = paid if paid is not None and paid.ndim == 2 else None
    arrays = make_arrays(inputs, seen, groups, names, Answers(wrong, prices=by_row, propensities=chances), labels)
    splits = assemble_rows(experiment, arrays, "", Cache(Path("unused")))
    # Judged on the validation rows: the test rows are the caller's, who has them.
    judge = partial(score_router, simple=lambda _: {})  # whose result is not shown
    source = Source(lambda _: replace(splits, test=splits.validation), lambda _: "", judge)
    with ExitStack() as until, random_state_kept(), interruptible(), ended_by_signals():
        place = tempfile.mkdtemp(prefix="l2d-")
        until.callback(shutil.rmtree, place, ignore_errors=True)
        run = RunFolder(Path(place))
        train(experiment, run, source, tell=lambda _: None)
        found = Router.load(run.path, trust=sorted(experiment.own_modules))
        if found.network.reads_text:  # its tokenizer is read from the folder when the first query comes
            weakref.finalize(found.network, until.pop_all().close)
    if costs is not None:  # their prices, if any, are not known apart
        found.description = replace(found.description, prices=None)
    held_out = splits.validation
    listed = None if by_row is not None or paid is None else paid * found.price_scale
    score = score_decisions(
        found.decide_inputs(held_out.inputs), held_out.costs, names, listed, from_log=held_out.logged is not None
    )
    found.validation = replace(score, error_price=found.unit.error_price)
    return found


def refuse_bad_cells(name: str, values: Matrix) -> None:
    """Says where the first value is that cannot be a cost, in a DataFrame by the column's name."""
    array = as_array(values)
    if array.ndim != 2 or array.dtype.kind not in "if":
        return
    bad = np.argwhere(~(np.isnan(array) | (np.isfinite(array) & (array >= 0))))
    if len(bad):
        row, column = bad[0].tolist()
        called = f" ({values.columns[column]})" if hasattr(values, "columns") else ""
        where = f"row {row}, column {column}{called}, both counted from 0, is {array[row, column]}"
        raise ParameterError(name, f"must be finite and not negative; {where}; {len(bad):,} such values in all")


def make_experiment(
    kind: str,
    method: str | type[Method],
    router: str | None,
    prices: Tensor | None,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Experiment:
    """The checked settings: those of a table, with the defaults of this kind of input."""
    network, recipe = ROUTERS[kind]
    overrides = ["dataset=table", f"router={router or network}"]
    if router is None:
        overrides.append(f"recipe={recipe}")
    if prices is None:
        overrides.append("cost=error")
    elif prices.ndim == 2:
        overrides.append("cost=columns")
    else:
        overrides += ["cost=error_plus_cost", f"cost.prices={override_text(prices.tolist())}"]
    if isinstance(method, str):
        overrides.append(f"method={override_text(method)}")
    else:
        overrides += class_overrides("method", method)
        options = {f"++{key}" if key.startswith("method.") else key: value for key, value in options.items()}
    said = {key: value for key, value in given.items() if value is not None}
    overrides += [f"{key}={override_text(value)}" for key, value in {**said, **options}.items()]
    try:
        return check(compose(overrides))
    except MISTAKES as error:
        how = ""
        if isinstance(error, ParameterError) and error.problem == "is missing":
            how = f"; give it as options={{{error.parameter!r}: …}}"
        raise L2DError(one_line(error) + how) from error


def class_overrides(key: str, found: object) -> list[str]:
    """What puts a class of the caller's own into the config. It is found again by its module and name."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ParameterError(key, "must be a name, or a subclass of l2d.Method", found)
    module, name = found.__module__, found.__qualname__
    if vars(sys.modules.get(module, object)).get(name) is not found:
        raise ParameterError(key, "must be a class at the top level of a module, so that it can be found again", found)
    forget_sources()
    return [f"~{key}", f"+{key}.name={name}", f"+{key}._target_={module}.{name}"]


def embedder(experiment: Experiment) -> Any:
    """What turns texts into inputs, or None where the router reads none."""
    component = experiment.dataset.arguments.get("encoder")
    if not isinstance(component, Component):
        return None
    encoder = make(component)
    if hasattr(encoder, "progress"):
        encoder.progress = experiment.settings.progress
    return encoder.embed
