"""A run folder from somebody else: reading it builds l2d's own classes, and nothing in it can run code or write files."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.router.finished import Untrained, query_rows, untrained
from tests.tiny_encoders import write_encoder

from l2d.commands.route import main
from l2d.core.guard import Guard
from l2d.data.text.encoders import Embeddings
from l2d.data.text.pretrained import load_tokenizer
from l2d.data.text.tokens import Tokens
from l2d.networks.text import TextEncoder
from l2d.router.router import Router
from l2d.runs.artifact.exported import FILE, read_weights, write_weights
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError

Config = dict[str, Any]
PROMPTS = [row["prompt"] for row in query_rows("prompt")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return untrained(tmp_path_factory.mktemp("run"), "dataset.text=prompt", "dataset.features=[]", "method=mild")


@pytest.fixture
def folder(run: Untrained, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run.path, tmp_path / "seed=0"))


def evil_targets(marker: Path) -> dict[str, Config]:
    """Components that would leave `marker` behind if they were called."""
    return {
        "shutil.copy": {"_target_": "shutil.copy", "src": __file__, "dst": str(marker)},
        "os.system": {"_target_": "os.system", "command": f"touch {marker}"},
        "builtins.eval": {"_target_": "builtins.eval", "_args_": [f"open({str(marker)!r}, 'w')"]},
        "pathlib.Path.touch": {"_target_": "pathlib.Path.touch", "self": str(marker)},
        "our function": {"_target_": "l2d.utils.files.write_text", "path": str(marker), "text": "evil"},
        "our function among classes": {"_target_": "l2d.data.sheet.write_sheet", "path": str(marker), "columns": {}},
        "an import of ours": {"_target_": "l2d.data.sets.prepared.np.save", "file": str(marker), "arr": [1]},
        "a class that ours imports": {"_target_": "l2d.data.sheet.Path", "path": str(marker)},
        "a method of our class": {"_target_": "l2d.runs.folder.RunFolder.pause", "self": str(marker), "epoch": 1},
        "our class of another kind": {"_target_": "l2d.runs.folder.RunFolder", "path": str(marker)},
        "our private name": {"_target_": "l2d.data.sheet._read_csv", "path": str(marker)},
        "no module": {"_target_": "print", "_args_": [str(marker)]},
        "nothing": {"_target_": ""},
        "not a name": {"_target_": ["os", "system"]},
        "our room, no such file": {"_target_": "l2d.methods.none.deeper.Evil"},
    }


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(L2DError) as caught:
        act()
    said = str(caught.value)
    assert "\n" not in said
    return said


def place_evil(folder: Path, place: str, evil: Config) -> None:
    config = RunFolder(folder).config()
    if place in ("method", "router"):
        config[place] = {"name": config[place]["name"], **evil}
    else:
        config["method"] |= {"tau": evil} if place == "nested" else {"rewards": {"kind": [{"of": evil}]}}
    RunFolder(folder).write_config(config)


@pytest.mark.parametrize("place", ["method", "router", "nested", "deeper"])
def test_only_our_own_classes_are_built(place: str, run: Untrained, folder: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for what, evil in evil_targets(tmp_path / "marker").items():
        place_evil(folder, place, evil)
        said = refused(lambda: Router.load(folder))
        assert sorted(tmp_path.rglob("*")) == before
        if what == "os.system" and place in ("method", "router"):  # it names the class and the way out
            assert said.startswith(f"{place}: os.system ")
            assert "--trust os" in said
        RunFolder(folder).write_config(RunFolder(run.path).config())


def test_the_encoder_in_the_header(folder: Path, tmp_path: Path) -> None:
    weights, description = read_weights(folder / FILE)
    before = sorted(tmp_path.rglob("*"))
    for evil in evil_targets(tmp_path / "marker").values():
        write_weights(folder / FILE, weights, replace(description, encoder=evil))
        refused(lambda: Router.load(folder).route(["why"]))
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "hidden",
    [
        "${oc.create:{_target_:os.system,command:'touch MARKER'}}",
        "${oc.decode:'{_target_: os.system}'}",
        '${eval:\'open("MARKER", "w")\'}',
        "${router.width}",
    ],
)
def test_interpolations_stay_dead(hidden: str, folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    config = RunFolder(folder).config()
    config["method"]["tau"] = hidden.replace("MARKER", str(marker))
    RunFolder(folder).write_config(config)
    assert refused(lambda: Router.load(folder)).startswith("method.tau=${")
    config["method"] = hidden.replace("MARKER", str(marker))
    RunFolder(folder).write_config(config)
    refused(lambda: Router.load(folder))
    assert not marker.exists()


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    "more",
    [BOMB, "loop: &loop [*loop]", f"deep: {'[' * 5_000}{']' * 5_000}", f"deep: {'[' * 99}{']' * 99}", "#" * 1_100_000],
)
def test_yaml_that_is_endless(more: str, folder: Path) -> None:
    with (folder / "config.yaml").open("a") as file:
        file.write(f"\n{more}\n")
    assert "config.yaml: damaged" in refused(lambda: Router.load(folder))


def test_a_pipe_as_config(folder: Path) -> None:
    (folder / "config.yaml").unlink()
    os.mkfifo(folder / "config.yaml")
    assert "no config.yaml" in refused(lambda: Router.load(folder))


GUARD = Guard(None, None, 0, 0.1, 0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"experts": ("a", "a", "b")},
        {"experts": ("a", 1, None)},
        {"experts": ()},
        {"experts": tuple(map(str, range(2_000)))},
        {"prices": ("1", "2", "3")},
        {"prices": (1.0, 2.0)},
        {"prices": (1.0, 2.0, float("nan"))},
        {"factor": float("inf")},
        {"num_classes": -1},
        {"shape": (10**6, 10**6)},
        {"shape": (0,)},
        {"shape": (True,)},
        {"encoder": ["x"]},
        {"guard": replace(GUARD, constant=99)},
        {"guard": replace(GUARD, constant=-1)},
        {"guard": replace(GUARD, best=3)},
        {"guard": replace(GUARD, offsets=(1.0, 2.0))},
        {"guard": replace(GUARD, offsets=("a", "b", "c"))},  # type: ignore[arg-type]
    ],
)
def test_a_description_that_does_not_fit(wrong: Config, folder: Path) -> None:
    weights, description = read_weights(folder / FILE)
    write_weights(folder / FILE, weights, replace(description, **wrong))
    assert "damaged" in refused(lambda: Router.load(folder))


@pytest.mark.parametrize(
    "wrong",
    [
        {"held_out.more": torch.zeros(1)},
        {"training_inputs.more": torch.zeros(1)},
        {"network.more": torch.zeros(1)},
        {"network.price_model.weight": torch.zeros(3)},
        {"network.price_model.weight": torch.zeros(9, 9)},
        {"network.mean": torch.full((59,), torch.nan)},
        {"network.mean": torch.zeros(2, 2)},
        {"held_out.errors": torch.zeros(4, 2)},
        {"held_out.expected": torch.full((4, 3), torch.nan), "held_out.errors": torch.zeros(4, 3)},
    ],
)
def test_tensors_that_do_not_fit(wrong: Config, folder: Path) -> None:
    weights, description = read_weights(folder / FILE)
    write_weights(folder / FILE, {**weights, **wrong}, description)
    assert FILE in refused(lambda: Router.load(folder))


@pytest.mark.parametrize("sizes", [{"width": 10**9}, {"width": 2**62}, {"depth": 10**8}, {"width": 7}])
def test_sizes_that_no_weights_have(sizes: Config, folder: Path) -> None:
    config = RunFolder(folder).config()
    config["router"] |= sizes
    RunFolder(folder).write_config(config)
    assert "force=true" in refused(lambda: Router.load(folder))


def test_tags_of_yaml(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    evil = f"\nevil: !!python/object/apply:os.system ['touch {marker}']\n"
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + evil)
    assert "config.yaml: damaged" in refused(lambda: Router.load(folder))
    assert not marker.exists()


def test_what_is_not_built_may_be_anything(folder: Path, tmp_path: Path) -> None:
    """A run on somebody's own dataset can be asked without it: dataset, experts and logger are left alone."""
    marker, config = tmp_path / "marker", RunFolder(folder).config()
    for group in ("dataset", "experts", "logger"):
        config[group] = {"name": "own", **evil_targets(marker)["os.system"]}
    RunFolder(folder).write_config(config)
    assert Router.load(folder).route(PROMPTS)
    assert not marker.exists()


