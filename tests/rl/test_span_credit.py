"""Error spans of a translation on the tokens of the response that it was extracted from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.dumped_run import config_of, write_run
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, rollouts_of, run
from support.rolled import TASK, rolled_group
from tokenizers import decoders

from grrm.data.bpe import train_bpe
from grrm.errors import UserError
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import Candidate, Group, Status, Verdict
from grrm.gqm.spans import ErrorSpan
from grrm.judges.spans import SpansJudge
from grrm.judges.text_metric import TextMetricJudge
from grrm.models.tokenizer import _prefix_spans, encoder, load_tokenizer, response_decoder, sampled_spans
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.group_filter import informative_groups
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.replay import replay
from grrm.rl.reward_stage import RewardStage, reward, shaping_config
from grrm.rl.span_credit import SpanCredit
from grrm.tracking.rollout_dump import ROLLOUTS, read_rollouts

WEIGHTS = {"minor": 1.0, "major": 5.0, "critical": 10.0}
SPANS = {"advantage_rule": "grpo_spans", "norm_adv_by_std": "null", "use_rm_server": "false", "reward_server": "null"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return load_tokenizer(train_bpe(["two cats and two dogs", "user"], tmp_path_factory.mktemp("bpe"), 300))


BYTES = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])  # SentencePiece's: all of a run is valid or none


@pytest.mark.parametrize(
    "decode",
    [
        lambda ids: bytes(ids).decode(errors="replace"),
        lambda ids: BYTES.decode([f"<0x{number:02X}>" for number in ids]),
    ],
    ids=["byte-level", "byte fallback"],
)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example("é 中文。👨‍👩‍👧")
def test_tokens_of_one_byte_have_the_character_that_they_are_parts_of(decode, text):
    spans = _prefix_spans(text, list(text.encode()), decode)
    if "\ufffd" not in text:
        assert spans == [(at, at + 1) for at, letter in enumerate(text) for _ in letter.encode()]


@given(words=st.lists(st.sampled_from(["zwei", "é", "世界", "a"]), min_size=1, max_size=40))
def test_a_decoder_that_drops_the_first_space_leads_nobody_astray(words):
    text = " ".join(words)
    ends = [len(" ".join(words[: n + 1])) for n in range(len(words))]
    spans = _prefix_spans(text, range(len(words)), lambda ids: "".join(f" {words[t]}" for t in ids).removeprefix(" "))
    assert spans == list(zip([0, *ends], ends, strict=False))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), cut=st.integers(0, 20))
def test_sampled_tokens_are_found_however_the_text_was_cut(tokenizer, text, cut):
    encode, decode = encoder(tokenizer), response_decoder(tokenizer)
    ids = encode(text[:cut]) + encode(text[cut:])
    text = decode(ids)
    places = sampled_spans(tokenizer)([*ids, tokenizer.eos_token_id], text)
    assert len(places) == len(ids) + 1
    assert places[-1] == (len(text), len(text))
    if "\ufffd" not in text:
        assert {at for start, end in places for at in range(start, end)} == set(range(len(text)))


def rolled_texts(tokenizer, responses, extractor="line"):
    candidates = tuple(
        Candidate(str(i), response, extract_translation(response, extractor)) for i, response in enumerate(responses)
    )
    ids = [encoder(tokenizer)(response) for response in responses]
    rolled = rolled_group(0, list(map(len, ids)), group=Group("g", TASK, candidates))
    rolled.token_ids[:] = ids
    return rolled


def credited(tokenizer, rolled, verdict):
    return SpanCredit(sampled_spans(tokenizer), WEIGHTS, "j")([rolled], [verdict])[0]


@pytest.mark.parametrize(
    ("response", "extractor"),
    [("two cats", "oneline"), ("two cats\n two cats \n", "line"), ("two cats:\n```text\ntwo cats\n```", "codeblock")],
)
def test_only_the_translation_in_a_longer_response_is_credited(tokenizer, response, extractor):
    rolled = rolled_texts(tokenizer, [response], extractor)
    (severities_T,) = credited(tokenizer, rolled, marked([ErrorSpan(4, 8, "major")]))
    decode = response_decoder(tokenizer)
    ids = rolled.token_ids[0]
    at = np.flatnonzero(severities_T)
    assert set(severities_T[at]) == {5.0}
    assert decode([ids[t] for t in at]).strip() == "cats"
    assert len(decode(ids[: at[0]])) >= response.rindex("cats") - 1


def marked(*spans):
    return Verdict((Status.SCORED,) * len(spans), (5.0,) * len(spans), spans=tuple(one and tuple(one) for one in spans))


def test_a_token_in_two_spans_has_the_more_severe_one(tokenizer):
    rolled = rolled_texts(tokenizer, ["two cats", "two cats"])
    spans = [ErrorSpan(0, 8, "critical"), ErrorSpan(4, 8, "minor")]
    (first, second) = credited(tokenizer, rolled, marked(spans, spans[1:]))
    assert set(first) == {10.0}
    assert set(second) == {0.0, 1.0}


def test_spans_beyond_a_translation_and_judges_that_mark_nothing_are_told(tokenizer):
    rolled = rolled_texts(tokenizer, ["two cats"])
    with pytest.raises(ValueError, match="candidate 0 has an error span up to character 9 of 8"):
        credited(tokenizer, rolled, marked([ErrorSpan(4, 9, "major")]))
    with pytest.raises(UserError, match=r"the judge 'j' marks no error spans, .*; use the judge spans"):
        credited(tokenizer, rolled, Verdict((Status.SCORED,), (5.0,)))
    failed = credited(tokenizer, rolled, Verdict.unscored(1, Status.JUDGE_TIMEOUT))
    assert not failed[0].any()


def test_a_group_that_nobody_marked_among_others_has_the_rules_base(tokenizer):
    rolled = rolled_texts(tokenizer, ["two cats"])
    credit = SpanCredit(sampled_spans(tokenizer), WEIGHTS, "j")
    credit([rolled], [marked([])])
    assert not credit([rolled], [Verdict((Status.SCORED,), (5.0,))])[0][0].any()


def test_severities_are_logged_as_a_measure_of_the_marked_responses(tokenizer):
    rolled = rolled_texts(tokenizer, ["two cats", "two", "two dogs"])
    credit = SpanCredit(sampled_spans(tokenizer), WEIGHTS, "j")
    stage = RewardStage(SpansJudge(), ShapingConfig(), FailurePolicy(), credit)
    (scored,) = reward(stage, [rolled])
    measure = scored.judged.measures["span_severity"]
    assert measure == [float(row.mean()) for row in scored.judged.severities]
    assert measure[1] == 0.0 < measure[0]


@pytest.mark.parametrize(("reads_spans", "weight"), [(True, 0.1), (True, 0.0), (False, 0.1)])
def test_a_group_of_equal_scores_has_a_signal_where_the_rule_weighs_its_error_spans(tokenizer, reads_spans, weight):
    shaping = shaping_config(config_of(**SPANS, reward_judge="spans", span_weight=str(weight)))
    rolled = rolled_texts(tokenizer, ["two cats", "two dogs"])
    spans = ([ErrorSpan(4, 8, "major")], [ErrorSpan(0, 3, "major")])
    for verdict, has_signal in ((marked(*spans), reads_spans and weight > 0), (marked([], []), False)):
        judge = SimpleNamespace(name="j", judge=lambda groups, verdict=verdict: [verdict])
        credit = SpanCredit(sampled_spans(tokenizer), WEIGHTS, "j") if reads_spans else None
        (scored,) = reward(RewardStage(judge, shaping, FailurePolicy(), credit), [rolled])
        assert informative_groups([scored.shaped], rollout_n=2) == [0] * has_signal


@pytest.mark.parametrize("judge", [SpansJudge(), TextMetricJudge()], ids=["spans", "chrf"])
def test_a_translation_that_people_have_marked_has_their_errors(tokenizer, judge):
    people = (("two cats", ()), ("two", (ErrorSpan(0, 3, "critical"),)))
    rolled = rolled_texts(tokenizer, ["two cats", "two", "two dogs"])
    rolled = replace(rolled, group=replace(rolled.group, task=replace(TASK, marked=people)))
    credit = SpanCredit(sampled_spans(tokenizer), WEIGHTS, "j")
    (scored,) = reward(RewardStage(judge, ShapingConfig(), FailurePolicy(), credit), [rolled])
    own = (ErrorSpan(4, 8, "major"),) if judge.name == "spans" else None
    assert scored.judged.verdict.spans == ((), (ErrorSpan(0, 3, "critical"),), own)
    assert [row.max() for row in scored.judged.severities] == [0, 10, 5 if own else 0]
    assert scored.judged.verdict.scores == judge.judge([rolled.group])[0].scores


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_judge": "chrf"}, "advantage_rule grpo_spans needs a judge that marks error spans"),
        ({"reward_judge": "spans", "span_severities": '{"mild": 1}'}, "unknown severity 'mild'"),
        ({"reward_judge": "spans", "span_severities": '{"minor": "x"}'}, "give a mapping of names to numbers"),
        ({"reward_judge": "spans", "span_weight": "-1"}, "span_weight is -1; it must be at least 0"),
    ],
)
def test_settings_that_cannot_work_are_told(settings, message):
    with pytest.raises(UserError, match=message):
        config_of(**SPANS, **settings)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_every_advantage_is_replayed_with_its_spans(tmp_path, file_format):
    config = config_of(**SPANS, reward_judge="spans", span_weight="0.3")

    def locate(ids, text):
        return [(t, t + 1) for t in range(len(ids))]

    credit = SpanCredit(locate, config.span_severities, "spans")
    folder = write_run(tmp_path, config, file_format=file_format, judge=SpansJudge(), credit=credit)
    candidates = next(iter(read_rollouts(folder / ROLLOUTS)))["candidates"]
    assert [one["spans"] for one in candidates[:2]] == [[], [{"start": 0, "end": 4, "severity": "major"}]]
    assert candidates[1]["severities"] == [5.0, 5.0, 5.0, 5.0, 0.0]
    assert [one.differences for one in replay(folder)] == [[], [], []]


@pytest.mark.slow
def test_a_run_with_error_spans(world: TinyWorld, tmp_path: Path) -> None:
    settings = {**SPANS, "reward_judge": "spans"}
    run(one_rank(entry_command(world, tmp_path, max_steps="2", save_steps="2", **settings)))
    assert all(np.isfinite(line["span_severity_mean"]) for line in metrics_of(tmp_path))
    candidates = [one for group in rollouts_of(tmp_path) for one in group["candidates"]]
    assert any(one["spans"] for one in candidates)
    for one in candidates:
        assert len(one["severities"]) == one["n_tokens"]
        assert bool(one["spans"]) == any(one["severities"])
    assert not any(step.differences for step in replay(tmp_path))
