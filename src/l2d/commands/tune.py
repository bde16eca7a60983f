"""l2d tune."""

import re
import sys

from l2d.commands import train
from l2d.commands.hydra_command import run_command
from l2d.config import sweeper_of


def main(_: list[str]) -> None:
    """The keys of the search are the sweeper's; on this command's line they are called tune.KEY."""
    given = [text for text in sys.argv[1:] if text not in ("-m", "--multirun")]
    if not any(text.startswith("-") for text in given):  # help, --cfg and the like are Hydra's to answer
        searches = any(text.startswith("tune.search=") for text in given) or sweeper_of(given).tune.search is not None
        # Equal shares leave a grid nothing but the size of ρ to search.
        said = any(re.match("(method|experiment|tune.values)=", text) for text in given)
        method = [] if said else ["method=mild_paper"]
        given = ["-m", *given, *method, *([] if searches else ["tune.search=paper"])]
    sys.argv[1:] = given
    run_command(
        train.job,
        "Search ρ, or other keys, by validation deferral loss; train the winner on five seeds and test it.",
        "l2d.tuning.study",
    )
