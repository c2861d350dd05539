import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.grammar import ParsedVerdict, Rejection, RejectReason, parse_sqm, parse_verdict
from grrm.gqm.groups import tiers_of
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import GQM_TASKS, render_response

MODES = ("exact", "tolerant", "compat")
TYPES = tuple(GQM_TASKS)
SCORES = st.lists(st.integers(0, 10), min_size=1, max_size=26)
# Texts near the grammar find more than arbitrary ones.
PIECES = [
    "A",
    "B",
    "C",
    "Z",
    ":",
    ",",
    " > ",
    " = ",
    "\n",
    "8",
    "10",
    "-",
    ".",
    "*",
    "`",
    "：",
    "９",
    " ",
    "/10",
    "<",
    "\r",
    "1e9",
]
NEAR = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
TEXTS = st.one_of(st.text(), NEAR, NEAR.map(lambda text: f"why\n\nA > B\n\n### Scores:\n{text}"))


def tail(scores_line, ranking="A > B"):
    return f"why\n\n### Final Ranking:\n\n{ranking}\n\n### Scores:\n\n{scores_line}\n"


def reason(text, n=2, prompt_type="ranking_score", mode="exact"):
    parsed = parse_verdict(text, n, prompt_type, mode)
    return parsed.reason if isinstance(parsed, Rejection) else None


@given(SCORES, st.text(), st.sampled_from(TYPES), st.sampled_from(["exact", "tolerant"]))
def test_what_is_rendered_is_parsed(scores, analysis, prompt_type, mode):
    parsed = parse_verdict(render_response(analysis, scores, prompt_type), len(scores), prompt_type, mode)
    assert isinstance(parsed, ParsedVerdict)
    assert parsed.scores == (None if prompt_type == "ranking" else tuple(scores))
    assert parsed.ranking == (None if prompt_type == "score" else tiers_of(scores))
    assert parsed.analysis == analysis.strip()


@given(SCORES, st.randoms(use_true_random=False), st.sampled_from(["score", "ranking_score"]), st.sampled_from(MODES))
def test_permuting_candidates_permutes_scores(scores, random, prompt_type, mode):
    order = random.sample(range(len(scores)), len(scores))
    renamed = {ord(CANDIDATE_IDS[i]): CANDIDATE_IDS[order[i]] for i in range(len(scores))}
    verdict_lines = (
        render_response("", scores, prompt_type).replace("### Final Ranking:", "").replace("### Scores:", "")
    )
    parsed = parse_verdict(verdict_lines.translate(renamed), len(scores), prompt_type, mode)
    if mode == "compat" and prompt_type == "score":
        assert parsed.scores == tuple(scores)  # by position: the quirk that exact and tolerant do not share
    else:
        assert [parsed.scores[order[i]] for i in range(len(scores))] == scores


@given(TEXTS, st.integers(1, 26), st.sampled_from(TYPES), st.sampled_from(MODES))
def test_no_text_crashes_the_parser_or_gets_a_score_off_the_scale(text, n, prompt_type, mode):
    parsed = parse_verdict(text, n, prompt_type, mode)
    if isinstance(parsed, Rejection):
        assert isinstance(parsed.reason, RejectReason)
        return
    assert (parsed.scores is None) == (prompt_type == "ranking")
    assert all(0.0 <= score <= 10.0 for score in parsed.scores or ())
    assert parsed.scores is None or len(parsed.scores) == n
    assert parsed.ranking is None or sorted(sum(parsed.ranking, ())) == list(range(n))


@given(TEXTS, st.integers(1, 3), st.sampled_from(TYPES))
def test_tolerant_agrees_with_exact_wherever_exact_accepts(text, n, prompt_type):
    exact, tolerant = (parse_verdict(text, n, prompt_type, mode) for mode in ("exact", "tolerant"))
    if isinstance(exact, ParsedVerdict):
        assert tolerant == exact


@given(TEXTS, st.sampled_from(MODES))
def test_no_text_crashes_the_single_parser_or_gets_a_score_off_the_scale(text, mode):
    parsed = parse_sqm(text, mode)
    assert isinstance(parsed, Rejection) or 0.0 <= parsed <= 10.0


@pytest.mark.parametrize("line", ["A: 8, B: 3", "B:3,A:8", "A : 8 , B : 3", "A: 08, B: 3", "A: 8, B: 3\r\n  "])
def test_exact_reads_what_judges_write(line):
    for text in (tail(line), line):
        assert parse_verdict(text, 2).scores == (8.0, 3.0)


