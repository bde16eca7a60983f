"""The page in a headless Chromium: what it shows, what it asks for, and that it is readable."""

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.router.finished import Untrained, trained, untrained
from tests.router.test_router import DIGITS, spread_errors
from tests.server.chromium import BROWSER, Chromium, chromium
from tests.server.helpers import PROMPTS, listening, lively_router, make_service, text_run
from tests.server.test_page import decided

from l2d.core.guard import HeldOut
from l2d.logs.decision import ReportedOutcome
from l2d.logs.operations import add_decisions, add_outcomes
from l2d.logs.outcome_log import OutcomeLog
from l2d.router.router import Router
from l2d.server.served import ServedRun

pytestmark = [pytest.mark.full, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]

READY = "!document.getElementById('main').hidden"
RANKED = "document.querySelector('#ranking li.chosen')"
NAMES = "[...document.querySelectorAll('#ranking li')].map((line) => line.querySelector('.name').textContent)"
RANKS = "[...document.querySelectorAll('#ranking li')].map((line) => line.querySelector('.rank').textContent)"
GUARD = "document.getElementById('guard').textContent"
FITTED = f"!{GUARD}.includes('being fitted')"
COSTS = "[...document.querySelectorAll('.cost')].map((one) => one.textContent)"
CHOSEN = "document.getElementById('chosen').textContent"
# Of every text that is seen: how far its colour is from what is behind it, by WCAG 2.
CONTRAST = """(() => {
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const found = numbers(getComputedStyle(node).backgroundColor); if (found.length < 4 || found[3] > 0) return found.slice(0, 3); } return [255, 255, 255]; };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !parent.checkVisibility() || ["SCRIPT", "STYLE", "TITLE"].includes(parent.tagName.toUpperCase())) continue;
    const style = getComputedStyle(parent), front = numbers(parent.ownerSVGElement ? style.fill : style.color).slice(0, 3);
    const [one, other] = [light(front), light(behind(parent))].sort((a, b) => b - a);
    found.push([(one + .05) / (other + .05), walker.currentNode.textContent]);
  }
  return found;
})()"""


