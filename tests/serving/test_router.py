"""A trained router, asked again: what the run itself decided on its test rows is the reference."""

import csv
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from PIL import Image
from safetensors import safe_open
from tests.conftest import TINY
from tests.data.sets.test_table import Cells, write
from tests.running import build, train

from l2d.commands.route import as_csv, main
from l2d.config import compose, groups, to_plain
from l2d.core.guard import Guard, HeldOut
from l2d.core.metrics import best_single
from l2d.data.sets.digits import Digits
from l2d.data.text.encoders import Hashed
from l2d.data.text.pretrained import MINILM, locate
from l2d.routing.build import make_dataset
from l2d.runs.folder import RunFolder
from l2d.serving.exported import FILE, HELD_OUT, Description, read_weights, write_weights
from l2d.serving.router import Choice, Router
from l2d.training.score import held_out, hold
from l2d.training.walk import describe
from l2d.utils.errors import L2DError
from l2d.utils.files import write_json

SMALL = [*TINY, "router.width=8", "recipe.epochs=2", "recipe.batch_size=32"]
N, TEST = 80, 20
WORDS = ("apples", "rivers", "triangles", "kings", "matrices", "birds")


def table() -> Cells:
    """Experts a, b and c; the last rows are the test split."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, N)).round(3)
    kind = (x > 0).astype(int) + (y > 0.5).astype(int)
    return {
        "id": list(range(N)),
        "y": y.tolist(),
        "prompt": [f"how many {WORDS[2 * k]} and {WORDS[2 * k + i % 2]} of {i}" for i, k in enumerate(kind)],
        "flag": [bool(k == 2) for k in kind],
        "topic": [WORDS[k] for k in kind],
        "x": x.tolist(),
        **{f"correct_{name}": (kind == k).astype(int).tolist() for k, name in enumerate("abc")},
        "split": ["train"] * (N - TEST) + ["test"] * TEST,
    }


CELLS = table()
SPLIT = ["dataset=table", "dataset.split=split"]
DIGITS = ["router.width=4", "recipe.batch_size=128", "recipe.optimizer.lr=0.01"]
# Text takes more than two epochs, or a higher rate, before it goes to more than one expert.
LIVELY = ["checkpoint=best", "router.dropout=0", "recipe.optimizer.lr=0.03", "recipe.epochs=4"]


@dataclass(frozen=True)
class Ran:
    """A finished run whose data are gone; queries: its test rows."""

    path: Path
    queries: Any

    def saved(self) -> dict[str, np.ndarray]:
        with np.load(self.path / "test.npz") as saved:
            return dict(saved)


def trained(folder: Path, queries: Any, *overrides: str) -> Ran:
    file = write(folder, CELLS)
    given = [f"dataset.path={file}"] if "dataset=table" in overrides else []
    cfg = compose([*SMALL, *overrides, *given, f"runs_dir={folder / 'runs'}", f"data_dir={folder / 'data'}"])
    train(cfg)
    if queries is None:
        texts = make_dataset(cfg).load(folder / "data").texts
        assert texts is not None
        queries = texts[1]
    file.unlink()
    shutil.rmtree(folder / "data", ignore_errors=True)
    return Ran(RunFolder.of(to_plain(cfg)).path, queries)


def rows(*columns: str) -> list[dict[str, Any]]:
    return [{column: CELLS[column][i] for column in columns} for i in range(N - TEST, N)]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return trained(tmp_path_factory.mktemp("digits"), Digits().load(Path()).test_inputs.numpy(), *DIGITS)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    given = ["cost=error_plus_cost", "cost.prices=[0.1,0.2,0.3]", "decision=posterior"]
    return trained(tmp_path_factory.mktemp("features"), rows("x", "y", "flag"), *SPLIT, *given)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    queries = [row["prompt"] for row in rows("prompt")]
    return trained(tmp_path_factory.mktemp("texts"), queries, *SPLIT, "dataset.text=prompt", *LIVELY)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return trained(tmp_path_factory.mktemp("questions"), None, "dataset=mmlu_sim", "dataset.questions=200")


def check(choices: list[Choice], router: Router, saved: dict[str, np.ndarray]) -> None:
    decisions = saved["decisions" if router.raw else "guarded"]
    assert [choice.expert for choice in choices] == [router.experts[k] for k in decisions]
    posterior = [list((choice.posterior or {}).values()) for choice in choices]
    np.testing.assert_allclose(posterior, saved["posterior"], rtol=1e-4, atol=1e-7)
    assert all(choice.expected_costs is None for choice in choices)


@pytest.mark.parametrize("which", ["digits", "features", "texts", "questions"])
def test_decides_as_the_run_did(which: str, request: pytest.FixtureRequest) -> None:
    ran: Ran = request.getfixturevalue(which)
    for raw in (True, False):
        router = Router.load(ran.path, raw=raw)
        check(router.route(ran.queries), router, ran.saved())
        [alone] = router.route(ran.queries[3:4])
        assert alone.expert == router.experts[ran.saved()["decisions" if raw else "guarded"][3]]
        assert router.route([]) == []
    assert len({*ran.saved()["decisions"].tolist()}) > 1


def test_a_file_with_the_columns_in_another_order(features: Ran, texts: Ran, questions: Ran, tmp_path: Path) -> None:
    test_rows: Cells = {name: CELLS[name][N - TEST :] for name in ("flag", "x", "prompt", "y")}
    for name in ("queries.csv", "queries.parquet"):
        file = write(tmp_path, test_rows, name)
        for ran in (features, texts):
            router = Router.load(ran.path, raw=True)
            check(router.route_file(file), router, ran.saved())
    router = Router.load(questions.path, raw=True)
    check(router.route_file(write(tmp_path, {"prompt": questions.queries})), router, questions.saved())


def test_rows_of_numbers_are_in_the_order_of_the_columns(features: Ran) -> None:
    """The columns were chosen by themselves: y, flag and x, in the file's order."""
    router = Router.load(features.path, raw=True)
    assert router.description.seen.features == ("y", "flag", "x")
    as_lists = [[row["y"], row["flag"], row["x"]] for row in features.queries]
    for queries in (as_lists, np.array(as_lists, dtype=np.float64), torch.tensor(as_lists)):
        check(router.route(queries), router, features.saved())


