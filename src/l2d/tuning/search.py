"""l2d tune: one search for each combination of the overrides. The seeds of an experiment are the winner's."""

from collections.abc import Sequence
from dataclasses import replace

from l2d.config import SearchSettings, check_search
from l2d.config.checking import SET_BY_SEARCH
from l2d.runs.cells import without_seed
from l2d.runs.sweep import Workshop
from l2d.tuning.study import NothingToSearch, Study, build_study
from l2d.utils.errors import L2DError

Combinations = dict[tuple[str, ...], list[int]]  # overrides of a search, and the seeds of its winner


def tune(shop: Workshop) -> None:
    """Run all searches; one that fails does not stop the others."""
    combinations = searched(shop.grid)
    given = {text for overrides in combinations for text in overrides}
    for key in SET_BY_SEARCH.keys() & {text.split("=")[0].lstrip("+~") for text in given}:
        raise L2DError(f"{key}: a search sets it itself; use {SET_BY_SEARCH[key]}")
    if {"evaluation=auto", "evaluation=cross_validate"} & given:
        raise L2DError("evaluation: a search judges trials on validation rows; use holdout, or tune.folds")
    if shop.config.force:
        raise L2DError("force=true: a search reuses finished runs; remove those that you want to re-run")
    # All are built before the first is run: a combination that cannot be searched fails at once.
    studies = build_studies(shop, combinations, check_search(shop.config.tune))
    if len(studies) > 1:
        trials = sum(len(study.trials) for study in studies)
        finals = sum(len(study.options.final_seeds) for study in studies)
        print(f"{len(studies)} searches: {trials} trials, then {finals} runs of the winners at most")
    failed = []
    for study in studies:
        try:
            study.run()
        except L2DError as error:
            failed.append(f"{study.title}: {error}")
    if failed:
        raise L2DError(f"{len(failed)} of {len(studies)} searches failed: {'; '.join(failed)}")


def searched(grid: Sequence[Sequence[str]]) -> Combinations:
    """The combinations to search, and the seeds of each winner if an experiment has seeds; else none."""
    found: Combinations = {}
    for overrides in grid:
        by_experiment = any(text.startswith("experiment=") for text in overrides)
        others = without_seed(overrides) if by_experiment else tuple(overrides)
        seeds = [int(text.removeprefix("seed=")) for text in overrides if text not in others]
        found.setdefault(others, []).extend(seeds)
    return found


def build_studies(shop: Workshop, combinations: Combinations, options: SearchSettings) -> list[Study]:
    """An experiment may have methods without ρ: they are left out, unless there are no others."""
    studies, left_out = list[Study](), dict[str, NothingToSearch]()
    for overrides, seeds in combinations.items():
        given, own, keys = list(overrides), options, {text.split("=")[0] for text in overrides}
        if seeds and "tune.final_seeds" not in keys:
            given.append(f"tune.final_seeds=[{','.join(map(str, seeds))}]")
            own = replace(options, final_seeds=seeds)
        try:
            studies.append(build_study(shop, given, own))
        except NothingToSearch as error:
            if "experiment" not in keys:
                raise
            left_out[error.parameter] = error
    if not studies:
        raise next(iter(left_out.values()))
    if left_out:
        print(f"left out, without ρ to search: {', '.join(left_out)}")
    return studies
