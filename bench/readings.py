"""The two readings of m_k for every setup and image set of the paper: exact, nothing is trained. Writes a table of docs/theory.md.

python bench/readings.py
"""

from l2d.analysis.theory.readings import readings
from l2d.config import check, compose
from provenance import ROOT
from records import put, title_of

PAGE = ROOT / "docs" / "theory.md"
SETUPS = ("I", "II", "III", "severe")
# Images of each digit in SVHN's training and test set. The classes of the other sets are equally frequent.
SVHN = (
    [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
)
SETS = {
    "svhn": (10, *SVHN),
    "cifar10": (10, None, None),
    "cifar100": (100, None, None),
    "tiny_imagenet": (200, None, None),
}


def table() -> str:
    lines = [
        "| dataset | setup | reward mass: share of m_k, % | largest ρ / least | DL"
        " | cheapest: share of m_k, % | largest ρ / least | DL | DL, offset 5 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for dataset, (classes, train, test) in SETS.items():
        for setup in SETUPS:
            coverage = check(compose([f"setup={setup}"])).setup.coverage
            assert coverage is not None
            mass, larger_mass, first, larger = readings(coverage, classes, train=train, test=test, offsets=(0.0, 5.0))
            cells = [title_of(dataset), setup]
            for one in (mass, first):
                shares = " / ".join(f"{100 * share:.1f}" for share in one.shares.tolist())
                cells += [shares, f"{float(one.rho.max() / one.rho.min()):.2f}", f"{one.deferral_loss:.3f}"]
            cells.append(f"{larger_mass.deferral_loss:.3f}, {larger.deferral_loss:.3f}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    put(PAGE, "readings", f"{table()}\n\n`python bench/readings.py`: exact expectations, no network, no sample.")


if __name__ == "__main__":
    main()
