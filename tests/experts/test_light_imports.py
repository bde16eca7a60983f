"""What is asked before anything runs is answered without torch."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "pytorch_lightning", "transformers", "sklearn")
LIGHT = ("cache", "human", "partition", "request", "synthetic", "trained", "llm.experts", "llm.models")


def test_experts_are_made_and_told_apart_without_torch(tmp_path: Path) -> None:
    """Importing them all, building some, and the identity of language models in a folder and on the hub."""
    (tmp_path / "config.json").write_text("{}")
    program = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module("l2d.experts." + name)
from l2d.experts.llm.experts import LLMExperts
from l2d.experts.synthetic import SyntheticExperts
from l2d.experts.human import HumanExperts
models = ["{tmp_path}", "Qwen/Qwen2.5-0.5B-Instruct@main"]
given = dict(seed=None, letters=["A", "B"], chat=True, dtype="auto", batch_size=1, table=None)
assert "Qwen" in LLMExperts(models=models, **given).identity()
HumanExperts(dataset="cifar10", people=1, machine=SyntheticExperts())
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {{*{HEAVY}}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
