"""`l2d.fit`: a router from arrays. The training is that of `l2d train`, in memory."""

import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from l2d.api.experiment import make_experiment
from l2d.assembly.assemble import Splits
from l2d.assembly.build import assemble_rows, expert_cache
from l2d.assembly.make import make_dataset
from l2d.config import Experiment
from l2d.core.prices import price_hint
from l2d.data.agreement import Agreement, Said
from l2d.data.arrays import Answers
from l2d.data.given import (
    Matrix,
    in_order,
    kind_of,
    make_arrays,
    names_of_experts,
    read_inputs,
    read_outcomes,
    read_propensities,
    read_said,
    refuse_other_order,
)
from l2d.data.text.encoders import Encoder
from l2d.lightning.learner import ended_by_signals
from l2d.lightning.random_state import interruptible, random_state_kept
from l2d.methods.method import Method
from l2d.router.plans import score_plan
from l2d.router.router import Router, router_of
from l2d.router.score import score_decisions
from l2d.router.trained import decide_inputs, outputs_of
from l2d.runs.artifact.rebuild import rebuild
from l2d.training.walk import describe, fit_in_memory, tensors_of
from l2d.utils.errors import L2DError, ParameterError, under


def fit(
    X: Any,
    costs: Matrix | None = None,
    *,
    errors: Matrix | None = None,
    prices: Matrix | Mapping[str, float] | None = None,
    propensities: Matrix | None = None,
    labels: Any = None,
    experts: Sequence[str] | None = None,
    method: str | type[Method] | None = None,
    answers: Any = None,
    options: Mapping[str, Any] | None = None,
) -> Router:
    """Train a router that sends each input to the expert with the least expected cost.

    No file is left behind, and the caller's random state stays as it was. A share of the rows is held out for validation. The
    guard that is fitted to these rows sends everything to the best single expert unless the router is cheaper there.

    Args:
        X: The inputs: numbers [n, features] as an array, a tensor or a DataFrame; images as uint8 [n, height, width, channels]; or
            a list of texts.
        costs: [n, p], the cost of each of the p experts on each input, 0 or more; NaN where it was not asked. Rows without any
            outcome are left out, and their number is printed. Give this, or `errors` and `prices`.
        errors: [n, p], 0 or 1, or a loss; NaN where an expert was not asked.
        prices: [p], or by the experts' names, {"small": 0.1, "large": 0.3}; [n, p] where they differ between inputs. In units of
            one error; in dollars with options={"cost.error_price": 2}, where a wrong answer costs $2.
        propensities: [n, p] or [p], the chance with which each expert was asked, for costs or errors with NaN. Default: estimated
            from the inputs. The router is then judged by doubly robust estimates.
        labels: The true class of each input, for methods that learn it (plugin, label_regression).
        experts: Their names. Default: the columns of a DataFrame, or expert 1, expert 2, …
        method: A name of `l2d train --help` (auto, mild, tdef, plugin, …), or a class of your own, a subclass of `l2d.Method`.
            Default: auto, the best of several by cross-validation; for images mild. Its arguments are options:
            {"method.margin": 0.5}.
        answers: [n, p], what each expert answered, None where it did not; or {"answers": …, "confidence": …, "length": …}.
            options={"dataset.agree": "within:0.01"} says which agree (docs/your_table.md#answers).
        options: Any other key of `l2d train`: {"recipe.epochs": 30, "progress": False, "router": "mlp", "seed": 1}. "dataset.text"
            names the column of a DataFrame that holds a text. The same seed (default: 0) gives the same router on the same CPU with
            the same number of threads.

    Returns:
        The router. `router.guard_note` says what the guard does to all choices; `router.at(raw=True)` turns it off.
        `router.validation` is its score on the rows that the guard was fitted to: for a final figure use `router.score`.

    Example:
        >>> import numpy as np, l2d
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1)  # each expert is right on one half
        >>> router = l2d.fit(X, costs, method="mild", options={"recipe.epochs": 30, "progress": False})
        >>> [choice.expert for choice in router.route([[-1, 0], [1, 0]])]
        ['expert 1', 'expert 2']
    """
    refuse_other_order(X, costs=costs, errors=errors, prices=prices, propensities=propensities, labels=labels)
    outcomes = outcomes_of(costs, errors, prices, propensities, experts)
    given = options or {}
    experiment = make_experiment(kind_of(X, given.get("dataset.text")), method, outcomes.cost, given)
    refuse_settings_of_runs(experiment)
    hint_at_prices(experiment, outcomes)
    said = read_said(answers, tuple(outcomes.errors.shape), outcomes.names)
    return train_router(experiment, assemble_given(experiment, X, outcomes, labels, said), outcomes)