# Of every expert: how far its price's field is beyond the bar above it, and how many lines the label of the price has.
PRICE_FIELDS = """[...document.querySelectorAll('#ranking li')].map((line) => {
  const right = (name) => line.querySelector(name).getBoundingClientRect().right, label = line.querySelector('.slide span');
  return [right('input[type=number]') - right('.bar'), label.getClientRects()[0].height / parseFloat(getComputedStyle(label).lineHeight)];
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Chromium) -> Chromium:
    browser.look(1100, 900)
    browser.problems.clear()
    browser.requests.clear()
    return browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return text_run(tmp_path_factory.mktemp("run"))


def slide(expert: str, price: float) -> str:
    """As a user does: the slider tells of its new value."""
    slider = f"document.querySelector('input[type=range][aria-label={json.dumps(f'price of {expert}')}]')"
    return f"{slider}.value = {price}; {slider}.dispatchEvent(new Event('input'))"


def write_hour(file: Path, *experts: str) -> None:
    """Ten decisions for each expert over the last half hour; five have an outcome, one of them wrong."""
    log = OutcomeLog(file)
    decisions = [decided(time.time() - 180 * step, expert, 0.25) for expert in experts for step in range(10)]
    log.do(add_decisions, decisions).result()
    log.do(
        add_outcomes,
        [
            ReportedOutcome(one.id, float(place % 10 != 0), None)
            for place, one in enumerate(decisions)
            if place % 2 == 0
        ],
    ).result()
    log.close()


def test_a_query_is_ranked_as_it_is_typed(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    """Nothing is loaded but from the server, and nothing is logged."""
    router = lively_router(run.path)
    with listening(make_service(router, tmp_path / "log.sqlite")) as url:
        page.open(url)
        page.wait(READY)
        assert "No decisions in the last hour." in page.run("document.body.innerText")
        assert page.run("document.getElementById('answer').hidden")
        for prompt in PROMPTS[:3]:
            [choice] = router.route([prompt])
            page.type_into("query", prompt)
            page.wait(f"{RANKED} && {CHOSEN} === {json.dumps(choice.expert)}")
            page.wait(f"JSON.stringify({NAMES}) === {json.dumps(json.dumps(choice.ranking, separators=(',', ':')))}")
            assert page.run(RANKS) == ["1", "2", "3"]
            assert page.run(COSTS) == [f"cost {(choice.expected_costs or {})[name]:.3f}" for name in choice.ranking]
        page.type_into("query", " ")
        page.wait("document.getElementById('answer').hidden")
        assert {request.rpartition("/")[0] for request in page.requests} <= {url, f"{url}/v1"}
    assert page.problems == []
    with contextlib.closing(sqlite3.connect(tmp_path / "log.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM decisions").fetchone() == (0,)


def test_a_link_holds_a_query(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    with listening(make_service(lively_router(run.path), tmp_path / "log.sqlite")) as url:
        page.open(f"{url}/#text=how%20many%20%3Cb%3E%20%26%20kings")
        page.wait(RANKED)
        assert page.run("document.getElementById('query').value") == "how many <b> & kings"


def test_moving_a_price_changes_the_choice(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    """At once in the page, then by the server; places stay, ranks change. c is right, and costs 0.3; a is right, and costs 0.5."""
    router = lively_router(run.path)
    with listening(make_service(router, tmp_path / "log.sqlite")) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(RANKED)
        assert (page.run(NAMES), page.run(CHOSEN)) == (["c", "a", "b"], "c")
        page.run(slide("c", 0.4))
        assert page.run(CHOSEN) == "c"
        asked = len(page.requests)
        page.run(slide("c", 0.6))
        assert (page.run(CHOSEN), len(page.requests)) == ("a", asked)  # before anybody is asked
        assert "being fitted" in page.run(GUARD)
        page.wait(FITTED)
        assert (page.run(NAMES), page.run(RANKS), page.run(CHOSEN)) == (["c", "a", "b"], ["2", "1", "3"], "a")
        assert router.at({"a": 0.5, "b": 0.1, "c": 0.6}).route(PROMPTS[:1])[0].expert == "a"
        assert page.run("document.querySelector('#ranking input[type=number]').value") == "0.6"
        page.run("document.getElementById('reset').click()")
        page.wait(f"{CHOSEN} === 'c'")
        assert page.run("document.querySelector('#ranking input[type=range]').valueAsNumber") == pytest.approx(0.3)
        assert page.run("document.getElementById('reset').hidden")
    assert page.problems == []


def test_moving_a_price_within_a_budget(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    """The budget is kept at the prices that are shown. Until the server answers, they count as in its last answer."""
    router = lively_router(run.path)
    router = replace(router, held_out=HeldOut(*spread_errors()))
    inside = router.within(0.25)
    moved = inside.at({"a": 0.5, "b": 0.1, "c": 0.6})
    assert 1 < inside.description.factor != moved.description.factor
    [choice] = moved.route(PROMPTS[:1])
    errors, costs = choice.expected_errors, choice.expected_costs
    assert errors is not None
    assert costs is not None
    with listening(make_service(inside, tmp_path / "log.sqlite")) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(RANKED)
        names = page.run(NAMES)
        page.run(slide("c", 0.6))
        page.wait(FITTED)
        assert page.run(COSTS) == [f"cost {costs[name]:.3f}" for name in names]
        page.run(slide("c", 0.4))
        between = {**costs, "c": errors["c"] + 0.4 * moved.prices.weight}
        assert page.run(COSTS) == [f"cost {between[name]:.3f}" for name in names]
    assert page.problems == []


def test_the_guard_has_the_last_word(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    """On the rows that it did not see this router is always wrong: at other prices everything goes to b."""
    router = lively_router(run.path)
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1)
    router = replace(router, held_out=HeldOut(errors, 1 - errors, errors.mean(dim=0)))
    with listening(make_service(router, tmp_path / "log.sqlite")) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(RANKED)
        assert page.run(GUARD) == "The guard leaves the choice to the router."
        page.run(slide("c", 0.2))
        assert page.run(CHOSEN) == "c"
        page.wait(FITTED)
        assert page.run(CHOSEN) == "b"
        said = page.run(GUARD)
        assert re.match(
            r"Guard: every query goes to b; .* Here it changes the choice: without the guard, c\.$", said
        ), said


def test_names_are_text(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    names = ("<script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "a&amp;b\"'`")
    router = lively_router(run.path)
    router = replace(router, description=replace(router.description, experts=names))
    write_hour(tmp_path / "log.sqlite", *names)
    with listening(make_service(router, tmp_path / "log.sqlite", explore=0.1)) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(f"{RANKED} && document.querySelector('#plots svg')")
        assert sorted(page.run(NAMES)) == sorted(names)
        assert page.run("[...document.querySelectorAll('#legend > span')].map((one) => one.textContent)") == list(names)
        assert page.run("[window.hacked, document.querySelectorAll('main img, main script').length]") == [None, 0]
    assert page.problems == []


def test_a_script_from_elsewhere_does_not_run(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    """Markup is refused even if the page's own script were to write it."""
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        page.open(url)
        page.wait(READY)
        with pytest.raises(RuntimeError, match="TrustedHTML"):
            page.run("document.body.innerHTML = '<b>x</b>'")
        page.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
        page.wait("true")
        assert any("Content Security Policy" in problem for problem in page.problems)


