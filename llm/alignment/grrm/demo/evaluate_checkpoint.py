"""Scores a policy checkpoint on held-out text: `python -m grrm.demo.evaluate_checkpoint --model DIR --data FILE …`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from grrm.data.convert import render_prompt
from grrm.data.parquet import read_rows
from grrm.demo.stages import write_json
from grrm.engine.api import Completion, Engine, SamplingParams
from grrm.entry import run_main
from grrm.evaluation.policy_eval import PolicyCodec, PolicyScores, evaluate
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import TranslationTask
from grrm.startup import configure_process

_TASK = ("source", "src_lang", "trg_lang", "reference", "data_source")
_PAYLOAD = ("greedy", "sampled", "greedy_response")


@click.command()
@click.option("--model", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--data", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--prompt-type", required=True)
@click.option("--extractor-type", required=True)
@click.option("--samples", type=int, default=2, show_default=True)
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

    tasks = read_tasks(data)
    tokenizer = load_tokenizer(str(model))
    codec = PolicyCodec(
        build_prompt=lambda task: render_prompt(task, prompt_type),
        encode=encoder(tokenizer),
        decode=response_decoder(tokenizer),
        extract=lambda response: extract_translation(response, extractor_type),
    )
    engine, stops = PaddleEngine.from_pretrained(model, precision=dtype), stop_tokens(tokenizer, "")
    generate = EngineGenerator(engine, max_new_tokens, stops)
    show = PassCounter(samples + 1)
    scores = evaluate(generate, codec, tasks, n_samples=samples, seed=seed, progress=show)
    record = scores_record(scores)
    if reference is not None:
        record["kl_to_reference"] = kl_to(reference, generate.sampled[: len(tasks)], tokenizer.pad_token_id, dtype)
    write_json(out, record)
    click.echo(f"chrF sampled {scores.sampled.chrf:.2f}, greedy {scores.greedy.chrf:.2f} on {scores.n_rows} rows")


def read_tasks(path: Path) -> list[TranslationTask]:
    """The rows of a TowerBlocks-MT parquet file as tasks with references. Raises UserError when it is not one."""
    return [TranslationTask(row.src_text, row.src_lang, row.trg_lang, row.trg_text) for row in read_rows(path)]


class PassCounter:
    """Prints "pass 3/10", counting the passes over the rows."""

    def __init__(self, total: int) -> None:
        self.done, self.total = 0, total

    def __call__(self, done: int, total: int) -> None:
        self.done += 1
        click.echo(f"pass {self.done}/{self.total}")


class EngineGenerator:
    """The engine as the evaluation calls it; keeps the prompts and completions that were sampled."""

    def __init__(self, engine: Engine, max_new_tokens: int, stop_token_ids: tuple[int, ...]) -> None:
        self._engine, self._max_new_tokens, self._stop_token_ids = engine, max_new_tokens, stop_token_ids
        self.sampled: list[tuple[Sequence[int], Completion]] = []

    def __call__(
        self, prompts: Sequence[Sequence[int]], *, temperature: float, seed: int, stream_ids: Sequence[int]
    ) -> list[Completion]:
        params = SamplingParams(
            max_new_tokens=self._max_new_tokens,
            temperature=temperature,
            stop_token_ids=self._stop_token_ids,
            seed=seed,
        )
        completions = self._engine.generate(prompts, params, stream_ids)
        if temperature > 0:
            self.sampled += zip(prompts, completions, strict=True)
        return completions


def kl_to(
    reference: Path, sampled: Sequence[tuple[Sequence[int], Completion]], pad_id: int, dtype: str = "float32"
) -> float:
    """KL(policy || reference) in nats per token, over the tokens of `sampled` (prompts and what the policy drew).

    Mean of exp(-d) - 1 + d with d = log pi - log pi_ref (Schulman's k3): unbiased like the mean of d, never negative.
    Raises UserError when the folder holds no policy.
    """
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.policy import load_policy
    from grrm.models.token_scores import score_responses

    use_cpu_layers(dtype)
    responses = [completion.token_ids for _, completion in sampled]
    logprobs = score_responses(
        load_policy(reference),
        [prompt for prompt, _ in sampled],
        responses,
        pad_id=pad_id,
        batch_size=64,
        temperature=1.0,
    )
    policy_N = np.concatenate([np.asarray(completion.logprobs) for _, completion in sampled])
    gap_N = policy_N - np.concatenate(logprobs).astype(np.float64)
    return float(np.mean(np.expm1(-gap_N) + gap_N))


def scores_record(scores: PolicyScores) -> dict[str, Any]:
    """Scores as written to scores.json; each example carries its task's fields beside its outputs."""
    record = asdict(scores)
    record["examples"] = [
        {name: example["task"][name] for name in _TASK} | {name: example[name] for name in _PAYLOAD}
        for example in record["examples"]
    ]
    return record


if __name__ == "__main__":
    configure_process()
    run_main(main)
