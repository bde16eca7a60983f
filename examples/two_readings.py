"""Both readings of m_k for synthetic experts: python examples/two_readings.py 10 0.7 0.2 0.1

The first number is the number of classes, the others are the shares of the classes that the experts know. Prints the shares of m_k,
the ρ that follow, and the expected deferral loss of argmax and of the posterior decision at the exact minimum of MILD's loss.
"""

import sys

from l2d.analysis.theory.readings import readings
from l2d.utils.text import aligned


def main(classes: str = "10", *coverage: str) -> None:
    found = readings([float(share) for share in coverage or ("0.4", "0.2", "0.2", "0.1", "0.1")], int(classes))
    rows = [
        [
            one.counts,
            f"{one.offset:g}",
            ", ".join(f"{share:.3f}" for share in one.shares.tolist()),
            ", ".join(f"{value:.3f}" for value in one.rho.tolist()),
            f"{one.deferral_loss:.4f}",
            f"{one.oracle:.4f}",
        ]
        for one in found
    ]
    print(aligned(["m_k", "offset", "share of m_k", "ρ", "argmax", "posterior"], rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
