"""Augmentation of whole batches on the device, every sample with its own draw."""

import torch
from torch import Tensor


def draw_augmentation(n: int, pad: int, generator: torch.Generator) -> Tensor:
    """Draws for n samples: vertical shift, horizontal shift (both in −pad..pad) and whether to flip. int64 [n, 3], on the CPU."""
    shifts = torch.randint(-pad, pad + 1, (n, 2), generator=generator)
    return torch.cat([shifts, torch.randint(0, 2, (n, 1), generator=generator)], dim=1)


def crop_flip(images: Tensor, draws: Tensor, flip: bool) -> Tensor:
    """Shift each image, filling with zeros (pad, then crop), and mirror it where its draw says so. images [B, H, W, C], draws:
    of `draw_augmentation`, on the same device. Returns the same shape and dtype."""
    b, h, w, _ = images.shape
    y = torch.arange(h, device=images.device) + draws[:, :1]
    x = torch.arange(w, device=images.device).expand(b, w)
    if flip:
        x = torch.where(draws[:, 2:].bool(), x.flip(1), x)
    x = x + draws[:, 1:2]
    inside = ((y >= 0) & (y < h))[:, :, None] & ((x >= 0) & (x < w))[:, None, :]
    rows = torch.arange(b, device=images.device)[:, None, None]
    moved = images[rows, y.clamp(0, h - 1)[:, :, None], x.clamp(0, w - 1)[:, None, :]]
    return moved * inside[..., None]
