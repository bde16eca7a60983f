"""The one exception for mistakes that the person at the keyboard can mend."""


class L2DError(Exception):
    """Its message is a single line that names the key at fault and says what would be right."""


class Busy(L2DError):
    """Another process is at it already."""


def check_choice(key: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        raise L2DError(f"{key}={value}: unknown; choose one of {', '.join(choices)}")
