"""A router as a scikit-learn estimator."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from l2d.api.fit import fit
from l2d.data.given import as_array, read_amounts, read_outcomes, refuse_other_order
from l2d.methods.method import Method
from l2d.router.router import Router
from l2d.utils.errors import ParameterError

# Parameters of the estimator that are keys of `l2d train`.
KEYS = {name: name for name in ("router", "validation_fraction", "progress", "seed")}
KEYS |= {"epochs": "recipe.epochs", "batch_size": "recipe.batch_size", "learning_rate": "recipe.optimizer.lr"}
KEYS |= {"accelerator": "trainer.accelerator"}


class RouterEstimator(BaseEstimator):
    """A router with scikit-learn's interface: costs [n, p] are the target, predictions are numbers of experts, counted from 0.

    X must have no NaN: fill it in before. NaN in y means that the expert was not asked, as in `l2d.fit`; a score needs all costs.

    Args:
        method: The loss, as for `l2d.fit`.
        router: The network, a name of `l2d train --help`.
        epochs: Passes over the rows.
        batch_size: Rows per step.
        learning_rate: Of the optimizer.
        validation_fraction: The share of the rows that is held out for the guard.
        seed: Of everything drawn.
        accelerator: auto, cpu or gpu.
        progress: Whether to show a progress bar.
        options: Any other key of `l2d train`.

    Example:
        >>> import numpy as np, l2d
        >>> from sklearn.model_selection import GridSearchCV
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 2))
        >>> costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)
        >>> search = GridSearchCV(l2d.RouterEstimator(), {"epochs": [1, 20]}, scoring=l2d.deferral_scorer, cv=2)
        >>> search.fit(X, costs).best_params_
        {'epochs': 20}
    """

    def __init__(
        self,
        method: str | type[Method] = "mild",
        router: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.1,
        seed: int = 0,
        accelerator: str = "auto",
        progress: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.method, self.router, self.epochs, self.batch_size = method, router, epochs, batch_size
        self.learning_rate, self.validation_fraction, self.seed = learning_rate, validation_fraction, seed
        self.accelerator, self.progress, self.options = accelerator, progress, options

    def fit(self, X: Any, y: Any, labels: Any = None) -> "RouterEstimator":
        """Train on inputs X and costs y [n, p], NaN where an expert was not asked."""
        given = self.get_params()
        keys = {key: given[name] for name, key in KEYS.items() if given[name] is not None}
        options = {**keys, **(self.options or {})}
        self.router_: Router = fit(X, y, labels=labels, method=self.method, options=options)
        self.experts_ = self.router_.experts
        few = bool(read_amounts("y", y, gaps=True).isnan().any())  # known outcomes: the guard often falls back
        if few and self.router_.guard_note:
            print(self.router_.guard_note, file=sys.stderr)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The number of the chosen expert for each input, counted from 0."""
        check_is_fitted(self)
        return self.router_.decide(X).numpy()

    def score(self, X: Any, y: Any) -> float:
        """Minus the deferral loss, so that more is better."""
        return deferral_scorer(self, X, y)


def deferral_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Minus the mean cost of what an estimator predicts, for `scoring=` of scikit-learn's searches. y: costs [n, p]. The columns of
    a DataFrame go by name, if the estimator itself, not a pipeline around it, is given."""
    refuse_other_order(X, y=y)
    names = getattr(estimator, "experts_", ())
    costs, _ = read_outcomes(y, None, None, names, gaps=True)
    if names and costs.shape[1] != len(names):
        raise ParameterError("y", f"must have {len(names)} columns, one for each expert", list(costs.shape))
    if costs.isnan().any():
        raise ParameterError("y", "has NaN, and a score needs the costs of all experts; score rows that have them")
    chosen = as_array(estimator.predict(X), "predictions")
    if len(chosen) != len(costs):
        raise ParameterError("y", f"{len(costs):,} rows of costs, but X has {len(chosen):,}")
    return -float(costs.numpy()[np.arange(len(chosen)), chosen].mean())
