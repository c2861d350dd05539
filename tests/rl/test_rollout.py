"""Groups are rolled out whole, with the same samples whoever draws them, and a batch is checked to be complete."""

from __future__ import annotations

import pytest
from support.rolled import TASK, scored_group

from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion, Engine, SamplingParams
from grrm.rl.rollout import PromptBatch, RolloutWorker, check_complete


class EchoEngine(Engine):
    """Answers each prompt with its stream number."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def wake(self) -> None:
        self.events.append("wake")

    def update_weights(self, version: int = 0) -> None:
        self.events.append(f"update_weights {version}")

    def sleep(self) -> None:
        self.events.append("sleep")

    def _generate(self, requests, on_finished):
        self.events.append("generate")
        made = [Completion([request.stream_id], [-1.0], "stop") for request in requests]
        for place in reversed(range(len(made))):
            on_finished(place, made[place])
        return made


def worker(rollout_n: int = 3) -> RolloutWorker:
    return RolloutWorker(
        engine=EchoEngine(),
        decode=lambda ids: f"[{ids[0]}]",
        extract=lambda response, _: response.strip("[]"),
        sampling=SamplingParams(max_new_tokens=4),
        rollout_n=rollout_n,
    )


def batch(positions, generation: int = 0, first: int = 0) -> PromptBatch:
    items = [PromptItem(i, [i, i], f"prompt {i}", TASK) for i in range(first, first + len(positions))]
    return PromptBatch(items, positions, generation, step=3)


def test_groups_carry_their_prompt_samples_and_log_probabilities():
    rolling = worker()
    (group,) = rolling.roll_out(batch([5], generation=2))
    assert rolling.engine.events == ["wake", "update_weights 3", "generate", "sleep"]
    assert (group.position, group.group.group_id, group.item.prompt_ids) == (5, "2-5", [0, 0])
    assert [candidate.candidate_id for candidate in group.group.candidates] == ["0", "1", "2"]
    assert [candidate.translation for candidate in group.group.candidates] == [str(t[0]) for t in group.token_ids]
    assert [list(row) for row in group.engine_logprobs] == [[-1.0]] * 3


def test_samples_do_not_depend_on_which_rank_draws_them_and_never_share_a_stream():
    together = worker().roll_out(batch([0, 1, 2, 3], generation=7))
    apart = [g for p in range(4) for g in worker().roll_out(batch([p], generation=7, first=p))]
    assert [group.token_ids for group in together] == [group.token_ids for group in apart]
    other = worker().roll_out(batch([0, 1, 2, 3], generation=8))
    streams = [tokens[0] for group in together + other for tokens in group.token_ids]
    assert len(set(streams)) == len(streams) == 24


def test_a_group_is_told_of_when_its_last_sample_ends():
    rolling, told = worker(), []
    groups = rolling.roll_out(batch([4, 5, 6]), lambda rolled: told.append((rolled, len(rolling.engine.events))))
    assert [rolled.position for rolled, _ in told] == [6, 5, 4]
    assert all(any(rolled is group for group in groups) for rolled, _ in told)
    assert {n_events for _, n_events in told} == {3}  # the engine has not been put to sleep yet


def test_complete_batch_comes_back_in_order():
    groups = [scored_group(position, [1, 2], [1.0, 2.0]) for position in (2, 0, 1)]
    assert [scored.rolled.position for scored in check_complete(groups, 3, 2)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        ([0, 2], r"expected groups 0 to 2 once each, got positions \[0, 2\]"),
        ([0, 1, 1], r"got positions \[0, 1, 1\]"),
        ([0, 1, 2, 2], r"got positions \[0, 1, 2, 2\]"),
        ([0, 1, 3], r"got positions \[0, 1, 3\]"),
        ([], r"got positions \[\]"),
    ],
    ids=["lost", "one for another", "repeated", "of another batch", "nothing"],
)
def test_lost_or_repeated_groups_are_named(positions, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_complete([scored_group(position, [1, 2], [1.0, 2.0]) for position in positions], 3, 2)


def test_torn_group_is_named():
    whole, torn = scored_group(0, [1, 2], [1.0, 2.0]), scored_group(1, [1, 2], [1.0, 2.0])
    torn.rolled.token_ids.pop()
    for groups in ([whole, scored_group(1, [1], [1.0])], [whole, torn]):
        with pytest.raises(ValueError, match="group 0-1 has 1 members instead of 2"):
            check_complete(groups, 2, 2)
