"""The scripts of examples/ that show the theory: the simplex, both readings of m_k, and the world of Figure 1."""

from pathlib import Path
from typing import Any

import figure1
import numpy as np
import pytest
import simplex
import torch
import two_readings
from consistency import judge
from scipy.integrate import quad

from l2d.core.costs import cheapest, sum_others
from l2d.core.rho import cheapest_counts, reward_mass, rho_shares
from l2d.experts.partition import class_owners
from l2d.experts.synthetic import synthetic_predictions


def f64(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_regions_of_the_simplex() -> None:
    """At the centre of each triangle argmax takes the largest p/ρ, and the posterior the largest p. Wrong regions are dark."""
    rho = f64([1.0, 0.6, 0.3])
    found = simplex.simplex_regions(rho, 10)
    p = found.corners.mean(dim=1)
    assert found.verdict.argmax.tolist() == (p / rho).argmax(dim=1).tolist()
    lost = p.amax(dim=1) - p[torch.arange(100), found.verdict.argmax]
    assert found.wrong == float((lost > 1e-9).double().mean()) > 0.2
    assert found.wrong_by_posterior == 0
    assert simplex.simplex_regions(f64([2.0, 2.0, 2.0]), 10).wrong == 0
    [regions] = simplex.simplex_figure(rho, found).axes[0].collections
    wanted = simplex.COLOURS[found.verdict.argmax] * np.where(lost > 1e-9, 0.6, 1.0)[:, None]
    np.testing.assert_allclose(np.asarray(regions.get_facecolor())[:, :3], wanted)


@pytest.mark.slow
def test_the_scripts_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simplex.main(str(tmp_path / "simplex.png"), "1", "0.6", "0.3")
    assert "29.4%" in capsys.readouterr().out
    assert (tmp_path / "simplex.png").read_bytes().startswith(b"\x89PNG")
    two_readings.main("10", "0.7", "0.2", "0.1")
    [first] = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("cheapest  ")][:1]
    assert first[-2:] == ["0.6300", "0.0000"]


def test_readings_by_hand() -> None:
    """Two classes, an expert for each, right by chance on half of the other's. Class 0: (0, 1) and (0, 0) with a half each; the
    reward of (0, 1) is all expert 0's, and (0, 0) has none. So each has a mass of a quarter; expert 1 is the cheapest only on its
    own class, if expert 0 is wrong there."""
    mass, first = two_readings.readings([0.5, 0.5], 2, offsets=[1.0], train=[1, 3], test=[1, 1])
    assert mass.shares.tolist() == pytest.approx([0.25, 0.75])
    assert first.shares.tolist() == pytest.approx([0.25 + 0.75 / 2, 0.75 / 2])
    assert first.rho.tolist() == pytest.approx((rho_shares(f64([0.625, 0.375])) + 1).tolist())
    assert first.decisions.tolist() == [0, 1]
    assert (first.deferral_loss, first.offset) == (0, 1)


def test_readings_against_a_simulation() -> None:
    """m_k of many drawn experts, and the decisions of the minimiser that is found numerically."""
    coverage, frequencies = [0.5, 0.2, 0.2, 0.1], [5, 3, 2, 2, 1, 1, 1, 1, 1, 1]
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.choice(10, size=200_000, p=np.array(frequencies) / sum(frequencies)))
    owners, prices = class_owners(coverage, 10), f64([0.3, 0.1, 0.2, 0.0])
    costs = (synthetic_predictions(labels, owners, rng) != labels[:, None]).double() + prices
    counts = {"reward_mass": reward_mass(sum_others(costs)), "cheapest": cheapest_counts(costs)}
    rule: dict[str, Any] = {"prices": prices.tolist(), "offsets": [0.0, 1.0]}
    found = two_readings.readings(coverage, 10, train=frequencies, test=frequencies, **rule)
    assert [(one.counts, one.offset) for one in found] == [(name, offset) for name in counts for offset in (0.0, 1.0)]
    errors, chances = two_readings.outcomes(owners)
    expected = chances @ (errors + prices)
    rewards = sum_others(expected)
    for one in found:
        shares = counts[one.counts] / counts[one.counts].sum()
        torch.testing.assert_close(one.shares, shares, atol=3e-3, rtol=0)
        torch.testing.assert_close(one.rho, rho_shares(one.shares) + one.offset)
        verdict = judge(rewards / rewards.sum(dim=1, keepdim=True), one.rho)
        assert one.decisions.tolist() == verdict.argmax.tolist()
        paid = costs[torch.arange(len(labels)), one.decisions[labels]].mean()
        assert one.deferral_loss == pytest.approx(float(paid), abs=5e-3)
        best = costs[torch.arange(len(labels)), cheapest(expected)[labels]].mean()
        assert one.oracle == pytest.approx(float(best), abs=5e-3)


