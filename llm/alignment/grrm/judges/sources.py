"""The judges of a mixture in an argument file: parsed and validated before any of them is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from grrm.errors import UserError, UserErrors, first_error, mistake_in, require_known, suggestion
from grrm.gqm.chat import SERVER_TEMPLATE
from grrm.http_client.pool import checked_url
from grrm.judges.plug_in import is_plug_in
from grrm.judges.registry import spec_of
from grrm.judges.spec import JudgeSpec, Needs
from grrm.rewards.gates import read_gates
from grrm.rewards.mixing import Normalisation

MIXTURE = "mixture"  # the judge of a reward server that mixes others
DEADLINE_S = 600.0  # of what is asked outside of this process, or is not ours
# Keys of a source that say which model judges, by what the judge needs.
_KEYS: Mapping[Needs, tuple[str, ...]] = {
    "nothing": (),
    "generator": ("urls", "token_file", "model", "tokenizer", "chat_template"),
    "reward model": ("model", "chat_template"),
    "metric": ("model",),
    "servers": ("urls", "token_file"),
}


class JudgeSource(BaseModel):
    """A judge of a mixture, or its fallback; a fallback has no weight, normalisation, name or policy of its own."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    judge: str  # a name of the registry, module:function, or `server`
    name: str = ""  # what metrics and dumps call it; "" stands for `judge`
    options: dict[str, Any] = {}  # the judge's own
    model: str | None = None  # the folder; a learned metric: as its library takes it; with urls: its name there
    urls: list[str] = []  # reward servers of `server`, OpenAI-compatible servers of a generative judge; a pool
    token_file: str | None = None  # file with the servers' bearer token
    tokenizer: str | None = None  # with a generative judge: folder of the model's tokenizer
    chat_template: str = "chatml"  # with urls also "server": their chat endpoint, with the model's own template
    weight: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    normalise: Normalisation = "none"
    deadline_s: Annotated[FiniteFloat, Field(gt=0)] | None = None
    on_failure: Literal["leave_out", "unscored"] = "leave_out"
    fallback: JudgeSource | None = None
    route: str = ""  # the kind of rows that it judges, where a run has several; "" stands for translations
    gates: dict[str, Any] = {}  # checks that a candidate must pass before it is judged, also by the fallback

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: Any) -> Any:
        """A judge's name alone stands for the judge as it is."""
        return {"judge": value} if isinstance(value, str) else value

    @property
    def title(self) -> str:
        """Its name in metrics and dumps."""
        return self.name or self.judge

    @property
    def spec(self) -> JudgeSpec:
        """The judge's declaration. Raises UserError for one that does not exist."""
        return spec_of(self.judge)

    @property
    def is_outside(self) -> bool:
        """True if it runs in another process, or is user code: such a judge has a deadline."""
        return bool(self.urls) or self.spec.needs in ("metric", "servers") or is_plug_in(self.judge)

    @property
    def compares_pairs(self) -> bool:
        """True if it, or its fallback, has a prompt for every two candidates."""
        return self.spec.compares_pairs or (self.fallback is not None and self.fallback.compares_pairs)

    @property
    def generates_locally(self) -> bool:
        """True if the judge generates from a checkpoint in the process that opens the mixture."""
        return self.spec.needs == "generator" and not self.urls

    @property
    def needs_device(self) -> bool:
        """True if it, or its fallback, generates in this process: nothing else may use the device at that time."""
        return self.generates_locally or (self.fallback is not None and self.fallback.needs_device)

    @property
    def seconds(self) -> float | None:
        """The deadline of one call; None where the judge computes in the caller's thread."""
        return (self.deadline_s or DEADLINE_S) if self.is_outside else None

    @property
    def longest_s(self) -> float:
        """The longest time that it and its fallback should take, those without a deadline too."""
        return (self.seconds or DEADLINE_S) + (0.0 if self.fallback is None else self.fallback.longest_s)


