"""Ask a trained router: python -m l2d.route RUN --text "...", or in Python Router.load(run).route(["..."])."""

from l2d.route.ask import Choice, Router

__all__ = ["Choice", "Router"]