def test_the_token_is_asked_for_and_kept_in_the_tab(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    with listening(make_service(run.path, tmp_path / "log.sqlite", api_token="sesame")) as url:
        page.open(url)
        page.wait("!document.getElementById('token').hidden")
        assert page.run("document.getElementById('main').hidden")
        for token, seen in (("wrong", "!document.getElementById('refused').hidden"), ("sesame", READY)):
            page.type_into("secret", token)
            page.run("document.querySelector('#token form button').click()")
            page.wait(seen)
        assert page.run("[document.getElementById('token').hidden, localStorage.length, document.cookie]") == [
            True,
            0,
            "",
        ]
        page.type_into("query", PROMPTS[0])
        page.wait(RANKED)
        page.run("window.before = true; location.reload()")
        page.wait(f"!window.before && {READY}")
        page.run("window.before = true; document.getElementById('forget').click()")
        page.wait("!window.before && !document.getElementById('token').hidden")
        assert page.run("sessionStorage.length") == 0


def test_the_last_hour_is_drawn(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    write_hour(tmp_path / "log.sqlite", "a", "b", "gone")
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        page.open(url)
        page.wait("document.querySelectorAll('#plots svg').length === 3")
        tiles = page.run("[...document.querySelectorAll('#tiles dd')].map((one) => one.textContent)")
        assert tiles == [
            "30 router\u00a0100\u00a0%",
            "7.5 0.25 per decision",
            "15 50\u00a0% of the decisions",
            "0.200 without prices",
        ]
        titles = page.run(
            "[...document.querySelector('#plots svg').querySelectorAll('title')].map((one) => one.textContent)"
        )
        assert sum(int(title.rpartition(": ")[2]) for title in titles) == 30
        assert re.fullmatch(r"\d\d:\d[05]–\d\d:\d[05], a: \d", titles[0])
        rows = page.run(
            "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        assert rows == [[name, "10", "33\u00a0%", "2.5", "5", "0.200"] for name in ("a", "b", "gone")]
        labels = page.run("[...document.querySelectorAll('#plots svg')].map((one) => one.getAttribute('aria-label'))")
        assert labels[0] == "Decisions per 5 minutes. In the hour: a 10, b 10, gone 10."
        assert labels[2].startswith("Mean error by expert: a 0.200 of 5 outcomes")
        heights = page.run(
            "[...document.querySelectorAll('#plots svg')].map((one) => [...one.querySelectorAll('rect')].every((bar) => bar.height.baseVal.value > 0))"
        )
        assert heights == [True, True, True]
    assert page.problems == []


def test_rows_of_numbers_and_a_method_without_costs(page: Chromium, tmp_path: Path) -> None:
    """The example is asked at once. What is no JSON, or not what the router sees, is said; posteriors are shown, prices stay."""
    run = untrained(tmp_path)
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        page.open(url)
        page.wait(RANKED)
        assert json.loads(page.run("document.getElementById('query').value")) == {"x": 0, "y": 0, "flag": 0}
        [choice] = Router.load(run.path).route([{"x": 0.0, "y": 0.0, "flag": 0.0}])
        assert page.run(NAMES) == list(choice.ranking)
        shown = page.run("[...document.querySelectorAll('.cost')].map((one) => one.textContent)")
        assert shown == [f"posterior {(choice.posterior or {})[name]:.3f}" for name in choice.ranking]
        assert page.run("document.querySelectorAll('input[type=range]').length") == 0
        assert not page.run("document.getElementById('fixed').hidden")
        for text, said in (('{"x": ', "This is not JSON."), ('{"x": 1, "y": 1}', "flag"), ("3", "features")):
            page.type_into("query", text)
            page.wait(f"document.getElementById('mistake').textContent.includes({json.dumps(said)})")
        page.type_into("query", '{"x": 1, "y": 1, "flag": 1}')
        page.wait("document.getElementById('mistake').hidden")


def test_images(page: Chromium, tmp_path: Path) -> None:
    """A file is chosen, here drawn by the page."""
    run = trained(tmp_path, [], *DIGITS)
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        page.open(url)
        page.wait(READY)
        assert page.run("document.getElementById('query').hidden")
        page.run(
            """(async () => {
              const canvas = Object.assign(document.createElement("canvas"), {width: 8, height: 8}), files = new DataTransfer();
              files.items.add(new File([await new Promise((done) => canvas.toBlob(done))], "x.png"));
              document.getElementById("picture").files = files.files;
              document.getElementById("picture").dispatchEvent(new Event("change"));
            })()"""
        )
        page.wait(RANKED)
    assert page.problems == []


def test_a_swap_to_other_experts(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    """The same query is asked again, and prices that were moved are forgotten."""
    service = make_service(lively_router(run.path), tmp_path / "log.sqlite")
    other = lively_router(run.path)
    other = replace(other, description=replace(other.description, experts=("d", "e", "f")))
    with listening(service) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(RANKED)
        page.run(slide("c", 0.6))
        service.runs.current = ServedRun(other, "second")
        page.wait(
            "document.getElementById('run').textContent === 'second' && !document.getElementById('answer').hidden"
        )
        assert (page.run(NAMES), page.run(CHOSEN)) == (["f", "d", "e"], "f")
        assert page.run("document.getElementById('reset').hidden")
    assert [one for one in page.problems if "status of 422" not in one] == []  # the prices of the experts that are gone


def test_a_server_that_is_gone(page: Chromium, run: Untrained, tmp_path: Path) -> None:
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        page.open(url)
        page.wait(READY)
    page.type_into("query", PROMPTS[0])
    page.wait("document.getElementById('mistake').textContent === 'The server does not answer.'")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_it_is_readable(page: Chromium, run: Untrained, tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing is wider than the window, also with long names; every text stands out, and every field has a name."""
    names = ("a", "b-with-a-very-long-name-that-has-no-place-to-break-in-it-whatsoever", "c")
    router = lively_router(run.path)
    router = replace(router, description=replace(router.description, experts=names))
    write_hour(tmp_path / "log.sqlite", *names)
    page.look(width, 800, dark)
    with listening(make_service(router, tmp_path / "log.sqlite", explore=0.1)) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(f"{RANKED} && document.querySelector('#plots svg')")
        page.run("document.querySelector('details').open = true")
        assert page.run("document.documentElement.scrollWidth") <= width
        found: list[Any] = page.run(CONTRAST)
        assert len(found) > 40
        assert [pair for pair in found if pair[0] < 4.5] == []
        back = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", back))) < 3 * 128) == dark
        fields = "[...document.querySelectorAll('input, textarea')].filter((one) => one.checkVisibility() && !(one.labels.length || one.ariaLabel)).length"
        assert page.run(fields) == 0
    assert page.problems == []


@pytest.mark.parametrize("width", [320, 461, 500, 780])
def test_the_fields_of_prices_stay_in_their_frame(page: Chromium, run: Untrained, tmp_path: Path, width: int) -> None:
    """They end where the bar above ends, or before it, and "price, $" is one line."""
    router = lively_router(run.path)
    router = replace(router, config={**router.config, "cost": {**router.config["cost"], "error_price": 1.0}})
    page.look(width, 900)
    with listening(make_service(router, tmp_path / "log.sqlite")) as url:
        page.open(f"{url}/#text={PROMPTS[0]}")
        page.wait(RANKED)
        found: list[Any] = page.run(PRICE_FIELDS)
        assert "price, $" in page.run("document.querySelector('.slide').textContent")
    assert len(found) == 3
    assert all(beyond < 1 and lines < 1.5 for beyond, lines in found), found
