"""`python -m l2d.train …` is `l2d train …`."""

from l2d.commands.main import console

if __name__ == "__main__":
    console("train")
