"""The server's log: lines of text or of JSON, each with the id of the request it is about, none with its texts."""

from __future__ import annotations

import json
import logging
import re
import uuid

from flask import g, has_request_context, request

from grrm.errors import UserError

REQUEST_ID_HEADER = "X-Request-Id"
_USABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
FIELDS = ("method", "route", "status", "milliseconds")


def request_id() -> str:
    """The id of the current request: the client's own where it sent a usable one, else a new one."""
    if "log_id" not in g:
        sent = request.headers.get(REQUEST_ID_HEADER, "")
        g.log_id = sent if _USABLE_ID.fullmatch(sent) else uuid.uuid4().hex[:16]
    log_id: str = g.log_id
    return log_id


def name_request(sent_id: str) -> None:
    """Log the current request under the id in its body, where its header has none."""
    if REQUEST_ID_HEADER not in request.headers and _USABLE_ID.fullmatch(sent_id):
        g.log_id = sent_id


def log_answer(logger: logging.Logger, level: int, route: str, status: int, took_s: float) -> None:
    """Logs the answer to the current request; `g.work` says in words what was done for it."""
    method = request.method if request.method.isalpha() else "?"  # or a terminal that shows the log obeys it
    fields = {"method": method, "route": route, "status": status, "milliseconds": round(took_s * 1e3, 1)}
    logger.log(level, "%s %s %d %.1f ms %s", *fields.values(), g.get("work", ""), extra=fields)


class _WithRequestId(logging.Filter):
    """Adds `request_id` to each record, "-" outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id() if has_request_context() else "-"
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, and what the record has of `FIELDS`."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
        }
        entry |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(log_file: str | None, log_format: str = "text", log_level: str = "warning") -> None:
    """Logs to stderr from `log_level` on and, when named, to a file from "info" on.

    A terminal is often shared with the trainer, whose progress a line per request would push away. Raises UserError
    when the file cannot be written.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    handlers[0].setLevel(log_level.upper())
    if log_file is not None:
        try:
            handlers.append(logging.FileHandler(log_file, encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot write the log file {log_file}: {error.strerror}") from error
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s")
    for handler in handlers:
        handler.setFormatter(JsonFormatter() if log_format == "json" else text)
        handler.addFilter(_WithRequestId())
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
