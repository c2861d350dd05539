"""Its trainer for preference pairs."""

from __future__ import annotations

from typing import Any

from grrm.deferred_imports import real_module

DPOTrainer: Any = real_module("paddlenlp.trl").DPOTrainer
