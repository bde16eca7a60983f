"""What is said on the command line of l2d.theory, and what is wrong with it."""

import re
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from l2d.utils.errors import L2DError

HELP = """The paper's theory, evaluated: what is proven, where it fails, what is estimated. See docs/theory.md.

usage: l2d theory COMMAND [RUN] [key=value ...]

  bound RUN     the margin bound of Theorem 4.1 and Corollary 4.2 for the router of a finished run, term by term
                  RUN            a run's folder, runs/<dataset>/.../seed=<s>
                  rho=null       margins: a number, or one per expert (null: the method's own)
                  rewards=null   sum_others or complement (null: the method's own)
                  delta=0.05     the bound holds with probability 1 - delta
                  ceiling=6      uniform in rho up to this (6: the top of the paper's search)
                  draws=200      random signs for the Rademacher complexity
                  seed=0         of the signs
                  data_dir, runs_dir   where they lie now, if they were moved since the run

  consistency   what the surrogate's minimiser decides for given p(k|x) and rho, by argmax and by posterior, and its regret
                  p=[0.55,0.45]  conditional rewards, positive, with sum 1
                  rho=[1,0.3]    margins
                  random=0       that many random p and rho instead
                  experts=3      of the random ones
                  seed=0         of the random ones

  simplex       a picture of both decisions over all p of three experts
                  rho=[1,0.6,0.3]
                  p=null         a point to mark
                  size=60        triangles along an edge
                  out=simplex.png

  figure1       Figure 1 as a 1-D world: TDEF and MILD trained on a sample of it (about 20 s), held against the optimum
                  offset=[0,5]   of MILD's rho: 0 is the bare theory's, 5 the top of the paper's search
                  points=2000    of the sample
                  steps=300      of training
                  seed=0
                  out=figure1.png

examples:
  l2d theory bound runs/digits/III/synthetic/error/mild/1a2b3c4d/seed=0
  l2d theory consistency 'p=[0.55,0.45]' 'rho=[1,0.3]'
  l2d theory consistency random=5 experts=4 seed=1
  l2d theory simplex 'rho=[1,0.6,0.3]' out=simplex.png
  l2d theory figure1 out=figure1.png"""

DEFAULTS: dict[str, dict[str, Any]] = {
    "bound": {
        "rho": None,
        "rewards": None,
        "delta": 0.05,
        "ceiling": 6.0,
        "draws": 200,
        "seed": 0,
        "data_dir": None,
        "runs_dir": None,
    },
    "consistency": {"p": [0.55, 0.45], "rho": [1.0, 0.3], "random": 0, "experts": 3, "seed": 0},
    "simplex": {"rho": [1.0, 0.6, 0.3], "p": None, "size": 60, "out": "simplex.png"},
    "figure1": {"offset": [0.0, 5.0], "points": 2000, "steps": 300, "seed": 0, "out": "figure1.png"},
}
LEAST = {"draws": 2, "size": 2, "points": 10, "steps": 1, "experts": 2, "random": 0, "seed": 0}


def parse(command: str, given: list[str]) -> dict[str, Any]:
    """key=value pairs over the command's defaults; whole numbers are checked here, the rest where it is used."""
    options = dict(DEFAULTS[command])
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or key not in options:
            raise L2DError(f"{text}: unknown; {command} takes {', '.join(f'{name}=' for name in options)}")
        try:
            # YAML wants a point in 1.0e6; people do not write it
            plain = re.sub(r"(?<![\w.])(\d+)(?=e[+-]?\d)", r"\1.0", value)
            options[key] = value if key in ("out", "data_dir", "runs_dir") else yaml.safe_load(plain)
        except yaml.YAMLError:
            raise L2DError(f"{text}: not a value that can be read; lists are written '[1,0.3]'") from None
        if key in LEAST and (type(options[key]) is not int or options[key] < LEAST[key]):
            raise L2DError(f"{text}: must be a whole number, at least {LEAST[key]}")
        if key in ("delta", "ceiling") and type(options[key]) not in (int, float):
            raise L2DError(f"{text}: must be a number")
    if options.get("random") and any(text.startswith(("p=", "rho=")) for text in given):
        raise L2DError(f"random={options['random']}: draws p and rho itself; leave them out, experts= says how many")
    return options


def numbers(key: str, value: Any) -> Tensor:
    """Positive, finite numbers as float64."""
    values = value if isinstance(value, list) else [value]
    if not values or any(type(one) not in (int, float) or not 0 < one < float("inf") for one in values):
        raise L2DError(f"{key}={value}: must be a list of positive numbers, for instance '{key}=[1,0.3]'")
    return torch.tensor([float(one) for one in values], dtype=torch.float64)


def distribution(value: Any, experts: int) -> Tensor:
    p = numbers("p", value)
    if abs(float(p.sum()) - 1) > 1e-6:
        raise L2DError(f"p={value}: the sum is {float(p.sum()):g}, not 1")
    if len(p) != experts:
        raise L2DError(f"p={value}: {len(p)} values for {experts} margins in rho")
    return p / p.sum()


def picture_path(out: str) -> Path:
    """Checked before anything is computed for it."""
    path = Path(out).expanduser()
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise L2DError(f"out={out}: must end in .png, .pdf or .svg")
    if not path.absolute().parent.is_dir():
        raise L2DError(f"out={out}: there is no folder {path.parent}")
    return path
