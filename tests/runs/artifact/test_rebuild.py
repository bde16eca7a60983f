from pathlib import Path

import pytest
import yaml

from l2d.config import check, compose
from l2d.data.text.tokens import Tokens
from l2d.runs.artifact.rebuild import rebuild_encoder, rebuild_run
from l2d.utils.errors import L2DError


def test_a_rebuilt_encoder_reads_the_tokenizer_that_the_run_kept(tmp_path: Path) -> None:
    arguments = {"model": "some/model", "max_length": 64, "start_share": 0.25}
    described = {"_target_": "l2d.data.text.tokens.Tokens", **arguments}
    encoder = rebuild_encoder(described, {"model": str(tmp_path), "pretrained": False}, (), {})
    assert isinstance(encoder, Tokens)
    assert (encoder.model, encoder.max_length) == (str(tmp_path), 64)
    assert rebuild_encoder(None, {"model": str(tmp_path)}, (), {}) is None


def test_a_run_of_another_version_is_to_be_trained_again(tmp_path: Path) -> None:
    config = check(compose(["dataset=mmlu_sim", "router=minilm"])).plain
    router = {**config["router"], "reads": {**config["router"]["reads"]}}
    del router["reads"]["start_share"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, "router": router}), encoding="utf-8")
    (tmp_path / "metrics.json").touch()
    with pytest.raises(L2DError, match=r"start_share: .*another version"):
        rebuild_run(tmp_path)
