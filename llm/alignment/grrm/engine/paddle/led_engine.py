"""An engine whose model is divided among processes: the first one schedules, the others do what it does.

Weights and KV cache are divided as in training. Every step is a collective, so all ranks must take the same steps in
the same order: the first rank sends each change of its batch to the others before it makes it itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence, Set
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import paddle
from paddle.distributed import fleet

from grrm.config.model_shape import check_divides
from grrm.engine.api import Completion, Request, Session
from grrm.engine.paddle.engine import PaddleEngine
from grrm.models.checkpoint import read_config
from grrm.models.hub import checkpoint_folder
from grrm.parallel.gloo import support_gloo
from grrm.parallel.tensor_ranks import TensorRanks

logger = logging.getLogger(__name__)
_DIVERGED = FloatingPointError  # raised on all ranks together


def join_tensor_ranks(model: str, rank: int, n_ranks: int) -> dict[str, Any]:
    """Connect the tensor ranks of a model; returns the settings with which each loads its part.

    Raises UserError for a model whose layers do not divide among them.
    """
    if rank == 0:  # reports the error once; the other ranks wait for this one and end with it
        check_divides(model, read_config(checkpoint_folder(model)), n_ranks)
    if not paddle.device.cuda.device_count():
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    support_gloo()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": n_ranks, "pp_degree": 1, "sharding_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    return TensorRanks(rank, n_ranks).model_settings()


class LeadingEngine:
    """The first rank's `engine` for a batch scheduler; the other ranks `follow` through `links`."""

    def __init__(self, engine: PaddleEngine, links: Sequence[Connection]) -> None:
        self._engine, self._links = engine, links
        self.max_prompt_tokens, self.step_tokens = engine.max_prompt_tokens, engine.step_tokens
        self.check = engine.check

    def open_session(self, max_len: int | None = None) -> Session:
        """As the engine's, on all ranks."""
        return _LeadingSession(self._on_all(self._engine, "open_session", max_len), self._on_all)

    def _on_all(self, target: Any, name: str, argument: Any) -> Any:
        """Call a method here and on the other ranks. A failure that they do not share ends the process."""
        try:
            for link in self._links:
                link.send((name, argument))
            return getattr(target, name)(argument)
        except _DIVERGED:
            raise
        except BaseException:  # whatever it is, the other ranks wait in a collective for this one
            logger.exception("a tensor rank failed, and the others wait for it: its replica ends")
            os._exit(1)


class _LeadingSession:
    """A session of the first rank, whose changes the others make too."""

    def __init__(self, session: Session, on_all: Any) -> None:
        self._session, self._on_all = session, on_all
        self.max_len, self.generated = session.max_len, session.generated

    @property
    def n_free(self) -> int:
        return self._session.n_free

    def add(self, requests: Mapping[int, Request]) -> None:
        if requests:
            self._on_all(self._session, "add", requests)

    def cancel(self, number: int) -> None:
        self._on_all(self._session, "cancel", number)

    def step(self, only: Set[int] | None = None) -> list[tuple[int, Completion]]:
        ended: list[tuple[int, Completion]] = self._on_all(self._session, "step", only)
        return ended


def follow(engine: PaddleEngine, link: Connection) -> NoReturn:
    """Take part in all that the first rank does, until it ends, and with it this process."""
    session: Any = None
    while True:
        try:
            name, argument = link.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            if name == "open_session":
                session = None  # frees its memory first
                session = engine.open_session(argument)
            else:
                getattr(session, name)(argument)
        except _DIVERGED:
            continue  # as the first rank, which opens another session
