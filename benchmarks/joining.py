"""Latency of two groups at a judge that is busy with 64, and the delay of the 64.

    python benchmarks/joining.py [--layers 30] [--new 64] [--out FILE]

The judge asks its model one prompt a group, 256 random tokens of which 64 begin every prompt, and reads 64 new ones;
nothing ends earlier. The model has SmolLM2-135M's shape with random weights. It is hosted as the reward server hosts
judges:

`turns` calls it for one request after the other, as for models that cannot be shared; `shared` lets requests join the
batch that runs. Two groups arrive when a quarter of the time has passed that 64 take alone. All run in one process with
one thread, or as many as OMP_NUM_THREADS says.

The clock is the process's CPU time, in which nothing else runs: what others do on the machine does not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from judge_group import SMOLLM2_135M
from machine import command_line, describe_machine, write_result

from grrm import startup

MANY, FEW, PROMPT, COMMON = 64, 2, 256, 64
ARRIVALS = (0.25,)  # of the time that the many take alone


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "joining")
    parser.add_argument("--layers", type=int, default=30, help="of the model (default: %(default)s)")
    parser.add_argument("--new", type=int, default=64, help="tokens that are written (default: %(default)s)")
    options = parser.parse_args(arguments)
    if min(options.layers, options.new) < 1:
        parser.error("--layers and --new must be at least 1")
    startup.configure_process()
    machine = describe_machine()
    rows = measure(open_engine(options.layers), options.new)
    result = {"machine": machine, "layers": options.layers, "new_tokens": options.new, "rows": rows}
    write_result(options.out, result)
    for row in rows:
        print(json.dumps(row))


def open_engine(n_layers: int) -> Any:
    import paddle
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    from grrm.engine.paddle.engine import PaddleEngine

    paddle.seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SMOLLM2_135M | {"num_hidden_layers": n_layers}))
    model.eval()
    return PaddleEngine(model)


class PromptJudge:
    """Asks one prompt a group, the group's own number telling which."""

    name = "prompt"

    def __init__(self, engine: Any, n_new: int) -> None:
        from grrm.engine.api import SamplingParams

        self._engine = engine
        self._params = SamplingParams(max_new_tokens=n_new, logprobs=False)
        tokens_PT = np.random.default_rng(0).integers(3, 40_000, (MANY + FEW, PROMPT))
        tokens_PT[:, :COMMON] = tokens_PT[0, :COMMON]
        self._prompts = tokens_PT.tolist()

    def judge(self, groups: Sequence[Any]) -> list[Any]:
        from grrm.gqm.groups import Status, Verdict

        numbers = [int(group.group_id) for group in groups]
        replies = self._engine.generate([self._prompts[number] for number in numbers], self._params, numbers)
        assert all(len(reply.token_ids) == self._params.max_new_tokens for reply in replies)
        return [Verdict((Status.SCORED,), (5.0,)) for _ in groups]


def services(engine: Any, n_new: int) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """`judge_groups` of the service in both ways."""
    from grrm.engine.scheduler import BatchScheduler
    from grrm.engine.shared import SharedEngine
    from grrm_reward_server.hosting import HostedJudge
    from grrm_reward_server.metrics import Metrics
    from grrm_reward_server.service import JudgeService
    from grrm_reward_server.settings import Settings

    scheduler = BatchScheduler(engine)
    hosted = {
        "turns": HostedJudge(PromptJudge(engine, n_new)),
        "shared": HostedJudge(PromptJudge(SharedEngine(scheduler), n_new), scheduler=scheduler),
    }
    return {name: JudgeService(judge, Settings(), Metrics()).judge_groups for name, judge in hosted.items()}


def measure(engine: Any, n_new: int) -> list[dict[str, Any]]:
    judges = services(engine, n_new)
    many, few = make_groups(0, MANY), make_groups(MANY, MANY + FEW)
    for judge in judges.values():
        judge(few)  # warm
    alone_s = {name: clocked(judge, many) for name, judge in judges.items()}
    rows: list[dict[str, Any]] = []
    for arrival in ARRIVALS:
        at_s = arrival * alone_s["turns"]
        timings = {name: beside(judge, many, few, at_s) for name, judge in judges.items()}
        for name, (many_s, few_s) in timings.items():
            rows.append(
                {
                    "service": name,
                    "arrival": arrival,
                    "two_s": round(few_s, 2),
                    "two_relative_to_turns": round(few_s / timings["turns"][1], 3),
                    "many_s": round(many_s, 2),
                    "many_alone_s": round(alone_s[name], 2),
                    "many_relative_to_alone": round(many_s / alone_s[name], 3),
                }
            )
    return rows


def make_groups(begin: int, end: int) -> list[Any]:
    from grrm.gqm.groups import Candidate, Group, TranslationTask

    task = TranslationTask("Guten Morgen", "de", "en")
    return [Group(str(number), task, (Candidate("0", "x", "x"),)) for number in range(begin, end)]


def clocked(judge: Callable[[Sequence[Any]], Any], groups: Sequence[Any]) -> float:
    began_s = time.process_time()
    judge(groups)
    return time.process_time() - began_s


def beside(
    judge: Callable[[Sequence[Any]], Any], many: Sequence[Any], few: Sequence[Any], at_s: float
) -> tuple[float, float]:
    """Seconds that the many take, and the few that arrive `at_s` after them."""
    with ThreadPoolExecutor(2) as threads:
        began_s = time.process_time()
        large: Future[float] = threads.submit(clocked, judge, many)
        while time.process_time() - began_s < at_s:
            time.sleep(0.002)
        small = threads.submit(clocked, judge, few)
        return large.result(), small.result()


if __name__ == "__main__":
    main()