@dataclass(frozen=True)
class Outcomes:
    names: tuple[str, ...]
    errors: Tensor  # [n, p]
    prices: Tensor | None  # [p] or [n, p]
    propensities: Tensor | None
    whole: bool  # errors are costs, which may contain prices

    @property
    def by_row(self) -> Tensor | None:
        """The prices, if rows have their own."""
        return None if self.prices is None or self.prices.ndim == 1 else self.prices

    @property
    def cost(self) -> dict[str, Any]:
        """The choice of `cost` in the config."""
        if self.prices is None or self.by_row is not None:
            return {"name": "error" if self.prices is None else "columns"}
        return {"name": "error_plus_cost", "prices": self.prices.tolist()}


def outcomes_of(costs: Any, errors: Any, prices: Any, propensities: Any, experts: Sequence[str] | None) -> Outcomes:
    wrong, _ = read_outcomes(costs, errors, None, gaps=True)
    if (known := int((~wrong.isnan()).any(dim=1).sum())) < 3:  # two to learn from, one to judge on
        raise ParameterError("costs, errors", f"{len(wrong)} rows, {known} of them with an outcome; 3 are needed")
    names = names_of_experts(costs if errors is None else errors, experts, wrong.shape[1])
    wrong, paid = read_outcomes(costs, errors, prices, names, gaps=True)
    propensities = read_propensities(in_order(propensities, names), wrong)
    return Outcomes(names, wrong, paid, propensities, whole=costs is not None)


def refuse_settings_of_runs(experiment: Experiment) -> None:
    logger, evaluation = experiment.logger.name, experiment.settings.evaluation
    for key, given, usual in (("logger", logger, ("csv",)), ("evaluation", evaluation, ("auto", "holdout"))):
        if given not in usual:
            raise ParameterError(key, "is for runs with a folder; use l2d train", given)


def hint_at_prices(experiment: Experiment, outcomes: Outcomes) -> None:
    if outcomes.prices is None:
        return
    p = len(outcomes.names)
    prices, errors = (one.reshape(-1, p).nanmean(0).tolist() for one in (outcomes.prices, outcomes.errors))
    if hint := price_hint(experiment.plain, prices, errors, 'options={"cost.error_price": 0.02}'):
        print(hint, file=sys.stderr)


def assemble_given(experiment: Experiment, X: Any, outcomes: Outcomes, labels: Any, said: Said | None = None) -> Splits:
    encoder = make_dataset(experiment).encoder
    text = experiment.dataset.arguments["text"]
    learned: list[Encoder] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        assert encoder is not None
        learned.append(encoder.fitted(texts))
        return learned[-1].embed(texts)

    try:
        inputs, seen, groups = read_inputs(X, text, None if encoder is None else embed)
    except ParameterError:
        raise
    except L2DError as error:  # such as a missing number: queries would lack it too
        raise ParameterError("X", str(error)) from error
    with under("dataset"):
        agreement = Agreement(experiment.dataset.arguments["agree"])
        replies = None if said is None else said.replies(~outcomes.errors.isnan().numpy(), agreement)
    answers = Answers(outcomes.errors, None, outcomes.by_row, propensities=outcomes.propensities, replies=replies)
    arrays = make_arrays(inputs, seen, groups, outcomes.names, answers, labels)
    arrays = replace(arrays, reading=learned[-1].state if learned else {})
    return assemble_rows(experiment, arrays, "", expert_cache(experiment, renew=False))


def train_router(experiment: Experiment, splits: Splits, outcomes: Outcomes) -> Router:
    """The router, judged on the validation rows: the caller has the test rows."""
    with random_state_kept(), interruptible(), ended_by_signals():
        fitted, judged = fit_in_memory(experiment, splits)
        description = describe(experiment, splits, fitted.router, judged.guard)
        if outcomes.whole:  # their prices are not known apart
            description = replace(description, prices=None)
        weights = {name: value.detach().cpu() for name, value in tensors_of(fitted.router, splits, judged).items()}
        files, network = Path(tempfile.mkdtemp(prefix="l2d-")), fitted.network
        network.keep(files)  # of one that reads text: its tokenizer
        router = router_of(rebuild(experiment, weights, description, network.kept_arguments(files), None))
    if any(files.iterdir()):
        weakref.finalize(router.network, shutil.rmtree, files, ignore_errors=True)
    else:
        files.rmdir()
    rows, listed = splits.validation, None
    if outcomes.prices is not None and outcomes.by_row is None:
        listed = outcomes.prices * router.prices.per_training_price
    if router.description.plan is not None:
        assert rows.answers.replies is not None
        outputs, said = outputs_of(router, rows.inputs), rows.answers.replies
        return replace(router, validation=score_plan(router, outputs, said, rows.answers.errors, rows.prices))
    decisions, from_log = decide_inputs(router, rows.inputs), rows.logged is not None
    score = score_decisions(decisions, rows.costs, outcomes.names, listed, unit=router.prices, from_log=from_log)
    return replace(router, validation=score)
