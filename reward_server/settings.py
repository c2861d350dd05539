"""The settings of the reward server, from a YAML file and from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, ValidationInfo, field_validator

from grrm.config.load import read_yaml
from grrm.engine.options import AUTO_DTYPE, BACKENDS, DTYPES
from grrm.errors import UserError, first_error, mistake_in, require_known, suggestion
from grrm.gqm.chat import CHAT_TEMPLATES
from grrm.gqm.extraction import EXTRACTOR_TYPES
from grrm.judges.registry import check_judge_name, judge_names, spec_of
from grrm.judges.sources import MIXTURE, mixture_sources
from grrm.judges.spec import Needs

Count = Annotated[int, Field(ge=1)]
LogFormat = Literal["text", "json"]
LogLevel = Literal["info", "warning", "error"]
SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")


class HttpSettings(BaseModel):
    """The address of any of the HTTP servers, and the limits of its clients."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8731
    certfile: str | None = None  # certificate chain in PEM form: the server then speaks HTTPS
    keyfile: str | None = None  # its private key, where that is not in the same file
    allowed_hosts: list[str] = []  # names that requests may call this server by; on loopback those of loopback
    log_file: str | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "warning"  # of the lines on stderr; "info" has one for each request, as the log file has
    token_file: str | None = None
    token_env: str | None = None
    header_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = 10.0  # from the first byte of a request to its last header
    body_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = 60.0  # from the first byte of a request to its last
    max_connections: Count = 1024
    max_connections_per_address: Count = 256
    max_body_bytes: Count = 64 * 2**20
    max_in_flight: Count = 64  # scoring requests at once; more are told to come back


CHOICES: dict[str, tuple[str, Sequence[str]]] = {  # by key: noun, permitted values
    "backend": ("backend", BACKENDS),
    "chat_template": ("chat template", CHAT_TEMPLATES),
    "dtype": ("dtype", DTYPES),
    "extractor_type": ("extractor", EXTRACTOR_TYPES),
}
JUDGE_KEYS = (
    *("judge", "judge_options", "gates", "judge_deadline_s", "model", "openai_urls", "openai_token_env", "tokenizer"),
    *("backend", "fastdeploy_options", "chat_template", "dtype", "max_num_seqs", "max_batched_tokens"),
    "memory_fraction",
)


