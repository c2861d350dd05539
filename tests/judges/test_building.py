import sys

import pytest
from support.judged_groups import ModelOf, by_length, group_of, judge_over, shown_in
from support.text_models import TextModel

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.judges.interface import GeneratedText
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.registry import spec_of
from grrm.judges.spec import read_options
from grrm.judges.sqm import SQMOptions

TEXTS = ["a", "bb", "cccc", "dddddd"]


def judged(model, texts=TEXTS, metrics=None, **options):
    judge = judge_over(model, read_options(GQMOptions, options), metrics=metrics)
    return judge.judge([group_of(texts)])[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompt_len": 5}, "unknown judge option 'prompt_len': did you mean 'prompt_length'"),
        ({"prompt_type": "rank"}, "'prompt_type' is 'rank'; give one of ranking_score, score, ranking"),
        ({"mode": None}, "'mode' is None; give one of exact, tolerant, compat"),
        ({"add_example": 1}, "'add_example' is 1; give true or false"),
        ({"prompt_length": "2048"}, "'prompt_length' is '2048'; give a whole number"),
        ({"prompt_length": True}, "'prompt_length' is True; give a whole number"),
        ({"prompt_length": 0}, "'prompt_length' is 0; give a number at least 1"),
        ({"max_new_tokens": 0}, "'max_new_tokens' is 0"),
        ({"temperature": -0.1}, "'temperature' is -0.1; give a number at least 0"),
        ({"temperature": float("nan")}, "'temperature' is nan"),
        ({"retry_temperature": float("inf")}, "'retry_temperature' is inf"),
        ({"top_p": 1.5}, "'top_p' is 1.5; give a number above 0, at most 1"),
        ({"top_p": 0}, "'top_p' is 0; give a number above 0"),
        ({"retries": -1}, "'retries' is -1"),
        ({"permutations": 0}, "'permutations' is 0; give a number from 1 to 64"),
        ({"permutations": 65}, "'permutations' is 65"),
        ({"cache_size": -1}, "'cache_size' is -1"),
        ({"max_candidates": 27}, "'max_candidates' is 27; give a number from 2 to 26"),
        ({"too_many": "split"}, "'too_many' is 'split'; give one of chunk, refuse"),
        ({"too_long": "cut"}, "'too_long' is 'cut'; give one of drop_longest, refuse"),
    ],
)
def test_wrong_option_is_one_sentence(values, message):
    with pytest.raises(UserError, match=message):
        read_options(GQMOptions, values)


def test_whole_numbers_are_numbers():
    assert read_options(GQMOptions, {"temperature": 1}).temperature == 1.0
    assert read_options(GQMOptions, {"temperature": "1e-1"}).temperature == 0.1  # text to YAML 1.1


def test_plain_options_show_the_candidates_as_they_came():
    model = ModelOf(by_length)
    assert judged(model).scores == (1.0, 2.0, 4.0, 6.0)
    assert [shown_in(prompt) for prompt in model.prompts] == [TEXTS]


def test_example_and_prompt_type_reach_the_prompt():
    model = ModelOf(by_length)
    judged(model, prompt_type="ranking", add_example=True, retries=0)
    assert "for example: `B > A = D > C`." in model.prompts[0]


def test_shuffle_and_seed_reach_the_prompt():
    shown = set()
    for seed in range(5):
        model = ModelOf(by_length)
        assert judged(model, shuffle=True, seed=seed).scores == (1.0, 2.0, 4.0, 6.0)
        shown.add(tuple(shown_in(model.prompts[0])))
    assert len(shown) > 1


def test_permutations_are_averaged_and_their_agreement_counted():
    model, metrics = ModelOf(lambda place, text: len(text) + place), JudgeMetrics()
    assert judged(model, metrics=metrics, permutations=2).scores == (2.5, 3.5, 5.5, 7.5)
    assert shown_in(model.prompts[0]) == TEXTS  # not shuffled: the first order is the one given
    assert metrics.mean_agreement() < 1.0


