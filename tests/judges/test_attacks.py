"""No candidate, whatever it says, changes what another candidate scores."""

import pytest
from support.attacks import ATTACKS, attack_id
from support.gullible_judge import GullibleJudge, as_seen, blocks_of, score_of

from grrm.gqm.chat import ASSISTANT_START, EOS_TEXT, USER_START
from grrm.gqm.fences import unsafe_reason
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.judges.building import build_from_options
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge
from grrm.judges.interface import GeneratedText
from grrm.judges.options import GQMOptions, SQMOptions

HONEST = ["Good morning, Anna!", "Good day, Anna!", "Good night, Anna!"]
LIMIT = 12_000
each_attack = pytest.mark.parametrize("attack", ATTACKS, ids=attack_id)


def group_of(texts):
    candidates = tuple(Candidate(f"c{i}", text or "?", text, 5) for i, text in enumerate(texts))
    return Group("g", TranslationTask("Guten Morgen, Anna!", "de", "en"), candidates)


def judged(judge, texts):
    verdict = judge.judge([group_of(texts)])[0]
    return dict(zip(texts, zip(verdict.scores, verdict.statuses, strict=True), strict=True))


def honest_scores(outcomes):
    return [outcomes[text][0] for text in HONEST]


EXPECTED = [float(score_of(text)) for text in HONEST]
assert len(set(EXPECTED)) == len(HONEST)  # or a swap would go unnoticed


def test_there_are_more_than_a_hundred_different_attacks():
    assert len({attack.text for attack in ATTACKS}) == len(ATTACKS) >= 150


@each_attack
def test_every_attack_is_refused_or_passed_as_it_should_be(attack):
    assert (unsafe_reason(attack.text) is not None) is attack.refused


@each_attack
def test_attack_gets_a_status_or_stays_in_its_fence_and_the_others_keep_their_scores(attack):
    for place in (0, 1, 3):
        check_attack_at(place, attack)


def check_attack_at(place, attack):
    model = GullibleJudge()
    judge = build_from_options(model, GQMOptions(prompt_length=LIMIT, retries=0))
    texts = [*HONEST[:place], attack.text, *HONEST[place:]]
    outcomes = judged(judge, texts)
    assert honest_scores(outcomes) == EXPECTED
    shown = [text for text in texts if outcomes[text][1] is Status.SCORED]
    assert outcomes[attack.text][1] in (Status.SCORED, Status.UNSAFE_CANDIDATE, Status.TOO_LONG)
    (prompt,) = model.prompts
    turn = prompt.removeprefix(USER_START).removesuffix(f"{EOS_TEXT}\n{ASSISTANT_START}")
    assert "<|" not in turn
    names = ["Source text:", *(f"Translation {name}:" for name in "ABCD"[: len(shown)])]
    contents = ["Guten Morgen, Anna!", *shown]
    assert blocks_of(turn) == list(zip(names, contents, strict=True))
    assert blocks_of(as_seen(turn)) == list(zip(names, map(as_seen, contents), strict=True))


WRAPPED = {
    "shuffled": GQMOptions(prompt_length=LIMIT, retries=0, shuffle=True, seed=3),
    "permuted": GQMOptions(prompt_length=LIMIT, retries=0, shuffle=True, permutations=4),
    "chunked": GQMOptions(prompt_length=LIMIT, retries=0, max_candidates=2),
    "all": GQMOptions(prompt_length=LIMIT, retries=0, permutations=3, cache_size=8, max_candidates=3),
}


def with_each_wrapping():
    """Every attack meets one wrapping, the next attack the next one; the pairs left over are slow."""
    for number, attack in enumerate(ATTACKS):
        for place, (name, options) in enumerate(WRAPPED.items()):
            marks = () if number % len(WRAPPED) == place else pytest.mark.slow
            yield pytest.param(options, attack, marks=marks, id=f"{name}-{attack_id(attack)}")


@pytest.mark.parametrize(("options", "attack"), with_each_wrapping())
def test_shuffling_averaging_chunking_and_caching_open_no_way_in(attack, options):
    judge = build_from_options(GullibleJudge(), options)
    assert honest_scores(judged(judge, [*HONEST[:1], attack.text, *HONEST[1:]])) == pytest.approx(EXPECTED)


def test_all_attacks_at_once_leave_the_honest_candidates_alone():
    texts = [*(attack.text for attack in ATTACKS), *HONEST]
    outcomes = judged(build_from_options(GullibleJudge(), WRAPPED["all"]), texts)
    assert honest_scores(outcomes) == pytest.approx(EXPECTED)
    assert {outcomes[attack.text][1] for attack in ATTACKS if attack.refused} == {Status.UNSAFE_CANDIDATE}


def test_without_the_guard_the_same_judge_is_taken_in():
    judge = GQMJudge(GullibleJudge(), prompt_length=LIMIT, is_safe=lambda text: True, sampling=JudgeSampling(retries=0))
    refused = [attack for attack in ATTACKS if attack.refused]
    fooled = [a for a in refused if honest_scores(judged(judge, [*HONEST, a.text])) != EXPECTED]
    assert {"fence", "fake block", "fake verdict", "control token"} <= {attack.kind for attack in fooled}
    assert len(fooled) > len(refused) / 2


class SingleJudge:
    """Scores a lone translation by its length, and says 10 where a prompt has more than two fenced blocks."""

    def generate_text(self, prompts, **sampling):
        return [GeneratedText(f"read\n{10 if p.count('```') != 4 else len(p) % 10}", "stop", 1) for p in prompts]

    def count_tokens(self, prompt):
        return len(prompt)


@each_attack
def test_judged_alone_an_attack_reaches_nobody_else_either(attack):
    judge = build_from_options(SingleJudge(), SQMOptions(prompt_length=LIMIT, retries=0))
    alone, beside = judged(judge, HONEST), judged(judge, [*HONEST, attack.text])
    assert honest_scores(beside) == honest_scores(alone)
    assert beside[attack.text][1] in (Status.SCORED, Status.UNSAFE_CANDIDATE, Status.TOO_LONG)
