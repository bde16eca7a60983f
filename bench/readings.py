"""The two readings of m_k for every setup and image set of the paper: exact, nothing is trained. Writes a table of docs/theory.md.

python bench/readings.py
"""

import sys

from l2d.config import check, compose
from records import ROOT, markdown, title_of

sys.path.insert(0, str(ROOT / "examples"))
from two_readings import readings

SETUPS = ("I", "II", "III", "severe")
# Images of each digit in SVHN's training and test set. The classes of the other sets are equally frequent.
SVHN = (
    [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
)
SETS = {"svhn": (10, *SVHN), "cifar10": (10, None, None), "cifar100": (100, None, None)}


def page() -> str:
    lines = []
    for dataset, (classes, train, test) in SETS.items():
        for setup in SETUPS:
            coverage = check(compose([f"setup={setup}"])).setup.coverage
            assert coverage is not None
            mass, larger_mass, first, larger = readings(coverage, classes, train=train, test=test, offsets=(0.0, 5.0))
            lines.append([f"{title_of(dataset)} {setup}"])
            for one in (mass, first):
                ratio = f"{float(one.rho.max() / one.rho.min()):.2f}"
                lines[-1] += ["/".join(f"{100 * share:.1f}" for share in one.shares.tolist()), ratio]
                lines[-1].append(f"{one.deferral_loss:.3f}")
            lines[-1].append(f"{larger_mass.deferral_loss:.3f}, {larger.deferral_loss:.3f}")
    shares = "share of m_k, %"
    columns = (f"reward mass: {shares}", "largest ρ / least", "DL", f"cheapest: {shares}", "largest ρ / least", "DL")
    found = markdown(("cell", *columns, "DL, offset 5"), lines)
    return f"{found}\n\n`make evidence` (`bench/readings.py`): exact expectations, no network, no sample."
