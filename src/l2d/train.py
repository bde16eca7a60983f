"""`python -m l2d.train …` is `l2d train …`."""

import sys

from l2d.commands.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
