"""The data set a judge is trained on by a rule reward: its prompts, and what its answers are measured against."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tqdm import tqdm

from grrm.data.dataset import Encode, PromptItem, encode_prompt, read_src_tgt, report_too_long
from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask

_LANGUAGES = re.compile(r"Given a source text in (.+?) and multiple translation candidates in (.+?)\. ")


class RankingPromptDataset:
    """Judge prompts with their ground truths, as `grrm data rl-gqm` writes them; otherwise like `PromptDataset`.

    An item's task stands for the row in what a run shows and writes: its source is the whole prompt, its languages are
    those that the prompt names ("" where it is worded differently), its reference is the ground truth as it is.
    `check` is called with every ground truth and raises UserError for one that the reward cannot use.

    Raises UserError naming file and line for what `PromptDataset` refuses in a prompt, and for such a ground truth.
    """

    def __init__(
        self,
        path: Path,
        encode: Encode,
        max_prompt_len: int,
        check: Callable[[str], object],
        prompt_key: str = "src",
        response_key: str = "tgt",
    ) -> None:
        self._items: list[PromptItem] = []
        self.n_total = 0
        rows = read_src_tgt(path, prompt_key, response_key)
        for number, prompt, ground_truth in tqdm(rows, desc=f"tokenise {path.name}", unit="row", disable=None):
            self.n_total += 1
            _check_row(path, number, ground_truth, check)
            prompt_ids = encode_prompt(path, number, prompt, encode)
            if len(prompt_ids) <= max_prompt_len:
                self._items.append(PromptItem(len(self._items), prompt_ids, prompt, _task(prompt, ground_truth)))
        self.n_too_long = self.n_total - len(self._items)
        report_too_long(path, "max_prompt_len", max_prompt_len, self.n_too_long, self.n_total)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> PromptItem:
        return self._items[index]

    def __iter__(self) -> Iterator[PromptItem]:
        return iter(self._items)


def _check_row(path: Path, number: int, ground_truth: str, check: Callable[[str], object]) -> None:
    try:
        check(ground_truth)
    except UserError as error:
        raise UserError(f"{path} line {number}: {error}") from error


def _task(prompt: str, ground_truth: str) -> TranslationTask:
    named = _LANGUAGES.search(prompt)
    src_lang, trg_lang = named.groups() if named else ("", "")
    return TranslationTask(prompt, src_lang, trg_lang, ground_truth)
