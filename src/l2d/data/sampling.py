"""Over- and undersampling: equally many training rows for each cheapest expert."""

import numpy as np
import torch
from torch import Tensor


def resample(groups: Tensor, sampling: str, rng: np.random.Generator) -> Tensor:
    """Sorted positions that make all groups equally large. groups int [n] -> int [m].

    over: as large as the largest; every row is kept, and rows of smaller groups are drawn again, with replacement. under: as small
    as the smallest, drawn without replacement.
    """
    members = [np.flatnonzero(groups.numpy() == group) for group in np.unique(groups.numpy())]
    sizes = [len(rows) for rows in members]
    if sampling == "over":
        members = [np.append(rows, rng.choice(rows, max(sizes) - len(rows))) for rows in members]
    else:
        members = [rng.choice(rows, min(sizes), replace=False) for rows in members]
    return torch.from_numpy(np.sort(np.concatenate(members)))
