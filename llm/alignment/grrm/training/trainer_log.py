"""PaddleNLP's own messages: warnings on the console, the rest in the run's log file, and no lists of every argument."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grrm.errors import UserError
from grrm.paddlenlp_api.files import logger
from grrm.rewards.failure_policy import RewardFailure

FILE_NAME = "trainer.log"


def quiet_paddlenlp(folder: str | Path, is_first: bool) -> None:
    """Keep PaddleNLP's messages off the console unless they are warnings.

    The first rank adds what else is at least INFO to the end of `folder`/trainer.log; on the others it is dropped.
    Calling it again goes on with another folder.
    """
    logger.set_level("INFO" if is_first else "WARNING")
    logger.handler.setLevel(logging.WARNING)
    for handler in _log_files():
        logger.logger.removeHandler(handler)
        handler.close()
    if is_first:
        handler = logging.FileHandler(Path(folder) / FILE_NAME, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.logger.addHandler(handler)


@contextmanager
def failures_in_log() -> Iterator[None]:
    """Write to the log file why the block was left early: the sentence, and the traceback of what has none."""
    try:
        yield
    except BaseException as error:
        has_sentence = isinstance(error, UserError | RewardFailure)
        record = logging.LogRecord(
            logger.logger.name,
            logging.ERROR,
            __file__,
            0,
            "%s",
            (error if has_sentence else type(error).__name__,),
            None if has_sentence else (type(error), error, error.__traceback__),
        )
        for handler in _log_files():
            handler.handle(record)
        raise


def _log_files() -> list[logging.FileHandler]:
    return [handler for handler in logger.logger.handlers if isinstance(handler, logging.FileHandler)]
