"""`python -m l2d …` is `l2d …`."""

from l2d.commands.main import console

console()
