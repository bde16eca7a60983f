"""Routers for text: a pretrained encoder, fine-tuned whole."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from l2d.data.text.pretrained import asked_at_last, checked_config, load_tokenizer, loading, locate
from l2d.data.text.tokens import PADDING
from l2d.networks.heads import make_head
from l2d.networks.network import Network
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import ShareBelowOne

KEPT = "encoder"  # in a run's folder: the tokenizer and the config that the network is built from


class TextEncoder(Network):
    """Tokens [B, L], padded with PADDING, to outputs [B, num_outputs]: the mean of the encoder's last states over a text's
    tokens, then a head. model: minilm, an encoder's name on the hub, or a folder. pretrained: start from its weights."""

    expects: ClassVar[str] = "tokens"
    reads_text: ClassVar[bool] = True

    def __init__(self, *, model: str, pretrained: bool, dropout: ShareBelowOne, num_outputs: int, head: str) -> None:
        super().__init__()
        self.model = str(model)
        self.net = load_network(self.model, pretrained)
        self.dropout = nn.Dropout(dropout)
        self.head = make_head(head, self.net.config.hidden_size, num_outputs)
        self.train()  # pretrained encoders come in evaluation mode, and Lightning does not change that

    def features(self, inputs: Tensor) -> Tensor:
        mask = inputs != PADDING
        mask[:, 0] = True  # a text without tokens would divide by zero
        fill = self.net.config.pad_token_id or 0  # any token: the mask hides it
        states = self.net(input_ids=inputs.masked_fill(~mask, fill).clamp(min=0).long(), attention_mask=mask.long())
        weights = mask[..., None].float()
        return self.dropout((states.last_hidden_state.float() * weights).sum(1) / weights.sum(1))

    def check_inputs(self, inputs: Tensor) -> None:
        super().check_inputs(inputs)
        positions = getattr(self.net.config, "max_position_embeddings", None)
        if positions and not getattr(self.net.config, "relative_attention", False) and inputs.shape[1] > positions:
            raise ParameterError("reads.max_length", f"{self.model} reads at most {positions} tokens", inputs.shape[1])

    def keep(self, folder: Path) -> None:
        """The tokenizer and the architecture: the model itself may be gone when the router is used."""
        load_tokenizer(self.model).save_pretrained(folder / KEPT)
        self.net.config.save_pretrained(folder / KEPT)

    @classmethod
    def kept_arguments(cls, folder: Path) -> dict[str, Any]:
        return {"model": str(folder / KEPT), "pretrained": False}


def load_network(model: str, pretrained: bool) -> Any:
    """The encoder, in 32 bits whatever its file has: the small steps of fine-tuning would be lost in 16."""
    where = locate(model)
    checked_config(model)
    with loading("model", model) as transformers:
        if pretrained:
            net = asked_at_last(transformers.AutoModel.from_pretrained, where, dtype=torch.float32)
        else:
            config = asked_at_last(transformers.AutoConfig.from_pretrained, where)
            net = transformers.AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
    if getattr(net, "pooler", None) is not None:  # never used: training on several devices refuses unused weights
        net.pooler = None
    return net