DECORATED = [
    "**A: 8, B: 3**",
    "`A: 8, B: 3`",
    "A：８，B：３。",
    "A: 8, B: 3.",
    "A: 8; B: 3",
    "Scores: A: 8/10, B: 3/10",
    "A: 8.0, B: 3,",
]


@pytest.mark.parametrize("line", [*DECORATED, "A: 8, B: 3\n```"])
def test_tolerant_looks_through_decorations_that_exact_rejects(line):
    assert reason(tail(line)) is not None
    assert parse_verdict(tail(line, "**A > B**"), 2, mode="tolerant").scores == (8.0, 3.0)


@pytest.mark.parametrize("line", ["A: 1_0, B: 3", "A: 1**0**, B: 3", "A: 1`0`, B: 3"])
def test_a_mark_inside_a_number_does_not_make_another_number(line):
    assert reason(line, mode="tolerant") is RejectReason.MALFORMED_SCORES


@pytest.mark.parametrize("mode", ["exact", "tolerant"])
def test_minus_zero_is_zero(mode):
    assert str(parse_verdict("A: -0, B: 3", 2, mode=mode).scores[0]) == "0.0"


def test_tolerant_keeps_decimals():
    assert parse_verdict(tail("A: 8.5, B: 3"), 2, mode="tolerant").scores == (8.5, 3.0)


@pytest.mark.parametrize("mode", ["exact", "tolerant"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A: 999, B: 3", RejectReason.OUT_OF_RANGE),
        ("A: 8, B: -5", RejectReason.OUT_OF_RANGE),
        ("A: 8, B: " + "9" * 5000, RejectReason.OUT_OF_RANGE),
        ("A: 8, B: 3, Z: 1", RejectReason.UNKNOWN_ID),
        ("A: 8, A: 7, B: 3", RejectReason.DUPLICATE_ID),
        ("A: 8", RejectReason.MISSING_ID),
        ("A: 8, B 3", RejectReason.MALFORMED_SCORES),
        ("8, 3", RejectReason.MALFORMED_SCORES),
        ("A: nan, B: 3", RejectReason.MALFORMED_SCORES),
        ("A: eight, B: 3", RejectReason.MALFORMED_SCORES),
        ("A: 3, B: 8", RejectReason.CONTRADICTION),
        ("A: 8, B: 8", RejectReason.CONTRADICTION),
    ],
)
def test_scores_that_would_corrupt_training_are_rejected(line, expected, mode):
    assert reason(tail(line), mode=mode) is expected


@pytest.mark.parametrize("ranking", ["**B > A**", "`B > A`", "Final Ranking: B > A", "B＞A"])
def test_a_decorated_ranking_cannot_contradict_the_scores_unnoticed(ranking):
    assert reason(tail("A: 8, B: 3", ranking)) is RejectReason.CONTRADICTION


def test_a_ranking_right_above_the_scores_is_compared_too():
    assert reason("why\nB > A\nA: 8, B: 3") is RejectReason.CONTRADICTION


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("### Final Ranking:\n```\nB > A\n```\n### Scores:", "A: 8, B: 3"),
        ("B > A\n\n---\n\n### Scores:", "A: 8, B: 3"),
        ("B > A\n### Scores:\n```", "A: 8, B: 3\n```"),
    ],
)
def test_fences_and_rules_do_not_hide_a_ranking_that_contradicts_the_scores(before, line):
    assert reason(f"why\n{before}\n{line}", mode="tolerant") is RejectReason.CONTRADICTION


def test_a_ranking_considered_earlier_in_the_analysis_is_not_the_verdict():
    text = "At first sight:\nB > A\nBut B omits the date.\n### Scores:\nA: 8, B: 3"
    assert parse_verdict(text, 2).analysis == "At first sight:\nB > A\nBut B omits the date."


@pytest.mark.parametrize("ranking", ["A > B > C", "A > C", "A > B > B", "**A＞C**"])
def test_a_ranking_of_other_candidates_than_the_scored_ones_contradicts_them(ranking):
    for mode in ("exact", "tolerant"):
        assert reason(tail("A: 8, B: 3", ranking), mode=mode) is RejectReason.CONTRADICTION


