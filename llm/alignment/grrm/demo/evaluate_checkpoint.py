"""Scores a policy checkpoint on held-out text: `python -m grrm.demo.evaluate_checkpoint --model DIR --data FILE …`.

A policy translates greedily and by samples at temperature 1, which RL optimises. `chrf` is sacrebleu's corpus chrF, its
signature beside it; `chrf_sentence` is the mean over sentences, which is what a per-sentence reward can raise, with a
bootstrap interval over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import numpy as np

from grrm.data.convert import render_prompt
from grrm.data.parquet import read_rows
from grrm.demo.stages import write_json
from grrm.engine.api import Completion, Engine, SamplingParams
from grrm.entry import run_main
from grrm.evaluation.bootstrap import bootstrap_interval
from grrm.evaluation.text_metrics import (
    bleu_by_language,
    chrf_by_language,
    corpus_chrf,
    exact_match_rate,
    references_of,
    sentence_chrfs,
)
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import TranslationTask
from grrm.startup import configure_process

_TASK = ("source", "src_lang", "trg_lang", "reference", "data_source")


@click.command()
@click.option("--model", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--data", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--prompt-type", required=True)
@click.option("--extractor-type", required=True)
@click.option("--samples", type=click.IntRange(1), default=2, show_default=True)
@click.option("--max-new-tokens", type=int, default=64, show_default=True)
@click.option("--reference", type=click.Path(path_type=Path, file_okay=False), help="Measure the KL to this policy.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(
    model: Path,
    data: Path,
    out: Path,
    prompt_type: str,
    extractor_type: str,
    samples: int,
    max_new_tokens: int,
    reference: Path | None,
    dtype: str,
    seed: int,
) -> None:
    """Write the scores of the policy in MODEL on the rows of DATA (TowerBlocks-MT parquet) to OUT."""
    from grrm.engine.paddle.engine import PaddleEngine
    from grrm.models.tokenizer import encoder, load_tokenizer, response_decoder, stop_tokens

    tasks = [TranslationTask(row.src_text, row.src_lang, row.trg_lang, row.trg_text) for row in read_rows(data)]
    tokenizer = load_tokenizer(str(model))
    encode, decode = encoder(tokenizer), response_decoder(tokenizer)
    params = SamplingParams(max_new_tokens=max_new_tokens, stop_token_ids=stop_tokens(tokenizer, ""), seed=seed)
    engine = PaddleEngine.from_pretrained(model, precision=dtype)
    prompts = [encode(render_prompt(task, prompt_type)) for task in tasks]
    passes = []
    for completions in generated(engine, prompts, params, samples):
        responses = [decode(completion.token_ids) for completion in completions]
        translations = [extract_translation(response, extractor_type) for response in responses]
        passes.append(Pass(completions, responses, translations))
    record = scores_record(tasks, passes)
    if reference is not None:
        record["kl_to_reference"] = kl_to(reference, prompts, passes[1].completions, tokenizer.pad_token_id, dtype)
    write_json(out, record)
    sampled, greedy = (record[decoding]["chrf"] for decoding in ("sampled", "greedy"))
    click.echo(f"chrF sampled {sampled:.2f}, greedy {greedy:.2f} on {len(tasks)} rows")


@dataclass(frozen=True, slots=True)
class Pass:
    """One completion per row: its text, and the translation in it, None where none can be extracted."""

    completions: Sequence[Completion]
    responses: list[str]
    translations: list[str | None]


def generated(
    engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams, n_samples: int
) -> list[list[Completion]]:
    """Return a greedy completion of every prompt, then `n_samples` times one at temperature 1, and count the passes.

    Sample k of row i draws from stream `k * len(prompts) + i` of the seed. Greedy draws nothing.
    """
    passes = []
    for number in range(n_samples + 1):
        first = max(number - 1, 0) * len(prompts)
        streams = range(first, first + len(prompts))
        passes.append(engine.generate(prompts, replace(params, temperature=float(number > 0)), streams))
        click.echo(f"pass {number + 1}/{n_samples + 1}")
    return passes


def scores_record(tasks: Sequence[TranslationTask], passes: Sequence[Pass]) -> dict[str, Any]:
    """Scores as written to scores.json, of the first pass, the greedy one, and of the others; with every row's outputs.

    Raises ValueError for a task without a reference.
    """
    greedy, sampled = passes[0], passes[1:]
    bleu = bleu_by_language(greedy.translations, tasks, references_of(tasks))
    signatures = {"chrf": corpus_chrf(greedy.translations, references_of(tasks)).signature}
    return {
        "sampled": decoding_scores(sampled, tasks),
        "greedy": decoding_scores([greedy], tasks),
        "n_rows": len(tasks),
        "signatures": signatures | {f"bleu_{language}": score.signature for language, score in bleu.items()},
        "examples": [
            {
                **{name: getattr(task, name) for name in _TASK},
                "greedy": greedy.translations[row],
                "sampled": [of_pass.translations[row] for of_pass in sampled],
                "greedy_response": greedy.responses[row],
            }
            for row, task in enumerate(tasks)
        ],
    }


def decoding_scores(passes: Sequence[Pass], tasks: Sequence[TranslationTask]) -> dict[str, Any]:
    """Scores of one way of decoding; all chrF and BLEU from 0 to 100, all rates from 0 to 1.

    Of several passes they are means; `chrf_sentence` first averages a row's samples, so that its interval is over rows.
    `length_mean` counts tokens, the stop token included; `copied` are translations that are the source as it is.
    """
    references, sources = references_of(tasks), [task.source for task in tasks]
    texts = [of_pass.translations for of_pass in passes]
    completions = [completion for of_pass in passes for completion in of_pass.completions]
    by_row = zip(*(sentence_chrfs(of_pass, references) for of_pass in texts), strict=True)
    return {
        "chrf": fmean(corpus_chrf(of_pass, references).score for of_pass in texts),
        "chrf_sentence": asdict(bootstrap_interval([fmean(row) for row in by_row])),
        "chrf_by_language": _means([chrf_by_language(of_pass, tasks, references) for of_pass in texts]),
        "bleu": _means([bleu_by_language(of_pass, tasks, references) for of_pass in texts]),
        "exact_match": fmean(exact_match_rate(of_pass, references) for of_pass in texts),
        "length_mean": fmean(len(completion.token_ids) for completion in completions),
        "unparsable": fmean(text is None for of_pass in texts for text in of_pass),
        "copied": fmean(exact_match_rate(of_pass, sources) for of_pass in texts),
        "truncated": fmean(completion.finish_reason == "length" for completion in completions),
        "n_samples": len(passes),
    }


def _means(by_pass: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean score of each language over passes."""
    return {language: fmean(scores[language].score for scores in by_pass) for language in by_pass[0]}


def kl_to(
    reference: Path,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    pad_id: int,
    dtype: str = "float32",
) -> float:
    """KL(policy || reference) in nats per token, over the tokens that the policy sampled behind the prompts.

    Mean of exp(-d) - 1 + d with d = log pi - log pi_ref (Schulman's k3): unbiased like the mean of d, never negative.
    Raises UserError when the folder holds no policy.
    """
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.policy import load_policy
    from grrm.models.token_scores import score_responses

    use_cpu_layers(dtype)
    responses = [completion.token_ids for completion in completions]
    logprobs = score_responses(
        load_policy(reference), prompts, responses, pad_id=pad_id, batch_size=64, temperature=1.0
    )
    policy_N = np.concatenate([np.asarray(completion.logprobs) for completion in completions])
    gap_N = policy_N - np.concatenate(logprobs).astype(np.float64)
    return float(np.mean(np.expm1(-gap_N) + gap_N))


if __name__ == "__main__":
    configure_process()
    run_main(main)
