"""/v1/route and what is behind it: the router itself, asked without a server, is the reference."""

import asyncio
import base64
import io
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient
from tests.router.finished import Untrained, query_rows, untrained
from tests.server.helpers import EXPERTS, PROMPTS, asking, guarded, lively_router, make_service, message_of, rows

import l2d
from l2d.core.guard import Guard
from l2d.logs.decision import Refused
from l2d.router.added import newcomers_of
from l2d.router.router import Router
from l2d.router.trained import outputs_of
from l2d.runs.artifact.drift import InputSummary, standard_distance, summary_tensors
from l2d.server import decisions
from l2d.server.bodies import LONGEST_TEXT, MOST_MESSAGES, last_question, read_image, without_the_middle
from l2d.server.decisions import Batcher, decide_together
from l2d.server.policy import draw_expert
from l2d.utils.errors import L2DError


@pytest.fixture
def client(run: Untrained, tmp_path: Path) -> Iterator[TestClient]:
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as found:
        yield found


def test_one_text(client: TestClient, run: Untrained) -> None:
    [choice] = Router.load(run.path).route(PROMPTS[:1])
    found = client.post("/v1/route", json={"text": PROMPTS[0]}).json()
    assert (found["expert"], found["run"]) == (choice.expert, str(run.path))
    assert [one["expert"] for one in found["ranking"]] == list(choice.ranking)
    for one in found["ranking"]:
        assert one["expected_cost"] == pytest.approx((choice.expected_costs or {})[one["expert"]], rel=1e-5)
        assert one["posterior"] is None
    assert (found["decided_by"], found["propensity"], found["guard"]) == ("router", 1.0, None)


def test_a_ranking_begins_with_the_choice_and_goes_on_by_cost(run: Untrained) -> None:
    router = Router.load(run.path)
    for choice in router.route(PROMPTS):
        costs = choice.expected_costs or {}
        assert choice.ranking == tuple(sorted(costs, key=lambda name: costs[name]))
    router = guarded(router, Guard(None, 2, 2, 0.0, None))
    for before, choice in zip(Router.load(run.path).route(PROMPTS), router.route(PROMPTS), strict=True):
        assert choice.ranking == ("c", *(name for name in before.ranking if name != "c"))
    router = guarded(router, Guard((0.0, 99.0, 50.0), None, 0, 1.0, 0.1))
    assert {choice.ranking for choice in router.route(PROMPTS)} == {("b", "c", "a")}
    router = replace(router, raw=True)
    assert router.route(PROMPTS) == Router.load(run.path).route(PROMPTS)


def test_many_at_other_prices(client: TestClient, run: Untrained) -> None:
    prices = {"a": 0.0, "b": 0.9, "c": 0.9}
    inputs = [{"text": prompt} for prompt in PROMPTS]
    found = client.post("/v1/route", json={"inputs": inputs, "prices": prices}).json()["decisions"]
    expected = Router.load(run.path).at(prices).route(PROMPTS)
    assert [one["expert"] for one in found] == [choice.expert for choice in expected]
    assert len({one["decision_id"] for one in found}) == len(PROMPTS)
    within = client.post("/v1/route", json={"text": PROMPTS[0], "budget": 0.1, "confidence": 0.9}).json()
    assert within["expert"] == "b"  # at 0.1 the only one that is cheap enough


def test_raw_decides_without_the_guard(run: Untrained, tmp_path: Path) -> None:
    router = Router.load(run.path)
    own = router.route(PROMPTS[:1])[0].expert
    other = next(k for k, name in enumerate(EXPERTS) if name != own)
    router = guarded(router, Guard(None, other, other, 0.0, None))
    with asking(make_service(router, tmp_path / "log.sqlite")) as client:
        held = client.post("/v1/route", json={"text": PROMPTS[0]}).json()
        raw = client.post("/v1/route", json={"text": PROMPTS[0], "raw": True}).json()
        assert (held["expert"], raw["expert"]) == (EXPERTS[other], own)
        assert held["guard"].startswith("fallback")
        assert 'l2d_guard_total{action="fallback"} 1.0' in client.get("/metrics").text


