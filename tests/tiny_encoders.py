"""Text encoders with random weights, small enough to be made and trained within a test."""

import functools
import warnings
from pathlib import Path
from typing import Any

import torch

# fmt: off
WORDS = [
    "what", "is", "the", "capital", "of", "peru", "how", "many", "apples", "does", "anna", "buy", "solve", "for", "x",
    "history", "war", "river", "matrix", "bird",
]
# fmt: on
KINDS = ("bert", "deberta")


def write_tokenizer(folder: Path, pad: bool = True, length: int = 64) -> None:
    """A word is a token."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    numbers = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        **({"pad_token": "[PAD]"} if pad else {}),
    }
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=length, **names).save_pretrained(folder)


@functools.cache
def config_of(kind: str) -> Any:
    from transformers import BertConfig, DebertaV2Config

    sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 64}
    if kind == "bert":
        return BertConfig(**sizes)
    # as DeBERTa-v3: positions are relative, and shared with the keys
    relative = {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 16,
        "max_relative_positions": -1,
    }
    shared = {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0}
    return DebertaV2Config(**sizes, **relative, **shared)


def write_encoder(folder: Path, kind: str = "bert", dtype: torch.dtype = torch.float32, **tokenizer: Any) -> Path:
    """As save_pretrained leaves it."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    write_tokenizer(folder, **tokenizer)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)  # by DeBERTa's file in transformers
        torch.manual_seed(0)
        AutoModel.from_config(config_of(kind)).to(dtype).save_pretrained(folder)
    return folder
