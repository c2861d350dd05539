"""Settings, tokens and addresses: what is wrong is said in one sentence."""

from __future__ import annotations

import os

import pytest

from grrm import small_files
from grrm.errors import UserError
from grrm_reward_server.access import bind, read_token
from grrm_reward_server.settings import Settings, load_settings


def test_defaults_need_no_file():
    assert load_settings(None, {"port": None}) == Settings()
    assert Settings().host == "127.0.0.1"
    assert Settings().port == 8731


def test_command_line_overrides_the_file(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("port: 9000\njudge: bleu\ndefault_reward: -0.04\nscore_scale_factor: 1\n")
    settings = load_settings(str(path), {"port": 0, "judge": None})
    assert (settings.port, settings.judge, settings.default_reward, settings.score_scale_factor) == (
        0,
        "bleu",
        -0.04,
        1.0,
    )


def test_a_mixture_may_take_as_long_as_its_slowest_judge_and_its_fallback():
    servers = {"judge": "server", "urls": ["http://127.0.0.1:1"]}
    slow = servers | {"deadline_s": 1800.0, "fallback": servers | {"deadline_s": 900.0}}
    settings = Settings(judge="mixture", judge_options={"sources": [{"judge": "chrf"}, slow]})
    assert settings.longest_call_s == 2700.0
    assert Settings(judge="gqm", judge_deadline_s=30.0).longest_call_s == 30.0


def test_empty_file_means_the_defaults(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("# nothing\n")
    assert load_settings(str(path), {}) == Settings()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"prot: 1\n", "unknown reward server setting 'prot' in .*server.yaml: did you mean 'port'"),
        (b"1: 2\n", "unknown reward server setting 1"),
        (b"port: high\n", "'port' in .*server.yaml"),
        (b"port: 70000\n", "'port'"),
        (b"max_groups: 0\n", "'max_groups'"),
        (b"default_reward: .nan\n", "'default_reward'"),
        (b"judge: oracle\n", "'judge' .*unknown judge 'oracle': give one of answer, .*chrf"),
        (b"extractor_type: magic\n", "'extractor_type'.*unknown extractor 'magic': give one of line"),
        (b"- a\n- b\n", "key: value"),
        (b"a: [\n", "is not valid YAML"),
        (b"port: 1\nport: 2\n", "the key 'port' is given twice"),
        (b"a: " + b"[" * 1_000, "nested too deeply"),
        (b"port: " + b"9" * 5000, "is not valid YAML"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_wrong_file_is_named_with_the_key(tmp_path, content, message):
    path = tmp_path / "server.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        load_settings(str(path), {})
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml' cannot be read: No such file"):
        load_settings(str(tmp_path / "nowhere.yaml"), {})


def test_wrong_option_is_blamed_on_the_command_line():
    with pytest.raises(UserError, match="'port' in the command line"):
        load_settings(None, {"port": -1})


def test_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("abc-123\n")
    monkeypatch.setenv("REWARD_TOKEN", "def-456")
    assert read_token(str(path), None) == "abc-123"
    assert read_token(None, "REWARD_TOKEN") == "def-456"
    assert read_token(None, None) is None


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"two\nlines", "wörter".encode()])
def test_file_without_a_usable_token_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UserError, match="token"):
        read_token(str(path), None)


def test_missing_token_places_are_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("REWARD_TOKEN", raising=False)
    with pytest.raises(UserError, match="environment variable REWARD_TOKEN holds no token"):
        read_token(None, "REWARD_TOKEN")
    with pytest.raises(UserError, match="cannot read the token file"):
        read_token(str(tmp_path / "none"), None)
    with pytest.raises(UserError, match="use one of them"):
        read_token("a", "b")


def test_a_pipe_without_a_writer_is_no_token_file(tmp_path, monkeypatch):
    monkeypatch.setattr(small_files, "WAIT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"the token file .*pipe is a pipe .* write to it, or name a file"):
        read_token(str(tmp_path / "pipe"), None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_needs_no_token(host):
    with bind(host, 0, None) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_addresses_are_refused_without_a_token(host):
    with pytest.raises(UserError, match="token-file"):
        bind(host, 0, None)


def test_other_addresses_are_bound_with_a_token():
    with bind("0.0.0.0", 0, "secret") as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_foreign_and_unknown_hosts_are_one_sentence():
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1 .*: use an address of this machine"):
        bind("192.0.2.1", 0, "secret")
    with pytest.raises(UserError, match="cannot be resolved"):
        bind("no such host.invalid", 0, None)
    for name in ("a..b", "a" * 64):
        with pytest.raises(UserError, match=r"cannot be resolved .*: use an address of this machine$"):
            bind(name, 0, None)
    with pytest.raises(UserError, match="host '' cannot be resolved"):
        bind("", 0, None)
