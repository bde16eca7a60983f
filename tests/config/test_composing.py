"""conf/: every combination builds, choices bring along what belongs to them, typos fail, every file says what it is."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from tests.running import build
from tests.tiny_encoders import write_encoder

from l2d.assembly.make import make
from l2d.config import CONF, check, compose, groups, launchers, sweep_axes, titles, to_plain
from l2d.config.checking import read_component
from l2d.config.composing import override_text
from l2d.lightning.learner import PLAIN, speed
from l2d.networks.heads import HEADS

METHODS = sorted({*groups()["method"]} - {"category_table"})  # which images do not have
SOME_INPUTS = {
    "images": torch.arange(4 * 64, dtype=torch.uint8).view(4, 8, 8, 1),
    "rows": torch.linspace(-1, 1, 4).view(4, 1),
    "tokens": torch.arange(4, 4 + 4 * 6, dtype=torch.int32).view(4, 6),
}


@pytest.mark.full
def test_every_method_builds_and_takes_a_step() -> None:
    """With a narrow router; the widths and stems are built in the next test. Plans need answers."""
    for method in {*METHODS} - {"plan"}:
        data, router = build(compose(["setup=severe", "cost=error_plus_cost", f"method={method}", "router.width=2"]))
        inputs, costs, labels = next(iter(data.train_dataloader()))
        outputs = router(inputs)
        assert outputs.shape == (len(inputs), router.method.num_outputs)
        loss = router.method.loss(outputs, costs, labels).mean()
        if not router.method.fitted:
            loss.backward()
        assert torch.isfinite(loss)
        assert router.method.decide(outputs).max() < data.splits.train.costs.shape[1]


@pytest.mark.slow
@pytest.mark.parametrize("router", sorted(groups()["router"]))
def test_every_router_builds_with_every_head(router: str, tmp_path: Path) -> None:
    node = to_plain(compose([f"router={router}"]))["router"]
    if "model" in node:  # a pretrained one, which may not be here
        node["model"] = str(write_encoder(tmp_path, "deberta" if "deberta" in router else "bert"))
    component = read_component("router", node, None)
    for head in ("linear", "cosine"):
        network = make(component, mean=[0.5], std=[1.0], num_outputs=3, head=head).eval()
        outputs = network(SOME_INPUTS[network.expects])
        assert outputs.shape == (4, 3)
        assert isinstance(network.head, HEADS[head])


@pytest.mark.full
@pytest.mark.parametrize("group", [group for group in groups() if group != "experiment"])
def test_every_choice_is_composed_and_passes_the_checks(group: str) -> None:
    for choice in groups()[group]:
        needs = ["dataset=cifar10"] if choice == "human" else []
        experiment = check(compose([f"{group}={choice}", *needs]))
        part = getattr(experiment, group)
        if hasattr(part, "name"):
            assert part.name == experiment.plain[group]["name"] != ""


def test_which_choices_were_taken() -> None:
    names = {"cost": "error", "dataset": "mmlu_sim", "experiment": None, "experts": "table", "logger": "csv"}
    names |= {"method": "ce", "recipe": "table", "router": "hashed", "setup": "own", "trainer": "default"}
    made = compose(["dataset=mmlu_sim", "method=ce"], with_hydra=True).hydra.runtime.choices
    assert {group: made[group] for group in groups()} == names


@pytest.mark.slow
@pytest.mark.parametrize("experiment", sorted(groups()["experiment"]))
def test_every_experiment_is_composed_and_passes_the_checks(experiment: str) -> None:
    check(compose([f"experiment={experiment}"]))


@pytest.mark.slow
@pytest.mark.parametrize("dataset", sorted(groups()["dataset"]))
def test_datasets_say_their_name_and_their_augmentation(dataset: str) -> None:
    """The paper's recipe leaves SVHN as it is; digits and tables come with a router and a recipe of their own."""
    fast, paper = (compose([f"dataset={dataset}", f"recipe={recipe}"]) for recipe in ("fast", "paper"))
    assert fast.dataset.name == dataset
    rows = ("log", "table", "mmlu", "mmlu_sim")
    plain = dict.fromkeys(("digits", *rows), ("none", "none"))
    expected = {"svhn": ("crop", "none"), **plain}.get(dataset, ("crop_flip", "crop_flip"))
    assert (fast.recipe.augment, paper.recipe.augment) == expected
    default = compose([f"dataset={dataset}"])
    sizes = {"digits": (16, 64), **dict.fromkeys(rows, (128, 512))}.get(dataset, (64, 1024))
    assert (default.router.width, default.recipe.batch_size) == sizes


@pytest.mark.slow
def test_a_table_brings_its_router_recipe_setup_and_experts_unless_told_otherwise() -> None:
    cfg = compose(["dataset=table"])
    assert cfg.router.name == "mlp"
    assert (cfg.setup.name, cfg.experts.name, cfg.recipe.batch_size) == ("own", "table", 512)
    told = compose(["dataset=table", "router=resnet18", "recipe=small", "setup=I", "experts=synthetic"])
    assert told.router.name == "resnet18"
    assert (told.setup.name, told.experts.name, told.recipe.batch_size) == ("I", "synthetic", 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experts", "cases"),
    [
        ("trained", ["", "setup=I", "dataset=svhn"]),
        ("table", ["dataset=mmlu_sim", "dataset=table", "setup=llama", "dataset=mmlu setup=llama"]),
        ("llm", ["dataset=mmlu"]),
        ("synthetic", ["dataset=mmlu_sim experts=synthetic"]),
    ],
)
def test_the_experts_command_takes_trained_experts_unless_a_choice_brings_others(
    experts: str, cases: list[str]
) -> None:
    assert {compose(given.split(), name="experts").experts.name for given in cases} == {experts}
    assert compose().experts.name == "synthetic"  # of l2d train


