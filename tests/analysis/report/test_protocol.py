"""The runs beside which the paper's number is shown."""

import pytest

from l2d.analysis.report.protocol import papers_recipes
from l2d.config import check, compose
from l2d.config.identity import choices, settings_of

TABLE1 = ["dataset=svhn", "setup=III", "experts=synthetic", "cost=error"]


def recipe_of(*overrides: str) -> str | None:
    plain = check(compose([*TABLE1, *overrides])).plain
    [found] = papers_recipes([(tuple(choices(plain).values()), settings_of(plain))])
    return found


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize(
    ("overrides", "recipe"),
    [
        ([], "fast"),
        (["recipe=paper"], "paper"),
        (["recipe=paper", "recipe.precision=bf16-mixed", "recipe.compile=false"], "paper"),
        (["trainer.accelerator=cpu", "trainer.deterministic=true"], "fast"),
        (["experts=trained", "experts.recipe.precision=32-true"], "fast"),
        (["method.rho=5"], None),
        (["router=resnet18_slim"], None),
        (["recipe=paper", "recipe.epochs=2"], None),
        (["cost=error_plus_cost", "cost.prices=[1,1,1,1,1]"], None),
        (["cost=error_plus_cost", "cost.scale=0.5"], None),
        (["cost.noise=0.2"], None),
        (["experts=trained", "experts.cross_fit=3"], None),
        (["decision=posterior"], None),
    ],
    ids=str,
)
def test_which_runs_are_the_papers(overrides: list[str], recipe: str | None) -> None:
    assert recipe_of(*overrides) == recipe


@pytest.mark.slow
def test_what_is_not_the_papers_has_no_recipe() -> None:
    others = [("mine", "III", "synthetic", "error", "mild"), ("svhn", "III", "synthetic", "error", "of_my_own")]
    known = ("svhn", "III", "synthetic", "error", "mild")
    assert papers_recipes([(names, {}) for names in (*others, known)]) == [None, None, "fast"]
    assert papers_recipes([]) == []
    assert papers_recipes([(known, {"method.rho": 5.0}), (known, {"recipe.epochs": 200})]) == [None, "paper"]
