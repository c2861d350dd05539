"""Sources of rewards: a server of the group protocol or a stock PaddleNLP one, a judge in process, or a rule."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config import RLConfig
from grrm.config.keys.reward import RewardConfig
from grrm.engine.openai_wire import WHICH_MODEL, completions_client, unanswered_because
from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask
from grrm.http_client.client import NoAnswer
from grrm.http_client.exchange import token_from_file
from grrm.inference.judge_sources import Host, open_mixture, token_of
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.gated import GatedJudge
from grrm.judges.interface import Judge
from grrm.judges.mixture import RoutedJudge
from grrm.judges.registry import open_judge
from grrm.judges.server import ServerJudge
from grrm.judges.sources import DEADLINE_S, JudgeSource, read_sources
from grrm.judges.value_head import RewardModelOptions
from grrm.models.trained_with import read_trained_with
from grrm.parallel.data_ranks import DataRanks, run_together
from grrm.rewards.client import RewardClient, RewardServerError
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.gates import read_gates
from grrm.rewards.routing import RULE_OF, TRANSLATION, RewardRoutes
from grrm.rewards.rule_rewards import rule_reward_function
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.reward_stage import Rewarder, RewardStage, RowRewardStage, RuleRewardStage
from grrm.rl.span_credit import Locate, SpanCredit

logger = logging.getLogger(__name__)


def build_rewarder(
    config: RLConfig, shaping: ShapingConfig, policy: FailurePolicy, eos_text: str, locate: Locate | None = None
) -> Rewarder:
    """The reward stage that the argument file selects; `locate` finds tokens in a response, for error spans."""
    if config.use_rule_reward:
        return RuleRewardStage(config.rule_reward, shaping, policy)
    if config.use_rm_server and config.reward_protocol == "paddlenlp":
        return RowRewardStage(reward_client(config), shaping, eos_text)
    judge: Judge = _judge(config) if config.reward_routes is None else routed_judge(config)
    credit = None
    if locate is not None and ADVANTAGE_RULES[config.advantage_rule].needs_spans:
        credit = SpanCredit(locate, config.span_severities, judge.name)
    if config.reward_gates:
        judge = GatedJudge(judge, read_gates(config.reward_gates))
    return RewardStage(judge, shaping, policy, credit)


def routed_judge(config: RLConfig) -> RoutedJudge:
    """A judge for each kind of rows: those of reward_sources by route, and the built-in rules.

    Translations without a source use the judge of the other keys. Raises UserError for a judge that cannot be opened.
    """
    by_route: dict[str, list[JudgeSource]] = {}
    for source in read_sources(config.reward_sources) if config.reward_sources else ():
        by_route.setdefault(source.route or TRANSLATION, []).append(source)
    judges: dict[str, Judge] = {
        route: open_judge("answer", {"rule": rule}) for route, rule in RULE_OF.items() if route not in by_route
    }
    judges |= {route: _mixture(sources, config) for route, sources in by_route.items()}
    if TRANSLATION not in judges:
        judges[TRANSLATION] = _judge(config.model_copy(update={"reward_sources": None}))
    return RoutedJudge(judges, RewardRoutes(config.reward_routes or {}).of_task)


def check_routed(config: RewardConfig) -> Callable[[TranslationTask], None]:
    """A check that raises UserError for a task without a judge, or with a truth its rule cannot use; opens no judge."""
    routes = RewardRoutes(config.reward_routes or {})
    has_judge = {str(source.get("route") or TRANSLATION) for source in config.reward_sources or ()} | {TRANSLATION}

    def check(task: TranslationTask) -> None:
        route = routes.of_task(task)
        if route in has_judge:
            return
        if route not in RULE_OF:
            raise UserError(
                f"data_source {task.data_source!r} has the route {route!r}, which has no judge; add one to "
                f"reward_sources with `route: {route}`, or send it elsewhere in reward_routes"
            )
        rule_reward_function(RULE_OF[route])("", task.reference or "")

    return check


def _judge(config: RLConfig) -> Judge:
    return ServerJudge(reward_client(config)) if config.use_rm_server else _judge_inside(config)


def _judge_inside(config: RLConfig) -> Judge:
    """The judge in this process. Raises UserError for one that cannot be opened."""
    if config.reward_sources is not None:
        return _mixture(read_sources(config.reward_sources), config)
    if config.reward_model_name_or_path is None:
        return open_judge(config.reward_judge)
    _check_context(config, config.reward_model_name_or_path)
    options = RewardModelOptions(prompt_type=config.reward_prompt_type)
    return open_reward_judge(config.reward_model_name_or_path, options=options, own_process=False)


def _mixture(sources: Sequence[JudgeSource], config: RLConfig) -> Judge:
    for source in sources:
        if source.spec.needs == "reward model":
            _check_context(config, str(source.model))
    return open_mixture(sources, Host(is_own=False, memory_fraction=config.rollout_memory_fraction))


def _check_context(config: RLConfig, reward_model: str) -> None:
    """Raises UserError for a reward model that was trained with more context than rows bring."""
    n_segments = read_trained_with(reward_model).context_segments or 0
    if n_segments > config.context_segments:
        raise UserError(
            f"the reward model in '{reward_model}' was trained with {n_segments} segments of context, but rows bring "
            f"{config.context_segments}: set context_segments: {n_segments}"
        )


def judges_by_phase(config: RewardConfig) -> bool:
    """True if a judge generates in this process, so that nothing else may use the device at the same time."""
    sources = read_sources(config.reward_sources) if config.reward_sources else ()
    return any(source.needs_device for source in sources)


def reward_client(config: RewardConfig) -> RewardClient:
    """The client of the servers that the argument file names. Raises UserError when its settings cannot work."""
    file = config.reward_token_file
    return RewardClient(
        config.reward_server or [],
        protocol=config.reward_protocol,
        token=None if file is None else token_from_file(file, f"reward_token_file '{file}'"),
        connect_timeout_s=config.reward_connect_timeout_s,
        read_timeout_s=config.reward_read_timeout_s,
        deadline_s=config.reward_deadline_s,
        attempts=config.reward_attempts,
        groups_per_request=config.reward_groups_per_request,
    )


def await_reward_server(config: RewardConfig, ranks: DataRanks) -> None:
    """Wait until every reward server is ready, before anything slow is started.

    A server that is still loading its model has `reward_deadline_s`. Raises CollectiveFailure on every rank together.
    """
    if not config.use_rm_server:
        return

    def wait() -> None:
        with reward_client(config) as client:
            wait_until_ready(client, "reward_server")

    run_together("looking for the reward server", wait, ranks, (UserError,))


def await_judges(config: RewardConfig, ranks: DataRanks) -> None:
    """Return once every server that a generative judge of `reward_sources` asks says which model it has.

    A server that is still loading its model has as long as one call of the judge. One that nobody waits for has a
    fallback. Raises CollectiveFailure on every rank together.
    """
    sources = read_sources(config.reward_sources) if config.reward_sources else ()
    required = [
        source for source in sources if source.spec.needs == "generator" and source.urls and source.fallback is None
    ]

    def wait() -> None:
        for source in required:
            _wait_for_models(source, source.seconds or DEADLINE_S)

    if required:
        run_together("looking for the judges' servers", wait, ranks, (UserError,))


def _wait_for_models(source: JudgeSource, seconds: float) -> None:
    client = completions_client(
        source.urls, token=token_of(source), deadline_s=seconds, attempts=sys.maxsize, backoff_max_s=10
    )
    try:
        answers = client.ask_each(client.pool.urls, WHICH_MODEL, time.monotonic() + seconds)
    finally:
        client.close()
    for url, answer in answers.items():
        if isinstance(answer, NoAnswer) and unanswered_because(answer) in ("timeout", "unreachable"):
            raise UserError(
                f"judge {source.title}: server {url} was not ready within {seconds:g} s ({answer.cause}): start it, or "
                "correct urls"
            )


def wait_until_ready(client: RewardClient, address: str) -> None:
    """Wait for all servers as long as for an answer; logs a line after a second.

    Raises UserError when that passes, and at once for an answer that will stay the same. `address` is the key or
    option with the server's address, for the messages.
    """
    timeout_s = client.http.deadline_s
    at_once_s = min(1.0, timeout_s)
    error = _unready(client, at_once_s)
    if error is not None and not error.is_refused:
        details = (error.server, error.cause, address, timeout_s)
        logger.warning("reward server %s is not ready (%s): start it, or correct %s; waiting up to %g s", *details)
        error = _unready(client, max(timeout_s - at_once_s, at_once_s))
    if error is not None:
        when = "is not ready" if error.is_refused else f"was not ready within {timeout_s:g} s"
        raise UserError(
            f"reward server {error.server} {when} ({error.cause}{_stock(error.cause)}): start it, correct {address}, "
            "or see its log"
        ) from error


def _unready(client: RewardClient, timeout_s: float) -> RewardServerError | None:
    try:
        client.wait_until_ready(timeout_s)
    except RewardServerError as error:
        return error
    return None


def _stock(cause: str) -> str:
    """A hint to set `reward_protocol` for a server that answers `GET /readyz` with 404, as PaddleNLP's own does."""
    return ", as PaddleNLP's own does: for that set reward_protocol: paddlenlp" if "HTTP 404" in cause else ""
