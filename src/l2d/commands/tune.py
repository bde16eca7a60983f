"""l2d tune: search ρ, or other keys, by validation deferral loss."""

from l2d.commands.hydra_command import HydraCommand, run_hydra_command
from l2d.commands.train import train_job

COMMAND = HydraCommand(
    name="tune",
    config="tune",
    description="Search ρ, or other keys, by validation deferral loss; train the winner on five seeds and test it.",
    examples=[
        "l2d tune dataset=svhn setup=III                        the paper's grid for MILD: theory ρ plus 0, 1, …, 5",
        "l2d tune experiment=table1_error method=tdef,mild      every cell of a table; l2d report shows the tuned rows",
        "l2d tune method=tdef                                   TDEF's temperature, over the same sizes of ρ",
        "l2d tune method=ldam tune.values='{method.max_margin: [0.1, 0.3, 0.5], method.scale: [10, 30]}'",
    ],
)


def main(arguments: list[str]) -> None:
    """The combinations of what is given are searched one after the other, so this is always a sweep."""
    run_hydra_command(COMMAND, train_job, arguments, multirun=True)
