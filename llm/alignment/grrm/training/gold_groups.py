"""The rows that a reward model learns from: sources with scored translations, or preference pairs, tokenised."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from grrm.config.keys.reward_model import GroupConfig, PairConfig
from grrm.data.chats import messages_fault
from grrm.data.dataset import read_rows, shared_ids
from grrm.data.documents import Context, LocatedRow, contexts_of
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH, open_parquet
from grrm.errors import UserError
from grrm.gqm.context import ranker_prompt
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import language_pair
from grrm.gqm.mt_prompts import recover_mt_task
from grrm.models.chat_templates import chat_renderer, messages_renderer
from grrm.models.tokenizer import encoder, special_tokens, text_encoder
from grrm.models.value_head import CandidateGroup

logger = logging.getLogger(__name__)

PAIR_KEYS = ("prompt", "chosen", "rejected")
SOURCE_KEYS = ("src_text", "src_lang", "trg_lang")
UNKNOWN_PAIR = "unknown"
MAX_GOLD = 1e6  # in units of the loss; the squares of what is larger drown every other group's
LEAST_DIFFERENCE = 0.05  # of gold in its unit, that counts as one: half a point of chrF
FEW = 0.1  # of the pairs of different gold: where fewer count as different, the unit is too large


@dataclass(frozen=True, slots=True)
class GoldGroup:
    """Candidates of one prompt and their gold scores in units of the loss, aligned.

    `is_pair` where gold says which candidate is better, 1 and 0, and not by how much. `n_without_gold` candidates of
    the row have no gold and are not in the group. `is_chat` where the prompt was a list of messages.
    """

    candidates: CandidateGroup
    gold: tuple[float, ...]
    language_pair: str
    is_pair: bool = False
    n_without_gold: int = 0
    is_chat: bool = False


Reader = Callable[[dict[str, Any], Context], "GoldGroup | str"]


class PairEncoder:
    """Encodes rows of preference pairs as groups of two; for an unusable row it returns the reason and does not raise.

    Candidates are encoded as text, also where they look like special tokens; with `end` behind each.
    """

    def __init__(self, config: PairConfig, tokenizer: Any, directory: Path, end: Sequence[int] = ()) -> None:
        self._limits, self._end = config, list(end)
        self._render = chat_renderer(config.chat_template, tokenizer, directory)
        self._render_messages = messages_renderer(tokenizer, directory)
        self._encode_prompt, self._encode_text = map(shared_ids, (encoder(tokenizer), text_encoder(tokenizer)))
        self._specials = special_tokens(tokenizer)

    def pair(self, row: dict[str, Any], context: Context = ()) -> GoldGroup | str:
        """The pair of a row with prompt, chosen and rejected, texts or lists of messages, or why there is none."""
        prompt: Any = row.get(PAIR_KEYS[0])
        texts: list[Any] = [_single_content(row.get(key)) for key in PAIR_KEYS[1:]]
        is_chat = isinstance(prompt, list)
        if is_chat:
            fault = messages_fault(prompt, ())
            try:
                prompt = "" if fault else self._render_messages(prompt)
            except ValueError as error:
                fault = str(error)
            if fault is not None:
                return f"the prompt {fault}"
        if not isinstance(prompt, str) or not prompt.strip():
            return "the prompt is missing"
        reason = _texts_fault(texts)
        if reason is None and texts[0] == texts[1]:
            reason = "the chosen candidate is the rejected one"
        if reason is not None:
            return reason
        task = recover_mt_task(prompt)
        pair = language_pair(task[1], task[2]) if task else UNKNOWN_PAIR
        return self._built(prompt, is_chat, texts, gold=(1.0, 0.0), language_pair=pair, is_pair=True, is_chat=is_chat)

    def _built(self, prompt: str, is_rendered: bool, texts: Sequence[str], **fields: Any) -> GoldGroup | str:
        if not is_rendered and self._limits.chat_template != "none":
            if any(token in prompt for token in self._specials):
                return "the prompt contains a special token"
            prompt = self._render(prompt)
        prompt_ids = self._encode_prompt(prompt)
        responses = [[*self._encode_text(text), *self._end] for text in texts]
        if len(prompt_ids) + max(map(len, responses)) > self._limits.max_length:
            return f"longer than max_length = {self._limits.max_length} tokens"
        return GoldGroup(CandidateGroup(prompt_ids, responses), **fields)


class GroupEncoder(PairEncoder):
    """Rows with translations and scores to groups; pairs too."""

    def __init__(self, config: GroupConfig, tokenizer: Any, directory: Path, end: Sequence[int] = ()) -> None:
        super().__init__(config, tokenizer, directory, end)
        self._config = config

    def group(self, row: dict[str, Any], context: Context = ()) -> GoldGroup | str:
        """The group of a row with translations and scores behind its context, or why there is none."""
        texts: Any = row.get(self._config.mt_key)
        scores: Any = row.get(self._config.score_key)
        if self._config.score_key not in row:
            return (
                f"{self._config.score_key} is not among {', '.join(row)}: set score_key to the key of the gold scores"
            )
        n_scores = len(scores) if isinstance(scores, list) else 0
        if isinstance(texts, list) and len(texts) == n_scores:
            with_gold = [i for i, score in enumerate(scores) if score is not None]
            if len(with_gold) > 1:
                texts, scores = [texts[i] for i in with_gold], [scores[i] for i in with_gold]
        reason = _scores_fault(scores, self._config.gold_scale) or _texts_fault(texts)
        if reason is not None:
            return reason
        if len(texts) != len(scores):
            return "as many candidates as gold scores are needed"
        source, src_lang, trg_lang = (row.get(key) for key in SOURCE_KEYS)
        if not all(isinstance(value, str) and value.strip() for value in (source, src_lang, trg_lang)):
            return "the source or a language is missing"
        try:
            task = TranslationTask(str(source), str(src_lang), str(trg_lang), context=context)
            prompt = ranker_prompt(task, self._config.prompt_type, self._config.context_segments)
        except UserError as error:
            return str(error).rstrip(".")
        is_rendered = self._config.prompt_type == "SSR"
        gold = tuple(float(score) / self._config.gold_scale for score in scores)
        pair, n_without_gold = language_pair(str(src_lang), str(trg_lang)), n_scores - len(gold)
        return self._built(prompt, is_rendered, texts, gold=gold, language_pair=pair, n_without_gold=n_without_gold)


def _single_content(response: Any) -> Any:
    """The content of a list of one message, which is how preference data sets of chats have a response."""
    is_message = isinstance(response, list) and len(response) == 1 and isinstance(response[0], dict)
    return response[0].get("content") if is_message else response


def _scores_fault(scores: Any, gold_scale: float) -> str | None:
    if not isinstance(scores, list) or not scores:
        return "there are no gold scores"
    if any(isinstance(score, bool) or not isinstance(score, (int, float)) for score in scores):
        return "a candidate has no gold score"
    if not all(isinstance(score, int) or math.isfinite(score) for score in scores):
        return "a gold score is not a finite number"
    limit = MAX_GOLD * gold_scale
    return f"a gold score is beyond {limit:g}" if max(map(abs, scores)) > limit else None


def _texts_fault(texts: Any) -> str | None:
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return "a candidate is not text"
    if len(texts) < 2:
        return "there are fewer than two candidates"
    return None if all(text.strip() for text in texts) else "a candidate is empty"


def read_gold_groups(path: Path, encode: GroupEncoder, config: GroupConfig) -> list[GoldGroup]:
    """Every usable group of a parquet or JSON lines file; what is left out is counted and told on the console.

    Raises UserError for a file that cannot be read, one with other columns than those of groups or pairs, one without
    a usable row, or without one whose candidates differ in gold by what counts; and with context as `contexts_of`.
    """
    contexts: Sequence[Context] = ()
    if config.context_segments:
        located = [LocatedRow.of_row(row) for row in _rows(path)]
        contexts = contexts_of(located, config.context_segments, lambda index: f"{path} row {index + 1}")
    return _read(path, lambda first: _reader(path, first, encode, config), contexts)


def read_pairs(path: Path, encode: PairEncoder) -> list[GoldGroup]:
    """Like `read_gold_groups`, of a file of preference pairs."""

    def reader(first: dict[str, Any]) -> Reader:
        if not all(name in first for name in PAIR_KEYS):
            raise UserError(_not_pairs(path, first))
        return encode.pair

    return _read(path, reader)


def _read(
    path: Path, reader_of: Callable[[dict[str, Any]], Reader], contexts: Sequence[Context] = ()
) -> list[GoldGroup]:
    groups: list[GoldGroup] = []
    rejected: Counter[str] = Counter()
    read: Reader | None = None
    rows = zip(_rows(path), chain(contexts, repeat(())), strict=False)
    for row, context in tqdm(rows, desc=f"tokenise {path.name}", unit="row", disable=None):
        if not any(value is not None for value in row.values()):  # of a line that `grrm rank` could not read
            rejected["the row is empty"] += 1
            continue
        if read is None:
            read = reader_of(row)
        group = read(row, context)
        if isinstance(group, str):
            rejected[group] += 1
        else:
            groups.append(group)
    reasons = ", ".join(f"{count} x {reason}" for reason, count in rejected.most_common())
    if not groups:
        raise UserError(f"{path} has no usable row ({reasons}); mend the file")
    if all(len(set(group.gold)) == 1 for group in groups):
        raise UserError(
            f"{path} has no row whose candidates differ in gold, so there is no order to learn; score it anew"
        )
    _check_unit(path, groups)
    if rejected:
        n_rows = len(groups) + rejected.total()
        logger.warning("%s: %d of %d rows were left out: %s", path, rejected.total(), n_rows, reasons)
    if n_without_gold := sum(group.n_without_gold for group in groups):
        logger.warning("%s: %d candidates without a gold score were left out of their groups", path, n_without_gold)
    return groups


def _check_unit(path: Path, groups: Sequence[GoldGroup]) -> None:
    """Raise UserError where no pair counts as different in the loss; warn where few do."""
    gold = (np.asarray(group.gold) for group in groups)
    differences = np.concatenate([np.abs(own[:, None] - own)[np.triu_indices(len(own), k=1)] for own in gold])
    n_different, n_counted = np.count_nonzero(differences), np.count_nonzero(differences > LEAST_DIFFERENCE)
    if n_counted >= FEW * n_different:
        return
    sentence = (
        f"{path}: {n_counted} of {n_different} pairs of different gold differ by more than {LEAST_DIFFERENCE:g} units "
        "of the loss, and only these are learned: lower gold_scale, which is 0.1 for scores from 0 to 1"
    )
    if not n_counted:
        raise UserError(sentence)
    logger.warning("%s", sentence)


def _reader(path: Path, first: dict[str, Any], encode: GroupEncoder, config: GroupConfig) -> Reader:
    """Choose the reader of the rows of a file by its first row."""
    if all(key in first for key in PAIR_KEYS):
        return encode.pair
    if config.mt_key in first:
        return encode.group
    if any(key in first for key in PAIR_KEYS):
        raise UserError(_not_pairs(path, first))
    columns = (*SOURCE_KEYS, config.mt_key, config.score_key)
    raise UserError(
        f"{path} has neither {', '.join(PAIR_KEYS)} nor {', '.join(columns)} (found: {', '.join(first) or 'none'}); "
        "set mt_key and score_key to the keys of your file"
    )


def _not_pairs(path: Path, first: dict[str, Any]) -> str:
    missing = [name for name in PAIR_KEYS if name not in first]
    return (
        f"{path} lacks {', '.join(missing)} (found: {', '.join(first) or 'none'}); make it with "
        "`grrm data pair-instructions`"
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from (row for _, row in read_rows(path))
        return
    n_rows = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH):
            n_rows += batch.num_rows
            yield from batch.to_pylist()
    if not n_rows:
        raise UserError(f"{path} has no rows; give a file with at least one group")