@pytest.mark.parametrize("ranking", ["X", "A >", "A", ""])
def test_text_that_ranks_nobody_leaves_the_scores_alone(ranking):
    parsed = parse_verdict(tail("A: 8, B: 3", ranking), 2)
    assert (parsed.scores, parsed.ranking) == ((8.0, 3.0), None)


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("A > B > B", 2, RejectReason.DUPLICATE_ID),
        ("A > B", 3, RejectReason.MISSING_ID),
        ("A > C", 2, RejectReason.UNKNOWN_ID),
        ("A >> B", 2, RejectReason.MALFORMED_RANKING),
        ("B < A", 2, RejectReason.MALFORMED_RANKING),
        ("**A > B**", 2, RejectReason.MALFORMED_RANKING),
    ],
)
def test_rankings_that_do_not_rank_everyone_once_are_rejected(text, n, expected):
    assert reason(f"why\n{text}", n, "ranking") is expected


def test_ranking_alone_gives_tiers_and_no_scores():
    parsed = parse_verdict("why\n\n### Final Ranking:\n\nB > D = A > C\n", 4, "ranking")
    assert parsed == ParsedVerdict(None, ((1,), (0, 3), (2,)), "why")
    assert parse_verdict("why\n**B＞A。**", 2, "ranking", "tolerant").ranking == ((1,), (0,))


@pytest.mark.parametrize("mode", ["exact", "tolerant"])
def test_an_empty_reply_is_called_empty(mode):
    assert reason(" \n ", mode=mode) is RejectReason.EMPTY
    assert parse_sqm("", mode).reason is RejectReason.EMPTY


def test_compat_shares_the_original_quirks_but_not_scores_off_the_scale():
    assert parse_verdict(tail("A: 3, B: 8, C: 1,"), 2, mode="compat").scores == (3.0, 8.0)
    assert reason(tail("A: 11, B: 3"), mode="compat") is RejectReason.OUT_OF_RANGE
    assert reason("x", mode="compat") is RejectReason.MALFORMED_SCORES
    assert reason("x", prompt_type="ranking", mode="compat") is RejectReason.MALFORMED_RANKING
    assert parse_verdict("why\nB > A", 2, "ranking", "compat").ranking == ((1,), (0,))


@pytest.mark.parametrize(
    ("text", "exact", "tolerant", "compat"),
    [
        ("why\n7", 7, 7, 7),
        ("10", 10, 10, 0),  # the original reads one character of a single line
        ("why\n**8**", None, 8, None),
        ("why\nScore: 7.5/10.", None, 7.5, None),
        ("why\n11", None, None, None),
        ("85", None, None, 5),
        ("why\n" + "1" * 5000, None, None, None),
        ("why\n８", 8, 8, 8),
    ],
)
def test_single_scores(text, exact, tolerant, compat):
    found = [parse_sqm(text, mode) for mode in MODES]
    assert [None if isinstance(parsed, Rejection) else parsed for parsed in found] == [exact, tolerant, compat]


def test_calls_that_are_defects_are_not_verdicts():
    with pytest.raises(UserError, match="prompt_type 'bogus'"):
        parse_verdict("A: 1", 1, "bogus")
    for n in (0, 27):
        with pytest.raises(ValueError, match=f"{n} candidates"):
            parse_verdict("A: 1", n)
    for call in (lambda: parse_verdict("A: 1", 1, mode="lax"), lambda: parse_sqm("1", "lax")):
        with pytest.raises(ValueError, match="'lax' is not exact"):
            call()


@pytest.mark.parametrize("mode", ["exact", "tolerant"])
def test_what_a_model_thinks_is_no_part_of_its_verdict(mode):
    assert parse_verdict("<think>\nFirst thought:\nA > B\n</think>\n\nA: 3, B: 8", 2, mode=mode).scores == (3.0, 8.0)
    assert parse_verdict("<think>so so</think>A: 3, B: 8", 2, mode=mode).scores == (3.0, 8.0)
    assert reason("<think>\nA: 3, B: 8\n</think>", mode=mode) is RejectReason.EMPTY
    assert parse_sqm("<think>so so</think>8", mode) == 8.0


@pytest.mark.parametrize("mode", ["exact", "tolerant"])
def test_thoughts_without_an_end_are_no_verdict(mode):
    assert reason("<think>\nAt first sight:\nA: 3, B: 8", mode=mode) is RejectReason.EMPTY
    assert reason("<think>no</think>\n<think>\nA: 3, B: 8", mode=mode) is RejectReason.EMPTY
    assert parse_sqm("\n<think>maybe\n8", mode).reason is RejectReason.EMPTY
    assert parse_verdict("A keeps the tag <think>.\nA: 3, B: 8", 2, mode=mode).scores == (3.0, 8.0)
