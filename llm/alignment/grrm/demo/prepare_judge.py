"""What the demo's judges learn from, and start from: `python -m grrm.demo.prepare_judge data|reader|start …`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from grrm.data.parquet import COLUMNS, TranslationRow, read_rows, write_rows
from grrm.entry import run_main
from grrm.errors import UserError
from grrm.startup import configure_process

if TYPE_CHECKING:
    from grrm.rl.growth import JudgeTokens

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
SAMPLED = pa.schema([*((name, pa.string()) for name in COLUMNS), ("mt_texts", pa.list_(pa.string()))])
HOT = 1.5  # for groups of mixed quality
MAX_NEW_TOKENS = 40
MEASURED = 60  # prompts that a judge's scales are measured on


@click.group()
def main() -> None:
    """Make what the judges need."""


@main.command()
@click.option("--policy", type=FOLDER, required=True, help="Whose translations are judged.")
@click.option("--train", type=FILE, required=True)
@click.option("--heldout", type=FILE, required=True)
@click.option("--train-rows", type=int, required=True, help="Rows of TRAIN that the policy translates.")
@click.option("--heldout-rows", type=int, required=True)
@click.option("--samples", type=int, required=True, help="Translations of each.")
@click.option("--mixed-share", type=float, required=True, help="Training groups of mixed quality.")
@click.option("--compared", type=click.IntRange(2), required=True, help="Candidates of a prompt in the GQM's RLVR.")
@click.option("--prompt-type", required=True)
@click.option("--seed", type=int, required=True)
@click.option("--out", type=FOLDER, required=True)
def data(
    policy: Path,
    train: Path,
    heldout: Path,
    train_rows: int,
    heldout_rows: int,
    samples: int,
    mixed_share: float,
    compared: int,
    prompt_type: str,
    seed: int,
    out: Path,
) -> None:
    """Let POLICY translate, form groups with gold scores, and write what RLVR of both judges reads."""
    from grrm.data.annotation.groups import annotate_groups
    from grrm.data.annotation.relative import relative_groups
    from grrm.data.converters.gqm import ALL_PROMPT_TYPES, convert_rl_gqm
    from grrm.data.converters.sqm import convert_rl_sqm

    sampler = Sampler(policy, prompt_type, seed)
    files = {name: out / f"{name}.parquet" for name in ("train", "relative", "on_policy", "mixed")}
    scale = out / "scale.json"
    chosen = pick(heldout, heldout_rows, seed)
    report = annotate_groups(
        sampler.write(out / "train_samples.parquet", pick(train, train_rows, seed), [1.0] * samples),
        files["train"],
        group_size=samples,
        mixed_share=mixed_share,
        fit_scale=scale,
        top_score=9,
        seed=seed,
    )
    click.echo(report.summary())
    on_policy = sampler.write(out / "on_policy_samples.parquet", chosen, [1.0] * samples)
    annotate_groups(on_policy, files["on_policy"], group_size=samples, scale=scale, seed=seed)
    hotter = sampler.write(out / "mixed_samples.parquet", chosen, [0.5, 1.0, HOT, HOT])
    annotate_groups(hotter, files["mixed"], group_size=samples, mixed_share=1.0, scale=scale, seed=seed)
    # What only a judge of groups can learn: who is better than whom, instead of how good each is.
    relative_groups(files["train"], files["relative"], group_size=compared, seed=seed)
    convert_rl_gqm(files["relative"], out / "rl_gqm.jsonl", prompt_type="score", prompt_types=ALL_PROMPT_TYPES)
    convert_rl_sqm(files["train"], out / "rl_sqm.jsonl")
    click.echo(f"{report.written} training groups")


@main.command()
@click.option("--policy", type=FOLDER, required=True, help="What the reader starts as.")
@click.option(
    "--groups", type=FILE, required=True, help="Groups with gold scores, whose references it learns to expect."
)
@click.option("--candidates", type=click.IntRange(2, 26), required=True, help="The most that a group has.")
@click.option("--prompt-type", required=True, help="Of the policy.")
@click.option("--seed", type=int, required=True)
@click.option("--out", type=FOLDER, required=True)
def reader(policy: Path, groups: Path, candidates: int, prompt_type: str, seed: int, out: Path) -> None:
    """Save the POLICY with the judges' prompts as words of its own, and what it is to learn to expect in them."""
    from grrm.data.bpe import EOS, add_words, prompt_frames
    from grrm.data.converters.sft_expected import convert_sft_expected
    from grrm.data.judge_frames import prompt_frames_of, response_frames_of
    from grrm.models.policy import load_policy
    from grrm.models.tokenizer import encoder, load_tokenizer, word_places
    from grrm.rl.growth import with_words

    encode = encoder(load_tokenizer(str(policy)))
    begin, end = prompt_frames(prompt_type)
    texts: dict[str, str] = {}
    words: list[str] = []
    for kind in ("gqm", "sqm"):
        frames, answers = prompt_frames_of(kind, candidates), response_frames_of(kind, candidates)
        words += answers
        # A candidate is read as the policy's own translation would be: after the words that it begins to write at.
        like = dict.fromkeys(frames[3:-1], end) | {frames[0]: begin, frames[-1]: EOS}
        texts |= {text: like.get(text, text) for text in (*frames, *answers)}
    tokenizer = add_words(policy, out, [text for text in texts if text not in words], words)
    like_ids = {tokenizer.token_to_id(word): encode(text) for word, text in texts.items()}
    with_words(load_policy(policy), tokenizer.get_vocab_size(), like_ids, seed).save_pretrained(
        str(out), safe_serialization=True
    )
    click.echo(convert_sft_expected(groups, out / "expected.jsonl", word_places(out), seed=seed).summary())