def test_rows_of_features(tmp_path: Path) -> None:
    """By column or in the columns' order, which is that of the table: y, flag, x."""
    run = untrained(tmp_path)
    rows = query_rows("x", "y", "flag")
    columns = Router.load(run.path).description.seen.features
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        given = {"inputs": [*({"features": row} for row in rows), {"features": [rows[0][name] for name in columns]}]}
        wrong = client.post("/v1/route", json=given)  # two kinds in one request
        assert wrong.status_code == 422
        given["inputs"].pop()
        found = client.post("/v1/route", json=given).json()["decisions"]
        assert [one["expert"] for one in found] == [one.expert for one in Router.load(run.path).route(rows)]
        alone = client.post("/v1/route", json={"features": [float(rows[0][name]) for name in columns]}).json()
        assert alone["ranking"] == found[0]["ranking"]
        assert "text" in message_of(client.post("/v1/route", json={"text": "hello"}))
        both = {"text": "hello", "features": rows[0]}  # the text would be left unread
        assert "text and features" in message_of(client.post("/v1/route", json=both))
        assert "x" in message_of(client.post("/v1/route", json={"features": {"y": 1, "flag": 0}}))


def test_a_text_beside_features(tmp_path: Path) -> None:
    run = untrained(tmp_path, "dataset.text=prompt", "dataset.features=[x]")
    row = query_rows("x", "prompt")[0]
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        both = client.post("/v1/route", json={"features": row}).json()
        beside = client.post("/v1/route", json={"features": {"x": row["x"]}, "text": row["prompt"]}).json()
    assert both["ranking"] == beside["ranking"]


def test_images() -> None:
    """A PNG is resized and scaled to the white of the training images; pixels are taken as they are."""
    pixels = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    png = base64.b64encode(content.getvalue()).decode()
    expected = np.rint(pixels[..., None] * (16 / 255)).astype(np.uint8)
    assert (read_image(png, (8, 8, 1), 16) == expected).all()
    assert (read_image(f"data:image/png;base64,{png}", (8, 8, 1), 16) == expected).all()
    assert (read_image(expected[..., 0].tolist(), (8, 8, 1), 16) == expected).all()
    assert read_image(png, (4, 2, 3), 255).shape == (4, 2, 3)
    gif = base64.b64encode(b"GIF89a").decode()
    for wrong in ("not base64!", gif, [[17] * 8] * 8, [[1.5] * 8] * 8, [[1], [2, 3]], []):
        with pytest.raises(L2DError, match=r"^image: "):
            read_image(wrong, (8, 8, 1), 16)


def test_messages() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "two"}]
    turns: list[Any] = [("user", "first"), ("user", parts), ("assistant", "x")]
    assert last_question([{"role": role, "content": content} for role, content in turns]) == "one\ntwo"
    picture = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    for message in ({"role": "system", "content": "x"}, {"role": "user"}, {"role": "user", "content": picture}):
        assert last_question([message]) == ""
    assert last_question([{"role": "user", "content": "first"}, {"role": "user", "content": picture}]) == ""


