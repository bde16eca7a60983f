"""The simplex and the world of Figure 1."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from scipy.integrate import quad

from l2d.analysis.theory import figure1, simplex
from l2d.analysis.theory.figure1 import CENTRES, GRID, PRICES, PRIORS, SPREADS
from l2d.utils.seeding import stream


def f64(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_triangles_cover_the_simplex() -> None:
    corners = simplex.simplex_triangles(7)
    assert corners.shape == (49, 3, 3)
    np.testing.assert_allclose(corners.sum(dim=-1), 1)
    assert float(corners.min()) >= -1e-15
    areas = [abs(np.linalg.det(np.stack([b - a, c - a]))) for a, b, c in corners.numpy()[:, :, :2]]
    np.testing.assert_allclose(areas, 1 / 49)


def test_decision_regions() -> None:
    """argmax is the region of p/ρ; wrong on a part of the simplex, nowhere with equal ρ, and posterior nowhere with any."""
    rho = f64([1.0, 0.6, 0.3])
    found = simplex.simplex_regions(rho, 20)
    p = found.corners.mean(dim=1)
    by_hand = (p / rho).argmax(dim=1)
    ties = (p / rho).sort(dim=1).values
    clear = ties[:, -1] - ties[:, -2] > 1e-9
    assert (found.verdict.argmax == by_hand)[clear].all()
    assert found.wrong == pytest.approx(0.29, abs=0.02)
    assert found.wrong_by_posterior == 0
    assert simplex.simplex_regions(f64([2.0, 2.0, 2.0]), 20).wrong == 0
    picture = simplex.simplex_figure(rho, found, f64([[0.5, 0.3, 0.2]]))
    assert len(picture.axes) == 2
    assert f"{found.wrong:.1%}" in picture.axes[0].get_title()
    assert "0.0%" in picture.axes[1].get_title()
    for axes in picture.axes:
        [star] = [line for line in axes.lines if line.get_marker() == "*"]
        np.testing.assert_allclose(np.asarray(star.get_xydata(), float), [[0.3 + 0.2 / 2, 0.2 * np.sqrt(0.75)]])


def test_what_the_simplex_shows() -> None:
    """At the centre of each triangle argmax takes the largest p/ρ. The posterior takes the largest p, which is never wrong."""
    rho = f64([1.0, 0.6, 0.3])
    found = simplex.simplex_regions(rho, 10)
    p = found.corners.mean(dim=1)
    chosen, best = found.verdict.argmax, found.verdict.optimal
    lost = p.amax(dim=1) - p[torch.arange(100), chosen]
    first, second, _ = simplex.simplex_text(rho, found).splitlines()
    wrong = int((lost > 1e-9).sum())
    assert first == f"argmax f misses the best expert on {wrong}.0% of the simplex, posterior on 0.0%."
    assert second == f"The most that argmax loses at these 100 points: {float(lost.max()):.4f}·C(x)."
    dark = np.where(lost > 1e-9, 0.6, 1.0)[:, None]
    top = p.topk(2, dim=1).values
    clear = (top[:, 0] - top[:, 1] > 1e-9).numpy()
    colours = (simplex.COLOURS[chosen] * dark, simplex.COLOURS[best])
    for axes, wanted in zip(simplex.simplex_figure(rho, found).axes, colours, strict=True):
        [regions] = axes.collections
        np.testing.assert_allclose(np.asarray(regions.get_facecolor())[clear, :3], wanted[clear])
        assert [text.get_text() for text in axes.texts] == ["expert 1", "expert 2", "expert 3"]


def test_the_world_is_as_described() -> None:
    """Four densities, the first expert the most accurate over most of the inputs, the dearest the most accurate at its best."""
    for k in range(4):
        mass = quad(
            lambda x, k=k: float(figure1.class_densities(np.array([x]))[0, k]), -15, 15, points=[float(CENTRES[k])]
        )[0]
        assert mass == pytest.approx(PRIORS[k], abs=1e-6)
    accuracy = figure1.expert_accuracies(GRID)
    assert ((accuracy > 0) & (accuracy < 1)).all()
    first = figure1.quadrature(torch.from_numpy(accuracy.argmax(axis=1) == 0).double())
    assert first > 0.6
    assert accuracy.max(axis=0).argmax() == 2
    assert PRICES.diff().min() > 0
    owners = figure1.expected_costs(GRID).argmin(dim=1)
    assert np.flatnonzero(np.diff(owners.numpy())).size == 2  # three regions, and not those of the four classes


def test_losses_by_another_quadrature() -> None:
    """Always expert k: ∫ density·(1 − accuracy_k + β_k) dx."""
    for k in range(3):

        def integrand(x: float, k: int = k) -> float:
            at = np.array([x])
            return float(figure1.class_densities(at).sum()) * (
                1 - float(figure1.expert_accuracies(at)[0, k]) + float(PRICES[k])
            )

        slow = quad(integrand, -10, 10, points=[-3, 0, 3], limit=200)[0]
        assert figure1.expected_loss(torch.full((len(GRID),), k)) == pytest.approx(slow, abs=1e-4)


def test_sample_has_the_expected_costs() -> None:
    x, costs = figure1.draw_sample(40000, np.random.default_rng(0))
    assert float(x.mean()) == pytest.approx(float((PRIORS * CENTRES).sum()), abs=0.05)
    assert float(x.std()) > SPREADS.max()
    assert torch.allclose(costs - PRICES, (costs - PRICES).round())
    for k in range(3):
        always = figure1.expected_loss(torch.full((len(GRID),), k))
        assert float(costs[:, k].mean()) == pytest.approx(always, abs=0.01)


def test_what_is_shown_of_a_method() -> None:
    """It has learned to ask expert 1 up to the middle of the grid and then expert 3; its minimiser always asks expert 2."""
    learned = torch.where(torch.arange(len(GRID)) < 1400, 0, 2)
    row = figure1.Figure1Row("Mine", learned, torch.ones_like(learned))
    optimal = figure1.expected_costs(GRID).argmin(dim=1)
    world = figure1.Figure1World(optimal, f64([0.5, 0.25, 0.25]), {"MILD": f64([5.5, 5.25, 5.25])}, [row])
    lines = figure1.figure1_text(world).splitlines()
    assert lines[:2] == ["how often each expert is the cheapest: 0.5 0.25 0.25", "ρ of MILD: 5.5 5.25 5.25"]
    assert lines[3].split("  ")[1:] == ["learned", " excess", "minimiser", " excess"]
    [shown] = [line.split() for line in lines if line.startswith("Mine")]
    assert shown == ["Mine", f"{row.learned_loss:.4f}", f"{row.learned_loss - world.optimum:+.4f}", "0.6508", "+0.4967"]
    top, bottom = figure1.figure1_picture(world).axes
    assert max(np.asarray(path.vertices)[:, 1].max() for one in top.collections for path in one.get_paths()) == 1
    bars = [bar for bar in bottom.patches if isinstance(bar, Rectangle) and bar.get_y() < 0.5]
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars] == [
        pytest.approx((-7, 0)),
        pytest.approx((0, 7)),
    ]
    assert [bar.get_facecolor() for bar in bars] == [to_rgba("0.75"), to_rgba("0.1")]


def test_the_shares_are_those_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure1, "train_small_network", lambda *_, **__: torch.zeros(len(GRID), 3, dtype=torch.float64))
    world = figure1.figure1_world(points=50, steps=1, offsets=[2.0], seed=3)
    _, costs = figure1.draw_sample(50, stream(3, "figure1 sample"))
    cheapest = [min(range(3), key=row.__getitem__) for row in costs.tolist()]
    counts = np.array([cheapest.count(k) for k in range(3)])
    np.testing.assert_allclose(world.shares, counts / 50)
    rewards = costs.sum(dim=1, keepdim=True) - costs
    mass = (rewards / rewards.sum(dim=1, keepdim=True)).sum(dim=0).numpy()
    for name, m in (("reward_mass", mass), ("cheapest", counts)):
        expected = np.cbrt(m) / np.cbrt(m).sum() + 2
        np.testing.assert_allclose(world.rho[f"MILD by {name}, offset 2"], expected, rtol=1e-6)


@pytest.mark.slow
def test_what_is_learned() -> None:
    """Without an offset. By how often an expert is the cheapest, argmax is far from the optimum already at the minimiser, and the
    posterior is at it. By reward mass argmax is near it. Same seed, same decisions."""
    world = figure1.figure1_world(points=200, steps=50, offsets=[0.0], seed=0)
    tdef, mass, mass_posterior, argmax, posterior = world.rows
    assert all(rho.sum() == pytest.approx(1) for rho in world.rho.values())
    assert mass.limit_loss < world.optimum + 0.01
    assert mass_posterior.limit_loss == pytest.approx(world.optimum, abs=1e-6)
    assert tdef.limit_loss == pytest.approx(world.optimum, abs=1e-6)
    assert posterior.limit_loss == pytest.approx(world.optimum, abs=1e-6)
    assert argmax.limit_loss > world.optimum + 0.3
    assert argmax.learned_loss > posterior.learned_loss + 0.1
    assert tdef.learned_loss < world.optimum + 0.05
    again = figure1.figure1_world(points=200, steps=50, offsets=[0.0], seed=0)
    assert all(torch.equal(one.learned, other.learned) for one, other in zip(world.rows, again.rows, strict=True))
    picture = figure1.figure1_picture(world)
    assert [text.get_text().rsplit("  ", 1)[0] for text in picture.axes[1].get_yticklabels()] == [
        "MILD by cheapest, offset 0, posterior",
        "MILD by cheapest, offset 0, argmax",
        "MILD by reward_mass, offset 0, posterior",
        "MILD by reward_mass, offset 0, argmax",
        "TDEF",
        "optimal",
    ]
