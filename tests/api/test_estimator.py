from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import l2d
from l2d.utils.errors import L2DError, ParameterError

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
    turned = pd.DataFrame(COSTS, columns=estimator.experts_)[["expert 2", "expert 1"]]
    assert estimator.score(X, turned) == estimator.score(X, COSTS)
    with pytest.raises(L2DError, match=r"^y=.*columns"):
        estimator.score(X, np.zeros((160, 3)))


def test_pipeline_and_search() -> None:
    pipeline = make_pipeline(StandardScaler(), l2d.RouterEstimator(learning_rate=3e-3))
    grid = {"routerestimator__epochs": [1, 15]}
    search = GridSearchCV(pipeline, grid, scoring=l2d.deferral_scorer, cv=2).fit(X * 1000, COSTS)
    assert search.best_params_ == {"routerestimator__epochs": 15}
    assert search.best_score_ > -0.2


def test_each_parameter_reaches_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its key; those that were not given are left to the recipe. Options win."""
    seen: dict[str, Any] = {}

    def fit(*_: Any, **said: Any) -> SimpleNamespace:
        seen.update(said)
        return SimpleNamespace(experts=())

    monkeypatch.setattr("l2d.api.estimator.fit", fit)
    l2d.RouterEstimator().fit(X, COSTS)
    defaults = {"validation_fraction": 0.1, "trainer.accelerator": "auto", "progress": False, "seed": 0}
    assert seen == {"labels": None, "method": "mild", "options": defaults}
    own = {"router": "mlp", "epochs": 3, "batch_size": 5, "learning_rate": 0.5, "validation_fraction": 0.2}
    more = {"accelerator": "cpu", "progress": True, "options": {"recipe.epochs": 9, "sampling": "none"}}
    l2d.RouterEstimator("ce", seed=7, **own, **more).fit(X, COSTS, labels="some")  # type: ignore[arg-type]
    keys = {"router": "mlp", "recipe.batch_size": 5, "recipe.optimizer.lr": 0.5, "validation_fraction": 0.2}
    keys |= {"trainer.accelerator": "cpu", "progress": True, "recipe.epochs": 9, "sampling": "none", "seed": 7}
    assert seen == {"labels": "some", "method": "ce", "options": keys}


@pytest.mark.parametrize("kind", [np.array, np.ndarray.tolist])
def test_missing_numbers_are_refused(kind: Any) -> None:
    """In X when it learns and when it predicts; in y when it scores."""
    holes = X.copy()
    holes[7, 1] = np.nan
    with pytest.raises(ParameterError, match=r"^X: .*8: column 2"):
        l2d.RouterEstimator(epochs=1).fit(kind(holes), COSTS)
    fitted = l2d.RouterEstimator(epochs=1).fit(X, COSTS)
    with pytest.raises(L2DError, match="8: column 2"):
        fitted.predict(kind(holes))
    with pytest.raises(ParameterError, match=r"^y: "):
        fitted.score(X, np.where(np.isnan(holes[:, 1:]), np.nan, COSTS))


def test_missing_costs_were_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """It learns from the others; that it falls back to one expert is said."""
    asked = np.random.default_rng(1).random(COSTS.shape) < 0.7
    one = l2d.RouterEstimator("knn").fit(X, np.where(asked, COSTS, np.nan))
    assert one.score(X, COSTS) > -0.2
    assert "guard" not in capsys.readouterr().err
    chance = np.random.default_rng(2).integers(0, 2, COSTS.shape).astype(float)
    lost = l2d.RouterEstimator("knn").fit(X, np.where(asked, chance, np.nan))
    assert lost.router_.description.guard.constant is not None
    assert "guard" in capsys.readouterr().err
