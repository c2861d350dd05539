"""The server's description of itself is complete, and the server keeps to it whatever it is sent."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.completions_server import CompletionsServer
from support.reward_app import RecordingJudge, create_app, make_client
from support.reward_servers import reward_server

from grrm_reward_server.settings import Settings

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# 504 is what a request gets whose own deadline, which is drawn too, comes first.
CONFIGURATION = '[checks]\nnot_a_server_error.expected-statuses = ["2xx", "4xx", 504]\n'
VERDICT = "B is right.\n\n### Final Ranking:\n\nB > A\n\n### Scores:\n\nB: 9, A: 1"


def test_every_route_is_described():
    app = create_app(Settings(), RecordingJudge())
    described = app.test_client().get("/openapi.json").get_json()["paths"]
    served = [(rule.rule, rule.methods - {"HEAD", "OPTIONS"}) for rule in app.url_map.iter_rules()]
    assert {(path, method.upper()) for path in described for method in described[path]} == {
        (path, method) for path, methods in served for method in methods
    }


def test_messages_are_described_by_the_models_that_check_them():
    schemas = make_client().get("/openapi.json").get_json()["components"]["schemas"]
    assert schemas["ScoreRequest"]["required"] == ["request_id", "groups"]
    assert schemas["ScoreRequest"]["additionalProperties"] is False
    assert schemas["WireScore"]["properties"]["score"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 10}
    assert "unsafe_source" in schemas["Status"]["enum"]


@pytest.mark.parametrize(("token", "open_routes"), [(None, None), ("secret", {"/", "/healthz"})])
def test_a_token_is_described_where_there_is_one(token, open_routes):
    document = make_client(token=token).get("/openapi.json", headers={"Authorization": f"Bearer {token}"}).get_json()
    assert ("security" in document) is (token is not None)
    free = {path for path, methods in document["paths"].items() if methods.get("get", {}).get("security") == []}
    assert free == (open_routes or set())


def check_server(url, folder):
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    options = ["--max-examples", "25", "--seed", "1", "--checks", CHECKS, "--no-color"]
    command = ["--config-file", str(folder / "schemathesis.toml"), "run", f"{url}/openapi.json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *command], capture_output=True, text=True, timeout=600, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 selected / 9 total" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["chrf", "consensus", "gqm"])
def test_no_request_makes_the_server_fail_or_leave_its_description(judge, tmp_path):
    with CompletionsServer(lambda request, number: VERDICT) as model:
        options = ["--openai-url", model.url] if judge == "gqm" else []
        with reward_server("--judge", judge, *options) as (process, url):
            check_server(url, tmp_path)
            assert process.poll() is None


# --- the tests that docs/server.md names for its promises are there


TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "server.md"


def test_every_promise_has_its_test():
    promised = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(promised) > 10
    for file, name in promised:
        texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob(file)]
        assert any(f"\ndef {name}(" in text for text in texts), (file, name)
