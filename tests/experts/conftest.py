from pathlib import Path

import numpy as np
import pytest
import torch
from tests.experts.published_files import HUNDRED, TEN, VOTES, counts, hundred, ten


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "human").mkdir()
    torch.save(ten(), tmp_path / "human" / TEN)
    torch.save(hundred(), tmp_path / "human" / HUNDRED)
    np.save(tmp_path / "human" / VOTES, counts())
    return tmp_path
