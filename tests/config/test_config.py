"""Composition: every combination builds, typos fail, help is complete."""

from pathlib import Path

import pytest
import torch
from hydra.errors import HydraException
from tests.running import build
from tests.tiny_encoders import write_encoder

from l2d.commands.hydra_command import help_text
from l2d.config import CONF, compose, groups, to_plain
from l2d.learning.learner import PLAIN, speed
from l2d.routing.build import switched_off
from l2d.routing.make import make
from l2d.utils.errors import L2DError
from l2d.utils.user_errors import one_line

METHODS, COSTS = sorted(groups()["method"]), ("error", "error_plus_cost")  # cost=llm is for three experts
SETUPS = ("I", "II", "III", "severe")
QUICK = ("III", "error")  # the others take as long again, each
CELLS = [
    pytest.param(*cell, marks=() if cell == QUICK else pytest.mark.slow) for cell in zip(SETUPS, COSTS * 2, strict=True)
]


@pytest.mark.parametrize(("setup", "cost"), CELLS)
def test_every_composition_builds_and_takes_a_step(setup: str, cost: str) -> None:
    """setup × cost × method, with a narrow router; the widths and stems are built in the next test."""
    for method in METHODS:
        data, router = build(compose([f"setup={setup}", f"cost={cost}", f"method={method}", "router.width=2"]))
        inputs, costs, labels = next(iter(data.train_dataloader()))
        outputs = router(inputs)
        assert outputs.shape == (len(inputs), router.method.num_outputs)
        loss = router.method.loss(outputs, costs, labels).mean()
        loss.backward()
        assert torch.isfinite(loss)
        assert router.method.decide(outputs).max() < data.num_experts


@pytest.mark.parametrize("router", sorted(groups()["router"]))
def test_every_router_builds_with_every_head(router: str, tmp_path: Path) -> None:
    node = compose([f"router={router}"]).router
    if "model" in node:  # a pretrained one, which may not be here
        node.model = str(write_encoder(tmp_path, "deberta" if "deberta" in router else "bert"))
    for head in ("linear", "cosine"):
        make(node, mean=[0.5], std=[1.0], num_outputs=3, head=head)


def test_the_other_groups_compose() -> None:
    for group in ("dataset", "recipe", "trainer", "logger"):
        for choice in groups()[group]:
            assert to_plain(compose([f"{group}={choice}"]))[group]


@pytest.mark.parametrize("dataset", sorted(groups()["dataset"]))
def test_datasets_say_their_name_and_their_augmentation(dataset: str) -> None:
    """The paper's recipe leaves SVHN as it is; digits and tables come with a router and a recipe of their own."""
    fast, paper = (compose([f"dataset={dataset}", f"recipe={recipe}"]) for recipe in ("fast", "paper"))
    assert fast.dataset.name == dataset
    plain = ("none", "none")
    rows = dict.fromkeys(("digits", "table", "mmlu", "mmlu_sim"), plain)
    expected = {"svhn": ("crop", "none"), **rows}.get(dataset, ("crop_flip", "crop_flip"))
    assert (fast.recipe.augment, paper.recipe.augment) == expected
    default = compose([f"dataset={dataset}"])
    expected_sizes = {"digits": (16, 64), **dict.fromkeys(("table", "mmlu", "mmlu_sim"), (128, 128))}.get(
        dataset, (64, 1024)
    )
    assert (default.router.width, default.recipe.batch_size) == expected_sizes


def test_a_table_brings_its_router_recipe_setup_and_experts_unless_told_otherwise() -> None:
    cfg = compose(["dataset=table"])
    assert cfg.router._target_.endswith("MLP")
    assert (cfg.setup.name, cfg.experts.name, cfg.recipe.batch_size) == ("own", "table", 128)
    told = compose(["dataset=table", "router=resnet18", "recipe=small", "setup=I", "experts=synthetic"])
    assert told.router._target_.endswith("ResNet18")
    assert (told.setup.name, told.experts.name, told.recipe.batch_size) == ("I", "synthetic", 64)


