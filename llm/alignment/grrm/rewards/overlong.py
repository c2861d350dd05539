"""Length penalties for responses that approach or pass the generation limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grrm.errors import UserError


@dataclass(frozen=True, slots=True)
class OverlongConfig:
    """The ramp: 0 up to `max_resp_len - buffer_len` tokens, then linear up to `penalty_factor` at `max_resp_len`.

    Beyond that it stays there if `capped`, and rises on as it does in DAPO if not. A configuration with `enable`
    false, no `max_resp_len`, or a buffer or factor that is not positive is off.
    """

    max_resp_len: int | None
    buffer_len: int
    penalty_factor: float = 1.0
    enable: bool = True
    capped: bool = True

    @property
    def is_active(self) -> bool:
        """True when some length is penalised."""
        return self.enable and self.max_resp_len is not None and self.buffer_len > 0 and self.penalty_factor > 0

    @classmethod
    def from_mapping(cls, options: Mapping[str, object] | None) -> OverlongConfig | None:
        """Read the keys `enable`, `max_resp_len`, `len`, `penalty_factor`; None when there are no options.

        `enable` is off unless given, as in the recipes' YAML. Raises UserError on a value that is not a number.
        """
        if not options:
            return None
        max_resp_len = options.get("max_resp_len")
        return cls(
            max_resp_len=None if max_resp_len is None else int(_number(options, "max_resp_len")),
            buffer_len=int(_number(options, "len")),
            penalty_factor=_number(options, "penalty_factor"),
            enable=bool(options.get("enable", False)),
        )


def _number(options: Mapping[str, object], key: str) -> float:
    value = options.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"The overlong buffer's {key!r} is {value!r}; give a number.")
    return float(value)


def overlong_penalty(n_tokens: int, config: OverlongConfig | None) -> float:
    """Return the penalty of a response of `n_tokens` tokens: 0 to `penalty_factor`, or more if uncapped.

    factor * min(1, (L - (max_resp_len - len)) / len) above the threshold, else 0 (GRRM's recipe); without `capped` the
    ramp has no such end (DAPO, arXiv 2503.14476, as GRRM's trainer has it). 0 when off.
    """
    if config is None or not config.is_active or config.max_resp_len is None:
        return 0.0
    excess = n_tokens - (config.max_resp_len - config.buffer_len)
    if excess <= 0:
        return 0.0
    ramp = excess / config.buffer_len
    return config.penalty_factor * (min(1.0, ramp) if config.capped else ramp)
