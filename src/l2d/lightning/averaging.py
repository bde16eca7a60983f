"""Averaged weights (recipe.ema): timm's, with a warm-up of our own."""

from timm.utils import ModelEmaV3


class WarmAverage(ModelEmaV3):
    """An exponential moving average of weights and batch statistics. Lightning's own makes the device wait at every step."""

    def get_decay(self, step: int | None = None) -> float:
        """After step 1, 2, …: small at first, or the initial weights would dominate the average."""
        assert step is not None
        return min(float(self.decay), (1 + step) / (10 + step))
