"""What `method=auto`, the default of tables and logs, is worth, and what it costs. Writes bench/results/auto.csv.

python bench/auto.py sets --runs-dir RUNS_DIR --mmlu TABLE --routerdc TABLE --zeroeval TABLE
python bench/auto.py fair    # tables on which no router can gain; `speed`: beside plain scripts of the same work
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from benchmarks import Judged, at_prices, judged_run, method_words
from l2d.assembly.fingerprints import with_fingerprints
from l2d.config import check, compose
from l2d.core.costs import paid
from l2d.core.guard import paired
from l2d.data.sheet import read_sheet, write_sheet
from l2d.data.splits import with_test_fold
from l2d.networks.estimators.best import Best
from l2d.networks.estimators.estimator import FitRows
from l2d.training.cross_validation import FOLDS, fold_rows
from l2d.utils.seeding import derive_seed
from l2d.utils.text import Z
from records import MADE, ROOT, Results, Row, about, given_paths, markdown, mean_of, origin
from rows import write_texts
from startup import Case, run

FIGURES = "n single own gain error more more_error seconds cpu load"
RESULTS = Results("auto", "what case method seed", f"{FIGURES} {MADE}", compared=FIGURES)
SINGLE = ("clusters", "linear", "linear_plugin", "knn", "mix", "mix, by label", "cost_regression", "label_regression")
HASHED, PLAIN = "auto, router=hashed", "TF-IDF, SVD(20), k-means(20)"
FAIR, FAIR_ROWS = 40, 400
LLAMA = ("llama-3-70b", "llama-2-13b", "llama-2-7b")
MIXTRAL = ("mixtral-8x22b", "mixtral-8x7b-instruct", "mistral-7b-v0.1")
ZEROEVAL = ("gemini-1.5-flash", "gpt-4o-mini-2024-07-18", "claude-3-5-sonnet-20241022", "o1-mini-2024-09-12")
# The option with the file, the columns of the text and of the topic, the models' columns and prices.
TABLES: dict[str, tuple[str, str, str, Sequence[str], Sequence[float]]] = {
    "MMLU, llama": ("mmlu", "prompt", "subject", LLAMA, (0.3, 0.15, 0)),
    "MMLU, mixtral": ("mmlu", "prompt", "subject", MIXTRAL, (0.2, 0.1, 0)),
    "RouterDC": ("routerdc", "prompt", "task", (), (0,) * 7),
    "ZeroEval": ("zeroeval", "question", "task", [f"correct_{one}" for one in ZEROEVAL], (0.005, 0.01, 0.15, 0.15)),
}
HEAD = ["table", "rows", "best single model", "`auto`", "best single method", "`auto` less that, ± one standard error"]
HEAD += ["with hashed text; `auto` less that", f"{PLAIN}, scikit-learn; `auto` less that"]
SPEED_HEAD = ("cross-validated", "rows", "aim", "wall; CPU", "a plain script: wall; CPU", "ratio of CPU", "load")
TEXT, PRICED = "auto, text", "cost.prices=[0.1,0.05,0]"
PLAINLY = "import plain_rows; plain_rows.plain({})"
BARE = "import rows; [rows.bare(n, 384, 20) for n in [7_200] * 5 + [9_000]]"
# The aim in seconds, rows, what `l2d train` is told, and the plain script.
SPEED = {
    "mix, by label": (25, 12_000, ["method=mix", "method.by_label=true"], PLAINLY.format("12_000, False")),
    "auto": (60, 12_000, ["method=auto"], PLAINLY.format("4_000, True")),
    "cost_regression, 20 epochs": (9, 10_000, ["method=cost_regression"], BARE),
    TEXT: (10, 2_000, ["method=auto"], PLAINLY.format("4_000, True")),
}


def on_sets(options: argparse.Namespace) -> Iterator[Row]:
    for case, (name, text, topic, models, prices) in TABLES.items():
        file, auto = without_split(getattr(options, name), options.runs_dir), None
        for method in ("auto", *SINGLE, HASHED, PLAIN):
            words = ["dataset=table", f"dataset.path={file}", f"dataset.text={text}", f"dataset.label={topic}"]
            words += [f"dataset.experts=[{','.join(models)}]"] if models else []
            priced = ["cost=error_plus_cost", f"cost.prices=[{','.join(map(str, prices))}]"]
            words += priced if any(prices) else ["cost=error"]
            if method == PLAIN:
                found = k_means(words, text, prices)
            else:
                words += ["method=auto", "router=hashed"] if method == HASHED else method_words(method)
                found = judged_run([*words, f"runs_dir={options.runs_dir}", "progress=false"], [])
            auto = auto or found
            shown = " ".join(word for word in words if not word.startswith("dataset.path="))
            yield keys("set", case, method) | figures(found, auto) | about(f"l2d train {shown}")


def without_split(file: Path, runs_dir: Path) -> Path:
    """A copy without the column split, so that all rows are cross-validated."""
    sheet = read_sheet(file)
    write_sheet(
        runs_dir / file.name, {name: cells.to_pylist() for name, cells in sheet.columns.items() if name != "split"}
    )
    return runs_dir / file.name


def keys(what: str, case: str, method: str, seed: int = 0) -> Row:
    return {"what": what, "case": case, "method": method, "seed": str(seed)}


def figures(found: Judged, auto: Judged) -> Row:
    """Gains over the best single expert, by itself and guarded, and how much more auto costs, both guarded."""
    costs, best = found.costs, found.costs[:, int(found.costs.mean(dim=0).argmin())]
    guarded, own = paid(costs, found.guarded), (best - paid(costs, found.decisions)).mean()
    values = (best.mean(), own, *paired(best - guarded), *paired(paid(costs, auto.guarded) - guarded))
    names = ("single", "own", "gain", "error", "more", "more_error")
    return {"n": str(len(costs))} | {name: f"{value:.6f}" for name, value in zip(names, values, strict=True)}


def k_means(words: Sequence[str], text: str, prices: Sequence[float]) -> Judged:
    """The mean errors of the training rows of the same cluster, in the folds of `l2d train`; scikit-learn alone."""
    experiment = with_fingerprints(check(compose([*words, "method=auto"])))
    whole, sheet = fold_rows(experiment).whole, read_sheet(Path(experiment.dataset.arguments["path"]))
    assert whole.panel is not None and whole.train_ids is not None  # noqa: PT018
    ids = sheet.words("id") if "id" in sheet.columns else [str(1 + row) for row in range(len(sheet))]
    by_id = dict(zip(ids, sheet.texts(text), strict=True))
    errors, texts = whole.panel.train.errors.double(), np.array([by_id[str(one)] for one in whole.train_ids])
    expected = torch.zeros_like(errors)
    for number in range(1, FOLDS + 1):
        _, own = with_test_fold(whole, f"{number}/{FOLDS}", derive_seed(experiment.settings.seed, "test folds"))
        others = np.setdiff1d(np.arange(len(errors)), own)
        clusters = make_pipeline(TfidfVectorizer(), TruncatedSVD(20, random_state=0), KMeans(20, random_state=0))
        learned, known = torch.from_numpy(clusters.fit_predict(texts[others])), errors[others]
        table = torch.stack([known[learned == one].mean(dim=0) for one in range(20)])
        expected[own] = table[torch.from_numpy(clusters.predict(texts[own])).long()]
    return at_prices(errors, expected, torch.tensor(prices, dtype=torch.float64))


def fair() -> Iterator[Row]:
    """Queries are harder or easier, and for all three experts alike: error plus price is the same for each, so that the true gain
    of any router is 0."""
    torch.set_num_threads(1)
    prices = torch.tensor([0.2, 0.1, 0.0], dtype=torch.float64)
    for seed in range(FAIR):
        draw = torch.Generator().manual_seed(seed)
        inputs = torch.randn(FAIR_ROWS, 6, generator=draw)
        chances = 0.1 + 0.4 * torch.sigmoid(2 * inputs[:, :1]) + 0.2 - prices
        errors = (torch.rand(FAIR_ROWS, 3, generator=draw, dtype=torch.float64) < chances).double()
        rows, expected = FitRows(inputs, 1 - errors, torch.full((FAIR_ROWS,), -1), prices), torch.zeros_like(errors)
        for own in torch.arange(FAIR_ROWS).tensor_split(FOLDS):
            others = torch.ones(FAIR_ROWS, dtype=torch.bool).index_fill(0, own, False)
            with torch.no_grad():
                (estimator := Best(60)).fit(rows.take(others))
                expected[own] = 1 - estimator(inputs[own]).double()
        found = at_prices(errors, expected, prices)
        yield keys("fair", "true gain 0", "auto", seed) | figures(found, found) | about("python bench/auto.py fair")


def write_rows(file: Path, n: int) -> None:
    """Simulated: 14 topics, 384 features, three experts."""
    rng = np.random.default_rng(0)
    topics = rng.integers(14, size=n)
    features = rng.normal(size=(14, 384))[topics] * 0.35 + rng.normal(size=(n, 384))
    logits = rng.normal(size=(14, 3))[topics] + features @ rng.normal(size=(384, 3)) / 384**0.5
    right = (rng.random((n, 3)) < 1 / (1 + np.exp(-logits))).astype(float)
    columns = {f"f{i}": column for i, column in enumerate(features.T.astype(np.float32).tolist())}
    write_sheet(
        file,
        columns | {"topic": topics.tolist()} | {f"correct_{one}": right[:, k].tolist() for k, one in enumerate("abc")},
    )


def speed() -> Iterator[Row]:
    made = about(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 2)} python bench/auto.py speed")
    for case, (_, n, words, script) in SPEED.items():
        with tempfile.TemporaryDirectory() as name:
            (write_texts if case == TEXT else write_rows)(Path(name, "rows.parquet"), n)
            seen = "dataset.text=query" if case == TEXT else "dataset.label=topic"
            told = ("train", "dataset=table", "dataset.path=rows.parquet", seen, "cost=error_plus_cost", PRICED, *words)
            script = f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); {script}"
            both = {"l2d": Case(case, ("l2d", *told)), "plain": Case(case, ("python", "-c", script))}
            for method, command in both.items():
                load = os.getloadavg()[0]
                seconds, cpu, *_ = run(command, Path(name))
                measured = {"n": str(n), "seconds": f"{seconds:.1f}", "cpu": f"{cpu:.1f}", "load": f"{load:.1f}"}
                yield keys("speed", case, method) | measured | made


def table(rows: Sequence[Row]) -> str:
    return "\n\n".join([sets_table(rows), fair_line([row for row in rows if row["what"] == "fair"]), speed_table(rows)])


def sets_table(rows: Sequence[Row]) -> str:
    lines, used = [], [row for row in rows if row["what"] == "set"]
    for case in TABLES:
        by = {row["method"]: row for row in used if row["case"] == case}
        auto, best = by["auto"], max((by[name] for name in SINGLE if name in by), key=lambda row: float(row["gain"]))
        shown = [interval(by["auto"]), f"`{best['method']}` {interval(best)}", difference(best)]
        more = [f"{float(by[name]['gain']):+.4f}; {difference(by[name])}" for name in (HASHED, PLAIN)]
        lines.append([case, f"{int(auto['n']):,}", f"{float(auto['single']):.4f}", *shown, *more])
    return f"{markdown(HEAD, lines)}\n\n(`python bench/auto.py sets`; {origin(used, 'machine versions', ', ')})"


def interval(row: Row) -> str:
    return f"{float(row['gain']):+.4f} ± {Z * float(row['error']):.4f}"


def difference(row: Row) -> str:
    """Of what auto gains and the row's method."""
    return f"{-float(row['more']):+.4f} ± {float(row['more_error']):.4f}"


