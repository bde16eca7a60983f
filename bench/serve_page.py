"""The picture of the page that `l2d serve` shows, docs/pictures/serve.png: python bench/serve_page.py

Queries, models and the hour are simulated. A router is trained on them, a log is written as if it had served for an hour, and a
headless Chromium looks at the page of a server with both. A minute on two cores.
"""

import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import l2d
from chromium import BROWSER, chromium
from l2d.logs.decision import Decision, ReportedOutcome, id_at
from l2d.logs.operations import add_decisions, add_outcomes
from l2d.logs.outcome_log import OutcomeLog
from l2d.router.router import Router
from records import ROOT
from serve import server

PICTURE = ROOT / "docs" / "pictures" / "serve.png"
MODELS, PRICES = ("small", "medium", "large"), (0.01, 0.06, 0.2)
# Words of a topic, and the chance that each model is right there.
TOPICS = {
    "greeting poem story birthday joke rhyme cheerful short": (0.93, 0.95, 0.96),
    "sort list python function loop string file parse": (0.55, 0.88, 0.94),
    "prove integral theorem matrix eigenvalue limit series converge": (0.2, 0.45, 0.9),
}
QUERIES, HOUR, EXPLORE, JUDGED = 3000, 1500, 0.05, 0.6
ASKED = "Write a function to parse each string in a file"


def simulated(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Queries, and which models are right, bool [n, 3]."""
    words, chances = [text.split() for text in TOPICS], np.array([*TOPICS.values()])
    topics = rng.integers(len(TOPICS), size=n)
    texts = [" ".join(rng.choice(words[topic], 4, replace=False)) for topic in topics]
    return texts, rng.random((n, len(MODELS))) < chances[topics]


def train(folder: Path, rng: np.random.Generator) -> Path:
    """A router that learned from simulated queries, in the folder "router"."""
    texts, right = simulated(QUERIES, rng)
    l2d.fit(texts, errors=~right, prices=PRICES, experts=MODELS, method="linear").save(folder / "router")
    return Path("router")


def write_hour(folder: Path, run: Path, rng: np.random.Generator) -> None:
    """A log as the server would have written it, busier in the middle of the hour."""
    texts, right = simulated(HOUR, rng)
    preferred = [choice.expert for choice in Router.load(folder / run).route(texts)]
    drawn = rng.random(HOUR) < EXPLORE
    experts = [rng.choice(MODELS) if one else name for one, name in zip(drawn, preferred, strict=True)]
    ago = np.sort(3600 * rng.beta(1.3, 1.2, size=HOUR))
    log = OutcomeLog(folder / "log.sqlite")
    decisions = []
    for seconds, expert, choice, explored in zip(ago, experts, preferred, drawn, strict=True):
        made: dict[str, Any] = {"run": str(run), "expert": str(expert), "router_choice": choice}
        made |= {"decided_by": "explore" if explored else "router", "price": PRICES[MODELS.index(expert)]}
        name = f"{id_at(time.time() - float(seconds))}{secrets.token_hex(10)}"
        decisions.append(Decision(id=name, propensity=None, **made))
    log.do(add_decisions, decisions).result()
    judged = [
        ReportedOutcome(one.id, float(row[MODELS.index(one.expert)]), None)
        for one, row in zip(decisions, right, strict=True)
        if rng.random() < JUDGED
    ]
    log.do(add_outcomes, judged).result()
    log.close()


if __name__ == "__main__":
    if BROWSER is None:
        raise SystemExit("no Chromium on this machine")
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = train(folder, draw)
        write_hour(folder, run, draw)
        with server(run, folder, f"--explore={EXPLORE}") as (port, _), chromium() as page:
            page.look(1000, 400)
            page.open(f"http://127.0.0.1:{port}/#text={ASKED}")
            page.wait("document.querySelector('#ranking li.chosen') && document.querySelector('#plots svg')")
            page.picture(PICTURE)
            if page.problems:
                raise SystemExit(f"the page reports {page.problems}")
