"""The rival of `bench/auto.py speed`: the same work on rows.parquet by plain scikit-learn."""

import warnings
from typing import Any

import numpy as np
from pyarrow import parquet
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FIFTH = ShuffleSplit(1, test_size=0.2)
MIXED: dict[str, Any] = {
    "ridge": RidgeCV(np.logspace(-1, 6, 8)),
    "knn": GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [20, 100, 400]}, cv=FIFTH),
    "label": GridSearchCV(LogisticRegression(max_iter=200, tol=1e-2), {"C": [0.001, 0.01, 0.1]}, cv=FIFTH),
}
OTHERS = {f"clusters {k}": KMeans(k, n_init=1, max_iter=20) for k in (8, 16, 32, 64)}
OTHERS["network"] = MLPRegressor(hidden_layer_sizes=(128,), batch_size=256, max_iter=15)


def plain(most: int, others: bool) -> None:
    """Five folds and all rows: each candidate in three folds on at most so many rows, then the members of a mixture on all."""
    warnings.simplefilter("ignore")  # not converged
    rows = {name: np.array(column) for name, column in parquet.read_table("rows.parquet").to_pydict().items()}
    right, topics = np.stack([rows.pop(f"correct_{name}") for name in "abc"], axis=1), rows.pop("topic", None)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=8_192)
    reader = make_pipeline(words, TruncatedSVD(64))
    inputs = reader.fit_transform(rows["query"]) if "query" in rows else np.stack([*rows.values()], axis=1)
    inputs = StandardScaler().fit_transform(inputs)
    for train in [*(train for train, _ in KFold(5, shuffle=True).split(inputs)), np.arange(len(inputs))]:
        for name, model in (MIXED | (OTHERS if others else {})).items():
            wanted = topics if name == "label" else right
            if wanted is not None:
                cross_val_predict(model, inputs[train[:most]], wanted[train[:most]], cv=3)
                if name in MIXED:
                    model.fit(inputs[train], wanted[train]).predict(inputs[::5])