@pytest.mark.parametrize("explore", [0.0, 0.6])
def test_a_query_without_a_text_gets_the_guards_expert(run: Untrained, tmp_path: Path, explore: float) -> None:
    """With its propensity: 1, or 0.4 + 0.6/3 = 0.6. Its inputs are not kept, so nobody learns from them."""
    service = make_service(run.path, tmp_path / "log.sqlite", keep="text", explore=explore)
    best = service.runs.current.router.experts[service.runs.current.router.description.guard.best]
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    inputs = [{"text": " "}, {"messages": [picture]}, {"features": {"prompt": ""}}, {"text": PROMPTS[0]}]
    with asking(service) as client:
        found = client.post("/v1/route", json={"inputs": inputs * 20}).json()["decisions"]
        preview = client.post("/v1/preview", json={"text": ""}).json()
    assert (preview["expert"], preview["guard"].partition(":")[0]) == (best, "unreadable")
    unread, others = [one for k, one in enumerate(found) if k % 4 < 3], found[3::4]
    assert {one["decided_by"] for one in others} == {"router", "explore"} if explore else {"router"}
    assert all(one["ranking"][0]["expert"] == best for one in unread)
    kept = [one for one in unread if one["decided_by"] == "unreadable"]
    assert {one["expert"] for one in kept} == {best}
    assert {round(one["propensity"], 6) for one in kept} == {0.6 if explore else 1.0}
    assert (len(kept) < len(unread)) == bool(explore)
    texts = {row["id"]: row["text"] for row in rows(tmp_path / "log.sqlite")}
    assert {texts[one["decision_id"]] for one in unread} == {None}
    assert {texts[one["decision_id"]] for one in others} == {PROMPTS[0]}


def test_long_texts_lose_their_middle() -> None:
    text = "a" * LONGEST_TEXT + "b"
    assert len(without_the_middle(text)) == LONGEST_TEXT
    assert without_the_middle(text)[-1] == "b"
    assert without_the_middle("short") == "short"


def test_bad_input(client: TestClient) -> None:
    for body, status, said in (
        ({"txt": "a"}, 422, "txt"),
        ({}, 422, "no query"),
        ([], 422, "the body"),
        ({"text": "a", "prices": {"x": 1.0}}, 422, "prices"),
        ({"text": "a", "prices": [1.0]}, 422, "expected 3"),
        ({"text": "a", "prices": {"a": -1.0}}, 422, "prices.a"),
        ({"text": "a", "confidence": 0.9}, 422, "confidence"),
        ({"inputs": []}, 422, "inputs"),
        ({"inputs": [{"text": "a"}] * 1001}, 422, "1000"),
        ({"inputs": [{"text": 1}]}, 422, "inputs.0.text"),
        ({"inputs": [{"text": "a"}], "text": "a"}, 422, "inputs, text"),
        ({"text": "a", "messages": [{"role": "user", "content": "a"}]}, 422, "text and messages"),
        ({"messages": [{"role": "user", "content": "a"}] * 10_000}, 422, f"at most {MOST_MESSAGES}"),
        ({"features": {"prompt": 1}}, 422, "prompt"),
        ({"features": [1.0]}, 422, "prompt"),
        ({"image": "abc"}, 422, "image"),
        (b"{", 400, "not JSON"),
        (b"[" * 100_000, 400, ""),
        (b'{"text": "\xff"}', 400, ""),
        (b'{"text": "\\ud800"}', 422, "UTF-8"),
        (b'{"text": "a", "budget": NaN}', 422, "budget"),
    ):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        found = client.post("/v1/route", content=content, headers={"content-type": "application/json"})
        assert (found.status_code, said in message_of(found)) == (status, True), (body, found.text)
    assert client.post("/v1/route", json={"text": "still there"}).status_code == 200


def test_one_bad_request_harms_no_other(run: Untrained) -> None:
    """Although they share a pass."""
    router = lively_router(run.path)
    good, bad = (router, PROMPTS[:2]), (router, ["\ud800"])
    first, second, third = decide_together([good, bad, good])
    assert isinstance(second, L2DError)
    for found in (first, third):
        assert not isinstance(found, L2DError)
        assert found.choices == router.route(PROMPTS[:2])
    assert len({choice.ranking for choice in router.route(PROMPTS)}) > 1  # else an answer could be anybody's