def test_images_from_files(digits: Ran, tmp_path: Path) -> None:
    """Digits have pixels from 0 to 16, files from 0 to 255."""
    files = []
    for i, image in enumerate(digits.queries[:6]):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(np.rint(image[..., 0] * (255 / 16)).astype(np.uint8)).save(files[-1])
    router = Router.load(digits.path)
    assert router.route(files) == router.route([str(file) for file in files]) == router.route(digits.queries[:6])
    larger = tmp_path / "large.jpg"
    Image.fromarray(np.full((64, 48, 3), 200, dtype=np.uint8)).save(larger)
    assert router.route([larger])[0].expert in router.experts
    (tmp_path / "text.png").write_text("no image")
    for bad, said in ((tmp_path / "text.png", "not an image"), (tmp_path / "none.png", "no such file")):
        with pytest.raises(L2DError, match=said):
            router.route([bad])


def test_the_header_says_what_is_needed(features: Ran, digits: Ran, texts: Ran) -> None:
    found = {}
    for name, ran in {"features": features, "digits": digits, "texts": texts}.items():
        with safe_open(ran.path / FILE, framework="pt") as content:
            found[name] = json.loads(content.metadata()["l2d"])
    assert found["features"]["experts"] == ["a", "b", "c"]
    assert found["features"]["prices"] == [0.1, 0.2, 0.3]
    assert found["features"]["input"]["encoder"] is None
    assert found["digits"]["num_classes"] == 10
    assert found["digits"]["input"]["shape"] == [8, 8, 1]
    assert found["texts"]["input"]["text"] == "prompt"
    assert found["texts"]["input"]["encoder"] == {"_target_": "l2d.data.text.encoders.Hashed"}
    assert found["texts"]["version"]


ASKED = Guard(None, None, 0, 0.1, 0.01)  # leaves decisions to the router


def untrained(
    cfg: DictConfig, guard: Guard | None = ASKED, kept: Mapping[str, torch.Tensor] = MappingProxyType({})
) -> tuple[Path, Any, Any]:
    """A run's folder as training leaves it, without the training. guard: None for the one that its validation rows ask for. kept:
    what guards for other prices are fitted to."""
    data, built = build(cfg)
    built.eval()
    run = RunFolder.of(to_plain(cfg))
    with run.locked():
        run.write_config(to_plain(cfg))
        guard = guard or held(data, built)[0]
        write_weights(run.path / FILE, {**built.weights(), **kept}, describe(to_plain(cfg), data, guard))
        write_json(run.path / "metrics.json", {})
    return run.path, data, built