@pytest.mark.slow
def test_the_search_command_searches_the_papers_grid_of_mild() -> None:
    cfg, plain = compose(name="tune"), compose()
    assert (cfg.tune.search, plain.tune.search) == ("paper", None)
    assert cfg.method.rho == plain.method.rho
    assert compose(["method=tdef"], name="tune").method.name == "tdef"


TABLE, TEXT, SMALL = (20, 1e-3, 512), (5, 5e-5, 32), (15, 1e-3, 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "recipe"),
    [
        (["dataset=mmlu", "router=deberta_v3_xsmall"], TEXT),
        (["dataset=mmlu_sim", "router=minilm_tuned", "recipe=small"], SMALL),
        (["dataset=table", "router=resnet18", "experts=trained"], TABLE),
        (["dataset=table", "router=minilm_tuned", "experts=trained"], TEXT),
    ],
    ids=str,
)
def test_a_text_router_brings_its_recipe_unless_told_otherwise(
    overrides: list[str], recipe: tuple[int, float, int]
) -> None:
    cfg = compose(overrides)
    for found in (cfg.recipe, cfg.experts.get("recipe", cfg.recipe)):  # trained experts share it
        assert (found.epochs, found.optimizer.lr, found.batch_size) == recipe


def test_a_text_router_reads_with_its_own_models_tokenizer() -> None:
    cfg = compose(["dataset=table", "router=deberta_v3_xsmall", "router.model=some/folder"])
    assert cfg.dataset.encoder.model == cfg.router.reads.model == "some/folder"


def test_the_papers_recipe() -> None:
    recipe = compose(["dataset=cifar10", "recipe=paper"]).recipe
    assert (recipe.epochs, recipe.batch_size, recipe.schedule) == (200, 1024, "constant")
    assert recipe.optimizer == {"_target_": "torch.optim.Adam", "lr": 1e-3, "weight_decay": 1e-3}


def test_a_cpu_switches_speed_off() -> None:
    experiment = check(compose(["dataset=svhn", "trainer.accelerator=cpu"]))
    assert speed(experiment.recipe, "cpu") == PLAIN


@pytest.mark.slow
def test_defaults() -> None:
    cfg = compose()
    named = {group: cfg[group].name for group in ("dataset", "setup", "experts", "cost", "method")}
    assert named == {"dataset": "digits", "setup": "III", "experts": "synthetic", "cost": "error", "method": "mild"}
    assert cfg.router.width == 16
    assert compose(["router=resnet18"]).router.width == 64
    rho = {"rule": "theory", "total": 1.0, "offset": 5.0, "counts": "reward_mass", "groups": None, "values": None}
    assert cfg.method.rho == rho
    assert (cfg.checkpoint, cfg.decision, cfg.seed) == ("last", "argmax", 0)


def test_what_an_experiment_runs_over() -> None:
    axes = sweep_axes(["experiment=table1_error", "dataset=svhn"])
    assert (axes["setup"], axes["seed"]) == ("I,II,III", "0,1,2,3,4")
    assert sweep_axes(["dataset=svhn"]) == {}


def test_every_file_says_what_it_is() -> None:
    for group, options in {**groups(), "hydra/launcher": launchers()}.items():
        for choice, meaning in options.items():
            assert len(meaning) > 10, f"{group}/{choice}.yaml must open with a comment that says what it is"
    assert groups()["experiment"]["table1_error"].startswith("Table 1 (a)")  # not its line for Hydra
    assert "hydra" not in groups()


def test_files_are_named_so_that_they_load() -> None:
    assert not [file for file in CONF.rglob("*") if file.is_file() and file.suffix != ".yaml"]


def test_titles_are_what_the_files_say() -> None:
    assert (titles()["dataset"]["cifar10"], titles()["cost"]["error"]) == ("CIFAR-10", "error")
    assert {*titles()["dataset"]} <= {*groups()["dataset"]}


def test_values_as_overrides() -> None:
    for value, text in ((None, "null"), (True, "true"), (0.1 + 0.2, "0.30000000000000004"), (2.0, "2"), ("a", "a")):
        assert override_text(value) == text
    assert override_text([1, None, (True, 0.5)]) == "[1, null, [true, 0.5]]"
    assert override_text({"a": [1], "b": {"c": False}}) == "{a: [1], b: {c: false}}"
    assert (override_text("a/b c-1.csv"), override_text("a,b (1).csv")) == ("a/b c-1.csv", "'a,b (1).csv'")
    for words in (["", "é"], ["données.csv", "日本"]):  # Hydra reads these only in quotes
        assert OverridesParser.create().parse_override(f"key={override_text(words)}").value() == words


def test_several_threads_compose_at_once() -> None:
    """As l2d.fit does in each job of a search with threads."""
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda seed: compose([f"seed={seed}"]).seed, range(8)))
    assert found == list(range(8))
