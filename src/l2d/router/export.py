"""A trained router as one program, without l2d: torch.export's format or ONNX. Checked to choose as the router does."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from l2d.networks.estimators.best import Best
from l2d.router.trained import TrainedRouter, active_guard, plan_of
from l2d.utils.errors import L2DError, ParameterError, from_extra

FORMATS = (".pt2", ".onnx")
EXAMPLES = 32  # inputs on which the program must choose as the router does


class RouterProgram(nn.Module):
    """Inputs as the network takes them -> the chosen expert, counted from 0, int64 [n], and the outputs [n, num_outputs]."""

    def __init__(self, router: TrainedRouter) -> None:
        super().__init__()
        self.network, self.method = copy.deepcopy(router.network).cpu(), copy.deepcopy(router.method).cpu()
        if isinstance(best := getattr(self.network, "estimator", None), Best):  # which one is no question for a program
            self.network.estimator = best.member
        self.guard = active_guard(router)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.network(inputs)
        chosen = self.method.decide(outputs)
        if self.guard is not None:
            chosen = self.guard.decide(self.method.utilities(outputs), chosen)
        return chosen, outputs


def export_router(router: TrainedRouter, file: Path) -> None:
    """FILE.pt2: torch.export. FILE.onnx: ONNX, which needs the extra l2d[onnx]."""
    if file.suffix not in FORMATS:
        raise ParameterError("file", f"must end in {' or '.join(FORMATS)}", file)
    program, inputs = RouterProgram(router).eval(), example_inputs(router)
    exported = torch.export.export(program, (inputs,), dynamic_shapes={"inputs": {0: torch.export.Dim("n", min=2)}})
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".exporting-") as place:
        draft = Path(place) / file.name
        if file.suffix == ".pt2":
            torch.export.save(exported, draft)
            found = torch.export.load(draft).module()(inputs)
        else:
            found = write_onnx(exported, inputs, draft)
        chosen, outputs = program(inputs)
        if not torch.equal(found[0], chosen) or not torch.allclose(found[1], outputs, rtol=1e-3, atol=1e-4):
            other = "use FILE.pt2, or method=linear or clusters"
            raise L2DError(f"{file}: not written; the program does not choose as the router does; {other}")
        draft.replace(file)


def write_onnx(exported: Any, inputs: Tensor, file: Path) -> tuple[Tensor, Tensor]:
    """Write the file. Returns onnxruntime's outputs for the inputs."""
    with from_extra("onnx", f"{file.name}: ONNX"):
        import onnxruntime
        import onnxscript  # noqa: F401 (torch needs it)
    program = torch.onnx.export(exported, dynamo=True, verbose=False)
    assert program is not None
    program.save(file)
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    chosen, outputs = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    return torch.from_numpy(chosen), torch.from_numpy(outputs)


def example_inputs(router: TrainedRouter) -> Tensor:
    shape, draw = (EXAMPLES, *router.description.shape), torch.Generator().manual_seed(0)
    if router.description.kind == "image":
        return torch.randint(0, router.description.seen.white + 1, shape, generator=draw, dtype=torch.uint8)
    if router.network.reads_text or plan_of(router)[0] is not None:
        raise L2DError("a router that was fine-tuned on text, or follows a plan, cannot be exported; use another")
    return torch.randn(shape, generator=draw)