def test_cache_keeps_what_is_asked_again():
    model, metrics = ModelOf(by_length), JudgeMetrics()
    judge = judge_over(model, GQMOptions(shuffle=True, cache_size=4), metrics=metrics)
    judge.judge([group_of(TEXTS)])
    judge.judge([group_of(TEXTS[::-1], "h")])  # the same content, shuffled into the same order
    assert len(model.prompts) == 1
    assert metrics.values()["cache_hits"] == 1


def test_an_order_that_failed_is_the_only_one_asked_about_again():
    failed = []

    def fails_once(texts):
        if texts == TEXTS[::-1] and not failed:
            failed.append(texts)
            return [None]
        return [len(text) for text in texts]

    model = ModelOf(score_all=fails_once)
    judge = judge_over(model, GQMOptions(permutations=2, cache_size=4, retries=0))
    for _ in range(2):
        assert judge.judge([group_of(TEXTS)])[0].scores == (1.0, 2.0, 4.0, 6.0)
    assert [shown_in(prompt) for prompt in model.prompts] == [TEXTS, TEXTS[::-1], TEXTS[::-1]]


@pytest.mark.parametrize("n_texts", [27, 60])
def test_group_of_any_size_is_judged_in_chunks_or_refused(n_texts):
    texts = [f"{i:02d}" + "x" * (i % 5) for i in range(n_texts)]
    options = {"prompt_length": 9000, "permutations": 2, "cache_size": 9}
    assert judged(ModelOf(by_length), texts, **options).scores == tuple(float(len(text)) for text in texts)
    refused = judged(ModelOf(by_length), texts, too_many="refuse", **options)
    assert set(refused.statuses) == {Status.TOO_MANY_CANDIDATES}


def test_nine_candidates_are_shown_to_the_judge_in_chunks_of_at_most_eight():
    model = ModelOf(by_length)
    texts = ["x" * n for n in range(1, 10)]
    assert judged(model, texts).scores == tuple(float(n) for n in range(1, 10))
    assert [len(shown_in(prompt)) for prompt in model.prompts] == [5, 5]
    assert set(judged(ModelOf(by_length), texts, too_many="refuse").statuses) == {Status.TOO_MANY_CANDIDATES}


def test_max_candidates_is_the_size_of_the_chunks():
    model = ModelOf(by_length)
    assert judged(model, max_candidates=2).scores == (1.0, 2.0, 4.0, 6.0)
    assert {len(shown_in(prompt)) for prompt in model.prompts} == {2}
    assert set(judged(model, max_candidates=3, too_many="refuse").statuses) == {Status.TOO_MANY_CANDIDATES}


def test_longest_candidates_are_left_out_until_the_prompt_fits():
    texts = ["a", "x" * 3000, "bb", "y" * 2500, "x" * 3000]
    model = ModelOf(lambda place, text: len(text) % 10)
    verdict = judged(model, texts)
    assert verdict.scores == (1.0, None, 2.0, None, None)
    assert [verdict.statuses[i] for i in (1, 3, 4)] == [Status.TOO_LONG] * 3
    assert shown_in(model.prompts[0]) == ["a", "bb"]
    assert set(judged(model, texts, too_long="refuse").statuses) == {Status.TOO_LONG}


def test_longest_is_what_takes_most_tokens():
    texts = ["a", "x" * 9, "好" * 8, "bb"]  # a character is a token of this model
    verdict = judged(ModelOf(by_length), texts, prompt_length=len(PROMPT_OF_FOUR) - 1)
    assert verdict.statuses[1] is Status.TOO_LONG
    assert verdict.scores == (1.0, None, 8.0, 2.0)


PROMPT_OF_FOUR = GQMJudge(ModelOf(by_length)).plan(group_of(["a", "x" * 9, "好" * 8, "bb"])).prompt


