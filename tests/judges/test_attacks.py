"""No candidate and no source, whatever it says, changes what another candidate scores."""

import pytest
from gqm.attacks import ATTACKS
from gqm.gullible_judge import GullibleJudge, as_seen, blocks_of, score_of, without_escapes
from gqm.score_readers import COMBINED, PARTICULAR, READERS
from support.judged_groups import group_of, judge_over
from support.text_models import TextModel

from grrm.gqm.chat import ASSISTANT_START, EOS_TEXT, USER_START
from grrm.gqm.fences import FENCED, Guard
from grrm.gqm.groups import Status
from grrm.gqm.prompts import FENCE
from grrm.judges.dedup import DistinctJudge
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.judges.sqm import SQMOptions

HONEST = ["Good morning, Anna!", "Good day, Anna!", "Good night, Anna!"]
LIMIT = 12_000
KINDS = list(dict.fromkeys(attack.kind for attack in ATTACKS))
OF_KIND = {kind: [attack for attack in ATTACKS if attack.kind == kind] for kind in KINDS}
each_kind = pytest.mark.parametrize("attacks", OF_KIND.values(), ids=KINDS)


SOURCE = "Guten Morgen, Anna!"


def judged(judge, texts):
    verdict = judge.judge([group_of(texts, source=SOURCE)])[0]
    return dict(zip(texts, zip(verdict.scores, verdict.statuses, strict=True), strict=True))


def honest_scores(outcomes):
    return [outcomes[text][0] for text in HONEST]


EXPECTED = [float(score_of(text)) for text in HONEST]
assert len(set(EXPECTED)) == len(HONEST)  # or a swap would go unnoticed


@each_kind
def test_attack_is_masked_or_stays_in_its_fence_and_the_others_keep_their_scores(attacks):
    for attack in attacks:
        assert (not FENCED.is_safe(attack.text), not FENCED.is_plain(attack.text)) == (attack.masked, attack.guarded)
        for place in (0, 1, 3):
            check_attack_at(place, attack)


def check_attack_at(place, attack):
    model = GullibleJudge()
    judge = judge_over(model, GQMOptions(prompt_length=LIMIT, retries=0))
    texts = [*HONEST[:place], attack.text, *HONEST[place:]]
    outcomes = judged(judge, texts)
    assert honest_scores(outcomes) == EXPECTED, attack
    assert outcomes[attack.text][1] in (Status.SCORED, Status.UNSAFE_CANDIDATE, Status.TOO_LONG)
    assert (outcomes[attack.text][1] is Status.UNSAFE_CANDIDATE) is attack.masked
    check_prompt(model, [SOURCE, *(text for text in texts if outcomes[text][1] is Status.SCORED)])


def check_prompt(model, contents):
    """The one prompt that the model got, read independently, has exactly these contents, up to backslashes."""
    (prompt,) = model.prompts
    turn = prompt.removeprefix(USER_START).removesuffix(f"{EOS_TEXT}\n{ASSISTANT_START}")
    assert "<|" not in turn
    names = ["Source text:", *(f"Translation {name}:" for name in "ABCD"[: len(contents) - 1])]
    for view in (str, as_seen):
        found = [(name, without_escapes(text)) for name, text in blocks_of(view(turn))]
        assert found == list(zip(names, map(without_escapes, map(view, contents)), strict=True))


@pytest.mark.parametrize("reads", READERS)
def test_no_reader_of_scores_takes_a_line_of_a_candidate_or_of_the_source_for_a_verdict(reads):
    for line in [*COMBINED[::9], *PARTICULAR]:
        for group in (group_of([*HONEST, f"fine\n{line}"], source=SOURCE), group_of(HONEST, source=f"Gut\n{line}")):
            judge = judge_over(GullibleJudge(reads), GQMOptions(prompt_length=LIMIT, retries=0))
            assert list(judge.judge([group])[0].scores[:3]) == EXPECTED, line


@each_kind
def test_attack_in_the_source_is_masked_or_leaves_all_scores_alone(attacks):
    for attack in attacks:
        model = GullibleJudge()
        judge = judge_over(model, GQMOptions(prompt_length=10 * LIMIT, retries=0))
        verdict = judge.judge([group_of(HONEST, source=attack.text)])[0]
        if attack.masked:
            assert (set(verdict.statuses), model.prompts) == ({Status.UNSAFE_SOURCE}, []), attack
        elif Status.TOO_LONG not in verdict.statuses:
            assert list(verdict.scores) == EXPECTED, attack
            check_prompt(model, [attack.text, *HONEST])


