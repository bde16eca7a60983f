"""A router that sees a column of words: asked from Python, from a file and over HTTP, and its log."""

from pathlib import Path

from tests.router.finished import query_rows, untrained, write_queries
from tests.server.helpers import asking, make_service

from l2d.logs.rows import read_rows
from l2d.router.router import Router

COLUMNS = ("x", "topic=apples", "topic=rivers", "topic=triangles")


def test_words_from_everywhere(tmp_path: Path) -> None:
    run = untrained(tmp_path, "dataset.features=[x,topic]")
    router, rows, log = Router.load(run.path), query_rows("x", "topic"), tmp_path / "log.sqlite"
    assert (router.description.seen.columns, router.description.shape) == (COLUMNS, (4,))
    ranked = [choice.ranking for choice in router.route(run.queries)]
    assert [choice.ranking for choice in router.route(rows)] == ranked
    assert [choice.ranking for choice in router.route_file(write_queries(tmp_path, "x", "topic"))] == ranked
    unknown, zeros = router.route([{"x": 1, "topic": "kings"}]), router.route([[1.0, 0.0, 0.0, 0.0]])
    assert unknown[0].ranking == zeros[0].ranking
    with asking(make_service(run.path, log, explore=0.5)) as client:
        answers = [client.post("/v1/route", json={"features": row}).json() for row in rows]
        for answer in answers:
            client.post("/v1/outcomes", json={"decision_id": answer["decision_id"], "correct": 1.0})
    logged = read_rows(log)
    assert (logged.columns, logged.seen.columns) == (COLUMNS, COLUMNS)
    assert logged.features is not None
    assert logged.features.tolist() == run.queries.tolist()