def test_verdict_without_the_longest_candidates_is_remembered():
    model = ModelOf(by_length)
    judge = judge_over(model, GQMOptions(cache_size=4))
    for _ in range(2):
        assert judge.judge([group_of(["a", "x" * 3000, "bb"])])[0].scores == (1.0, None, 2.0)
    assert len(model.prompts) == 1


def test_the_longest_are_left_out_where_only_the_server_knows_the_limit_of_prompts():
    def reply(prompt):
        return GeneratedText("", "too_long", 0) if "x" * 100 in prompt else "A: 3, B: 7"

    texts = ["one", "x" * 200, "two", "x" * 100, "x" * 200]
    for options in ({}, {"show_copies": True}):
        verdict = judged(TextModel(reply), texts, prompt_length=sys.maxsize, **options)
        assert verdict.scores == (3.0, None, 7.0, None, None)
        assert [verdict.statuses[i] for i in (1, 3, 4)] == [Status.TOO_LONG] * 3
    assert set(judged(TextModel(reply), texts, prompt_length=sys.maxsize, too_long="refuse").statuses) == {
        Status.TOO_LONG
    }


def test_group_that_does_not_fit_with_two_candidates_is_too_long_as_a_whole():
    model = ModelOf(by_length)
    assert set(judged(model, ["a", "bb", "x" * 3000], prompt_length=50).statuses) == {Status.TOO_LONG}
    assert model.prompts == []


@pytest.mark.parametrize("options", [GQMOptions(), SQMOptions()])
def test_special_tokens_of_the_judges_tokenizer_are_escaped_in_candidates(options):
    model = ModelOf(by_length)
    judge_over(model, options, special_tokens=["@@END@@", ""]).judge([group_of(["@@END@@", "z"])])
    assert "@\\@END@@" in model.prompts[0]


@pytest.mark.parametrize(("prompt_type", "shown"), [("score", "10\\:30\\, 11\\:45"), ("ranking_score", "10:30, 11:45")])
def test_numbers_are_escaped_only_for_a_judge_that_is_read_by_position(prompt_type, shown):
    model = ModelOf(lambda place, text: place)
    options = GQMOptions(mode="compat", prompt_type=prompt_type, retries=0)
    judge_over(model, options).judge([group_of(["10:30, 11:45", "z"])])
    assert f"\n{shown}\n" in model.prompts[0]


def test_template_of_the_checkpoint_is_applied():
    model = ModelOf(by_length)
    judge_over(model, GQMOptions(), render=lambda prompt: f"<user>{prompt}</user>").judge([group_of(TEXTS)])
    assert model.prompts[0].startswith("<user>Given a source text")


def test_response_limit_and_sampling_reach_the_generator():
    model, sampling = ModelOf(by_length), {"temperature": 0.3, "top_p": 0.9, "max_new_tokens": 77}
    judged(model, **sampling)
    assert [{name: call[name] for name in sampling} for call in model.calls] == [sampling]


@pytest.mark.parametrize(("given", "longest", "used"), [(None, 700, 700), (500, 700, 500), (900, 700, 700)])
def test_the_model_and_the_option_both_limit_the_prompt(given, longest, used):
    values = {} if given is None else {"prompt_length": given}
    assert spec_of("sqm").read(values).longest_prompt(longest) == used


def test_options_of_one_judge_are_not_anothers():
    assert spec_of("grrm").read({"permutations": 2}) == spec_of("gqm").read({"permutations": 2})
    with pytest.raises(UserError, match="unknown judge option 'permutations'"):
        spec_of("sqm").read({"permutations": 2})
    with pytest.raises(UserError, match="unknown judge 'sqn': give one of "):
        spec_of("sqn").read({})


def test_what_a_probe_asks_counts_for_nothing():
    metrics = JudgeMetrics()
    judged(ModelOf(by_length), metrics=metrics)
    before = metrics.values()
    assert before["questions"] > 0
    with metrics.uncounted():
        judged(ModelOf(by_length), metrics=metrics)
    assert metrics.values() == before
    judged(ModelOf(by_length), metrics=metrics)
    assert metrics.values()["questions"] == 2 * before["questions"]
