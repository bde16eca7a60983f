"""Why the log did not do what was asked."""


class LogUnavailable(Exception):
    """Nothing was written: the database is locked, the disk is full, or the file is gone."""


class OutcomeRefused(Exception):
    """Nothing of the request was recorded. status: of the HTTP answer."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class NobodyFree(OutcomeRefused):
    """Nobody who may be asked can be asked now. retry_after: seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(429, "no expert that may be asked has capacity left; try again later")
        self.retry_after = str(int(wait) + 1)
