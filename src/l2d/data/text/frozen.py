"""A pretrained encoder that is not trained further: texts in, embeddings out."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from l2d.data.text.pretrained import from_pretrained, loading, locate
from l2d.data.text.tokens import load_tokenizer, longer
from l2d.utils.errors import ParameterError
from l2d.utils.out_of_memory import is_out_of_memory


class FrozenEncoder:
    """The mean of an encoder's last states over the tokens of a text, scaled to length 1."""

    def __init__(self, model: str, max_length: int) -> None:
        self.model, self.max_length = model, max_length
        self.tokenizer, network = load_encoder(model)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network = network.to(self.device).eval()
        self.cut: set[str] = set()  # texts that had more tokens than max_length

    def embed(self, texts: Sequence[str], batch_size: int, progress: bool) -> np.ndarray:
        """float32 [n, F]. Equal texts are embedded once."""
        different = sorted(set(texts), key=lambda text: (len(text), text))  # batches of like length: little padding
        rows = {text: i for i, text in enumerate(different)}
        batches = [different[i : i + batch_size] for i in range(0, len(different), batch_size)]
        hidden = not progress or len(batches) < 20
        bar = tqdm(batches, desc=f"embedding {len(different):,} texts", disable=hidden)
        with torch.inference_mode():
            return np.concatenate([self._batch(batch) for batch in bar])[[rows[text] for text in texts]]

    def _batch(self, batch: list[str]) -> np.ndarray:
        """In halves, if memory does not suffice."""
        try:
            return self._means(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Only here is the exception gone, and with it what was allocated.
        if len(batch) == 1:
            problem = f"{self.model} runs out of memory with one text; lower it"
            raise ParameterError("max_length", problem, self.max_length)
        half = (len(batch) + 1) // 2
        tqdm.write(f"out of memory with {len(batch)} texts at a time; trying {half}", file=sys.stderr)
        return np.concatenate([self._batch(part) for part in (batch[:half], batch[half:])])

    def _means(self, batch: list[str]) -> np.ndarray:
        words = self.tokenizer(batch, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        lengths = words["attention_mask"].sum(1).tolist()
        self.cut.update(longer(self.tokenizer, batch, lengths, self.max_length))
        words = words.to(self.device)
        mask = words["attention_mask"][..., None].float()
        states = self.network(**words).last_hidden_state.float()
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        found: np.ndarray = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
        return found


def load_encoder(model: str) -> tuple[Any, Any]:
    """Tokenizer and network. Its parameter is called `model`, as that of the encoders."""
    tokenizer = load_tokenizer(model)
    with loading("model", model) as transformers:
        network = from_pretrained(transformers.AutoModel, locate(model), dtype=torch.float32)
    if tokenizer.pad_token is None:  # GPT-2 and its kin; which token pads does not matter: the mask hides it
        if tokenizer.eos_token is None:
            raise ParameterError("model", "its tokenizer has no token to pad with; choose another encoder", model)
        tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"  # positions stay those of a text alone
    return tokenizer, network
