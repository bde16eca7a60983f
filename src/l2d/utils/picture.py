"""Figures that a notebook shows even if pyplot was not imported."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    def _repr_png_(self) -> bytes:
        """IPython calls this."""
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
