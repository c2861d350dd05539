"""TLS on the front's connections, for servers that are reached over a network without a proxy before them."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from typing import Any

from grrm.errors import UserError


def server_context(certfile: str | None, keyfile: str | None) -> ssl.SSLContext | None:
    """The context for a certificate chain and its private key in PEM form, None where no certificate is named.

    The key may stand in the certificate's file. TLS 1.2 is the oldest version spoken. Raises UserError for files that
    cannot be used.
    """
    if certfile is None:
        if keyfile is not None:
            raise UserError("a private key is named without its certificate: name that with --certfile")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certfile, keyfile, password=_no_password)
    except OSError as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError) and error.strerror else "not a matching PEM pair"
        names = certfile if keyfile is None else f"{certfile} and {keyfile}"
        raise UserError(f"certificate and key cannot be read from {names}: {reason}") from error
    return context


def _no_password() -> str:
    raise UserError("the private key is encrypted, and nobody is there to type its password: store it without one")


class TlsSocket:
    """An accepted connection under TLS that never blocks; reading and writing exclude each other.

    `fill` takes what has arrived; only where it says that there is something, or the end, does `recv` answer.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        connection.setblocking(False)
        self._tls = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._lock = threading.Lock()
        self._arrived = b""
        self._has_ended = False

    def fill(self, n_bytes: int) -> bool:
        """Reads up to `n_bytes` and what is decrypted beyond; whether there is something to be had from `recv`."""
        with self._lock:
            try:
                while len(self._arrived) < n_bytes or self._tls.pending():
                    piece = self._tls.recv(n_bytes)
                    if not piece:
                        self._has_ended = True
                        break
                    self._arrived += piece
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:  # no TLS, or no more of it
                self._has_ended = True
        return bool(self._arrived) or self._has_ended

    def recv(self, n_bytes: int) -> bytes:
        """Return what `fill` has read, however much."""
        arrived, self._arrived = self._arrived, b""
        return arrived

    def send(self, data: bytes) -> int:
        """Sends what there is room for. Raises OSError with EWOULDBLOCK where there is none."""
        with self._lock:
            try:
                return self._tls.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                raise BlockingIOError(errno.EWOULDBLOCK, "no room") from error
            except ssl.SSLError as error:
                raise ConnectionResetError(errno.ECONNRESET, "the TLS connection is broken") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tls, name)