def test_requests_at_different_prices_share_a_pass(run: Untrained, monkeypatch: pytest.MonkeyPatch) -> None:
    router = lively_router(run.path)
    cheap = router.at([0.0, 0.9, 0.9])
    passes: list[int] = []

    def counted(asked: Router, inputs: torch.Tensor) -> Any:
        passes.append(len(inputs))
        return outputs_of(asked, inputs)

    monkeypatch.setattr(decisions, "outputs_of", counted)
    found: Any = decide_together([(router, PROMPTS[:3]), (cheap, PROMPTS[3:5]), (router, PROMPTS[:1])])
    assert passes == [6]
    expected = [*router.route(PROMPTS[:3]), *cheap.route(PROMPTS[3:5]), *router.route(PROMPTS[:1])]
    assert [one.ranking for part in found for one in part.choices] == [one.ranking for one in expected]
    assert torch.equal(found[2].inputs, found[0].inputs[:1])


def test_concurrent_requests_are_gathered(run: Untrained, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first pass runs, the others come; a pass has at most `most` queries. Every one gets its own answer."""
    router = lively_router(run.path)
    sizes: list[int] = []
    first = threading.Event()

    def slow(asked: Any, own: Any = decide_together) -> Any:
        if not sizes[1:]:
            first.wait(5)
        return own(asked)

    monkeypatch.setattr(decisions, "decide_together", slow)

    async def ask() -> list[Any]:
        batcher = Batcher(4, sizes.append)
        asked = [asyncio.create_task(batcher.ask(router, [prompt])) for prompt in PROMPTS[:10]]
        await asyncio.sleep(0.01)
        first.set()
        found = await asyncio.gather(*asked)
        batcher.stop()
        return found

    found = asyncio.run(ask())
    assert sizes == [4, 4, 2]
    assert [one.choices[0].ranking for one in found] == [one.ranking for one in router.route(PROMPTS[:10])]


def test_too_many_waiting_requests_are_refused(run: Untrained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_WAITING", 2)

    async def ask() -> None:
        batcher = Batcher()  # it does not run
        waiting = [asyncio.create_task(batcher.ask(Router.load(run.path), PROMPTS[:1])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="wait"):
            await batcher.ask(Router.load(run.path), PROMPTS[:1])
        for one in waiting:
            one.cancel()

    asyncio.run(ask())


def test_a_bug_in_a_pass_ends_its_requests_only(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And neither the answer nor the log of the process has the prompt."""

    def broken(asked: Any) -> Any:
        raise ValueError(asked[0][1][0])

    with monkeypatch.context() as patch:
        patch.setattr(decisions, "decide_together", broken)
        found = client.post("/v1/route", json={"text": "SECRET"})
    assert (found.status_code, "ValueError" in message_of(found)) == (500, True)
    assert "SECRET" not in caplog.text + found.text
    assert "ValueError" in caplog.text
    assert client.post("/v1/route", json={"text": "SECRET"}).status_code == 200


class Drawn(random.Random):
    """Draws what it is told."""

    def __init__(self, share: float, place: int) -> None:
        super().__init__()
        self.share, self.place = share, place

    def random(self) -> float:
        return self.share

    def choice(self, seq: Any) -> Any:
        return seq[self.place]


def test_propensities() -> None:
    """With explore = 0.3 and three experts: 0.1 + 0.7 for the preferred one, 0.1 for each other; together 1."""
    found: Any = draw_expert("b", "router", EXPERTS, 0.3, Drawn(0.31, 0))
    assert found == ("b", "router", pytest.approx(0.8))
    for place, (name, chance) in enumerate(zip(EXPERTS, (0.1, 0.8, 0.1), strict=True)):
        found = draw_expert("b", "router", EXPERTS, 0.3, Drawn(0.29, place))
        assert found == (name, "explore", pytest.approx(chance))
    assert draw_expert("b", "router", EXPERTS, 0.0, Drawn(0.0, 0)) == ("b", "router", 1)


def test_half_of_the_draws_are_among_newcomers() -> None:
    """With explore = 0.4, experts a, b, c of whom b and c are new, a preferred: the shares are the propensities."""
    rng, n = random.Random(0), 20_000
    found = [draw_expert("a", "router", EXPERTS, 0.4, rng, ("b", "c")) for _ in range(n)]
    expected = {"a": 0.6 + 0.4 / 6, "b": 0.4 * (1 / 6 + 1 / 4), "c": 0.4 * (1 / 6 + 1 / 4)}
    for name, share in expected.items():
        assert sum(one[0] == name for one in found) / n == pytest.approx(share, abs=0.015)
        assert [one[2] for one in found if one[0] == name][:9] == pytest.approx([share] * 9)


def test_an_added_expert_is_drawn_more_often(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    router = l2d.fit(rows, errors=rows[:, :2] > 0, experts=["a", "b"], method="knn")
    assert newcomers_of(router) == ()
    router = router.with_expert("new", like="a")
    assert newcomers_of(router) == ("new",)
    router.save(tmp_path / "router")
    with asking(make_service(tmp_path / "router", tmp_path / "log.sqlite", explore=1.0)) as client:
        found = client.post("/v1/route", json={"inputs": [{"features": [0.1, 0.2]}] * 600}).json()["decisions"]
    assert sum(one["expert"] == "new" for one in found) / 600 == pytest.approx(2 / 3, abs=0.08)
    assert sorted({round(one["propensity"], 6) for one in found}) == [0.166667, 0.666667]


def test_shares_are_the_propensities(run: Untrained, tmp_path: Path) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite", explore=0.6)) as client:
        own = Router.load(run.path).route(PROMPTS[:1])[0].expert
        found = client.post("/v1/route", json={"inputs": [{"text": PROMPTS[0]}] * 1000}).json()["decisions"]
    share = sum(one["expert"] == own for one in found) / 1000
    assert share == pytest.approx(0.6, abs=0.05)  # 0.4 + 0.6/3; three standard errors are 0.046
    for one in found:
        assert one["propensity"] == pytest.approx(0.6 if one["expert"] == own else 0.2)


def test_shadow(run: Untrained, tmp_path: Path) -> None:
    """One expert answers; the ranking is the router's."""
    with asking(make_service(run.path, tmp_path / "log.sqlite", shadow="c")) as client:
        found = client.post("/v1/route", json={"inputs": [{"text": prompt} for prompt in PROMPTS]}).json()["decisions"]
    assert {(one["expert"], one["decided_by"], one["propensity"]) for one in found} == {("c", "shadow", 1.0)}
    expected = [choice.expert for choice in Router.load(run.path).route(PROMPTS)]
    assert [one["ranking"][0]["expert"] for one in found] == expected


def test_distances() -> None:
    """Rows (0, 5) and (2, 5): mean (1, 5), std (√2, 0). The second column is constant and counts in its own units.
    d = √((((x − 1)/√2)² + (y − 5)²)/2): of the rows √(0.5/2) = 0.5, of (1, 7) √(4/2)."""
    rows = torch.tensor([[0.0, 5.0], [2.0, 5.0]])
    summary: Any = InputSummary.of(rows)
    assert standard_distance(rows, summary.mean, summary.std).tolist() == pytest.approx([0.5, 0.5])
    far = torch.tensor([[1.0, 7.0], [1.0, 5.1]])
    assert standard_distance(far, summary.mean, summary.std)[0] == pytest.approx(2**0.5)
    # Each row by the other one alone, which has no spread of its own: √((2/√2)²/2).
    assert float(summary.limit) == pytest.approx(1)
    assert summary.far(torch.tensor([[1.0, 7.1], [1.0, 5.9]])).tolist() == [True, False]
    assert InputSummary.of(torch.zeros(5, 4, 4, 1, dtype=torch.uint8)) is None


def test_the_limit_against_a_slow_reference() -> None:
    """Each row by mean and standard deviation of the rows of the other folds."""
    rows = 100 + torch.randn(203, 4, generator=torch.Generator().manual_seed(0))
    source = torch.full((300, 4), torch.inf)
    source[50:253] = rows
    found: Any = InputSummary.of(source, torch.arange(50, 253))
    fold = torch.arange(203) % 5
    others = [rows[fold != k] for k in fold]
    pairs = zip(rows, others, strict=True)
    distances = [float(standard_distance(row[None], other.mean(dim=0), other.std(dim=0))) for row, other in pairs]
    assert float(found.limit) == pytest.approx(sorted(distances)[int(0.99 * 203) - 1], rel=1e-5)


def test_rare_values_do_not_hide_what_is_far() -> None:
    """40 of 60 columns are 0 but in one row of 1,000, where they are 10,000."""
    rows = torch.randn(1000, 60, generator=torch.Generator().manual_seed(0))
    rows[:, 20:] = 0
    rows[torch.arange(40) * 23, 20 + torch.arange(40)] = 10_000
    found: Any = InputSummary.of(rows)
    wide = torch.zeros(100, 60)
    wide[:, :20] = 20 * rows[:100, :20]
    assert float(found.far(wide).double().mean()) > 0.9


@pytest.mark.parametrize(("rows", "columns"), [(100, 60), (1000, 4)])
def test_new_rows_like_the_old_ones_are_seldom_far(rows: int, columns: int) -> None:
    """Also if there are few rows with many columns: by their own spread, many more would be."""
    draw = torch.Generator().manual_seed(1)
    found: Any = InputSummary.of(torch.randn(rows, columns, generator=draw))
    share = float(found.far(torch.randn(20_000, columns, generator=draw)).double().mean())
    assert 0.001 < share < 0.03


def test_beyond_the_drift_limit_the_guards_expert_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained(tmp_path)
    router = Router.load(run.path)
    router = replace(router, training_inputs=InputSummary.of(run.splits.train.inputs))
    router = guarded(router, replace(router.description.guard, best=1))
    near, far = query_rows("x", "y", "flag")[0], {"x": 1e4, "y": 0, "flag": 0}
    with asking(make_service(router, tmp_path / "log.sqlite", drift_limit=0.5)) as client:

        def ask(row: dict[str, Any], times: int) -> list[dict[str, Any]]:
            answer = client.post("/v1/route", json={"inputs": [{"features": row}] * times}).json()
            return list(answer["decisions"])

        assert {one["decided_by"] for one in ask(far, 199)} == {"router"}  # too few to say
        assert "l2d_far_share NaN" in client.get("/metrics").text
        [changed] = ask(far, 1)
        assert (changed["expert"], changed["decided_by"], changed["propensity"]) == ("b", "drift", 1.0)
        assert "l2d_far_share 1.0" in client.get("/metrics").text
        assert ask(near, 200)[0]["decided_by"] == "drift"  # half of 400 are far, which is not clearly less
        assert ask(near, 100)[0]["decided_by"] == "router"
    begins, ends = (line for line in capsys.readouterr().err.splitlines() if line.startswith("drift: "))
    assert ("100%" in begins, " b " in begins, "40%" in ends) == (True, True, True)


def test_a_summary_is_read_from_the_run_and_saved_with_it(tmp_path: Path) -> None:
    rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    router = Router.load(untrained(tmp_path, kept=summary_tensors(rows)).path)
    assert Router.load(untrained(tmp_path, "seed=1").path).training_inputs is None
    router.save(tmp_path / "saved")
    expected: Any = InputSummary.of(rows)
    for found in (router.training_inputs, Router.load(tmp_path / "saved").training_inputs):
        assert all(torch.equal(getattr(found, name), value) for name, value in vars(expected).items())
    assert summary_tensors(torch.zeros(5, 4, 4, 1, dtype=torch.uint8)) == {}
