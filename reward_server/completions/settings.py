"""The settings of the completions server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, FiniteFloat

from ..settings import Count, HttpSettings


class CompletionSettings(HttpSettings):
    """All settings with their defaults."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    max_body_bytes: Count = 16 * 2**20
    max_in_flight: Count = 256  # requests at once; more are told to come back
    max_prompts: Count = 1024  # in a request
    max_prompt_chars: Count = 4 * 2**20  # in a request, of all its texts
    max_choices: Count = 1024  # in a request, of all its prompts
    request_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = 1800.0