def fair_line(rows: Sequence[Row]) -> str:
    """The guarded gain of tables on which the true gain is 0."""
    gains = [float(row["gain"]) for row in rows]
    mean, error = paired(torch.tensor(gains, dtype=torch.float64))
    inside = sum(abs(float(row["gain"])) <= Z * float(row["error"]) for row in rows)
    text = f"**With a true gain of 0** ({len(rows)} simulated tables of {rows[0]['n']} rows, six features, three experts): "
    text += f"the mean gain of `auto` is {mean_of(rows, 'own'):+.4f} by itself and {mean:+.4f} ± {error:.4f} (standard error) "
    text += f"with the guard; {inside} of {len(rows)} intervals (95 %) cover 0; {sum(not gain for gain in gains)} gains are "
    made = f"`{rows[0]['command']}`; {origin(rows, 'machine versions', ', ')}"
    return f"{text}exactly 0, all rows with the best single expert. ({made})"


def speed_table(rows: Sequence[Row]) -> str:
    lines, used = [], [row for row in rows if row["what"] == "speed"]
    for case, (aim, n, *_) in SPEED.items():
        ours, plain = (next(r for r in used if (r["case"], r["method"]) == (case, one)) for one in ("l2d", "plain"))
        figures = [f"{one['seconds']} s; {one['cpu']} s" for one in (ours, plain)]
        ratio = f"{float(ours['cpu']) / float(plain['cpu']):.2f}"
        lines.append([case, f"{n:,}", f"{aim:g} s", *figures, ratio, f"{ours['load']}, {plain['load']}"])
    commands = "`, `".join(sorted({row["command"] for row in used}))
    return f"{markdown(SPEED_HEAD, lines)}\n\n(Threads: `{commands}`; {origin(used, 'machine versions', ', ')})"


if __name__ == "__main__":
    paths = ("--runs-dir", "--mmlu", "--routerdc", "--zeroeval")
    options = given_paths(__doc__, *paths, what=("sets", "fair", "speed"))
    for row in {"sets": lambda: on_sets(options), "fair": fair, "speed": speed}[options.what]():
        RESULTS.add([row])
