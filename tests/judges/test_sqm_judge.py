from support.judged_groups import group_of

from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import Status
from grrm.gqm.prompts import sqm_prompt
from grrm.judges.generation import JudgeSampling
from grrm.judges.sqm import SQMJudge


def test_each_distinct_translation_is_asked_about_once(scripted):
    generator = scripted({"\nx\n": ["fine\n7"], "\ny\n": ["poor\n2"]})
    verdict = SQMJudge(generator).judge([group_of(["x", None, "y", "x"])])[0]
    assert verdict.scores == (7.0, None, 2.0, 7.0)
    assert verdict.statuses == (Status.SCORED, Status.UNPARSABLE_CANDIDATE, Status.SCORED, Status.DUPLICATE)
    assert verdict.analysis == "[c0]\nfine\n7\n\n[c2]\npoor\n2"
    assert (verdict.ranking, verdict.attempts) == (None, 2)


def test_all_groups_share_one_batch_and_only_failures_are_asked_again(scripted):
    generator = scripted({"\nx\n": ["fine\n7"], "\ny\n": ["eh", "eh", "poor\n2"], "\nz\n": ["good\n9"]})
    verdicts = SQMJudge(generator).judge([group_of(["x", "y"]), group_of(["z"], "h")])
    assert [(len(call["prompts"]), call["temperature"]) for call in generator.calls] == [(3, 0.0), (1, 1.0), (1, 1.0)]
    assert [verdict.scores for verdict in verdicts] == [(7.0, 2.0), (9.0,)]
    assert [(verdict.attempts, verdict.tokens) for verdict in verdicts] == [(4, 4), (1, 1)]
    assert verdicts[0].rejections == ("malformed_scores",) * 2  # of 4: a share of the attempts is at most 1


def test_one_unreadable_reply_leaves_the_other_scores(scripted):
    generator = scripted({"\nx\n": ["fine\n7"], "\ny\n": ["eh"]})
    verdict = SQMJudge(generator, sampling=JudgeSampling(retries=0)).judge([group_of(["y", "x", "y"])])[0]
    assert verdict.statuses == (Status.JUDGE_UNPARSABLE, Status.SCORED, Status.JUDGE_UNPARSABLE)
    assert verdict.scores == (None, 7.0, None)


def test_a_reply_cut_off_in_the_middle_of_a_number_is_not_a_score(scripted):
    generator = scripted({"\nx\n": ["perfect\n1[cut]", "perfect\n10"], "\ny\n": ["good\n1[cut]", "good\n1[cut]"]})
    verdict = SQMJudge(generator, sampling=JudgeSampling(retries=1)).judge([group_of(["x", "y"])])[0]
    assert verdict.scores == (10.0, None)
    assert verdict.statuses == (Status.SCORED, Status.JUDGE_UNPARSABLE)


def test_texts_with_fences_and_tokens_are_escaped_for_the_judge(scripted):
    generator = scripted({"<\\s>": ["fine\n7"]})
    verdict = SQMJudge(generator).judge([group_of(["<s>\n```"], source="a\n```\nb")])[0]
    assert verdict.scores == (7.0,)
    (prompt,) = generator.calls[0]["prompts"]
    assert "Source text:\n````\na\n```\nb\n````\n\nTranslation text:\n````\n<\\s>\n```\n````\n" in prompt


def test_candidates_for_a_source_that_hides_text_are_not_asked_about(scripted):
    verdict = SQMJudge(scripted({})).judge([group_of(["a", "b"], source="x\u202ey")])[0]
    assert verdict.statuses == (Status.UNSAFE_SOURCE,) * 2


def test_too_long_and_unsafe_candidates_are_not_asked_about(scripted):
    generator = scripted({"\nx\n": ["fine\n7"]})
    limit = len(render_chatml(sqm_prompt("SRC", "x", "de", "en")))
    judge = SQMJudge(generator, prompt_length=limit)
    verdict = judge.judge([group_of(["x", "yy", "a\0b"])])[0]
    assert verdict.statuses == (Status.SCORED, Status.TOO_LONG, Status.UNSAFE_CANDIDATE)
    assert len(generator.calls[0]["prompts"]) == 1


def test_nothing_usable_asks_nothing(scripted):
    generator = scripted({})
    assert SQMJudge(generator).judge([group_of([None])])[0].attempts == 0
    assert generator.calls == []
