"""Checks of where rewards come from and how they are shaped."""

from __future__ import annotations

from collections.abc import Iterable, Set

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.problems import Problems
from grrm.config.stage_config import RLConfig
from grrm.http_client.pool import checked_url
from grrm.judges.plug_in import is_plug_in
from grrm.judges.registry import check_judge_name, judge_names, spec_of
from grrm.judges.sources import JudgeSource, read_sources
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.gates import read_gates
from grrm.rewards.routing import RULE_OF, TRANSLATION
from grrm.rewards.rule_rewards import FINAL_RULES


def check_reward_source(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    """Notes sources of rewards that are missing, unused or cannot work, and keys that they have no use for."""
    if config.context_segments and (config.use_rule_reward or config.reward_protocol == "paddlenlp"):
        problems.add(
            "context_segments has no effect with use_rule_reward or reward_protocol paddlenlp, which show judges no "
            "context; set it to 0."
        )
    with problems.noted():
        FailurePolicy.from_mapping(config.failure_policy)
    _check_judge_inside(config, explicit, problems)
    with problems.noted():
        read_gates(config.reward_gates)
    check_routes(config, problems)
    _check_spans(config, problems)
    if config.use_rule_reward and config.rule_reward in FINAL_RULES:
        for key in ("score_scale_factor", "default_reward", "failure_policy"):
            if key in explicit:
                problems.add(
                    f"{key} has no effect with rule_reward {config.rule_reward}, whose rewards are used as they are; "
                    "remove the key."
                )
    _check_server(config, explicit, problems)


def _check_server(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    if not config.use_rm_server:
        if config.reward_server and config.use_rule_reward:  # as PaddleNLP's file for PPO has it
            problems.notice("reward_server is not asked, because use_rule_reward scores the responses.")
        elif config.reward_server:
            problems.add("reward_server is set but use_rm_server is false; set use_rm_server: true or remove it.")
        for key in sorted(explicit & {"reward_protocol", "reward_token_file"}):
            problems.notice(f"{key} has no effect without use_rm_server.")
        return
    if not config.reward_server:
        problems.add("use_rm_server needs reward_server; give its URL, for example http://127.0.0.1:8731.")
    for url in config.reward_server or ():
        with problems.noted():
            checked_url(url, "reward_server", "http://127.0.0.1:8731")
    if config.reward_deadline_s < config.reward_connect_timeout_s:
        problems.add("reward_deadline_s is shorter than reward_connect_timeout_s; raise it.")
    if config.reward_protocol == "paddlenlp":
        for key in ("score_scale_factor", "default_reward", "failure_policy", "max_unscored_fraction", "reward_gates"):
            if key in explicit:
                problems.add(
                    f"{key} has no effect with reward_protocol paddlenlp, whose server sends finished rewards and "
                    "cannot say that one is missing; remove the key or use reward_protocol grrm."
                )
        if "reward_groups_per_request" in explicit:
            problems.notice(
                "reward_groups_per_request has no effect with reward_protocol paddlenlp, whose rows go in one request."
            )


def _check_judge_inside(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    """Notes judges inside the trainer that cannot be, or that another source of rewards keeps from being asked."""
    outside = config.use_rm_server or config.use_rule_reward
    if "reward_judge" in explicit:
        with problems.noted():
            check_judge_name(config.reward_judge, judge_names(["nothing"]))
        if outside or config.reward_model_name_or_path or config.reward_sources is not None:
            problems.add(
                "reward_judge has no effect with use_rm_server, use_rule_reward, reward_model_name_or_path or "
                "reward_sources; remove the key."
            )
    if config.reward_sources is not None:
        with problems.noted():
            sources = read_sources(config.reward_sources)
            _check_context(config, sources, problems)
            if config.reward_streaming and any(source.needs_device for source in sources):
                problems.add(
                    "reward_streaming has a judge work while samples are drawn, which one of reward_sources with a "
                    "checkpoint in this process cannot; set it to false, or give that judge servers with urls."
                )
        if outside or config.reward_model_name_or_path:
            problems.add(
                "reward_sources are judges inside the trainer, beside use_rm_server, use_rule_reward or "
                "reward_model_name_or_path; set these to false, or remove the key, and name a server or a model as one "
                "of the sources."
            )
    if config.reward_model_name_or_path and outside:
        problems.add(
            "reward_model_name_or_path is a judge inside the trainer, beside use_rm_server or use_rule_reward; set "
            "these to false, or remove the key."
        )
    if "reward_prompt_type" in explicit and not config.reward_model_name_or_path:
        problems.add("reward_prompt_type has no effect without reward_model_name_or_path; remove the key.")


def _check_spans(config: RLConfig, problems: Problems) -> None:
    """Notes an advantage rule of error spans with rewards that have none; what a server's judge marks is unknown."""
    if not ADVANTAGE_RULES[config.advantage_rule].needs_spans:
        return
    has_judge = not (config.use_rule_reward or config.reward_protocol == "paddlenlp")
    if has_judge and config.use_rm_server:
        return
    with problems.noted():
        sources = read_sources(config.reward_sources) if config.reward_sources else ()
        judges = [source.judge for source in sources] or [config.reward_judge]
        if not has_judge or config.reward_model_name_or_path or not any(map(_may_mark_errors, judges)):
            problems.add(
                f"advantage_rule {config.advantage_rule} needs a judge that marks error spans; set reward_judge: spans,"
                " add it to reward_sources, or use another rule."
            )


def _may_mark_errors(name: str) -> bool:
    return is_plug_in(name) or spec_of(name).marks_errors or spec_of(name).needs == "servers"


def _check_context(config: RLConfig, sources: Iterable[JudgeSource], problems: Problems) -> None:
    """Notes judges that are to show more context than rows bring."""
    for source in sources:
        n_segments = source.options.get("context_segments", 0)
        if isinstance(n_segments, int) and n_segments > config.context_segments:
            problems.add(
                f"judge {source.title} of reward_sources shows {n_segments} segments of context, but rows bring "
                f"{config.context_segments}; set context_segments: {n_segments}."
            )


def check_routes(config: RLConfig, problems: Problems) -> None:
    """Notes routes without a judge, judges without a route, and sources of rewards that cannot be one of several."""
    of_sources = {str(source.get("route") or TRANSLATION) for source in config.reward_sources or ()}
    if config.reward_routes is None:
        for route in sorted(of_sources - {TRANSLATION}):
            problems.add(f"reward_sources has the route {route!r}, but rows have no routes; set reward_routes: {{}}.")
        return
    if config.use_rule_reward or (config.use_rm_server and config.reward_protocol == "paddlenlp"):
        problems.add(
            "reward_routes needs judges, and use_rule_reward or reward_protocol paddlenlp have none; remove one of the "
            "keys."
        )
    used_routes = {TRANSLATION, *RULE_OF, "tinyv", *config.reward_routes.values()}
    for route in sorted(of_sources - used_routes):
        problems.add(f"reward_sources has the route {route!r}, to which reward_routes sends nothing; add it there.")
    for route in sorted({*config.reward_routes.values()} - {TRANSLATION, *RULE_OF, *of_sources}):
        problems.add(f"reward_routes names {route!r}, which has no judge; add one to reward_sources with that route.")


def check_rule_reward(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    """Notes a rule beside a reward server, and tells of keys that rules ignore: a command line cannot remove them."""
    if not config.use_rule_reward:
        if "rule_reward" in explicit:
            problems.add("rule_reward has no effect without use_rule_reward; set it to true or remove the key.")
        return
    if config.use_rm_server:
        problems.add("use_rule_reward and use_rm_server are two sources of one reward; set one of them to false.")
    for key in ("extractor_type", "max_unscored_fraction"):
        if key in explicit:
            problems.notice(
                f"{key} has no effect with use_rule_reward, which reads the whole response and has no judge that could "
                "fail."
            )
    if config.reward_gates:
        problems.add("reward_gates are of judges, which use_rule_reward has not; set reward_gates to {}.")


def check_overlong(config: RLConfig, problems: Problems) -> None:
    """Notes lengths that do not fit, what takes the penalty back, and a cap that cannot matter; off is always right."""
    if not config.enable_overlong_reward_buffer:
        return
    if config.length_neutral_rewards:
        problems.add(
            "length_neutral_rewards takes the penalty of enable_overlong_reward_buffer out again; set one to false."
        )
    longest, limit = config.max_dec_len, config.overlong_max_resp_len
    if limit > longest:
        problems.add(
            f"overlong_max_resp_len {limit} is longer than a response of max_dec_len {longest}; use at most {longest}."
        )
    if config.overlong_reward_buffer > limit:
        name = "max_dec_len" if limit == longest else "overlong_max_resp_len"
        problems.add(
            f"overlong_reward_buffer {config.overlong_reward_buffer} is longer than a response of {name} {limit}; "
            f"use at most {limit}."
        )
    if not config.overlong_penalty_capped and limit == longest:
        problems.add(
            f"overlong_penalty_capped false has no effect while no response can pass the {limit} tokens at which the "
            "penalty is whole; set overlong_max_resp_len below max_dec_len, or remove the key."
        )
