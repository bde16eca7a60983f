"""Routers for text: a pretrained encoder, fine-tuned whole."""

import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from l2d.data.text.pretrained import dtype_key, from_pretrained, loading, locate
from l2d.data.text.tokens import PADDING, is_tokens, load_tokenizer
from l2d.networks.heads import make_head
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically

KEPT = "encoder"  # in a run's folder: the tokenizer and the config that the network is built from


class TextEncoder(nn.Module):
    """Tokens [B, L], padded with PADDING, to outputs [B, num_outputs]: the mean of the encoder's last states over a text's tokens,
    then a head.

    model: minilm, an encoder's name on the hub, or a folder. pretrained: begin with its weights, else with new ones. mean, std:
    given to every router; of the numbers of tokens they mean nothing.
    """

    def __init__(
        self,
        *,
        model: str,
        pretrained: bool,
        dropout: float,
        mean: Sequence[float],  # noqa: ARG002
        std: Sequence[float],  # noqa: ARG002
        num_outputs: int,
        head: str,
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise L2DError(f"router.dropout={dropout}: must be at least 0 and below 1")
        self.model = str(model)
        self.net = load_network(self.model, pretrained)
        self.dropout = nn.Dropout(dropout)
        self.head = make_head(head, self.net.config.hidden_size, num_outputs)
        self.train()  # pretrained encoders come switched to evaluation, and Lightning leaves each part as it is

    def forward(self, tokens: Tensor) -> Tensor:
        if not is_tokens(tokens):
            raise L2DError(
                f"router.model={self.model}: reads one text and nothing else; name it, dataset.text=COLUMN, without"
                " dataset.features, or use router=mlp"
            )
        positions = getattr(self.net.config, "max_position_embeddings", None)
        if positions and not getattr(self.net.config, "relative_attention", False) and tokens.shape[1] > positions:
            raise L2DError(f"router.reads.max_length={tokens.shape[1]}: {self.model} reads {positions} tokens at most")
        mask = tokens != PADDING
        mask[:, 0] = True  # of a text without tokens, something must be looked at
        fill = self.net.config.pad_token_id or 0  # any token: the mask hides it
        states = self.net(input_ids=tokens.masked_fill(~mask, fill).clamp(min=0).long(), attention_mask=mask.long())
        weights = mask[..., None].float()
        # In half precision scores would tie, and ties decide for the last expert.
        with torch.autocast(tokens.device.type, enabled=False):
            features = (states.last_hidden_state.float() * weights).sum(1) / weights.sum(1)
            return self.head(self.dropout(features))

    def keep(self, folder: Path) -> None:
        """What l2d route needs to build it again and to read a text as it does, where the model itself may be gone."""
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as made:
            load_tokenizer(self.model).save_pretrained(made)
            self.net.config.save_pretrained(made)
            for file in sorted(Path(made).iterdir()):
                if file.is_file():
                    write_atomically(folder / file.name, partial(shutil.copyfile, file))


def load_network(model: str, pretrained: bool) -> Any:
    """The encoder, in 32 bits whatever its file has: so small steps would be lost in 16."""
    where = locate(model)
    with loading("router.model", model) as transformers:
        if pretrained:
            net = from_pretrained(transformers.AutoModel, where, dtype=torch.float32)
        else:
            config = from_pretrained(transformers.AutoConfig, where)
            net = transformers.AutoModel.from_config(config, **{dtype_key(): torch.float32})
    if net.config.is_encoder_decoder or not hasattr(net.config, "hidden_size"):
        raise L2DError(f"router.model={model}: not an encoder of text; choose one such as BERT, MiniLM or DeBERTa")
    if getattr(net, "pooler", None) is not None:  # weights that would never learn, which several processes do not take
        net.pooler = None
    return net
