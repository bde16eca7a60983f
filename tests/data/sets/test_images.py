"""The real loaders on a few images in the original formats; preparations that are interrupted, concurrent or damaged."""

import hashlib
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from sklearn.model_selection import train_test_split
from torchvision import datasets

from l2d.data.sets import prepared
from l2d.data.sets.images import CIFAR10, CIFAR100, CIFAR100N, SVHN, ImageSet, TinyImageNet
from l2d.utils.errors import L2DError
from l2d.utils.files import TEMPORARY, write_atomically, write_json

RNG = np.random.default_rng(0)


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes()).hexdigest()


def pixels(n: int, side: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be fetched: every opener fails at once, as without a network."""

    def refuse(*_: object, **__: object) -> None:
        raise URLError("no network in tests")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def write_cifar(root: Path, monkeypatch: pytest.MonkeyPatch, hundred: bool) -> tuple[dict[str, np.ndarray], Path]:
    """The python version's pickled batches, in their folder, with torchvision told their checksums."""
    source = datasets.CIFAR100 if hundred else datasets.CIFAR10
    names = (["train"], ["test"]) if hundred else ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"])
    key, classes = ("fine_labels", 100) if hundred else ("labels", 10)
    folder = root / source.base_folder
    folder.mkdir(parents=True)
    arrays: dict[str, list[np.ndarray]] = {"train_images": [], "train_labels": [], "test_images": [], "test_labels": []}
    lists: list[list[list[str]]] = []
    for split, files in zip(("train", "test"), names, strict=True):
        lists.append([])
        for name in files:
            x, y = pixels(4), RNG.integers(0, classes, 4)
            with (folder / name).open("wb") as file:
                pickle.dump({"data": x.transpose(0, 3, 1, 2).reshape(4, -1), key: y.tolist()}, file)
            arrays[f"{split}_images"].append(x)
            arrays[f"{split}_labels"].append(y)
            lists[-1].append([name, md5(folder / name)])
    label = {"filename": source.meta["filename"], "key": source.meta["key"]}
    with (folder / label["filename"]).open("wb") as file:
        pickle.dump({label["key"]: [str(i) for i in range(classes)]}, file)
    monkeypatch.setattr(source, "train_list", lists[0])
    monkeypatch.setattr(source, "test_list", lists[1])
    monkeypatch.setattr(source, "meta", {**label, "md5": md5(folder / label["filename"])})
    return {name: np.concatenate(parts) for name, parts in arrays.items()}, folder


def check(dataset: ImageSet, data_dir: Path, expected: dict[str, np.ndarray]) -> None:
    arrays = dataset.load(data_dir)
    for name in ("train", "test"):
        np.testing.assert_array_equal(getattr(arrays, f"{name}_inputs"), expected[f"{name}_images"])
        np.testing.assert_array_equal(getattr(arrays, f"{name}_labels"), expected[f"{name}_labels"])
    assert arrays.train_labels.dtype == torch.int64
    assert arrays.num_classes == dataset.num_classes


@pytest.mark.parametrize(("hundred", "place"), [(False, ""), (True, "own")])
def test_cifar(
    hundred: bool, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Raw files directly in data_dir, or in the set's own folder."""
    dataset = CIFAR100() if hundred else CIFAR10()
    root = tmp_path / dataset.name if place else tmp_path
    expected, folder = write_cifar(root, monkeypatch, hundred)
    check(dataset, tmp_path, expected)
    assert "downloading" not in capsys.readouterr().err
    for file in folder.iterdir():
        file.unlink()  # from here on the prepared arrays are enough
    check(dataset, tmp_path, expected)


def test_cifar_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The downloaded archive alone: unpacked, nothing fetched."""
    expected, folder = write_cifar(tmp_path / "elsewhere", monkeypatch, hundred=False)
    archive = tmp_path / datasets.CIFAR10.filename
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5(archive))
    check(CIFAR10(), tmp_path, expected)


def test_cifar100n_is_carved_from_cifar100s_training_images(tmp_path: Path) -> None:
    """Its folder and files are CIFAR-100's; a fifth of each class is the test split; `origin` says which image is which."""
    images, labels = pixels(50), np.repeat(np.arange(5), 10)
    assert CIFAR100N().fingerprint(tmp_path) == ""
    arrays = {"train_images": images, "train_labels": labels, "test_images": pixels(3), "test_labels": np.arange(3)}
    prepared.write_prepared(tmp_path / "cifar100", arrays, 100)
    whole: Any = CIFAR100().load(tmp_path)
    carved: Any = CIFAR100N().load(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["cifar100"]
    assert sorted(torch.cat(carved.origin).tolist()) == list(range(50))
    assert torch.bincount(carved.test_labels).tolist() == [2] * 5
    splits = ((carved.train_inputs, carved.train_labels), (carved.test_inputs, carved.test_labels))
    for rows, (inputs, known) in zip(carved.origin, splits, strict=True):
        for i, row in enumerate(rows.tolist()):
            np.testing.assert_array_equal(inputs[i], images[row])
            assert known[i] == labels[row]
    _, test = train_test_split(np.arange(50), test_size=0.2, stratify=labels, random_state=0)
    assert carved.origin[1].tolist() == sorted(test.tolist())
    assert whole.origin is None
    assert CIFAR100N().fingerprint(tmp_path) not in ("", CIFAR100().fingerprint(tmp_path))


def write_svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """MATLAB files [32, 32, 3, N]; the digit 0 is labelled 10 in them."""
    root.mkdir(parents=True, exist_ok=True)
    splits = dict(datasets.SVHN.split_list)
    arrays: dict[str, np.ndarray] = {}
    for split, n in (("train", 7), ("test", 5)):
        x, y = pixels(n), np.arange(n)
        file = root / f"{split}_32x32.mat"
        savemat(file, {"X": x.transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y)[:, None].astype(np.uint8)})
        splits[split] = [splits[split][0], file.name, md5(file)]
        arrays |= {f"{split}_images": x, f"{split}_labels": y}
    monkeypatch.setattr(datasets.SVHN, "split_list", splits)
    return arrays


def write_tiny_imagenet(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Three classes of two JPEGs each, one of them grey; classes are numbered in the order of their wnids."""
    top = root / "tiny-imagenet-200"
    wnids = ["n03", "n01", "n02"]
    (top / "val" / "images").mkdir(parents=True)
    (top / "wnids.txt").write_text("\n".join(wnids) + "\n")
    lines = []
    for wnid in wnids:
        folder = top / "train" / wnid / "images"
        folder.mkdir(parents=True)
        for i in range(2):
            grey = wnid == "n02" and i == 0
            Image.fromarray(pixels(1, 64)[0][:, :, 0] if grey else pixels(1, 64)[0]).save(folder / f"{wnid}_{i}.JPEG")
        Image.fromarray(pixels(1, 64)[0]).save(top / "val" / "images" / f"val_{wnid}.JPEG")
        lines.append(f"val_{wnid}.JPEG\t{wnid}\t0\t0\t62\t62")
    (top / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(TinyImageNet, "sizes", (6, 3))

    def read(file: Path) -> np.ndarray:
        return np.asarray(Image.open(file).convert("RGB"))

    train = [file for wnid in sorted(wnids) for file in sorted((top / "train" / wnid / "images").iterdir())]
    return {
        "train_images": np.stack([read(file) for file in train]),
        "train_labels": np.array([0, 0, 1, 1, 2, 2]),
        "test_images": np.stack([read(top / "val" / "images" / f"val_{wnid}.JPEG") for wnid in wnids]),
        "test_labels": np.array([2, 0, 1]),
    }


def test_tiny_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_tiny_imagenet(tmp_path, monkeypatch)
    file = tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_n01.JPEG"
    content = file.read_bytes()
    file.write_bytes(b"no picture")
    with pytest.raises(L2DError, match=rf"^{file}: damaged"):
        TinyImageNet().load(tmp_path)
    file.write_bytes(content)
    check(TinyImageNet(), tmp_path, expected)


class Nowhere(ImageSet):
    name, num_classes, raw = "mine", 10, ()

    def __init__(self) -> None:
        self.asked: list[tuple[Path, bool]] = []

    def read(self, root: Path, download: bool) -> prepared.ImageArrays:
        self.asked.append((root, download))
        raise FileNotFoundError("none")


def test_raw_files_are_looked_for_beside_the_arrays_then_in_data_dir_then_downloaded(tmp_path: Path) -> None:
    dataset = Nowhere()
    with pytest.raises(L2DError, match=r"^mine: .*download failed"):
        dataset.load(tmp_path)
    assert dataset.asked == [(tmp_path / "mine", False), (tmp_path, False), (tmp_path / "mine", True)]


def test_tiny_imagenet_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_tiny_imagenet(tmp_path / "elsewhere", monkeypatch)
    archive = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in (tmp_path / "elsewhere").rglob("*"):
            packed.write(file, file.relative_to(tmp_path / "elsewhere"))
    monkeypatch.setattr(TinyImageNet, "md5", md5(archive))
    check(TinyImageNet(), tmp_path, expected)


@pytest.mark.parametrize("dataset", [CIFAR100N(), SVHN(), TinyImageNet()], ids=lambda dataset: type(dataset).__name__)
def test_without_data_and_network_one_line_says_what_to_do(dataset: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(L2DError) as caught:
        dataset.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / dataset.name) in str(caught.value)
    assert f"l2d prepare dataset={dataset.name}" in str(caught.value)
    assert not prepared.is_prepared(tmp_path / dataset.name)


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path, monkeypatch)
    SVHN().load(tmp_path)
    file = tmp_path / "svhn" / "test_images.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(L2DError, match=r"test_images\.npy: missing or damaged"):
            SVHN().load(tmp_path)
        file.unlink(missing_ok=True)


def arrays_by_hand(folder: Path, **changes: np.ndarray) -> None:
    folder.mkdir(parents=True)
    arrays = {"train_images": pixels(6), "train_labels": np.arange(6)}
    arrays |= {"test_images": pixels(3), "test_labels": np.arange(3)}
    for name, array in (arrays | changes).items():
        np.save(folder / f"{name}.npy", array)


def test_arrays_put_there_by_hand_are_checked_and_sealed(tmp_path: Path) -> None:
    arrays_by_hand(tmp_path / "cifar10")
    assert len(CIFAR10().load(tmp_path).train_labels) == 6
    assert (tmp_path / "cifar10" / "meta.json").exists()


@pytest.mark.parametrize(
    ("changes", "file"),
    [
        ({"train_images": np.zeros((6, 32, 32, 4), np.uint8)}, "train_images"),
        ({"test_labels": np.array([0, 1, 2], dtype=object)}, "test_labels"),
        ({"train_labels": np.arange(5)}, "train_labels"),
        ({"test_labels": np.array([0, 1, 10])}, "test_labels"),
    ],
)
def test_bad_arrays_are_named(changes: dict[str, np.ndarray], file: str, tmp_path: Path) -> None:
    arrays_by_hand(tmp_path / "cifar10", **changes)
    with pytest.raises(L2DError, match=file):
        CIFAR10().load(tmp_path)
    assert not (tmp_path / "cifar10" / "meta.json").exists()


@pytest.mark.parametrize("call", [1, 4, 5])
def test_a_broken_off_preparation_is_done_anew(call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before any of its five files: what is there then is either not prepared or whole."""
    expected = write_svhn(tmp_path, monkeypatch)
    calls = 0

    def dying(original: Callable[..., None]) -> Callable[..., None]:
        def write(*args: object) -> None:
            nonlocal calls
            calls += 1
            if calls == call:
                raise KeyboardInterrupt
            original(*args)

        return write

    with monkeypatch.context() as patch:
        patch.setattr(prepared, "write_atomically", dying(write_atomically))
        patch.setattr(prepared, "write_json", dying(write_json))
        with pytest.raises(KeyboardInterrupt):
            SVHN().load(tmp_path)
    assert not (tmp_path / "svhn" / "meta.json").exists()
    check(SVHN(), tmp_path, expected)


def test_what_a_killed_preparation_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_svhn(tmp_path, monkeypatch)
    left = tmp_path / "svhn" / f".train_images.npy.123{TEMPORARY}.npy"
    left.parent.mkdir()
    left.write_bytes(b"half")
    check(SVHN(), tmp_path, expected)
    assert not left.exists()


def zeros() -> dict[str, np.ndarray]:
    shapes = {"images": (4, 8, 8, 3), "labels": (4,)}
    return {f"{split}_{kind}": np.zeros(shapes[kind], np.uint8) for split in ("train", "test") for kind in shapes}


@pytest.mark.parametrize("content", ["{", '{"files": {}}', "[]"])
def test_damaged_meta_is_named(tmp_path: Path, content: str) -> None:
    prepared.write_prepared(tmp_path, zeros(), 2)
    (tmp_path / "meta.json").write_text(content)
    with pytest.raises(L2DError, match=r"meta\.json: damaged"):
        prepared.load_prepared(tmp_path, 2)


def test_fingerprint_follows_the_arrays(tmp_path: Path) -> None:
    arrays = zeros()
    assert prepared.prepared_fingerprint(tmp_path) == ""
    prepared.write_prepared(tmp_path, arrays, 2)
    first = prepared.prepared_fingerprint(tmp_path)
    arrays["test_labels"][0] = 1
    prepared.write_prepared(tmp_path, arrays, 2)
    assert prepared.prepared_fingerprint(tmp_path) not in ("", first)
