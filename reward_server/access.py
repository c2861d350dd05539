"""Who may talk to the server: loopback needs no token, every other address does."""

from __future__ import annotations

import hmac
import ipaddress
import socket

from grrm.errors import UserError
from grrm.rewards.bearer import token_from_env, token_from_file


def read_token(token_file: str | None, token_env: str | None) -> str | None:
    """The token from a file or an environment variable, None when neither is named. Never from the command line,
    where every user of the machine could read it. Raises UserError when the named place has no usable token."""
    if token_file is not None and token_env is not None:
        raise UserError("both --token-file and --token-env are given: use one of them")
    if token_file is not None:
        return token_from_file(token_file, f"token file {token_file}")
    return None if token_env is None else token_from_env(token_env, f"environment variable {token_env}")


def is_authorized(header: str | None, token: str) -> bool:
    """Whether an Authorization header carries `token`; takes the same time for every wrong one."""
    return hmac.compare_digest((header or "").encode(), f"Bearer {token}".encode())


def bind(host: str, port: int, token: str | None) -> socket.socket:
    """A bound TCP socket. Raises UserError when the port is taken, the address is not this machine's, or it can be
    reached from other machines although there is no token."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise UserError(
            f"host {host!r} cannot be resolved ({error.strerror}): use an address of this machine"
        ) from error
    if token is None and not ipaddress.ip_address(str(address[0]).split("%")[0]).is_loopback:
        raise UserError(
            f"host {host!r} can be reached from other machines: name a token with --token-file or --token-env, "
            "or use 127.0.0.1"
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise UserError(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another with --port"
        ) from error
    return listener
