from pathlib import Path

from l2d.data.text.tokens import Tokens
from l2d.serving.rebuild import rebuild_encoder


def test_a_rebuilt_encoder_reads_the_tokenizer_that_the_run_kept(tmp_path: Path) -> None:
    arguments = {"model": "some/model", "max_length": 64, "start_share": 0.25}
    described = {"_target_": "l2d.data.text.tokens.Tokens", **arguments}
    encoder = rebuild_encoder(described, {"model": str(tmp_path), "pretrained": False}, ())
    assert isinstance(encoder, Tokens)
    assert (encoder.model, encoder.max_length) == (str(tmp_path), 64)
    assert rebuild_encoder(None, {"model": str(tmp_path)}, ()) is None