def held(data: Any, built: Any) -> tuple[Guard, torch.Tensor]:
    """What the run would decide on its test rows."""
    with torch.no_grad():
        validation, test = built(data.validation.inputs), built(data.test.inputs)
    decisions = [built.method.decide(outputs) for outputs in (validation, test)]
    return hold(
        built.method, (validation, decisions[0], data.validation), (test, decisions[1]), best_single(data.raw_costs)
    )


METHODS = sorted(groups()["method"])
QUICK = ("mild", "ldam", "one_vs_all", "cascade", "cost_sensitive", "plugin")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_every_method_routes(name: str, tmp_path: Path) -> None:
    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}"]
    prices = ["cost=error_plus_cost", "cost.prices=[0.5,0.1,0.3]"]
    more = ["dataset.label=topic", f"method={name}", "sampling=over"]
    path, data, built = untrained(compose([*SMALL, *SPLIT, *given, *prices, *more]), guard=None)
    router = Router.load(path, raw=True)
    for key, value in built.method.state_dict().items():
        assert torch.equal(router.method.state_dict()[key], value), key
    with torch.no_grad():
        outputs = built(data.test.inputs)
    choices = router.route(features_of(data))
    assert [choice.expert for choice in choices] == [router.experts[k] for k in built.method.decide(outputs)]
    guarded = Router.load(path).route(features_of(data))
    assert [choice.expert for choice in guarded] == [router.experts[k] for k in held(data, built)[1]]
    assert (choices[0].posterior is not None) == built.method.has_posterior
    for values, expected in (
        (
            [choice.posterior for choice in choices],
            built.method.posterior(outputs) if built.method.has_posterior else None,
        ),
        ([choice.expected_costs for choice in choices], built.method.expected_costs(outputs)),
    ):
        if expected is None:
            assert set(values) == {None}
        else:
            np.testing.assert_allclose([list((row or {}).values()) for row in values], expected, rtol=1e-5)


def features_of(data: Any) -> np.ndarray:
    found: np.ndarray = data.test.inputs.numpy()
    return found


def choices_of(router: Router, data: Any) -> list[str]:
    return [choice.expert for choice in router.route(features_of(data))]


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """What the command says of the experts."""
    main([str(argument) for argument in arguments])
    return [row["expert"] for row in read(capsys.readouterr().out)]


def test_the_guard_decides_unless_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of experts a, b and c, the last gets everything from the first two guards."""
    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}", "method=ce"]
    path, data, built = untrained(compose([*SMALL, *SPLIT, *given]))
    with torch.no_grad():
        own = ["abc"[k] for k in built.method.decide(built(data.test.inputs))]
    assert {*own} != {"c"}
    queries = write(tmp_path, {name: CELLS[name][N - TEST :] for name in ("x", "y", "flag")}, "queries.csv")
    weights, description = read_weights(path / FILE)
    for guard, wanted in (
        (Guard(None, 2, 2, 0.0, None), ["c"] * TEST),
        (Guard((-9.0, 0.0, 9.0), None, 0, 0.3, 0.1), ["c"] * TEST),
        (ASKED, own),
    ):
        write_weights(path / FILE, weights, replace(description, guard=guard))
        assert read_weights(path / FILE)[1].guard == guard
        assert choices_of(Router.load(path), data) == told(capsys, path, "--file", queries) == wanted
        assert choices_of(Router.load(path, raw=True), data) == told(capsys, path, "--file", queries, "--raw") == own


def test_a_file_of_before_there_were_guards(features: Ran) -> None:
    header = read_weights(features.path / FILE)[1].as_dict()
    assert Description.from_dict(json.loads(json.dumps(header))).guard is not None
    del header["guard"]
    assert Description.from_dict(json.loads(json.dumps(header))).guard is None


def test_other_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if the run had had them; by the router itself, whatever the guard was for the prices of before, where the run kept nothing
    to fit another to, which is said."""
    file = write(tmp_path, CELLS)
    given = [f"dataset.path={file}", f"runs_dir={tmp_path / 'runs'}", "method=cost_regression"]
    price = ["cost=error_plus_cost", "cost.prices=[0.5,0.1,0.3]"]
    path, data, built = untrained(compose([*SMALL, *SPLIT, *given, *price]), Guard(None, 0, 0, 0.0, None))
    with torch.no_grad():
        errors = built.method.expected_costs(built(data.test.inputs)) - torch.tensor([0.5, 0.1, 0.3])
    queries = write(tmp_path, {name: CELLS[name][N - TEST :] for name in ("x", "y", "flag")}, "queries.csv")
    assert {*told(capsys, path, "--file", queries)} == {"a"}
    found = set()
    for prices in ([0.0, 0.02, 0.01], [0.0, 0.0, 0.0], [9.0, 0.0, 9.0]):
        wanted = ["abc"[k] for k in (errors + torch.tensor(prices)).argmin(1)]
        said = ",".join(map(str, prices))
        assert told(capsys, path, "--file", queries, "--prices", said) == wanted
        assert told(capsys, path, "--file", queries, "--prices", f"[{said}]") == wanted
        named = ",".join(f"{name}:{price}" for name, price in zip("abc", prices, strict=True))
        assert told(capsys, path, "--file", queries, "--prices", f"{{{named}}}") == wanted
        found.add(tuple(wanted))
        for mapping in (prices, dict(zip("cba", prices[::-1], strict=True))):
            router = Router.load(path)
            router.reprice(mapping)
            assert choices_of(router, data) == wanted
            costs = router.route(features_of(data)[:1])[0].expected_costs
            assert costs is not None
            assert [*costs.values()] == pytest.approx((errors[0] + torch.tensor(prices)).tolist(), rel=1e-5)
    assert len(found) > 1
    main([str(path), "--file", str(queries), "--prices", "0,0,0"])
    assert "guard: none for these prices" in capsys.readouterr().err


