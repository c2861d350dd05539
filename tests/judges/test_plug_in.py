"""Judges of the user's own, by name: functions from groups to verdicts."""

from __future__ import annotations

import asyncio
import textwrap

import pytest
from support.judged_groups import group_of

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.judges.registry import open_judge

JUDGES = """
    import asyncio
    from grrm.gqm.groups import Status, Verdict

    def scored(group, points):
        return Verdict((Status.SCORED,) * len(group.candidates), (points,) * len(group.candidates))

    def fixed(groups, points=1.0):
        return [scored(group, points) for group in groups]

    async def slowly(groups):
        async def ask(group):
            await asyncio.sleep(0)
            return scored(group, float(len(group.candidates)))
        return await asyncio.gather(*map(ask, groups))

    def away(groups):
        raise ConnectionRefusedError("nobody there")

    def without_file(groups):
        return open("scores.json").read()

    async def late(groups):
        await asyncio.wait_for(asyncio.sleep(60), 0.01)

    def broken(groups):
        return fixed(groups)[0].no_such_thing

    def too_few(groups):
        return fixed(groups)[1:]

    def too_short(groups):
        return [scored(group_of_one(group), 1.0) for group in groups]

    def of_numpy(groups):
        import numpy as np
        return fixed(groups, np.float32(7.5))

    def group_of_one(group):
        return type(group)(group.group_id, group.task, group.candidates[:1])

    def no_groups():
        return []

    class Scale:
        def __call__(self, groups, model_factor: "float", scale: "Scale | None" = None, _calls=()):
            return fixed(groups, model_factor)

    scaled = Scale()

    def strict(groups, *, points: float, kinds: tuple[str, ...] = ()):
        assert isinstance(kinds, tuple)
        return fixed(groups, points)

    number = 3
"""
GROUPS = [group_of(["a", "b"], "g"), group_of(["c", "d", "e"], "h")]


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Builds a judge of the module by the name of its function."""
    (tmp_path / "my_judges.py").write_text(textwrap.dedent(JUDGES))
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, **options: open_judge(f"my_judges:{name}", options)


def test_a_function_is_a_judge(judge):
    assert [verdict.scores for verdict in judge("fixed").judge(GROUPS)] == [(1.0,) * 2, (1.0,) * 3]
    assert judge("fixed", points=7.0).judge(GROUPS)[0].scores == (7.0, 7.0)


def test_an_async_function_is_a_judge(judge):
    assert [verdict.scores for verdict in judge("slowly").judge(GROUPS)] == [(2.0,) * 2, (3.0,) * 3]


def test_an_async_function_is_a_judge_in_a_notebook_too(judge):
    async def cell():
        return judge("slowly").judge(GROUPS)

    assert asyncio.run(cell())[1].scores == (3.0,) * 3


def test_a_file_is_named_by_its_path(tmp_path, judge):
    assert open_judge(f"{tmp_path}/my_judges.py:fixed").judge(GROUPS)[0].scores == (1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "status", "cause"),
    [
        ("away", Status.JUDGE_UNREACHABLE, "ConnectionRefusedError: nobody there"),
        ("late", Status.JUDGE_TIMEOUT, "TimeoutError"),
        ("without_file", Status.JUDGE_UNREACHABLE, "No such file or directory: 'scores.json'"),
    ],
)
def test_what_cannot_be_asked_leaves_statuses_and_its_cause_in_the_log(judge, name, status, cause, caplog):
    assert [verdict.statuses for verdict in judge(name).judge(GROUPS)] == [(status,) * 2, (status,) * 3]
    assert cause in caplog.text


def test_a_defect_of_the_function_goes_through(judge):
    with pytest.raises(AttributeError, match="no_such_thing"):
        judge("broken").judge(GROUPS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_few", "must return one Verdict per group, 2 in all"),
        ("too_short", "my_judges:too_short', group 'g': 1 statuses for 2 candidates"),
        ("of_numpy", "group 'g': a verdict has a float32: give Python's own numbers"),
    ],
)
def test_answers_that_do_not_fit_the_groups_are_a_defect(judge, name, message):
    with pytest.raises(ValueError, match=message):
        judge(name).judge(GROUPS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:judge", "there is no module 'no_such_module'; put its folder on PYTHONPATH"),
        ("./my_judges:fixed", r"there is no module '\./my_judges'; .* or give FILE\.py:function"),
        ("grrm.no_such:judge", r"there is no module 'grrm\.no_such'"),
        ("nowhere/judges.py:judge", r"there is no file 'nowhere/judges\.py'"),
        ("my_judges:fixd", "my_judges has no function 'fixd'"),
        ("my_judges:number", "my_judges has no function 'number'"),
        ("my_judges:no_groups", "takes no groups"),
        ("my_judges:", "write module:function"),
        (":fixed", "write module:function"),
    ],
)
def test_a_name_that_is_no_judge_is_one_sentence(judge, name, message):
    with pytest.raises(UserError, match=message):
        open_judge(name)


def test_an_option_that_the_function_does_not_take_is_told(judge):
    with pytest.raises(UserError, match="option of judge 'my_judges:fixed' 'point': did you mean 'points'"):
        judge("fixed", point=3.0)


def test_options_have_the_types_that_the_function_says(judge):
    assert judge("strict", points=2, kinds=["a"]).judge(GROUPS)[0].scores == (2.0, 2.0)
    with pytest.raises(UserError, match="Judge option 'points' is 'many': Input should be a valid number"):
        judge("strict", points="many")
    with pytest.raises(UserError, match="Judge option 'points' is not set"):
        judge("strict")


def test_options_of_an_object_and_of_types_that_no_file_has_pass(judge):
    assert judge("scaled", model_factor=2, scale=[3]).judge(GROUPS)[0].scores == (2.0, 2.0)
    with pytest.raises(UserError, match="Judge option 'model_factor' is 'many'"):
        judge("scaled", model_factor="many")


def test_what_a_module_lacks_itself_is_not_taken_for_the_module(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        open_judge("needs_more:judge")
