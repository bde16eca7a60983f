"""Why the log did not do what was asked."""

from l2d.utils.errors import L2DError


class LogUnavailable(L2DError):
    """Nothing was written: the database is locked, the disk is full, or the file is gone."""


class Refused(Exception):
    """A request that is not answered. status: of the HTTP answer. retry_after: seconds. kind: of error, in the metrics; None if
    it is the client's."""

    status = 409
    retry_after: str | None = None
    kind: str | None = None


class OutcomeRefused(Refused):
    """Nothing of the request was recorded."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class NobodyFree(OutcomeRefused):
    """Nobody who may be asked can be asked now."""

    def __init__(self, wait: float) -> None:
        super().__init__(429, "no expert that may be asked has capacity left; try again later")
        self.retry_after = str(int(wait) + 1)
