"""What a run is made of, as far as its config does not say it. Asked before anything is loaded, so torch is not imported here."""

import hashlib

from l2d.config import Experiment
from l2d.routing.make import find, make
from l2d.utils.errors import under


def data_fingerprint(experiment: Experiment) -> str:
    """Of the data, and of experts that their config does not tell apart: a model's folder may come to hold other weights."""
    dataset = make(experiment.dataset)
    with under("dataset"):
        data: str = dataset.fingerprint(experiment.data_dir)
    if not hasattr(find(experiment.experts), "identity"):
        return data
    experts = make(experiment.experts)
    with under("experts"):
        return hashlib.sha256(f"{data} {experts.identity()}".encode()).hexdigest()[:16]
