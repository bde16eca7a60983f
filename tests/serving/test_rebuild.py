from pathlib import Path

from l2d.data.text.tokens import Tokens
from l2d.serving.rebuild import rebuild_encoder


def test_a_rebuilt_encoder_reads_the_tokenizer_that_the_run_kept(tmp_path: Path) -> None:
    described = {"_target_": "l2d.data.text.tokens.Tokens", "model": "some/model", "max_length": 64}
    encoder = rebuild_encoder(described, {"model": str(tmp_path), "pretrained": False}, ())
    assert isinstance(encoder, Tokens)
    assert (encoder.model, encoder.max_length) == (str(tmp_path), 64)
    assert rebuild_encoder(None, {"model": str(tmp_path)}, ()) is None
