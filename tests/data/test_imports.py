"""Datasets and encoders are light to import: a finished run is recognised without torch."""

import subprocess
import sys
from pathlib import Path

SETS, TEXT = ["digits", "images", "mmlu", "mmlu_sim", "table"], ["encoders", "pretrained", "tokens"]
LIGHT = ["arrays", "importers.harness", "sheet", *(f"sets.{name}" for name in SETS), *(f"text.{name}" for name in TEXT)]
HEAVY = "torch", "torchvision", "sklearn", "scipy", "transformers", "PIL", "pyarrow", "huggingface_hub"

FINGERPRINTS = """
from pathlib import Path
from l2d.data.sets.digits import Digits
from l2d.data.sets.images import CIFAR100N, SVHN
from l2d.data.sets.mmlu import MMLU
from l2d.data.sets.mmlu_sim import MMLUSim
from l2d.data.text.encoders import Embeddings, Hashed
from l2d.data.text.tokens import Tokens

folder = Path(sys.argv[1])
(folder / "t.csv").write_text("prompt,answer")
reader = Embeddings(model=str(folder), max_length=8, start_share=0.25, batch_size=1)
given = dict(experts=None, outcome="correct", features=None, image=None, image_size=32, label="answer", category=None, split_by=None)
table = MMLU(path=str(folder / "t.csv"), text="prompt", encoder=reader, only=None, split=None, test_fraction=0.5, **given)
sets = [Digits(), SVHN(), CIFAR100N(), table]
tokens = Tokens(model=str(folder), max_length=8, start_share=0.25)
sets += [MMLUSim(questions=100, encoder=one, label="answer") for one in (Hashed(), tokens)]
known = [one.fingerprint(folder) for one in sets]
assert known[:3] == ["", "", ""] and all(len(one) == 16 for one in known[3:]), known
"""


def heavy_after(code: str, *arguments: str) -> str:
    """The heavy modules that code has imported, in a fresh process."""
    ask = f"import sys\n{code}\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", ask, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_light_modules_import_nothing_heavy() -> None:
    """One process for all of them: `first` is the first module after which something heavy was there."""
    code = f"""
import importlib
first = ""
for module in {LIGHT}:
    importlib.import_module("l2d.data." + module)
    if not first and any(name in sys.modules for name in {HEAVY}):
        first = module
print(first, end=" ")
"""
    assert heavy_after(code) == ""


def test_fingerprints_import_nothing_heavy(tmp_path: Path) -> None:
    assert heavy_after(FINGERPRINTS, str(tmp_path)) == ""
