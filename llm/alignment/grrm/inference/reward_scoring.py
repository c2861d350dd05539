"""Opening a reward model's folder as a judge: prompts and candidates to tokens, tokens to numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grrm.engine.open import prepare_paddle
from grrm.engine.options import AUTO_DTYPE, BF16, DTYPES
from grrm.errors import UserError, require_known
from grrm.gqm.context import ranker_prompt
from grrm.gqm.groups import Status, TranslationTask
from grrm.gqm.languages import language_pair
from grrm.judges.dedup import Outcome
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.value_head import REWARD_MODEL_KINDS, RewardModelJudge, RewardModelOptions
from grrm.models import cpu_kernels
from grrm.models.chat_templates import chat_renderer
from grrm.models.hub import checkpoint_folder
from grrm.models.tokenizer import check_vocabulary, encoder, load_tokenizer, special_tokens, text_encoder

if TYPE_CHECKING:
    from grrm.models.value_head import CandidateGroup, RewardModel

# What a model's folder may record of its prompts, what stands for it where it does not, and where it can be given.
_PROMPT_SETTINGS = {
    "prompt_type": ("Tower", "prompt_type, or --mt-prompt-type of `grrm rank`, or reward_prompt_type of an RL run"),
    "chat_template": ("chatml", "chat_template, or --chat-template of `grrm rank`"),
}


def open_reward_judge(
    directory: str | Path,
    name: str | None = None,
    options: RewardModelOptions | None = None,
    *,
    chat_template: str | None = None,
    dtype: str = AUTO_DTYPE,
    own_process: bool = True,
    metrics: JudgeMetrics | None = None,
) -> RewardModelJudge:
    """The judge "rm" or "ranker" over the reward model in a folder.

    Args:
        directory: folder of the reward model and its tokenizer.
        name: the judge; None is the one that fits the folder.
        options: of the judge; a prompt type of None is the one that the folder records, else Tower.
        chat_template: None is the one that the folder records, else chatml.
        dtype: weights are float32; bfloat16 rounds them on a GPU, and on a CPU the operands of products.
        own_process: whether to suppress PaddleNLP's messages and speed up its layers on a CPU; a trainer does so
            itself.
        metrics: counters to add to.

    Raises:
        UserError: for an incomplete folder, a model of another kind than `name` or trained with other prompts than
            those specified, and a dtype that this device cannot run.
    """
    require_known("dtype", dtype, DTYPES)
    if own_process:
        prepare_paddle(quiet=True)
        if dtype == BF16 and cpu_kernels.in_use():
            cpu_kernels.check_rounding(dtype)
        from grrm.models.cpu_layers import use_cpu_layers

        use_cpu_layers(BF16 if dtype == BF16 else "float32")
    from grrm.models.reward_models import cast_weights, load_reward_model

    directory, metrics = checkpoint_folder(directory), JudgeMetrics() if metrics is None else metrics
    tokenizer = load_tokenizer(directory)
    encode = text_encoder(tokenizer)
    model = load_reward_model(directory)
    if dtype == BF16 and not cpu_kernels.in_use():
        cast_weights(model, dtype)
    check_vocabulary(tokenizer, model.config.vocab_size, directory)
    fitting = next(judge for judge, kind in REWARD_MODEL_KINDS.items() if kind == model.kind)
    if name not in (None, fitting):
        raise UserError(f"the reward model in '{directory}' is a {model.kind} one: use the judge {fitting}")
    options = options or RewardModelOptions()
    prompt_type = _as_trained(model, "prompt_type", options.prompt_type, directory)
    options = options.model_copy(update={"prompt_type": prompt_type})
    render = chat_renderer(_as_trained(model, "chat_template", chat_template, directory), tokenizer, directory)
    scorer = RewardModelScorer(model, tokenizer, render, encode, options, metrics)
    show_copies = model.settings().get("compare") == "group"
    return RewardModelJudge(
        scorer,
        fitting,
        show_copies,
        options.score_scale,
        metrics=metrics,
        language_pairs=scorer.language_pairs,
        context_segments=scorer.context_segments,
    )


def _as_trained(model: RewardModel, setting: str, requested: str | None, directory: Path) -> Any:
    """Return the setting of the model's prompts: `requested`, else that of its training. Raises UserError if these
    differ.
    """
    fallback, where = _PROMPT_SETTINGS[setting]
    trained = getattr(model.trained_with, setting) or (fallback if requested is None else requested)
    if requested not in (None, trained):
        raise UserError(
            f"the reward model in '{directory}' was trained with the {setting.replace('_', ' ')} {trained!r}, not "
            f"{requested!r}: leave out {where}, or set it to {trained}"
        )
    return trained


class RewardModelScorer:
    """`judges.value_head.GroupScorer` over a reward model and its tokenizer.

    A prompt is the translation prompt of the options in the chat template, behind as much context as the model was
    trained with. Candidates, and a source with such text in
    it, are text even where they look like special tokens. A pairwise model reads eos after each candidate.

    Nothing is cut: a candidate that goes beyond the model's positions behind its prompt is TOO_LONG. If the model
    records the language pairs of its training, others are UNSEEN_LANGUAGES, unless the options allow any.
    """

    def __init__(
        self,
        model: RewardModel,
        tokenizer: Any,
        render: Callable[[str], str],
        encode_text: Callable[[str], list[int]],
        options: RewardModelOptions,
        metrics: JudgeMetrics,
    ) -> None:
        self._model, self._render, self._encode_text = model, render, encode_text
        self._encode, self._special_tokens = encoder(tokenizer), special_tokens(tokenizer)
        self._end = [int(tokenizer.eos_token_id)] if model.kind == "pairwise" else []
        self._options, self._metrics = options, metrics
        self._prompt_type = options.prompt_type or _PROMPT_SETTINGS["prompt_type"][0]
        self.context_segments = model.trained_with.context_segments or 0
        self._n_positions = int(model.config.max_position_embeddings)
        self.language_pairs = None if options.any_language_pair else model.trained_with.language_pairs

    def score(self, groups: Sequence[tuple[TranslationTask, Sequence[str]]]) -> list[list[Outcome]]:
        """Numbers, or why there is none, of each group's translations. Raises UserError as `ranker_prompt`."""
        from grrm.models.reward_models import score_groups

        encoded: list[CandidateGroup] = []
        positions: list[tuple[int, list[int]]] = []
        outcomes: list[list[Outcome]] = []
        for number, (task, texts) in enumerate(groups):
            pairs = self.language_pairs
            if pairs is not None and language_pair(task.src_lang, task.trg_lang) not in pairs:
                outcomes.append([Status.UNSEEN_LANGUAGES] * len(texts))
                continue
            outcomes.append([Status.TOO_LONG] * len(texts))
            group, fitting = self._encoded(task, texts)
            if fitting:
                encoded.append(group)
                positions.append((number, fitting))
        self._metrics.add(
            "tokens_read", sum(len(group.prompt_ids) + sum(map(len, group.responses)) for group in encoded)
        )
        results = score_groups(self._model, encoded, max_tokens=self._options.batch_tokens)
        for (number, fitting), scores in zip(positions, results, strict=True):
            for position, score in zip(fitting, scores, strict=True):
                outcomes[number][position] = score
        return outcomes

    def _encoded(self, task: TranslationTask, texts: Sequence[str]) -> tuple[CandidateGroup, list[int]]:
        """The group of the translations that fit behind their prompt, and their positions in `texts`."""
        from grrm.models.value_head import CandidateGroup

        prompt_ids = self.prompt_ids(task)
        responses = [self._encode_text(text) + self._end for text in texts]
        fitting = [i for i, response in enumerate(responses) if len(prompt_ids) + len(response) <= self._n_positions]
        return CandidateGroup(prompt_ids, [responses[i] for i in fitting]), fitting

    def prompt_ids(self, task: TranslationTask) -> list[int]:
        """The tokens of a task's prompt. Raises UserError as `ranker_prompt`."""
        prompt = ranker_prompt(task, self._prompt_type, self.context_segments)
        rendered = prompt if self._prompt_type == "SSR" else self._render(prompt)
        if not any(token in prompt for token in self._special_tokens):
            return self._encode(rendered)
        before, prompt, after = rendered.partition(prompt)
        return self._encode(before) + self._encode_text(prompt) + self._encode(after)