OWN = """
from l2d.methods.comp_sum import CompSum

class Mine(CompSum):
    pass
"""


def test_modules_of_ones_own_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --trust the module is not even imported; with it, the class is built."""
    (tmp_path / "my_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    made = untrained(tmp_path, "method=mild", "method._target_=my_methods.Mine")
    sys.modules.pop("my_methods")
    for trust in ((), ("my_method",), ("my_methods.Mine.more",)):
        said = refused(partial(Router.load, made.path, trust=trust))
        assert "my_methods.Mine" in said
        assert "--trust my_methods" in said
        assert "my_methods" not in sys.modules
    router = Router.load(made.path, trust=["my_methods"])
    assert type(router.method).__name__ == "Mine"
    assert router.route(made.queries) == Router.load(made.path, trust=["my_methods"]).route(made.queries)
    sys.modules.pop("my_methods")


ENCODER = """
import numpy as np
from l2d.data.text.words import Words

class Longer(Words):
    def embed(self, texts):
        return super().embed([text + "!" for text in texts])
"""


def test_an_encoder_of_ones_own_is_named_too(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_encoder.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(tmp_path)
    weights, description = read_weights(folder / FILE)
    write_weights(folder / FILE, weights, replace(description, encoder={"_target_": "my_encoder.Longer"}))
    assert "--trust my_encoder" in refused(lambda: Router.load(folder))
    assert "my_encoder" not in sys.modules
    assert Router.load(folder, trust=["my_encoder"]).route(PROMPTS)
    sys.modules.pop("my_encoder")


def test_trust_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_texts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    overrides = ("dataset.text=prompt", "dataset.features=[]", "method=mild", "method._target_=my_texts.Mine")
    made = untrained(tmp_path, *overrides)
    with pytest.raises(SystemExit, match=r"^error: method: my_texts\.Mine .*--trust my_texts$"):
        main([str(made.path), "--text", "why"])
    main([str(made.path), "--text", "why", "--trust", "another", "--trust", "my_texts"])
    assert capsys.readouterr().out.startswith("row,expert,")


def test_code_in_the_folder_of_a_tuned_encoder(tmp_path: Path) -> None:
    """transformers can be told by config.json to import a file beside it."""
    pytest.importorskip("transformers")
    marker = tmp_path / "marker"
    write_encoder(tmp_path / "bert")
    given = ["dataset.text=prompt", "dataset.features=[]", "router=minilm_tuned", f"router.model={tmp_path / 'bert'}"]
    made = untrained(tmp_path, *given, "method=mild", small=["router.reads.max_length=32", "trainer.accelerator=cpu"])
    kept = made.path / "encoder"
    assert Router.load(made.path).route(PROMPTS)
    content = json.loads((kept / "config.json").read_text())
    evil = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoTokenizer": ["evil.Tokenizer", None]}
    (kept / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (kept / "config.json").write_text(json.dumps({**content, "auto_map": evil}))
    assert Router.load(made.path).route(PROMPTS)  # of a known kind: the file beside it is ignored
    (kept / "config.json").write_text(json.dumps({**content, "model_type": "evil", "auto_map": evil}))
    assert refused(lambda: Router.load(made.path).route(PROMPTS)).startswith("router.model=")
    assert not marker.exists()


def pickle_that_runs(file: Path, marker: Path) -> str:
    class Evil:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {marker}",))

    torch.save({"weight": Evil()}, file)
    return str(file)


TIMM = {"model_type": "timm_wrapper", "architecture": "resnet18"}
BERT = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 32}


@pytest.mark.parametrize("reader", ["network", "encoder"])
@pytest.mark.parametrize(
    ("config", "tokenizer"),
    [
        ({**TIMM, "model_args": {"checkpoint_path": "EVIL"}}, {}),
        ({"architecture": "resnet18", "model_args": {"checkpoint_path": "EVIL"}}, {}),
        ({**TIMM, "model_args": {"pretrained": True, "pretrained_cfg": {"file": "EVIL"}}}, {}),
        ({"model_type": "timm_backbone", "backbone": "resnet18", "backbone_kwargs": {"checkpoint_path": "EVIL"}}, {}),
        ({"model_type": "detr", "use_timm_backbone": True, "backbone_kwargs": {"checkpoint_path": "EVIL"}}, {}),
        ({"model_type": "encoder-decoder", "encoder": TIMM, "decoder": BERT}, {}),
        ({"model_type": "rag", "generator": BERT, "question_encoder": BERT, "index_path": "EVIL"}, {}),
        ({**BERT, "attn_implementation": "somebody/kernel"}, {}),
        ({**BERT, "sub": [{"file": "EVIL"}]}, {}),
        ({**BERT, "quantization_config": {"quant_method": "gptq"}}, {}),
        ({**BERT, "num_hidden_layers": 10_000_000}, {}),
        (BERT, {"tokenizer_class": "RagTokenizer"}),
        (BERT, {"tokenizer_class": "TransfoXLTokenizer", "pretrained_vocab_file": "EVIL"}),
        (BERT, {"tokenizer_class": "BertJapaneseTokenizer", "mecab_kwargs": {"mecab_option": "-r EVIL"}}),
        (BERT, {"tokenizer_class": "BertTokenizer", "vocab_file": "EVIL"}),
        (BERT, {"tokenizer_class": "BertTokenizer", "init_inputs": ["EVIL"]}),
    ],
)
def test_no_library_opens_a_file_that_a_config_names(
    reader: str, config: Config, tokenizer: Config, tmp_path: Path
) -> None:
    """In the folder of a run, or in one that its encoder names: refused before transformers sees it."""
    pytest.importorskip("transformers")
    marker = tmp_path / "marker"
    evil = pickle_that_runs(tmp_path / "evil.pth", marker)
    write_encoder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config).replace("EVIL", evil))
    about = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**about, **tokenizer}).replace("EVIL", evil))
    sizes = {"max_length": 16, "start_share": 0.5}

    def read() -> None:
        if reader == "network":
            Tokens(model=str(tmp_path), **sizes).embed(["why"])  # type: ignore[arg-type]
            TextEncoder(model=str(tmp_path), pretrained=False, dropout=0.1, num_outputs=3, head="linear")
        else:
            Embeddings(model=str(tmp_path), batch_size=2, **sizes).embed(["why"])  # type: ignore[arg-type]

    assert refused(read).startswith("model=")
    assert not marker.exists()


def test_pipes_and_adapters_beside_a_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    write_encoder(tmp_path)
    load_tokenizer(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/model"}')
    assert "adapter" in refused(lambda: load_tokenizer(str(tmp_path)))
    (tmp_path / "adapter_config.json").unlink()
    (tmp_path / "vocab.txt").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "vocab.txt")  # whoever reads it waits for ever
    assert "vocab.txt" in refused(lambda: load_tokenizer(str(tmp_path)))
