"""The router that is an encoder: padding changes nothing, everything learns, and it is built again from what it keeps."""

from pathlib import Path

import pytest
import torch
from tests.tiny_encoders import KINDS, write_encoder

from l2d.data.text.pretrained import load_tokenizer
from l2d.data.text.tokens import PADDING, Tokens
from l2d.networks.heads import CosineHead
from l2d.networks.text import KEPT, TextEncoder
from l2d.utils.errors import ParameterError

transformers = pytest.importorskip("transformers")
TEXTS = ["war", "what is the capital of peru", "solve for x", "how many apples does anna buy " * 5, "river war"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write_encoder(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def build(folder: Path, pretrained: bool = True, dropout: float = 0.1, head: str = "linear") -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoder(model=str(folder), pretrained=pretrained, dropout=dropout, num_outputs=3, head=head)


def tokens(folder: Path, texts: list[str], length: int = 48) -> torch.Tensor:
    return torch.from_numpy(Tokens(model=str(folder), max_length=length, start_share=0.25).embed(texts))


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_a_texts_states_whatever_stands_beside_it(kind: str, encoders: dict[str, Path]) -> None:
    """The reference: transformers alone, one text at a time, nothing padded."""
    folder = encoders[kind]
    network = build(folder).eval()
    with torch.no_grad():
        together = network(tokens(folder, TEXTS))
    tokenizer = load_tokenizer(str(folder))
    model = transformers.AutoModel.from_pretrained(folder).eval()
    for text, row in zip(TEXTS, together, strict=True):
        with torch.no_grad():
            states = model(tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[0]
            torch.testing.assert_close(row, network.head(states.mean(0)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_learns(kind: str, encoders: dict[str, Path]) -> None:
    network = build(encoders[kind])
    assert all(module.training for module in network.modules())
    network(tokens(encoders[kind], TEXTS)).square().sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        shifts_all_scores_alike = name.endswith(("key.bias", "key_proj.bias"))
        assert weight.grad.abs().sum() > 0 or shifts_all_scores_alike, name


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # CPUs without bf16
def test_scores_are_whole_precision(encoders: dict[str, Path], tmp_path: Path) -> None:
    network = build(encoders["bert"], head="cosine")
    assert isinstance(network.head, CosineHead)
    # Where a CPU has no bf16, torch switches mkldnn off for good, and other tests would get other numbers.
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert network(tokens(encoders["bert"], TEXTS)).dtype == torch.float32
    finally:
        torch.backends.mkldnn.set_flags(True)
    halved = build(write_encoder(tmp_path, dtype=torch.bfloat16))
    assert {weight.dtype for weight in halved.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", KINDS)
def test_built_again_from_what_it_keeps(kind: str, encoders: dict[str, Path], tmp_path: Path) -> None:
    first = build(encoders[kind]).eval()
    first.keep(tmp_path)
    first.keep(tmp_path)  # a run that was killed and resumed
    kept = tmp_path / KEPT
    assert {file.name for file in kept.iterdir()} >= {"config.json", "tokenizer.json"}
    assert not list(kept.glob("*.safetensors"))
    arguments = TextEncoder.kept_arguments(tmp_path)
    assert arguments == {"model": str(kept), "pretrained": False}
    again = TextEncoder(dropout=0.1, num_outputs=3, head="linear", **arguments).eval()
    inputs = tokens(kept, TEXTS)
    assert torch.equal(inputs, tokens(encoders[kind], TEXTS))
    assert not torch.equal(again(inputs), first(inputs))
    again.load_state_dict(first.state_dict())
    assert torch.equal(again(inputs), first(inputs))


def test_texts_longer_than_it_reads(encoders: dict[str, Path]) -> None:
    """64 positions: one token more is too many, unless positions are relative. None at all still makes a number."""
    assert build(encoders["bert"]).eval()(torch.full((2, 8), PADDING, dtype=torch.int32)).isfinite().all()
    whole, longer = (torch.zeros(2, length, dtype=torch.int32) for length in (64, 65))
    assert build(encoders["bert"])(whole).shape == (2, 3)
    with pytest.raises(ParameterError, match=r"^reads\.max_length=65: .*64"):
        build(encoders["bert"])(longer)
    assert build(encoders["deberta"])(longer).shape == (2, 3)


def test_dropout_is_before_the_head_and_in_training_alone(encoders: dict[str, Path]) -> None:
    network, seen = build(encoders["bert"], dropout=0.5), list[torch.Tensor]()
    network.head.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    for training in (True, False):
        network.train(training)(tokens(encoders["bert"], TEXTS))
    assert 0.2 < float((seen[0] == 0).float().mean()) < 0.8
    assert seen[1].all()


def test_folders_without_an_encoder(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^model=.*: cannot be loaded"):
        build(tmp_path)
    transformers.T5Config(vocab_size=32, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2).save_pretrained(tmp_path)
    with pytest.raises(ParameterError, match=r"^model=.*: not a text encoder"):
        build(tmp_path, pretrained=False)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ParameterError, match=r"^model=.*: cannot be loaded"):
        build(tmp_path)