@main.command()
@click.option("--reader", "folder", type=FOLDER, required=True, help="What the judge grows from.")
@click.option("--kind", type=click.Choice(["gqm", "sqm"]), required=True)
@click.option("--rows", type=FILE, required=True, help="Prompts of the judge's own, to measure scales on.")
@click.option("--candidates", type=click.IntRange(2, 26), required=True, help="The most that a group has.")
@click.option("--free-layers", type=click.IntRange(1), required=True)
@click.option("--rank", type=click.IntRange(1), default=144, show_default=True, help="How exactly words are compared.")
@click.option(
    "--spelling", type=click.IntRange(1), default=48, show_default=True, help="Numbers for how words are spelled."
)
@click.option("--seed", type=int, required=True)
@click.option("--out", type=FOLDER, required=True)
def start(
    folder: Path,
    kind: str,
    rows: Path,
    candidates: int,
    free_layers: int,
    rank: int,
    spelling: int,
    seed: int,
    out: Path,
) -> None:
    """Save a judge that has grown from a reader."""
    from grrm.data.bpe import add_words, word_texts
    from grrm.data.dataset import read_src_tgt
    from grrm.models.policy import load_policy
    from grrm.models.tokenizer import encoder, load_tokenizer
    from grrm.rl.growth import grow_judge

    encode = encoder(load_tokenizer(str(folder)))
    prompts = [encode(prompt) for _, prompt, _ in islice(read_src_tgt(rows), MEASURED)]
    texts = word_texts(add_words(folder, out, (), ()))
    judge = grow_judge(
        load_policy(folder),
        judge_tokens(kind, candidates, encode),
        prompts,
        rank=rank,
        free_layers=free_layers,
        texts=texts if kind == "gqm" else None,
        spelling=spelling,
        seed=seed,
    )
    judge.save_pretrained(str(out), safe_serialization=True)


def judge_tokens(kind: str, candidates: int, encode: Callable[[str], list[int]]) -> JudgeTokens:
    """The tokens of a judge's prompts and verdicts in a vocabulary that has them as single words."""
    from grrm.data.bpe import EOS
    from grrm.data.judge_frames import prompt_frames_of, response_frames_of
    from grrm.rl.growth import JudgeTokens

    def token(text: str) -> int:
        ids = encode(text)
        if len(ids) != 1:
            raise UserError(
                f"the reader does not know {text!r} as one word: make it with the command `reader` and the same "
                "--candidates"
            )
        return ids[0]

    frames = prompt_frames_of(kind, candidates)
    return JudgeTokens(
        begin=token(frames[0]),
        opens=tuple(token(frame) for frame in frames[3:-1]),
        end=token(frames[-1]),
        asks=tuple(token(frame) for frame in response_frames_of(kind, candidates)),
        scores=tuple(token(str(score)) for score in range(10)),
        stop=token(EOS),
    )


class Sampler:
    """Draws translations of rows from a policy."""

    def __init__(self, policy: Path, prompt_type: str, seed: int) -> None:
        from grrm.engine.open import open_checkpoint

        self._opened, self._prompt_type, self._seed = open_checkpoint(policy), prompt_type, seed

    def write(self, path: Path, rows: Sequence[TranslationRow], temperatures: Sequence[float]) -> Path:
        """Write the rows with one translation at each of `temperatures`, in the form of `grrm translate`."""
        from grrm.gqm.groups import TranslationTask
        from grrm.inference.translate import TranslateSettings, translate_prompts, user_prompts

        tasks = [TranslationTask(row.src_text, row.src_lang, row.trg_lang) for row in rows]
        drawn: list[list[str]] = [[] for _ in rows]
        for temperature in dict.fromkeys(temperatures):
            settings = TranslateSettings(
                self._prompt_type, temperatures.count(temperature), temperature, 1.0, MAX_NEW_TOKENS, 0, self._seed
            )
            replies = translate_prompts(self._opened, user_prompts(tasks, settings), settings)
            for texts, of_row in zip(drawn, replies, strict=True):
                texts += [reply.translation for reply in of_row if reply.translation is not None]
        write_rows(path, zip(*zip(*rows, strict=True), drawn, strict=True), SAMPLED)
        return path


def pick(parquet: Path, n_rows: int, seed: int) -> list[TranslationRow]:
    """Rows of a file, drawn without replacement; all of them where there are no more."""
    rows = list(read_rows(parquet))
    return random.Random(seed).sample(rows, min(n_rows, len(rows)))


if __name__ == "__main__":
    configure_process()
    run_main(main)
