"""Access to the server: loopback needs no token, every other address does."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from grrm.errors import UserError
from grrm.http_client.exchange import token_from_env, token_from_file

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def read_token(token_file: str | None, token_env: str | None) -> str | None:
    """The token from a file or an environment variable, None when neither is named. Never from the command line,
    where every user of the machine could read it. Raises UserError when the named place has no usable token."""
    if token_file is not None and token_env is not None:
        raise UserError("both --token-file and --token-env are given: use one of them")
    if token_file is not None:
        return token_from_file(token_file, f"token file {token_file}")
    return None if token_env is None else token_from_env(token_env, f"environment variable {token_env}")


def is_authorized(header: str | None, token: str) -> bool:
    """True if an Authorization header carries `token`, its scheme in any case (RFC 9110, section 11.1).

    It takes the same time for every wrong token.
    """
    scheme, _, credentials = (header or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(credentials.encode(), token.encode())


def allowed_hosts(bound_to: str, configured: Sequence[str]) -> Callable[[str | None], bool]:
    """Return the test if a request's Host header calls the server by one of its names.

    Where none are configured: on loopback by a name of loopback, so that no page of the web can reach the server under
    a name of its own that leads here; elsewhere by any, as a token is asked for. Without the header, which every
    browser sends, a request is let in.
    """
    names = {re.sub(r"^([^:]+):\d+$", r"\1", name.lower()) for name in configured}  # a port does not count

    def is_allowed(header: str | None) -> bool:
        if header is None:
            return True
        name = urlsplit(f"//{header.strip()}").hostname if _HOST.fullmatch(header.strip()) else None
        if names:
            return name in names
        return not _is_loopback(bound_to) or name == "localhost" or _is_loopback(name)

    return is_allowed


def _is_loopback(address: str | None) -> bool:
    try:
        return ipaddress.ip_address((address or "").split("%")[0]).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int, token: str | None) -> socket.socket:
    """A bound TCP socket. Raises UserError when the port is taken, the address is not this machine's, or it can be
    reached from other machines although there is no token."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:  # the latter of a name that no address can have, such as a..b
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a machine"
        raise UserError(f"host {host!r} cannot be resolved ({reason}): use an address of this machine") from error
    if token is None and not _is_loopback(str(address[0])):
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
        is_foreign = error.errno == errno.EADDRNOTAVAIL
        remedy = "use an address of this machine" if is_foreign else "choose another with --port"
        raise UserError(f"cannot listen on {host} port {port} ({error.strerror}): {remedy}") from error
    return listener