class Settings(HttpSettings):
    """All settings with their defaults; the YAML file has the same keys, the command line the commoner ones."""

    judge: str = "chrf"
    judge_options: dict[str, Any] = {}  # its own: GQMOptions, SQMOptions, RewardModelOptions, metric, sources
    gates: dict[str, Any] = {}  # what a translation must pass before it is judged
    model: str | None = None  # folder of the judge's checkpoint; with openai_urls its name there
    openai_urls: list[str] = []  # OpenAI-compatible servers of the model, a pool of equals
    openai_token_env: str | None = None  # environment variable with their bearer token
    tokenizer: str | None = None  # with openai_urls: folder of the model's tokenizer
    backend: str = "paddle"  # what runs a checkpoint, in this process: paddle or fastdeploy
    fastdeploy_options: dict[str, Any] = {}  # with backend fastdeploy: its own, such as tensor_parallel_size
    chat_template: str = "chatml"
    dtype: str = AUTO_DTYPE
    max_num_seqs: Count = 256  # replies that a checkpoint writes at once
    max_batched_tokens: Count | None = None  # of prompts that are read between two tokens of running replies
    memory_fraction: Annotated[FiniteFloat, Field(gt=0, lt=1)] | None = None  # of the device, for keys and values
    judge_deadline_s: Annotated[FiniteFloat, Field(gt=0)] = 600.0  # what a model may take for one call of the judge
    judges: dict[str, dict[str, Any]] = {}  # further judges by name, each with settings from `judge` to here
    extractor_type: str = "line"
    default_reward: FiniteFloat = 0.0  # POST /: the reward of an unscored row, neither scaled nor penalised
    score_scale_factor: FiniteFloat = 0.1  # POST /: reward = score * score_scale_factor
    special_tokens: list[str] = list(SPECIAL_TOKENS)  # removed from what PaddleNLP's trainer sends
    drain_timeout_s: Annotated[FiniteFloat, Field(ge=0)] | None = None  # after SIGTERM; None: longest_call_s
    max_tokens_in_flight: Count = 2**24  # of requests' bodies together, four bytes being taken for one
    max_groups: Count = 4096
    max_candidates: Count = 256  # per group
    max_rows: Count = 65_536  # candidates of all groups of a request
    max_pairs: Count = 16_384  # of different candidates in order, where a judge has a prompt for each
    max_text_chars: Count = 65_536  # per text; n-grams of a text take some thousand times its size
    judge_wait_s: Annotated[FiniteFloat, Field(gt=0)] = 1800.0  # how long a request waits for its turn
    answer_cache_entries: Count = 256
    answer_cache_bytes: Count = 64 * 2**20

    @field_validator("judge")
    @classmethod
    def _check_judge(cls, judge: str) -> str:
        if mistake := mistake_in(check_judge_name, judge, (*judge_names(), MIXTURE)):
            raise ValueError(mistake)
        return judge

    @field_validator("judges")
    @classmethod
    def _judges_with_settings(cls, judges: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, values in judges.items():
            for key in values:
                if mistake := mistake_in(require_known, f"setting of judge {name!r}", key, JUDGE_KEYS):
                    raise ValueError(mistake)
            try:
                cls.model_validate(values)
            except ValidationError as error:
                _, key, message = first_error(error)
                raise ValueError(f"{key!r} of judge {name!r}: {message}") from error
        return judges

    @property
    def needs(self) -> Needs:
        """The needs of the judge in this process; a mixture sees to its judges itself."""
        return "nothing" if self.judge == MIXTURE else spec_of(self.judge).needs

    @property
    def longest_call_s(self) -> float:
        """The longest time that a call of the judge should take: of a mixture that of its slowest judge."""
        if self.judge != MIXTURE:
            return self.judge_deadline_s
        return max(source.longest_s for source in mixture_sources(self.judge_options))

    def named_judges(self) -> dict[str, Settings]:
        """The settings of every judge by its name, the default one first: that of `judge`, else the first of `judges`.

        Raises UserError where two have the same name, and for settings of a judge beside `judges` without `judge`.
        """
        named = {name: Settings.model_validate(values) for name, values in self.judges.items()}
        if named and "judge" not in self.model_fields_set:
            if own := sorted(self.model_fields_set & {*JUDGE_KEYS}):
                raise UserError(f"setting {own[0]!r} beside 'judges' is that of no judge: move it to those it is for")
            return named
        if self.judge in named:
            raise UserError(f"two judges are called {self.judge!r}: give the one in 'judges' another name")
        return {self.judge: self, **named}

    @field_validator(*CHOICES)
    @classmethod
    def _check_choice(cls, name: str, info: ValidationInfo) -> str:
        noun, names = CHOICES[str(info.field_name)]
        if mistake := mistake_in(require_known, noun, name, names):
            raise ValueError(mistake)
        return name


class CompletionSettings(HttpSettings):
    """The settings of the completions server with their defaults."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    max_body_bytes: Count = 16 * 2**20
    max_in_flight: Count = 256  # requests at once; more are told to come back
    max_prompts: Count = 1024  # in a request
    max_prompt_chars: Count = 4 * 2**20  # in a request, of all its texts; a quarter as many token ids
    max_choices: Count = 1024  # in a request, of all its prompts
    request_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = 1800.0


def load_settings(path: str | None, overrides: Mapping[str, Any]) -> Settings:
    """Settings from the YAML file at `path` (None: the defaults), overridden by the entries that are not None.

    `judge_options` and `fastdeploy_options` among the overrides replace single options of the file. Raises UserError
    that names the file, the key and the remedy.
    """
    values = {} if path is None else read_yaml(path, may_be_empty=True)
    location = "the command line" if path is None else f"{path} or on the command line"
    explicit = {name: value for name, value in overrides.items() if value is not None}
    for name in ("judge_options", "fastdeploy_options"):
        if isinstance(values.get(name), dict) and name in explicit:
            explicit[name] = values[name] | explicit[name]
    values |= explicit
    for name in values:
        if name not in Settings.model_fields:
            remedy = suggestion(name, Settings.model_fields)
            raise UserError(f"unknown reward server setting {name!r} in {path}: {remedy}")
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        _, key, message = first_error(error)
        raise UserError(f"reward server setting {key!r} in {location} is wrong: {message}") from error
