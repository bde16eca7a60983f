"""Models of transformers that a config may name: readers of text that open no file but their own. Others do: timm_wrapper unpickles
model_args.checkpoint_path, BertJapaneseTokenizer loads libraries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from l2d.utils.errors import ParameterError

MODEL_TYPES = re.compile(
    "albert|bert|camembert|convbert|deberta(-v2)?|distilbert|electra|ernie|eurobert|gemma2?|gemma3_text|gpt2|gpt_neox?"
    "|llama|mistral|mobilebert|modernbert|mpnet|nomic_bert|nystromformer|opt|phi3?|qwen[23]|roberta(-prelayernorm)?"
    "|roformer|squeezebert|xlm-roberta(-xl)?"
)
TOKENIZERS = re.compile(
    "(Albert|Bert|Camembert|ConvBert|Deberta|DebertaV2|DistilBert|Electra|Gemma|GPT2|GPTNeoX|Llama|MPNet|MobileBert"
    "|Nystromformer|Qwen2|Roberta|RoFormer|SqueezeBert|XLMRoberta)Tokenizer(Fast)?"
    "|PreTrainedTokenizerFast|TokenizersBackend|SentencePieceBackend"
)
NOT_USED = frozenset(("_name_or_path", "name_or_path", "auto_map", "task_specific_params", "id2label", "label2id"))
FOUND_BESIDE = ("tokenizer_file", "special_tokens_map_file")  # wherever old configs say that they are
LARGEST = 1_000_000  # bytes of a config
MOST_LAYERS = 1_000
COUNTED = re.compile("num|layer|depth|_head$")  # keys of what is built one by one


def check_folder(model: str, where: str) -> None:
    """Refuse a folder with pipes or devices, which may never end, or with an adapter, which names another model."""
    for file in Path(where).iterdir() if Path(where).is_dir() else ():
        large = file.name in ("config.json", "tokenizer_config.json") and file.stat().st_size > LARGEST
        if large or file.name == "adapter_config.json" or not (file.is_file() or file.is_dir()):
            kinds = f"no regular file, an adapter (merge it with its model), or a config of more than {LARGEST:,} bytes"
            raise ParameterError("model", f"{file.name}: {kinds}", model)


def check_config(model: str, config: Mapping[str, Any]) -> None:
    kind = config.get("model_type")
    if not (isinstance(kind, str) and MODEL_TYPES.fullmatch(kind)):
        known = "not a text encoder that l2d knows; choose one such as BERT, MiniLM or DeBERTa"
        raise ParameterError("model", f"{known} (its type: {str(kind)[:40]})", model)
    waiting = [(key, key, value) for key, value in config.items() if key not in NOT_USED]
    while waiting:  # key: in the file; place: of a value in it
        key, place, part = waiting.pop()
        problem = "is not supported" if place == "quantization_config" and part is not None else ""
        if isinstance(part, dict):
            waiting += [(key, str(name), one) for name, one in part.items()]
        elif isinstance(part, list):
            waiting += [(key, place, one) for one in part]
        elif isinstance(part, str) and ("/" in part or "\\" in part):
            problem = "names a file or another model"
        elif isinstance(part, int) and COUNTED.search(place) and part > MOST_LAYERS:
            problem = f"is more than {MOST_LAYERS:,}"
        if problem:
            raise ParameterError("model", f"{key} in its config.json {problem}", model)


def check_tokenizer(model: str, config: Mapping[str, Any], kind: Any) -> None:
    """kind: the class of the tokenizer; None: that of the model's type."""
    if kind is not None and not (isinstance(kind, str) and TOKENIZERS.fullmatch(kind)):
        raise ParameterError("model", f"its tokenizer is of type {str(kind)[:40]}, not a known one", model)
    files = [name for name, value in config.items() if name.endswith("_file") and value and name not in FOUND_BESIDE]
    if named := [*files, *(["init_inputs"] if config.get("init_inputs") else [])]:
        raise ParameterError("model", f"{named[0]} in its tokenizer_config.json names a file", model)
