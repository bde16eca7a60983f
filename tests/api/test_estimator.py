from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import l2d

pytestmark = [pytest.mark.slow, pytest.mark.measured]
X = np.random.default_rng(0).normal(size=(160, 2))
COSTS = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)


def test_scikit_learns_interface() -> None:
    estimator = l2d.RouterEstimator(epochs=20, seed=3, options={"method.rho.offset": 2})
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "router_")
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert estimator.fit(X, COSTS) is estimator
    assert estimator.experts_ == ("expert 1", "expert 2")
    chosen = estimator.predict(X)
    assert chosen.shape == (160,)
    assert estimator.score(X, COSTS) == pytest.approx(-COSTS[np.arange(160), chosen].mean())
    assert estimator.score(X, COSTS) > -0.15


def test_pipeline_and_search() -> None:
    pipeline = make_pipeline(StandardScaler(), l2d.RouterEstimator(learning_rate=3e-3))
    grid = {"routerestimator__epochs": [1, 15]}
    search = GridSearchCV(pipeline, grid, scoring=l2d.deferral_scorer, cv=2).fit(X * 1000, COSTS)
    assert search.best_params_ == {"routerestimator__epochs": 15}
    assert search.best_score_ > -0.2


def test_labels_for_methods_that_learn_them() -> None:
    estimator = l2d.RouterEstimator("plugin", epochs=15).fit(X, COSTS, labels=X[:, 0] > 0)
    assert estimator.score(X, COSTS) > -0.15


def test_the_parameters_are_those_of_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same defaults, but for the bar, and each is handed on."""
    own, of_fit = (
        {name: one.default for name, one in signature(of).parameters.items()} for of in (l2d.RouterEstimator, l2d.fit)
    )
    assert own.items() - of_fit.items() == {("progress", False)}
    given: dict[str, Any] = dict(zip(own, range(len(own)), strict=True))
    seen: dict[str, Any] = {}

    def fit(*_: Any, **said: Any) -> SimpleNamespace:
        seen.update(said)
        return SimpleNamespace(experts=())

    monkeypatch.setattr("l2d.api.estimator.fit", fit)
    l2d.RouterEstimator(**given).fit(X, COSTS, labels="some")
    assert seen == {**given, "labels": "some"}
