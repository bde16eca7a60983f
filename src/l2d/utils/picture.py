"""Figures that a notebook shows, whether or not pyplot has been imported there."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    def _repr_png_(self) -> bytes:
        """What IPython asks for."""
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
