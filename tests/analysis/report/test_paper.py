"""The runs beside which the paper's number is shown."""

import pytest

from l2d.analysis.report.paper import papers_recipe
from l2d.config import check, compose
from l2d.config.identity import choices, settings_of

TABLE1 = ["dataset=svhn", "setup=III", "experts=synthetic", "cost=error"]


RUNS = {
    "": "fast",
    "recipe=paper recipe.precision=bf16-mixed recipe.compile=false": "paper",
    "experts=trained experts.recipe.precision=32-true trainer.deterministic=true": "fast",
    "method.rho=5": None,
    "recipe=paper recipe.epochs=2": None,
    "cost=error_plus_cost cost.prices=[1,1,1,1,1]": None,
    "decision=posterior": None,
}


@pytest.mark.slow
@pytest.mark.measured
def test_which_runs_are_the_papers() -> None:
    configs = [check(compose([*TABLE1, *overrides.split()])).plain for overrides in RUNS]
    recipes = [papers_recipe(tuple(choices(plain).values()), settings_of(plain)) for plain in configs]
    assert dict(zip(RUNS, recipes, strict=True)) == RUNS


@pytest.mark.slow
def test_what_is_not_the_papers_has_no_recipe() -> None:
    others = [("mine", "III", "synthetic", "error", "mild"), ("svhn", "III", "synthetic", "error", "of_my_own")]
    known = ("svhn", "III", "synthetic", "error", "mild")
    assert [papers_recipe(names, {}) for names in (*others, known)] == [None, None, "fast"]
    assert [papers_recipe(known, said) for said in ({"method.rho": 5.0}, {"recipe.epochs": 200})] == [None, "paper"]