def test_other_prices_have_a_guard_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Expert b errs least, c next. The router expects nothing of a that validation bears out: it is let ask b or c at no price only
    where it is right, and where b is dear everything goes to c; at the prices of training the run's own guard holds."""
    file = write(tmp_path, CELLS)
    given = [f"dataset.path={file}", f"runs_dir={tmp_path / 'runs'}", "method=cost_regression"]
    errors = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]] * 50, dtype=torch.float64)
    wrong = HeldOut(errors, torch.tensor([[0.0, 0.5, 0.5]]).repeat(100, 1), errors.mean(dim=0))
    saved = {f"{HELD_OUT}.{name}": value for name, value in vars(wrong).items()}
    price = ["cost=error_plus_cost", "cost.prices=[0.5,0.1,0.3]"]
    path, _, _ = untrained(compose([*SMALL, *SPLIT, *given, *price]), Guard(None, 0, 0, 0.0, None), saved)
    queries = write(tmp_path, {name: CELLS[name][N - TEST :] for name in ("x", "y", "flag")}, "queries.csv")
    for prices, expert in (("0,0,0", "b"), ("0,5,0", "c"), ("0.5,0.1,0.3", "a")):
        assert {*told(capsys, path, "--file", queries, "--prices", prices)} == {expert}
        main([str(path), "--file", str(queries), "--prices", prices])
        assert f"guard: everything goes to {expert}" in capsys.readouterr().err
    assert {*told(capsys, path, "--file", queries, "--prices", "0,0,9", "--raw")} != {"b"}


def test_a_run_keeps_what_other_guards_are_fitted_to(tmp_path: Path) -> None:
    """The guard for the prices of training, made anew from it, is the run's own."""
    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}", "dataset.label=topic"]
    for more in (["method=cost_regression", "sampling=over"], ["method=plugin"]):
        cfg = compose([*SMALL, *SPLIT, *given, "cost=error_plus_cost", "cost.prices=[0.5,0.1,0.3]", *more])
        data, built = build(cfg)
        built.eval()
        with torch.no_grad():
            outputs = built(data.validation.inputs)
        kept = HeldOut(**held_out(built.method, outputs, data, data.raw_costs))
        assert kept.guard_at(torch.tensor([0.5, 0.1, 0.3])) == held(data, built)[0]
        torch.testing.assert_close(kept.errors, data.validation.answers.errors)
    data, built = build(compose([*SMALL, *SPLIT, *given, "method=mild"]))
    assert held_out(built.method, built(data.validation.inputs), data, data.raw_costs) == {}


