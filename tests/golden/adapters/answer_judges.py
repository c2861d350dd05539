"""Rubric judge and verifier: what they ask, how they are read, and the rewards made of them."""

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.judges.generation import JudgeSampling
from grrm.judges.interface import GeneratedText
from grrm.judges.rubric import RubricJudge
from grrm.judges.verified import VerifiedJudge
from grrm.judges.verifier import VerifierJudge
from grrm.rewards.answers import RuleResult
from grrm.rewards.routing import RewardRoutes
from grrm.rewards.rule_rewards import grade_reward
from grrm.rewards.verified import VerifierMix


def grade(row):
    try:
        return grade_reward(row["solution_str"], row["ground_truth"]).score
    except UserError:  # ours stops the run at a ground truth that is no number, for the original nothing is right then
        return 0.0


class Scripted:
    """A server whose replies are known, and the requests that it got; "__raise__" is a request that failed."""

    def __init__(self, replies, model_id):
        self.replies, self.calls, self.model = list(replies), [], {"model": model_id} if model_id else {}

    def generate_text(self, prompts, *, temperature, top_p, max_new_tokens, seeds=None):
        drawn = []
        for prompt in prompts:
            messages = [{"role": "user", "content": prompt}]
            sampled = {"temperature": temperature, "top_p": top_p, "max_completion_tokens": max_new_tokens}
            self.calls.append(self.model | {"messages": messages} | sampled)
            reply = self.replies.pop(0)
            drawn.append(GeneratedText("" if reply == "__raise__" else reply, "stop", 1))
        return drawn

    def count_tokens(self, prompt):
        return 1


def score(row, judge, server, question, truth, shows_solution):
    """What `compute_score` gives. Of a row without a reward the original says 0."""

    def rule(_solution, _truth):
        correct, _, answer = row["rule_result"]
        return RuleResult(correct, answer)

    try:
        mix = VerifierMix(row["setup"], row["weight"])
    except UserError as error:
        return {"score": {"__error__": "ValueError" if "setup" in str(error) else "TypeError"}, "calls": []}
    group = Group("g", TranslationTask(question, "en", "en", truth), (Candidate("0", "", row["solution_str"]),))
    (verdict,) = VerifiedJudge(judge, rule, mix, shows_solution).judge([group])
    return {"score": 0.0 if verdict.scores[0] is None else verdict.scores[0] / 10, "calls": server.calls}


def settings(row, server, max_new_tokens, mode):
    # The original asks again after a failed request only; ours after an unreadable reply too, for which there is none.
    sampling = JudgeSampling(0, 1, max_new_tokens, len(row["verifier_script"]) - 1, 0.3)
    return {"generator": server, "render": str, "sampling": sampling, "mode": mode}


# How TinyV asks its models: with which prompt, for how many tokens, and whether they think first.
MODELS = {
    "zhangchenxu/TinyV-1.5B": ("tinyv", 8, False),
    "zhangchenxu/TinyV-1.5B-Think": ("tinyv", 512, True),
    "zhangchenxu/TinyV-Qwen3-1.7B": ("tinyv-qwen3", 8, False),
    "zhangchenxu/TinyV-Qwen3-1.7B-Think": ("tinyv-qwen3", 512, True),
}


def tinyv(row, mode="exact"):
    prompt_type, max_new_tokens, think = MODELS[row["model_id"]]
    server = Scripted(row["verifier_script"], row["model_id"])
    judge = VerifierJudge(**settings(row, server, max_new_tokens, mode), prompt_type=prompt_type, think=think)
    return score(row, judge, server, row["question"], row["ground_truth"], False)


def rrm(row, mode="exact"):
    server = Scripted(row["verifier_script"], None)
    judge = RubricJudge(**settings(row, server, 2048, mode))
    info = row["extra_info"]
    return score(row, judge, server, info["question"], info["criteria"], row["setup"] == "tinyv_only")


FIXED = {
    "rrm.grade_reward": grade,
    "rrm.route_data_source": lambda row: RewardRoutes().route(row["data_source"]),
    "rrm.compute_score": rrm,
    "tinyv.compute_score": tinyv,
}
