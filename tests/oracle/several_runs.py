"""Runs entry scripts one after the other in one process: jobs [[module of grrm, arguments], ...] as JSON on stdin."""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    """Each run counts the names of its weights anew, as in a process of its own."""
    for module, arguments in json.load(sys.stdin):
        sys.argv = [module, *arguments]
        script = importlib.import_module(f"grrm.{module}")
        script.configure_process()
        import paddle

        with paddle.utils.unique_name.guard():
            script.main()


if __name__ == "__main__":
    main()