BAD_PRICES = {
    "0.1,0.2": "--prices=[0.1, 0.2]: 2 for 3 experts; there are a, b, c",
    "0.1,0.2,inf": "--prices=[0.1, 0.2, inf]: must be finite and not negative",
    "0.1,0.2,nan": "must be finite and not negative",
    "0,0,-1": "must be finite and not negative",
    "0,0,dear": "--prices=0,0,dear: must be such as",
    "a=1,b=2": "--prices: no price for c",
    "{a:1,b:2,d:3}": "--prices: no expert d; there are a, b, c",
    "a=1,b=2,c=3,a=0": "must be such as",
    "a=1,b=dear,c=3": "--prices=a=1,b=dear,c=3: must be such as",
    "": "--prices=: must be such as",
    "0,0,0": "--prices: are part of what this method learned; method=cost_regression",
}


@pytest.mark.parametrize("prices", BAD_PRICES)
def test_bad_prices_are_one_line(prices: str, features: Ran) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(features.path), "--file", "none.csv", "--prices", prices])
    assert str(caught.value.code).startswith("error: ")
    assert BAD_PRICES[prices] in str(caught.value.code)
    assert "\n" not in str(caught.value.code)
    router = Router.load(features.path)
    with pytest.raises(L2DError, match=r"^prices: no expert d, e; there are a, b, c$"):
        router.reprice({"a": 0.1, "b": 0.2, "c": 0.2, "d": 0.3, "e": 1})
    for wrong in (None, [0, 0, "dear"], "012", {0.0, 1.0, 2.0}, [10**400, 0, 0]):
        with pytest.raises(L2DError, match=r"^prices=.*: must be numbers, one for each expert; there are a, b, c$"):
            router.reprice(wrong)  # type: ignore[arg-type]
    assert not router.repriced


def test_expected_costs_by_hand(tmp_path: Path) -> None:
    """One-vs-all: σ(f_k) estimates 1 − c_k/scale. The scale is the largest training cost, 1 + 0.5, so at f = log 3, where
    σ = 3/4, the cost is 1.5/4; at f = 0 it is 0.75; at f = −log 3, 1.125."""
    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}", "method=one_vs_all"]
    path, _, _ = untrained(compose([*SMALL, *SPLIT, *given, "cost=error_plus_cost", "cost.prices=[0.5,0.1,0.3]"]))
    method = Router.load(path).method
    log3 = float(np.log(3))
    found = method.expected_costs(torch.tensor([[log3, 0.0, -log3]]))
    assert found is not None
    assert found.tolist() == [pytest.approx([0.375, 0.75, 1.125])]


def test_rho_is_that_of_the_run(tmp_path: Path) -> None:
    """The rule goes by the training costs, which are gone; asked of others it might refuse."""
    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}", "method=mild"]
    rho = ["method.rho.total=3", "method.rho.offset=-0.9", "method.rho.counts=reward_mass"]
    path, _, built = untrained(compose([*SMALL, *SPLIT, *given, *rho]))
    config = RunFolder(path).config()
    config["method"]["rho"]["offset"] = -1.0  # equal shares of 3 less 1: refused, were the rule asked again
    RunFolder(path).write_config(config)
    assert torch.equal(Router.load(path).method.state_dict()["rho"], built.method.rho)


def test_numbers_and_text_together(tmp_path: Path) -> None:
    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}"]
    both = ["dataset.text=prompt", "dataset.features=[x]"]
    path, data, built = untrained(compose([*SMALL, *SPLIT, *given, *both]))
    router = Router.load(path)
    with torch.no_grad():
        expected = [router.experts[k] for k in built.method.decide(built(data.test.inputs))]
    assert [choice.expert for choice in router.route(rows("prompt", "x", "y"))] == expected
    with pytest.raises(L2DError, match="the columns x and the text prompt"):
        router.route(["only a text"])


def test_loading_leaves_the_random_stream_alone(digits: Ran) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    Router.load(digits.path)
    assert torch.equal(torch.rand(2), expected)


def test_a_long_text_is_a_text(texts: Ran) -> None:
    assert Router.load(texts.path).route(["why " * 25_000])[0].expert in "abc"


# What is refused


def copied(ran: Ran, folder: Path) -> Path:
    shutil.copytree(ran.path, folder / "seed=0")
    return folder / "seed=0"