def test_the_price_of_setup_i() -> None:
    """Section 6: .7² + .2² + .1² = .54, what a router pays that knows the class. An oracle that knows who is right pays less: on
    the first seven classes .1·.1 + .09·.2 + .81·.7 = .595, on the next two .1·.1 + .9·.2 = .19, on the last .1, together .4645."""
    prices = f64([0.7, 0.2, 0.1])
    owners = class_owners([0.7, 0.2, 0.1], 10)
    errors, chances = two_readings.outcomes(owners)
    by_class, oracle = chances @ (errors + prices), chances @ (errors + prices).amin(dim=1)
    assert by_class.argmin(dim=1).tolist() == owners.tolist()
    assert float(by_class.amin(dim=1).mean()) == pytest.approx(0.54)
    assert float(oracle.mean()) == pytest.approx(0.4645)


def test_the_world_is_as_described() -> None:
    """Four densities, the first expert the most accurate over most of the inputs, the dearest the most accurate at its best."""
    for k, centre in enumerate(figure1.CENTRES.tolist()):
        mass = quad(lambda x, k=k: float(figure1.class_densities(np.array([x]))[0, k]), -15, 15, points=[centre])[0]
        assert mass == pytest.approx(figure1.PRIORS[k], abs=1e-6)
    accuracy = figure1.expert_accuracies(figure1.GRID)
    assert ((accuracy > 0) & (accuracy < 1)).all()
    assert figure1.quadrature(torch.from_numpy(accuracy.argmax(axis=1) == 0).double()) > 0.6
    assert accuracy.max(axis=0).argmax() == 2
    assert figure1.PRICES.diff().min() > 0
    owners = figure1.expected_costs(figure1.GRID).argmin(dim=1)
    assert np.flatnonzero(np.diff(owners.numpy())).size == 2  # three regions, and not those of the four classes


@pytest.mark.slow
def test_what_is_learned(tmp_path: Path) -> None:
    """By how often an expert is the cheapest and without an offset, argmax is far from the optimum already at the minimiser, and
    the posterior is at it. By reward mass argmax is near it."""
    rho, decisions = figure1.decide(points=200, steps=50)
    assert [float(values.sum()) for values in rho.values()] == pytest.approx([1, 16, 1, 16])
    learned, best = ({name: figure1.expected_loss(both[i]) for name, both in decisions.items()} for i in (0, 1))
    optimum, collapsed = best["TDEF"], "MILD by cheapest, offset 0"
    assert optimum == pytest.approx(0.1540, abs=1e-4)
    assert [best[name] for name in best if "posterior" in name] == pytest.approx([optimum] * 4, abs=1e-6)
    assert best["MILD by reward_mass, offset 0, argmax"] < optimum + 0.01
    assert best[f"{collapsed}, argmax"] > optimum + 0.3
    assert learned[f"{collapsed}, argmax"] > learned[f"{collapsed}, posterior"] + 0.1
    assert learned["TDEF"] < optimum + 0.05
    figure1.figure(decisions).savefig(tmp_path / "figure1.png")
