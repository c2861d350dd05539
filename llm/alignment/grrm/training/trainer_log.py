"""PaddleNLP's own messages: warnings on the console, the rest in the run's log file, and no lists of every argument."""

from __future__ import annotations

import logging
from pathlib import Path

from paddlenlp.utils.log import logger

FILE_NAME = "trainer.log"


def quiet_paddlenlp(folder: str | Path, is_first: bool) -> None:
    """Keep PaddleNLP's messages off the console unless they are warnings.

    The first rank adds what else is at least INFO to the end of `folder`/trainer.log; on the others it is dropped.
    Calling it again goes on with another folder.
    """
    logger.set_level("INFO" if is_first else "WARNING")
    logger.handler.setLevel(logging.WARNING)
    for handler in [known for known in logger.logger.handlers if isinstance(known, logging.FileHandler)]:
        logger.logger.removeHandler(handler)
        handler.close()
    if is_first:
        handler = logging.FileHandler(Path(folder) / FILE_NAME, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.logger.addHandler(handler)
