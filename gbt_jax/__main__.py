"""`python -m gbt_jax` is the command `gbt`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
