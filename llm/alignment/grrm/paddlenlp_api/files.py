"""Its log, its folder of downloaded models, and how it downloads them and reads those of torch."""

from __future__ import annotations

from paddlenlp.utils.download import resolve_file_path
from paddlenlp.utils.env import MODEL_HOME
from paddlenlp.utils.log import logger
from paddlenlp.utils.serialization import load_torch

__all__ = ["MODEL_HOME", "load_torch", "logger", "resolve_file_path"]
