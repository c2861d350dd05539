"""Record of a checkpoint's training: the file `grrm.json` beside its weights.

Its keys, each optional: `prompt_type` and `chat_template` of the translation prompts, `extractor_type` of the
responses, `language_pairs` if all prompts name theirs, `context_segments` that a reward model's prompts show, and
`data`, the training files of all stages in order (`stage`, `file`, `sha256`, `rows`).

Unknown keys are ignored. Older reward models have the same under `trained_with` in reward_model.json, which is read
without grrm.json.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from grrm.config.values import is_hub_name
from grrm.data.atomic import atomic_path
from grrm.data.downloads import sha256_of
from grrm.errors import UserError
from grrm.gqm.chat import ASSISTANT_START, CHAT_TEMPLATES, EOS_TEXT, USER_START
from grrm.gqm.extraction import EXTRACTOR_TYPES
from grrm.gqm.languages import language_pair
from grrm.gqm.mt_prompts import MTPromptType, prompt_type_of, recover_mt_task
from grrm.models.hub import checkpoint_folder

logger = logging.getLogger(__name__)

RECORD_FILE = "grrm.json"
OLDER_FILE, OLDER_KEY = "reward_model.json", "trained_with"
Stage = Literal["sft", "dpo", "rl", "reward"]


class TrainingFile(BaseModel):
    """A file that a stage was trained on; `rows` are those that were used."""

    model_config = ConfigDict(frozen=True)

    stage: Stage
    file: str
    sha256: str
    rows: int


class TrainedWith(BaseModel):
    """The content of grrm.json; None is what is not known."""

    model_config = ConfigDict(frozen=True)

    prompt_type: MTPromptType | None = None
    extractor_type: str | None = None
    chat_template: Literal["chatml", "checkpoint", "none"] | None = None
    language_pairs: tuple[str, ...] | None = None
    context_segments: int | None = None
    data: tuple[TrainingFile, ...] = ()

    @field_validator("extractor_type")
    @classmethod
    def _is_registered(cls, value: str | None) -> str | None:
        if value is not None and value not in EXTRACTOR_TYPES:
            raise ValueError(f"{value!r} is none of {', '.join(EXTRACTOR_TYPES)}")
        return value

    @property
    def reads(self) -> str | None:
        """The extractor of translations from responses: `extractor_type`, or that of the prompt type."""
        return self.extractor_type or self.prompt_type

    def after(self, base: TrainedWith) -> TrainedWith:
        """Return the record of a model trained with this and, before that, with `base`."""
        pairs = None
        if self.language_pairs is not None and (base.language_pairs is not None or not base.data):
            pairs = tuple(sorted({*self.language_pairs, *(base.language_pairs or ())}))
        return TrainedWith(
            prompt_type=self.prompt_type or base.prompt_type,
            extractor_type=self.extractor_type or base.extractor_type,
            chat_template=self.chat_template or base.chat_template,
            language_pairs=pairs,
            data=(*base.data, *self.data),
        )


def trained_with_prompts(prompts: Iterable[tuple[str, bool]]) -> TrainedWith:
    """Return the common traits of complete prompts: the type of those that ask for a translation, their chat template.

    With each prompt comes True where the tokenizer's own template made it of messages. Without translations the
    template is that of all prompts. None where they differ; `language_pairs` only if every prompt names its own.
    """
    types: set[str] = set()
    templates: set[str | None] = set()
    translation_templates: set[str | None] = set()
    pairs: set[str | None] = set()
    for prompt, is_chat in prompts:
        prompt_type, task = prompt_type_of(prompt), recover_mt_task(prompt)
        pairs.add(language_pair(*task[1:]) if task else None)
        template = _template_of(prompt, is_chat)
        templates.add(template)
        if prompt_type is not None:
            types.add(prompt_type)
            translation_templates.add(template)
    return TrainedWith(
        prompt_type=_only(types),
        chat_template=_only(translation_templates or templates),
        language_pairs=None if None in pairs or not pairs else tuple(sorted(map(str, pairs))),
    )


def training_file(stage: Stage, path: str | Path, rows: int) -> TrainingFile:
    """A file of training rows with the hash of its bytes."""
    path = Path(path)
    return TrainingFile(stage=stage, file=path.name, sha256=sha256_of(path), rows=rows)


def read_trained_with(model: str | Path) -> TrainedWith:
    """Read the record of the checkpoint in a folder, or of a hub's name; an empty one if there is no such file.

    Raises UserError, one sentence, for a file that is not readable or has impossible values.
    """
    folder = checkpoint_folder(model) if is_hub_name(str(model)) else Path(model)
    path, older = folder / RECORD_FILE, folder / OLDER_FILE
    try:
        if path.is_file():
            return TrainedWith.model_validate_json(path.read_bytes())
        if older.is_file():
            path = older
            return TrainedWith.model_validate(json.loads(older.read_text(encoding="utf-8")).get(OLDER_KEY, {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise _nonsense(path, f"{name}: {first['msg']}" if name else str(first["msg"])) from error
    except (OSError, ValueError, AttributeError) as error:
        raise _nonsense(path, str(error)) from error
    return TrainedWith()


def checkpoint_template(model: str | Path, requested: str | None) -> str:
    """The chat template to ask a checkpoint with: `requested`, else the one that it was trained with, else ChatML.

    A contradiction is told on the console. Raises UserError as `read_trained_with` does.
    """
    trained = read_trained_with(model).chat_template
    if requested is not None and trained not in (None, requested):
        logger.warning("'%s' was trained with the chat template %s, and is asked with %s", model, trained, requested)
    return requested or trained or CHAT_TEMPLATES[0]


def write_trained_with(folder: Path, record: TrainedWith) -> None:
    """Write grrm.json, which appears whole or not at all."""
    with atomic_path(folder / RECORD_FILE) as temporary:
        content = record.model_dump(mode="json", exclude_none=True)
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_same_prompts(model: str, trained: TrainedWith, rows: str, requested: TrainedWith) -> None:
    """Raises UserError where a policy that knows its prompts is to be trained with `rows` that have others."""
    for name, remedy in (("prompt_type", "convert them with --prompt-type {0}"), ("chat_template", "convert them so")):
        before, now = getattr(trained, name), getattr(requested, name)
        if name == "prompt_type":
            before, now = (
                None if prompt_type is None else prompt_type.removesuffix(".lastl") for prompt_type in (before, now)
            )
        if before is not None and now is not None and before != now:
            raise UserError(
                f"the prompts in '{rows}' have the {name.replace('_', ' ')} {now}, but '{model}' was trained with "
                f"{before}: {remedy.format(before)}, or remove {RECORD_FILE} from the model's folder if it should "
                "learn others"
            )


def _template_of(prompt: str, is_chat: bool) -> str | None:
    if prompt.startswith(USER_START) and prompt.endswith(f"{EOS_TEXT}\n{ASSISTANT_START}"):
        return "chatml"
    if is_chat:
        return "checkpoint"
    return None if EOS_TEXT in prompt else "none"


def _only(values: set[Any]) -> Any:
    return next(iter(values)) if len(values) == 1 else None


def _nonsense(path: Path, cause: str) -> UserError:
    cause = " ".join(cause.split())
    return UserError(
        f"'{path}' does not say what its model was trained with ({cause}): get the folder again, or remove the file"
    )
