"""`python -m grrm.cli` is `grrm`."""

from grrm.cli import main

if __name__ == "__main__":
    main()