def one_line(run: Path) -> str:
    with pytest.raises(L2DError) as caught:
        Router.load(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_damaged_file_is_named(features: Ran, tmp_path: Path) -> None:
    run = copied(features, tmp_path)
    whole = (run / FILE).read_bytes()
    flipped = bytearray(whole)
    flipped[-9] ^= 64
    header = whole.replace(b'"experts"', b'"experst"').replace(b'\\"experts\\"', b'\\"experst\\"')
    assert header != whole
    for bad in (b"", whole[:4], whole[:200], whole[:-1], bytes(flipped), b"\x00" * 100, header, whole + b"x"):
        (run / FILE).write_bytes(bad)
        assert f"{run / FILE}: damaged" in one_line(run)
        assert "force=true" in one_line(run)
    (run / FILE).unlink()
    assert f"{run / FILE}: missing" in one_line(run)
    assert "force=true" in one_line(run)


def test_a_file_of_another_run_or_format(features: Ran, texts: Ran, tmp_path: Path) -> None:
    run = copied(features, tmp_path)
    whole = (run / FILE).read_bytes()
    (run / FILE).write_bytes(whole.replace(b'\\"format\\": 1', b'\\"format\\": 2'))
    assert "another format" in one_line(run)
    config = RunFolder(texts.path).config()
    config["router"]["depth"] = 1
    (run / FILE).write_bytes(whole)
    RunFolder(run).write_config(config)
    assert "does not fit the router of its config" in one_line(run)
    (run / "config.yaml").write_text("[")
    assert "config.yaml: damaged" in one_line(run)


def test_not_a_run(tmp_path: Path, features: Ran) -> None:
    assert "no such folder" in one_line(tmp_path / "nowhere")
    assert "not a run's folder" in one_line(tmp_path)
    run = copied(features, tmp_path)
    (run / "metrics.json").unlink()
    assert "not finished" in one_line(run)


@pytest.mark.slow
def test_killed_before_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """model.safetensors is whole by then, and the run is still unfinished; the same command ends it."""

    class Killed(Exception):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}", "recipe.epochs=1"]
    cfg = compose([*SMALL, *SPLIT, *given])
    path = RunFolder.of(to_plain(cfg)).path
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", killed)
        with pytest.raises(Killed):
            train(cfg)
    assert (path / FILE).exists()
    assert not RunFolder(path).finished
    assert "not finished" in one_line(path)
    before = (path / FILE).read_bytes()
    train(cfg)
    assert (path / FILE).read_bytes() == before  # the same run, the same bytes
    router = Router.load(path)
    check(router.route(rows("x", "y", "flag")), router, Ran(path, None).saved())


BAD_QUERIES: dict[str, tuple[str, Any, str]] = {
    "one text, not a list": ("texts", "a text", "must be a list"),
    "empty text": ("texts", ["fine", " \n"], "query 2: the text is empty"),
    "number for a text": ("texts", [3], "int; this router sees the text prompt"),
    "text that is no Unicode": ("texts", ["a\udc80"], "query 1: not UTF-8"),
    "array for a text": ("texts", np.zeros((2, 3)), "an array; this router sees the text prompt"),
    "row without the text": ("texts", [{"question": "why"}], "query 1: has no prompt; there are question"),
    "text for a row": ("features", ["a text"], "text; this router sees the columns y, flag, x"),
    "missing column": ("features", [{"x": 1, "y": 2, "flag": 0}, {"x": 1, "y": 2}], "query 2: has no flag"),
    "empty cell": ("features", [{"x": None, "y": 2, "flag": 0}], "query 1: column x: empty or not a number"),
    "NaN": ("features", [{"x": 1, "y": float("nan"), "flag": 0}], "query 1: column y: empty or not a number"),
    "infinite": ("features", [{"x": 1, "y": float("inf"), "flag": 0}], "query 1: column y: too large"),
    "word for a number": ("features", [{"x": "one", "y": 2, "flag": 0}], "query 1: column x: empty or not a number"),
    "too few numbers": ("features", [[1, 2]], "must be numbers ['n', 3] (y, flag, x)"),
    "ragged numbers": ("features", [[1, 2, 3], [1]], "rows of different lengths"),
    "NaN among numbers": ("features", [[1, 2, 3], [1, 2, np.nan]], "query 2: column x: empty or not a number"),
    "images of another size": ("digits", np.zeros((1, 9, 8, 1), dtype=np.uint8), "must be uint8 ['n', 8, 8, 1]"),
    "images of another type": ("digits", np.zeros((1, 8, 8, 1)), "must be uint8"),
    "row for an image": ("digits", [{"x": 1}], "mapping; this router sees images (8×8×1)"),
}


