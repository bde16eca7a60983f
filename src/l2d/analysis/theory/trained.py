"""A finished run's router as the bound sees it: linear scores Wφ(x) on the penultimate features of its training split."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from l2d.config import compose, groups, to_plain
from l2d.data.batches import eval_batch
from l2d.learning.checkpoints import read_checkpoint
from l2d.learning.learner import on_gpu
from l2d.methods.method import Method
from l2d.networks.heads import CosineHead, HeadWithAux
from l2d.routing.build import build, fingerprint
from l2d.routing.datamodule import DeferralData, Split
from l2d.routing.module import Router
from l2d.runs.folder import LATE, RunFolder
from l2d.utils.errors import L2DError


@dataclass(frozen=True)
class Trained:
    """features φ [m, d] and head W [p, d] in float64 with scores = φ W^T [m, p]; costs [m, p]. All of the training split."""

    features: Tensor
    head: Tensor
    costs: Tensor
    method: Method
    config: Mapping[str, Any]

    @property
    def scores(self) -> Tensor:
        return self.features @ self.head.T


def read_config(run: RunFolder, places: Mapping[str, str]) -> dict[str, Any]:
    """The config of a finished run; places: data_dir or runs_dir, where they have moved since."""
    if not run.path.is_dir():
        raise L2DError(f"{run.path}: no such folder; give one of runs/.../seed=<s>")
    if not (run.path / "config.yaml").exists():
        raise L2DError(f"{run.path}: not a run's folder (no config.yaml); give one of runs/.../seed=<s>")
    if not run.finished:
        raise L2DError(f"{run.path}: this run is not finished; the same l2d.commands.train command goes on with it")
    if run.last_checkpoint is None:
        raise L2DError(f"{run.path}: has no checkpoints/last.ckpt, so there is no router to look at")
    saved = yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))
    # Keys that have come since take their default. The sample is the split itself, each row once, however it was drawn from.
    known = groups()["method"]
    today = to_plain(compose([f"method={saved['method']['name']}"] if saved["method"]["name"] in known else []))
    if saved["method"]["_target_"] == today["method"]["_target_"]:
        saved["method"] = today["method"] | saved["method"]
    saved["recipe"] = LATE["recipe"] | saved["recipe"]
    return {**today, **saved, "sampling": "none", "stop_after": None, **places}


def rebuild(folder: Path, places: Mapping[str, str]) -> tuple[DeferralData, Router, dict[str, Any]]:
    """A finished run's data, router (with the weights that were scored) and config."""
    run = RunFolder(folder)
    config = read_config(run, places)
    cfg = OmegaConf.create(config)
    run.check_data(fingerprint(cfg))
    data, router = build(cfg)
    assert run.last_checkpoint is not None
    checkpoint = read_checkpoint(run.last_checkpoint)
    best = config["checkpoint"] != "last"
    weights = checkpoint["callbacks"]["EpochCheckpoint"]["best_weights"] if best else checkpoint["state_dict"]
    try:
        router.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise L2DError(f"{run.last_checkpoint}: does not fit the router of its config ({reason})") from error
    return data, router, config


def load(folder: Path, places: Mapping[str, str]) -> Trained:
    """Rebuild a finished run's router and pass its training split through, without augmentation."""
    data, router, config = rebuild(folder, places)
    return from_router(router, data, config)


def from_router(router: Router, data: DeferralData, config: Mapping[str, Any]) -> Trained:
    p = data.train.costs.shape[1]
    network = router.network if router.averaged is None else router.averaged
    head = getattr(network, "head", None)
    head = head.head if isinstance(head, HeadWithAux) else head
    if not isinstance(head, nn.Linear | CosineHead) or router.method.num_outputs != p or router.method.takes_evidence:
        raise L2DError(f"method={config['method']['name']}: its outputs are not one linear score per expert")
    device = torch.device("cuda" if on_gpu(config["trainer"]["accelerator"]) else "cpu")
    raw = penultimate(network.to(device), head, data.train, device).double()
    weight = head.weight.detach().cpu().double()
    if isinstance(head, CosineHead):
        features, linear = F.normalize(raw, dim=1), F.normalize(weight, dim=1)
    else:  # the bias is the weight of a feature that is always 1
        features = torch.cat([raw, torch.ones(len(raw), 1, dtype=raw.dtype)], dim=1)
        linear = torch.cat([weight, head.bias.detach().cpu().double()[:, None]], dim=1)
    return Trained(features, linear, data.train.costs.double(), router.method.cpu(), config)


def penultimate(network: nn.Module, head: nn.Module, split: Split, device: torch.device) -> Tensor:
    """What enters the head, for every row of a split in order. -> [m, d] on the CPU."""
    found: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, entering: found.append(entering[0].detach().cpu()))
    network.eval()
    try:
        with torch.no_grad():
            for rows in tqdm(
                split.rows.split(eval_batch(split.source)), desc="training split", leave=False, disable=None
            ):
                network(split.source[rows].to(device))
    finally:
        hook.remove()
    return torch.cat(found)