def read_sources(values: Sequence[Mapping[str, Any]], key: str = "reward_sources") -> tuple[JudgeSource, ...]:
    """The judges of a mixture. Raises UserError with all mistakes at once, each with its place in the list."""
    sources, problems = list[JudgeSource](), list[str]()
    for number, value in enumerate(values, start=1):
        where = f"{key}, entry {number}"
        try:
            source = JudgeSource.model_validate(value)
        except ValidationError as error:
            problems.append(f"{where}: {_message(error)}.")
            continue
        problems += [f"{where}: {sentence}" for sentence in _mistakes(source)]
        sources.append(source)
    titles = [source.title for source in sources]
    for title in sorted({title for title in titles if titles.count(title) > 1}):
        problems.append(f"{key} has {titles.count(title)} judges called {title!r}; give each a name of its own.")
    if not values:
        problems.append(f"{key} names no judge; give at least one.")
    if len(problems) > 1:
        raise UserErrors("", problems)
    if problems:
        raise UserError(problems[0])
    return tuple(sources)


def mixture_sources(options: Mapping[str, object]) -> tuple[JudgeSource, ...]:
    """The judges of a mixture from its options, which are the list `sources`. Raises UserError as `read_sources`."""
    for name in options:
        require_known(f"option of judge {MIXTURE!r}", name, ("sources",))
    sources = options.get("sources")
    if not isinstance(sources, list):
        raise UserError(f"judge {MIXTURE!r} needs the option sources; give a list of judges.")
    return read_sources(sources, "sources")


def _message(error: ValidationError) -> str:
    kind, field, message = first_error(error)
    if kind == "extra_forbidden":
        fields = JudgeSource.model_fields
        return f"unknown key {field!r}; {suggestion(field.rpartition('.')[2], fields).rstrip('.')}"
    return f"{field or 'the entry'} is wrong: {message}"


def _mistakes(source: JudgeSource) -> list[str]:
    """The errors of a source and its fallback, one sentence each."""
    if unknown := mistake_in(spec_of, source.judge):
        return [unknown]
    checks = (_check_keys, _check_options, _check_urls, lambda checked: read_gates(checked.gates))
    mistakes = [mistake for check in checks if (mistake := mistake_in(check, source))]
    if source.fallback is not None:
        for name in ("name", "weight", "normalise", "on_failure", "gates", "route"):
            if name in source.fallback.model_fields_set:
                mistakes.append(f"fallback: {name} is that of the judge it stands in for; remove it.")
        mistakes += [f"fallback: {sentence}" for sentence in _mistakes(source.fallback)]
    return mistakes


def _check_keys(source: JudgeSource) -> None:
    """Errors for keys without effect, and for missing keys that the judge needs."""
    judge, needs = source.judge, source.spec.needs
    for name in _KEYS["generator"]:
        if name in source.model_fields_set and name not in _KEYS[needs]:
            raise UserError(f"{name} has no effect with judge {judge}; remove it.")
    if needs == "servers" and not source.urls:
        raise UserError("judge server needs urls; give the addresses of its servers.")
    if source.generates_locally:
        if not source.model:
            raise UserError(
                f"judge {judge} needs urls or model; give the addresses of its servers, or its checkpoint's folder."
            )
        for name in ("token_file", "tokenizer"):
            if name in source.model_fields_set:
                raise UserError(f"{name} has no effect without urls, the model being a folder here; remove it.")
        if source.chat_template == SERVER_TEMPLATE:
            raise UserError("chat_template server is the chat endpoint of urls; give urls, or another template.")
    elif source.chat_template == SERVER_TEMPLATE and source.tokenizer is not None:
        raise UserError("tokenizer has no effect with chat_template server; remove it.")
    if needs == "reward model" and not source.model:
        raise UserError(f"judge {judge} needs model; give the folder of the reward model.")
    if source.deadline_s is not None and not source.is_outside:
        raise UserError(f"judge {judge} computes in this process and cannot be interrupted; remove deadline_s.")


def _check_options(source: JudgeSource) -> None:
    if source.spec.needs == "servers" and source.options:
        raise UserError("options of judge server are those of the reward server itself; set them there.")
    source.spec.read(source.options)


def _check_urls(source: JudgeSource) -> None:
    for url in source.urls:
        checked_url(url, "urls", "http://127.0.0.1:8731")