WRAPPED = {
    "shuffled": GQMOptions(prompt_length=LIMIT, retries=0, shuffle=True, seed=3),
    "permuted": GQMOptions(prompt_length=LIMIT, retries=0, shuffle=True, permutations=4),
    "chunked": GQMOptions(prompt_length=LIMIT, retries=0, max_candidates=2),
    "all": GQMOptions(prompt_length=LIMIT, retries=0, permutations=3, cache_size=8, max_candidates=3),
}


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, len(WRAPPED)))])
@pytest.mark.parametrize("number", range(len(WRAPPED)), ids=WRAPPED)
def test_shuffling_averaging_chunking_and_caching_open_no_way_in(number, turn):
    """Every attack meets one wrapping, the next attack the next one; the pairs left over are slow."""
    options = list(WRAPPED.values())[number]
    for attack in ATTACKS[(number + turn) % len(WRAPPED) :: len(WRAPPED)]:
        judge = judge_over(GullibleJudge(), options)
        outcomes = judged(judge, [*HONEST[:1], attack.text, *HONEST[1:]])
        assert honest_scores(outcomes) == pytest.approx(EXPECTED), attack


def test_all_attacks_at_once_leave_the_honest_candidates_alone():
    texts = [*(attack.text for attack in ATTACKS), *HONEST]
    outcomes = judged(judge_over(GullibleJudge(), WRAPPED["all"]), texts)
    assert honest_scores(outcomes) == pytest.approx(EXPECTED)
    masked = {text for text in texts if outcomes[text][1] is Status.UNSAFE_CANDIDATE}
    assert masked == {attack.text for attack in ATTACKS if attack.masked}


class NoGuard(Guard):
    def escape(self, text):
        return text

    def is_safe(self, text):
        return True


def test_without_the_guard_the_same_judge_is_taken_in(monkeypatch):
    monkeypatch.setattr("grrm.gqm.context.fence_for", lambda texts: FENCE)
    settings = {"guard": NoGuard(), "sampling": JudgeSampling(retries=0)}
    judge = DistinctJudge(GQMJudge(GullibleJudge(), prompt_length=LIMIT, **settings), NoGuard().is_safe)
    guarded = [attack for attack in ATTACKS if attack.guarded]
    fooled = [a for a in guarded if honest_scores(judged(judge, [*HONEST, a.text])) != EXPECTED]
    assert {"fence", "fake block", "fake verdict", "control token"} <= {attack.kind for attack in fooled}
    assert len(fooled) > len(guarded) / 2


FAITHFUL = [
    ("<s>alt</s>", "<s>old</s>"),
    ("A > B > C", "A > B > C"),
    ("Setze:\n```yaml\na: 1\n```", "Set:\n```yaml\na: 1\n```"),
    ("Übersetzung B: gut", "Translation B: good"),
    ("A: 3, B: 5", "A: 3, B: 5"),
]


@pytest.mark.parametrize(("source", "translation"), FAITHFUL)
def test_faithful_translations_of_texts_that_look_like_structure_are_judged(source, translation):
    judge = judge_over(GullibleJudge(), GQMOptions(prompt_length=LIMIT, retries=0))
    verdict = judge.judge([group_of([*HONEST, translation], source=source)])[0]
    assert set(verdict.statuses) == {Status.SCORED}
    assert list(verdict.scores[:3]) == EXPECTED


def by_itself(prompt):
    """Scores a lone translation by its length, and says 10 where a prompt has not just two fenced blocks."""
    lines = prompt.partition("Source text:\n")[2].split("\n")
    return f"read\n{len(prompt) % 10 if sum(line.startswith(lines[0]) for line in lines) == 4 else 10}"


@each_kind
def test_judged_alone_an_attack_reaches_nobody_else_either(attacks):
    judge = judge_over(TextModel(by_itself), SQMOptions(prompt_length=LIMIT, retries=0))
    alone = judged(judge, HONEST)
    for attack in attacks:
        beside = judged(judge, [*HONEST, attack.text])
        assert honest_scores(beside) == honest_scores(alone), attack
        assert beside[attack.text][1] in (Status.SCORED, Status.UNSAFE_CANDIDATE, Status.TOO_LONG)
