"""The Flask application: PaddleNLP's reward protocol at `/`, the group protocol at `/v1/score`, probes and counters."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from flask import Response, g
from pydantic import BaseModel
from pydantic_core import to_json

from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.rewards.messages import Problem, ScoreRequest, WireCandidate
from grrm.rewards.protocol import task_of, verdict_fields
from grrm.rewards.rows_protocol import RowsAnswer, RowsRequest

from .answer_cache import AnswerCache
from .application import Application, json_response
from .bodies import client_has_gone, deadline_of_request, parse, read_json_body, rows_limits, score_limits
from .hosting import HostedJudge
from .limits import check_pairs, check_rows, check_score_request, check_tasks
from .logs import name_request
from .metrics import JudgeCollector, Metrics
from .openapi import describe
from .page import JudgeName, JudgesAnswer, Live, PromptsAnswer, load_page
from .problems import JudgeFailure, RequestProblem, Unfinished
from .rows import group_rows, rewards_by_row
from .service import JudgeService
from .settings import Settings

logger = logging.getLogger(__name__)
LENGTHS_DIFFER = "The length of response, tgt, and src should be equal."  # PaddleNLP's own words


class RewardApp(Application):
    """The routes of both protocols, and what they share; of several judges the first is the default one.

    With a `token`, all but /healthz and the page ask for it.
    """

    open_routes = frozenset({("GET", "/healthz"), ("GET", "/")})

    def __init__(self, settings: Settings, judges: Sequence[HostedJudge], token: str | None) -> None:
        self.settings, self.judges = settings, judges
        self.hosted = self.judges[0]  # the default one
        metrics = Metrics(
            gauges={
                "grrm_requests_running": ("Requests that the judge is at.", lambda: self._load()[0]),
                "grrm_requests_waiting": ("Requests that wait for the judge.", lambda: self._load()[1]),
            }
        )
        metrics.registry.register(JudgeCollector([(judge.name, judge.model, judge.counters) for judge in self.judges]))
        super().__init__(settings, metrics, token, settings.max_tokens_in_flight)
        self.services = {judge.name: JudgeService(judge, settings, metrics) for judge in self.judges}
        self.cache = AnswerCache(
            max_entries=settings.answer_cache_entries,
            max_bytes=settings.answer_cache_bytes,
            wait_s=settings.judge_wait_s,
        )
        self.live = Live()
        self.rows_limits, self.score_limits = rows_limits(settings), score_limits(settings)
        self.html, self.html_headers = load_page()
        views: list[tuple[str, str, Callable[[], Response]]] = [
            ("POST", "/", self.post_rows),
            ("POST", "/v1/score", self.post_score),
            ("POST", "/v1/prompts", self.post_prompts),
            ("GET", "/", self.get_page),
            ("GET", "/v1/judges", self.get_judges),
            ("GET", "/v1/live", self.get_live),
            ("GET", "/healthz", self.get_healthz),
            ("GET", "/readyz", self.get_readyz),
            ("GET", "/openapi.json", self.get_openapi),
        ]
        self.add_routes(views)

    def error_body(self, problem: RequestProblem) -> bytes:
        """A Problem, or at a deadline what was done."""
        fields = {"field": problem.field, "reference_id": problem.reference_id}
        answer: BaseModel = Problem(error_code=problem.status, error_msg=problem.message, **fields)
        if isinstance(problem, Unfinished):
            answer = problem.answer
        return answer.model_dump_json(exclude_unset=True).encode()  # `verdict_fields` leaves empty lists out

    def is_idle(self) -> bool:
        """True if no judge is at work."""
        return all(judge.is_idle() for judge in self.judges)

    def post_rows(self) -> Response:
        """PaddleNLP's protocol. A failing judge is HTTP 200 with `error_code` 500 and zeros, as trainers expect."""
        rows = parse(RowsRequest, read_json_body(), self.rows_limits, invalid_json_status=422)
        if not len(rows.src) == len(rows.tgt) == len(rows.response):
            return _rows_failure(LENGTHS_DIFFER, len(rows.tgt))
        check_rows(rows, self.settings)
        row_groups = group_rows(rows, self._extract, self.settings.special_tokens)
        check_tasks(
            ((f"tgt[{rows[0]}]", group.task) for rows, group in zip(row_groups.rows, row_groups.groups, strict=True)),
            self.hosted.check_task,
        )
        if self.hosted.compares_pairs:
            texts = ([candidate.translation for candidate in group.candidates] for group in row_groups.groups)
            check_pairs(texts, self.settings.max_pairs, "src")
        if row_groups.n_unknown_tasks:
            logger.warning("%d of %d prompts do not tell their task", row_groups.n_unknown_tasks, len(row_groups.rows))
        try:
            with self.slot():
                verdicts = self._judge(self.hosted, row_groups.groups, client_has_gone())
        except JudgeFailure as failure:
            return _rows_failure(str(failure), len(rows.tgt))
        rewards, n_defaulted = rewards_by_row(
            row_groups, verdicts, scale=self.settings.score_scale_factor, default=self.settings.default_reward
        )
        self.metrics.add("grrm_rows_defaulted_total", n_defaulted)
        g.work = f"{len(verdicts)} groups, {len(rewards)} candidates, {n_defaulted} defaulted"
        return json_response(RowsAnswer(error_code=0, error_msg="Success", score=rewards))

    def post_score(self) -> Response:
        """The group protocol; a repeated request_id is answered with the first answer."""
        hosted, wire, tasks, digest = self._read_score_request()
        until = deadline_of_request()
        compute = partial(self._score, hosted, wire, tasks, until=until)
        with self.slot():
            answer, is_replay = self.cache.get_or_compute(wire.request_id, digest, compute, client_has_gone(), until)
        self.metrics.add("grrm_replayed_answers_total", is_replay)
        n_candidates = sum(len(group.candidates) for group in wire.groups)
        g.work = f"{len(wire.groups)} groups, {n_candidates} candidates{', replayed' if is_replay else ''}"
        return Response(answer, mimetype="application/json")

    def get_healthz(self) -> Response:
        """Liveness: the process answers, and says which judge it hosts and what that has counted."""
        first, *others = [judge.described() for judge in self.judges]
        described = {"status": "alive", "judge": first} | ({"other_judges": others} if others else {})
        return json_response(described)

    def get_readyz(self) -> Response:
        """Readiness: the judge answers, and the server takes requests."""
        self.require_running()
        if not all(service.is_ready() for service in self.services.values()):
            raise RequestProblem(503, "the judge does not answer yet", retry_after_s=5)
        return json_response({"status": "ready"})

    def get_page(self) -> Response:
        """The page to try the judges by hand."""
        return Response(self.html, headers=self.html_headers)

    def get_judges(self) -> Response:
        """The judges, and the models behind them."""
        return json_response(
            JudgesAnswer(judges=[JudgeName(name=judge.name, model=judge.model) for judge in self.judges])
        )

    def get_live(self) -> Response:
        """The requests under way."""
        return json_response(self.live.answer(*self._load()))

    def post_prompts(self) -> Response:
        """The prompts of a score request: making them is half of the work, so it takes a slot."""
        hosted, wire, tasks, _ = self._read_score_request()
        until = deadline_of_request()
        with self.slot():
            service = self.services[hosted.name]
            prompts = service.prompts_of(self._groups(wire, tasks), client_has_gone(), until)
            return json_response(PromptsAnswer(prompts=prompts))

    def get_openapi(self) -> Response:
        """The requests and answers of this server, as an OpenAPI document."""
        return json_response(describe(needs_token=self.token is not None))

    def _read_score_request(self) -> tuple[HostedJudge, ScoreRequest, list[TranslationTask], bytes]:
        """The judge that is asked, the request and its tasks, checked, and what tells its body from others."""
        body = read_json_body()
        wire = parse(ScoreRequest, body, self.score_limits, invalid_json_status=400)
        check_score_request(wire, self.settings)
        tasks = [task_of(group) for group in wire.groups]
        name_request(wire.request_id)
        hosted = self.hosted
        if wire.judge is not None:
            if wire.judge not in self.services:
                raise RequestProblem(422, f"this server has the judges {', '.join(self.services)}", field="judge")
            hosted = self.services[wire.judge].hosted
        check_tasks(((f"groups[{index}]", task) for index, task in enumerate(tasks)), hosted.check_task)
        if hosted.compares_pairs:
            texts = ([(own.response, own.translation) for own in group.candidates] for group in wire.groups)
            check_pairs(texts, self.settings.max_pairs, "groups")
        return hosted, wire, tasks, hashlib.sha256(body).digest()

    def _judge(
        self, hosted: HostedJudge, groups: Sequence[Group], is_abandoned: Callable[[], bool], until: float = math.inf
    ) -> list[Verdict]:
        began_s = time.perf_counter()
        verdicts = self.services[hosted.name].judge_groups(groups, is_abandoned, until)
        self.live.add(hosted.name, groups, verdicts, time.perf_counter() - began_s)
        return verdicts

    def _load(self) -> tuple[int, int]:
        """Requests at the judge, and those that wait for it."""
        n_waiting = sum(service.n_waiting for service in self.services.values())
        return max(self.slots.n_requests - n_waiting, 0), n_waiting

    def _score(
        self,
        hosted: HostedJudge,
        wire: ScoreRequest,
        tasks: Sequence[TranslationTask],
        is_abandoned: Callable[[], bool],
        until: float,
    ) -> bytes:
        groups = self._groups(wire, tasks)
        verdicts = self._judge(hosted, groups, is_abandoned, until)
        if time.monotonic() >= until:
            _check_all_done(wire.request_id, groups, verdicts)
        fields = [verdict_fields(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)]
        answer = {"request_id": wire.request_id, "verdicts": fields}
        return to_json(answer)

    def _groups(self, wire: ScoreRequest, tasks: Sequence[TranslationTask]) -> list[Group]:
        return [
            Group(group.group_id, task, tuple([self._candidate(candidate) for candidate in group.candidates]))
            for group, task in zip(wire.groups, tasks, strict=True)
        ]

    def _extract(self, response: str) -> str | None:
        """The translation in a response; nothing is looked for in one that is too long to be judged."""
        if len(response) > self.settings.max_text_chars:
            return None
        return extract_translation(response, self.settings.extractor_type)

    def _candidate(self, wire: WireCandidate) -> Candidate:
        translation = wire.translation
        if "translation" not in wire.model_fields_set:
            translation = self._extract(wire.response)
        return Candidate(wire.candidate_id, wire.response, translation, wire.n_tokens)


def _check_all_done(request_id: str, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> None:
    """Raises Unfinished unless every group was done before the deadline, which has passed."""
    judged = list(zip(groups, verdicts, strict=True))
    done = [verdict_fields(*pair) for pair in judged if Status.JUDGE_TIMEOUT not in pair[1].statuses]
    if len(done) < len(judged):
        message = f"the request's deadline came when {len(done)} of {len(judged)} groups were done"
        raise Unfinished(request_id, message, done)


def _rows_failure(message: str, n_rows: int) -> Response:
    return json_response(RowsAnswer(error_code=500, error_msg=message, score=[0.0] * n_rows))