@pytest.mark.parametrize("what", BAD_QUERIES)
def test_bad_queries(what: str, request: pytest.FixtureRequest) -> None:
    which, queries, said = BAD_QUERIES[what]
    with pytest.raises(L2DError) as caught:
        Router.load(request.getfixturevalue(which).path).route(queries)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FILES: dict[str, tuple[str, Cells, str]] = {
    "missing column": ("features", {"x": [1], "y": [1]}, "no column flag; this router sees the columns y, flag, x"),
    "empty cell": ("features", {"x": [1, ""], "y": [1, 2], "flag": [0, 1]}, "column x: empty in 1 of 2 rows: 2"),
    "empty text": ("texts", {"prompt": ["why", " "]}, "column prompt: empty in 1 of 2 rows: 2"),
    "images are in no table": ("digits", {"x": [1]}, "this router sees images (8×8×1), which are in no table"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_files(what: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    which, cells, said = BAD_FILES[what]
    file = write(tmp_path, cells)
    with pytest.raises(L2DError) as caught:
        Router.load(request.getfixturevalue(which).path).route_file(file)
    assert str(caught.value).startswith(f"--file={file}: ")
    assert said in str(caught.value)


# The command


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_of_the_command(texts: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = texts.saved()
    main([str(texts.path), "--raw", "--text", texts.queries[0], "--text", texts.queries[1]])
    found = read(capsys.readouterr().out)
    assert list(found[0]) == ["query", "expert", *(f"{k}_{e}" for k in ("posterior", "expected_cost") for e in "abc")]
    assert [row["query"] for row in found] == ["1", "2"]
    assert [row["expert"] for row in found] == ["abc"[k] for k in saved["decisions"][:2]]
    for row, expected in zip(found, saved["posterior"], strict=False):
        assert [float(row[f"posterior_{name}"]) for name in "abc"] == pytest.approx(expected.tolist(), rel=1e-4)
        assert {row[f"expected_cost_{name}"] for name in "abc"} == {""}
    out = tmp_path / "choices.csv"
    main([str(texts.path), "--file", str(write(tmp_path, {"prompt": texts.queries})), "--out", str(out)])
    assert capsys.readouterr().out == ""
    assert [row["expert"] for row in read(out.read_text())] == ["abc"[k] for k in saved["guarded"]]
    assert {entry.name for entry in tmp_path.iterdir()} == {"choices.csv", "table.csv"}


@pytest.mark.parametrize(
    ("name", "ids", "written"),
    [
        ("queries.csv", ["007", "b,c", ""], ["007", "b,c", ""]),
        ("queries.parquet", [7, 8, None], ["7", "8", ""]),
        ("queries.parquet", ["x", "y", "z"], ["x", "y", "z"]),
    ],
    ids=["csv", "numbers", "words"],
)
@pytest.mark.parametrize("column", ["id", "ID"])
def test_ids_come_back_with_the_choices(
    column: str,
    name: str,
    ids: list[Any],
    written: list[str],
    texts: Ran,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As they are written, zeros in front included, so that choices can be joined to what they are of."""
    file = write(tmp_path, {"prompt": texts.queries[:3], "topic": ["a", "b", "c"], column: ids}, name)
    main([str(texts.path), "--file", str(file)])
    found = read(capsys.readouterr().out)
    choices = Router.load(texts.path).route(texts.queries[:3])
    assert list(found[0])[:4] == ["query", "id", "expert", "posterior_a"]
    assert [(row["query"], row["id"], row["expert"]) for row in found] == [
        (str(place), known, choice.expert)
        for place, (known, choice) in enumerate(zip(written, choices, strict=True), 1)
    ]
    assert [choice.id for choice in Router.load(texts.path).route_file(file)] == written
    assert {choice.id for choice in choices} == {None}


def test_an_id_may_be_what_a_router_sees(tmp_path: Path) -> None:
    """Where it was told to look at it: a number all the same."""
    cells = table()
    cells["id"] = [f"{row:03d}" for row in range(N)]
    given = [
        "dataset=table",
        f"dataset.path={write(tmp_path, cells)}",
        "dataset.features=[id,x]",
        "dataset.split=split",
    ]
    run, *_ = untrained(compose([*SMALL, *given, f"runs_dir={tmp_path / 'runs'}"]))
    file = write(tmp_path, {"id": cells["id"][:3], "x": cells["x"][:3]}, "queries.csv")
    router = Router.load(run)
    assert router.description.seen.features == ("id", "x")
    numbers = np.array([[row, cells["x"][row]] for row in range(3)])
    choices = router.route_file(file)
    assert [choice.expert for choice in choices] == [choice.expert for choice in router.route(numbers)]
    assert [choice.id for choice in choices] == ["000", "001", "002"]


def test_a_text_that_is_cut_is_said(
    texts: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Hashed, "note", "1 of 2 texts are longer")
    main([str(texts.path), "--raw", "--file", str(write(tmp_path, {"prompt": texts.queries[:2]}))])
    told = capsys.readouterr()
    assert told.err == "1 of 2 texts are longer\n"
    assert len(told.out.splitlines()) == 3


def test_csv_quotes_names_and_leaves_blanks() -> None:
    choice = Choice("b, the best", None, {"a": 0.25, "b, the best": 1 / 3})
    assert as_csv([choice], ["a", "b, the best"]) == (
        'query,expert,posterior_a,"posterior_b, the best",expected_cost_a,"expected_cost_b, the best"\n'
        '1,"b, the best",,,0.25,0.333333\n'
    )


BAD_COMMANDS: dict[str, tuple[str, ...]] = {
    "nothing asked": ("give one of --text, --file, --image",),
    "two kinds": ("not --text and --image", "--text", "why", "--image", "a.png"),
    "unknown flag": ("unrecognized arguments: --txt=why", "--text", "why", "--txt=why"),
    "text for an image": ("--text: this router sees images (8×8×1)", "--text", "why"),
    "no such image": ("none.png: no such file", "--image", "none.png"),
    "no such file": ("--file=none.csv: ", "--file", "none.csv"),
    "no folder to write to": ("no such folder: nowhere", "--image", "a.png", "--out", "nowhere/a.csv"),
    "a folder to write to": ("is a folder", "--image", "a.png", "--out", "."),
}


@pytest.mark.parametrize("what", BAD_COMMANDS)
def test_bad_commands_are_one_line(what: str, digits: Ran) -> None:
    said, *given = BAD_COMMANDS[what]
    with pytest.raises(SystemExit) as caught:
        main([str(digits.path), *given])
    assert str(caught.value.code).startswith("error: ")
    assert said in str(caught.value.code)
    assert "\n" not in str(caught.value.code)


def test_image_flag_for_a_text_router(texts: Ran) -> None:
    with pytest.raises(SystemExit, match="--image: this router sees the text prompt"):
        main([str(texts.path), "--image", "a.png"])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for given in ([], ["--help"], ["runs/x", "-h"]):
        main(given)
        assert "usage: l2d route RUN --text" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command(texts: Ran, command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    done = command(str(texts.path), f"--text={texts.queries[0]}", name="route", tiny=False)
    assert done.returncode == 0, done.stderr
    assert read(done.stdout)[0]["expert"] == "abc"[texts.saved()["guarded"][0]]
    wrong = command("nowhere", "--text=why", name="route", tiny=False)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "error: nowhere: no such folder; give one of runs/.../seed=<s>\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_table_of_images(tmp_path: Path) -> None:
    files = []
    for i, image in enumerate(Digits().load(Path()).train_inputs[:N].numpy()):
        files.append(f"{i}.png")
        Image.fromarray(15 * image[..., 0]).save(tmp_path / files[-1])
    cells = {"file": files, **{name: CELLS[name] for name in ("correct_a", "correct_b", "correct_c", "split")}}
    given = [f"dataset.path={write(tmp_path, cells)}", f"runs_dir={tmp_path / 'runs'}", "recipe=small"]
    image = ["dataset.image=file", "dataset.image_size=8", "router=resnet18_slim"]
    cfg = compose([*SPLIT, *given, *image, *SMALL])
    train(cfg)
    ran = Ran(RunFolder.of(to_plain(cfg)).path, None)
    router = Router.load(ran.path)
    check(router.route_file(write(tmp_path, {"file": files[-TEST:]})), router, ran.saved())
    check(router.route([tmp_path / file for file in files[-TEST:]]), router, ran.saved())


@pytest.mark.slow
@pytest.mark.skipif(locate("minilm") == MINILM, reason="the package with MiniLM's weights is not installed")
def test_text_through_a_pretrained_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings depend, in the last digits, on what else is in the batch."""
    pytest.importorskip("transformers")
    ran = trained(tmp_path, [row["prompt"] for row in rows("prompt")], *SPLIT, "dataset.text=prompt", "router=minilm")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    router = Router.load(ran.path)
    check(router.route(ran.queries), router, ran.saved())
    assert router.route(["why " * 25_000])[0].expert in "abc"
    assert list(empty.iterdir()) == []