TABLE, TEXT, SMALL = (20, 1e-3, 128), (5, 5e-5, 32), (15, 1e-3, 64)


@pytest.mark.parametrize(
    ("overrides", "recipe"),
    [
        (["dataset=mmlu", "router=deberta_v3_xsmall"], TEXT),
        (["dataset=table", "router=minilm_tuned"], TEXT),
        (["dataset=mmlu_sim", "router=minilm_tuned", "recipe=small"], SMALL),
        (["dataset=mmlu", "router=minilm"], TABLE),
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


def test_a_cpu_switches_speed_off_and_says_so() -> None:
    cfg = compose(["dataset=svhn", "trainer.accelerator=cpu"])
    assert speed(cfg.recipe, "cpu") == PLAIN
    assert (
        switched_off(cfg)
        == "recipe.precision=32-true recipe.channels_last=false recipe.compile=false recipe.fused=false"
    )
    assert switched_off(compose(["trainer.accelerator=cpu"])) == ""


def test_defaults() -> None:
    cfg = compose()
    named = {group: cfg[group].name for group in ("dataset", "setup", "experts", "cost", "method")}
    assert named == {"dataset": "digits", "setup": "III", "experts": "synthetic", "cost": "error", "method": "mild"}
    assert cfg.router.width == 16
    assert compose(["router=resnet18"]).router.width == 64
    assert cfg.method.rho == {
        "rule": "uniform",
        "total": 1.0,
        "offset": 5.0,
        "counts": "cheapest",
        "groups": None,
        "values": None,
    }
    assert (cfg.checkpoint, cfg.decision, cfg.seed) == ("last", "argmax", 0)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("method=mld", "mld"),
        ("method.rhoo=1", "rhoo"),
        ("sed=1", "sed"),
        ("seed=abc", "seed"),
        ("setup.coverage=[a,b]", "setup.coverage"),
        ("recipe.epochs=1.5", "recipe.epochs"),
    ],
)
def test_typos_fail_while_composing(override: str, words: str) -> None:
    with pytest.raises(HydraException) as caught:
        compose([override])
    line = one_line(caught.value)
    assert "\n" not in line
    assert "To append" not in line
    assert "search path" not in line
    assert words in line


@pytest.mark.parametrize(
    ("override", "key"), [("+sed=1", "sed"), ("+setup.covrage=[1]", "setup.covrage"), ("+recipe.lr=1", "recipe.lr")]
)
def test_added_keys_that_nothing_reads_are_refused(override: str, key: str) -> None:
    with pytest.raises(L2DError, match=rf"^{key}: unknown key"):
        build(compose([override]))


def test_unknown_keys_of_a_class_are_named() -> None:
    cfg = compose(["+method.margin=3"])
    with pytest.raises(L2DError, match=r"^method: .*'margin'.*CompSum"):
        make(cfg.method, costs=torch.eye(2), num_classes=2, decision="argmax")


def test_help_names_every_choice_and_what_it_means() -> None:
    text = help_text("l2d")
    for group, options in groups().items():
        assert f"\n  {group}\n" in text
        for choice, meaning in options.items():
            assert len(meaning) > 10, f"{group}/{choice}.yaml must open with a comment that says what it is"
            assert choice in text
            assert meaning in text
    for key in ("seed", "decision", "checkpoint", "validation_fraction", "runs_dir", "progress", "force"):
        assert f"\n  {key}: " in text


def test_help_names_the_defaults() -> None:
    assert "\ndefaults: cost=error dataset=digits experts=synthetic logger=csv method=mild recipe=small" in help_text(
        "l2d"
    )
    assert (
        "router=resnet18_slim setup=III trainer=default (image sets: router=resnet18 recipe=fast; tables: router=mlp recipe=table)\n"
        in help_text("l2d")
    )


def test_files_are_named_so_that_they_load() -> None:
    assert not [file for file in CONF.rglob("*") if file.is_file() and file.suffix != ".yaml"]
