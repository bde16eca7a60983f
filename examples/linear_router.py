"""A finished run's router as the bound sees it: linear scores Wφ(x) on the penultimate features of its training split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from l2d.assembly.assemble import Splits
from l2d.assembly.build import make_splits
from l2d.assembly.fingerprints import data_fingerprint, with_fingerprints
from l2d.config import Experiment, check
from l2d.config.identity import choices
from l2d.data.batches import eval_batch
from l2d.data.split import Split
from l2d.lightning.learner import on_gpu
from l2d.methods.method import Method
from l2d.networks.heads import CosineHead
from l2d.router.router import Router
from l2d.runs.folder import RunFolder
from l2d.training.cross_validation import cross_validates, fold_rows
from l2d.utils.errors import L2DError


@dataclass(frozen=True)
class LinearRouter:
    """The training split: features φ [m, d] and head W [p, d] in float64 with scores = φ W^T [m, p]; costs [m, p].
    from_log: costs of experts that were not asked are estimates."""

    features: Tensor
    head: Tensor
    costs: Tensor
    method: Method
    from_log: bool = False

    @property
    def scores(self) -> Tensor:
        return self.features @ self.head.T


def load_linear_router(run: Path, places: Mapping[str, str], trust: Sequence[str] = ()) -> LinearRouter:
    """places: the data_dir and runs_dir to use, if they were moved since the run. trust: as for Router.load."""
    folder = RunFolder(run)
    # The sample is the training split itself, each row once, whatever sampling the run trained with.
    config = folder.config()
    if isinstance(experts := config.get("experts"), dict) and "table" in experts:
        config["experts"] = {**experts, "table": None}  # a run's config must not make this write a file
    experiment = check({**config, "sampling": "none", **places}, trust=trust)
    choices(experiment.plain)  # checks the names, which become folders
    router = Router.load(run, "cuda" if on_gpu(experiment.trainer.accelerator) else "cpu", trust=trust)
    check_linear(router.network, router.method, len(router.experts))
    folder.check_data(data_fingerprint(experiment))
    splits = splits_of_router(experiment)
    if splits.train.costs.isnan().any():
        known = f"method={experiment.method.name} learns from a log only the costs that it knows"
        raise L2DError(f"{run}: {known}; the bound needs every cost, so use a method that completes them (mild, tdef)")
    return as_linear(router.network, router.method, splits.train, from_log=splits.propensities is not None)


def splits_of_router(experiment: Experiment) -> Splits:
    """The rows that a run's router learned from."""
    experiment = with_fingerprints(experiment)
    if not cross_validates(experiment):
        return make_splits(experiment)
    return fold_rows(experiment).source(()).splits(experiment)


def check_linear(network: nn.Module, method: Method, p: int) -> None:
    """Raise L2DError for a router that the bound does not cover; called before the data are read."""
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear | CosineHead) or method.num_outputs != p or method.takes_evidence:
        raise L2DError(f"{type(method).__name__}: the bound is for routers with one linear score per expert")


def as_linear(network: nn.Module, method: Method, split: Split, from_log: bool = False) -> LinearRouter:
    """Pass a split through the network, without augmentation."""
    head: Any = network.head
    raw = penultimate(network, head, split).double()
    weight = head.weight.detach().cpu().double()
    if isinstance(head, CosineHead):
        features, linear = F.normalize(raw, dim=1), F.normalize(weight, dim=1)
    else:  # the bias is the weight of a feature that is always 1
        features = torch.cat([raw, torch.ones(len(raw), 1, dtype=raw.dtype)], dim=1)
        linear = torch.cat([weight, head.bias.detach().cpu().double()[:, None]], dim=1)
    return LinearRouter(features, linear, split.costs.double(), method.cpu(), from_log)


def penultimate(network: nn.Module, head: nn.Module, split: Split) -> Tensor:
    """The inputs of the head, for every row of a split in order. -> [m, d] on the CPU."""
    found: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, entering: found.append(entering[0].detach().cpu()))
    device = next(network.parameters()).device
    network.eval()
    batches = split.rows.split(eval_batch(split.source))
    try:
        with torch.no_grad():
            for rows in tqdm(batches, desc="training split", leave=False, disable=None):
                network(split.source[rows].to(device))
    finally:
        hook.remove()
    return torch.cat(found)
