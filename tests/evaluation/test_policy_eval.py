"""Evaluation of a policy, with a scripted generator in place of an engine."""

from dataclasses import dataclass

import pytest

from grrm.engine.api import Completion
from grrm.evaluation.policy_eval import PolicyCodec, evaluate
from grrm.evaluation.text_metrics import corpus_chrf
from grrm.gqm.groups import TranslationTask

TASKS = [
    TranslationTask("one", "en", "de", "eins und zwei"),
    TranslationTask("two", "en", "de", "drei und vier"),
    TranslationTask("three", "en", "zh", "五和六"),
]
CODEC = PolicyCodec(
    build_prompt=lambda task: f"{task.source}>",
    encode=lambda text: [ord(letter) for letter in text],
    decode=lambda ids: "".join(map(chr, ids)),
    extract=lambda response: response[1:-1] if response.startswith("[") and response.endswith("]") else None,
)


@dataclass
class Script:
    """Greedy answers are right; sample k of row i comes from the table, keyed by stream id."""

    sampled: dict[int, str]

    def __post_init__(self):
        self.calls = []

    def __call__(self, prompts, *, temperature, seed, stream_ids):
        self.calls.append((temperature, seed, list(stream_ids)))
        answers = {CODEC.build_prompt(task): f"[{task.reference}]" for task in TASKS}
        texts = [
            answers[CODEC.decode(prompt)] if temperature == 0 else self.sampled[stream]
            for prompt, stream in zip(prompts, stream_ids, strict=True)
        ]
        return [Completion([ord(c) for c in t], [0.0] * len(t), "stop" if t.endswith("]") else "length") for t in texts]


def test_greedy_and_sampled_are_scored_apart_and_samples_are_averaged():
    right = {i: f"[{task.reference}]" for i, task in enumerate(TASKS)}
    generate = Script({**right, 3: "[eins]", 4: "drei", 5: "[五和六]"})
    ticks = []
    scores = evaluate(generate, CODEC, TASKS, n_samples=2, seed=7, progress=lambda *tick: ticks.append(tick))
    references = [task.reference for task in TASKS]
    second = corpus_chrf(["eins", None, "五和六"], references).score

    assert scores.greedy.chrf == pytest.approx(100.0)
    assert scores.greedy.exact_match == 1.0
    assert scores.greedy.n_samples == 1
    assert scores.sampled.chrf == pytest.approx((100.0 + second) / 2)
    assert scores.sampled.exact_match == pytest.approx((3 / 3 + 1 / 3) / 2)
    assert scores.sampled.unparsable == pytest.approx(1 / 6)
    assert scores.sampled.truncated == pytest.approx(1 / 6)
    assert scores.sampled.chrf_sentence.low <= scores.sampled.chrf_sentence.mean < 100
    assert set(scores.sampled.bleu) == {"de", "zh"}
    assert set(scores.signatures) == {"chrf", "bleu_de", "bleu_zh"}
    assert scores.examples[1].sampled == ("drei und vier", None)
    assert generate.calls == [(0.0, 7, [0, 1, 2]), (1.0, 7, [0, 1, 2]), (1.0, 7, [3, 4, 5])]
    assert ticks == [(1, 3), (2, 3), (3, 3)]


def test_length_counts_the_tokens_of_every_sample():
    scores = evaluate(Script({0: "[a]", 1: "[bb]", 2: "[ccc]"}), CODEC, TASKS, n_samples=1)
    assert scores.sampled.length_mean == pytest.approx((3 + 4 + 5) / 3)


def test_rows_without_reference_or_no_rows_are_refused():
    with pytest.raises(ValueError, match="without a reference"):
        evaluate(Script({}), CODEC, [TranslationTask("one", "en", "de")])
    with pytest.raises(ValueError, match="at least one row"):
        evaluate(Script({}), CODEC, [])
