"""Who may talk to the workbench: the browser that was opened with its one-time address, and nobody else.

The server listens on 127.0.0.1 only. Other web pages in the same browser, and other users of the machine, can still
send requests there. So every request must name this server as its host (against DNS rebinding), must not come from
another site, and must have the two secrets that the one-time address was exchanged for: a cookie, and the first part
of the path of every page. The cookie alone is not enough, because browsers send it to all servers of this machine,
whatever their port; the path alone is not, because it is seen on the screen and in the history of the browser.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_REQUEST = 4_000_000  # bytes
SAFE_METHODS = ("GET", "HEAD")
# Scripts and styles come from this server only, and no text is ever run as code (no eval).
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-src 'self'",
        "frame-ancestors 'self'",
        "base-uri 'none'",
    )
)
# Reports are separate documents: shown in a frame without rights, with the styles that they contain, no scripts.
DOCUMENT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "SAMEORIGIN",
    "cache-control": "no-store",
}


@dataclass
class Door:
    """The secrets of a running workbench.

    Attributes
    ----------
    port
        The port that the server listens on.
    token
        The token of the one-time address.
    cookie
        The value that the browser must send with every request.
    root
        The beginning of the path of every request.
    used
        Whether the one-time address was used.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    root: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(32)}")
    used: bool = False

    @property
    def address(self) -> str:
        """The one-time address."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """The name of the cookie. Cookies are shared by all ports of a machine, so it names the port."""
        return f"slowscale_{self.port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that a request may name."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def enter(self, token: str, known: bool) -> bool:
        """Whether a token is that of the one-time address, which only a browser that is known can use again."""
        if not _equal(token, self.token) or (self.used and not known):
            return False
        self.used = True
        return True

    def inside(self, path: str) -> str | None:
        """Return the part of a path behind the secret one, or None if it does not start with that."""
        first, slash, rest = path[1:].partition("/")
        return f"/{rest}" if slash and _equal(first, self.root[1:]) else None


class Guard:
    """The application behind the checks of every request."""

    def __init__(self, application: Application, door: Door) -> None:
        self.application, self.door = application, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on or refuse it."""
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":  # WebSockets are not used
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        token = query["token"][0] if scope["path"] == "/" and "token" in query else None
        refusal = self._refusal(scope, headers, entering=token is not None)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        if token is not None:
            await self._enter(token, headers, send)
            return
        path = self.door.inside(scope["path"])
        if path is None or not self._has_cookie(headers):
            await _answer(
                send,
                403,
                "This page is for the person who started it. Open the address that `slowscale serve` printed. It works "
                "in one browser: to open the workbench in another one, stop it and start it again. Nothing is lost.",
            )
            return
        inner = {**scope, "path": path, "raw_path": path.encode()}
        await self.application(inner, _limited(receive), _with_headers(send, self.door.root))

    def _refusal(self, scope: Scope, headers: dict[str, list[str]], entering: bool) -> tuple[int, str] | None:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.door.hosts:
            return 421, f"This is http://{self.door.hosts[0]}/: the request named another host."
        own = tuple(f"http://{host}" for host in self.door.hosts)
        origins = headers.get("origin", [])
        if any(origin.lower() not in own for origin in origins):
            return 403, "The request came from another site, and was refused."
        # The file that leads to the one-time address is another site. The token decides there.
        site = [] if entering else headers.get("sec-fetch-site", [])
        if any(one not in ("same-origin", "none") for one in site):
            return 403, "The request came from another site, and was refused."
        if scope["method"] not in SAFE_METHODS and not origins:
            return 403, "The request did not say where it came from, and was refused."
        lengths = headers.get("content-length", [])
        if any(not one.isdigit() or int(one) > LARGEST_REQUEST for one in lengths):
            return 413, "The request is too large."
        return None

    def _has_cookie(self, headers: dict[str, list[str]]) -> bool:
        for line in headers.get("cookie", []):
            for part in line.split(";"):
                name, _, value = part.strip().partition("=")
                if name == self.door.cookie_name and _equal(value, self.door.cookie):
                    return True
        return False

    async def _enter(self, token: str, headers: dict[str, list[str]], send: Send) -> None:
        if not self.door.enter(token, self._has_cookie(headers)):
            await _answer(
                send,
                403,
                "This address was used before, or is not the one that `slowscale serve` printed. Start again.",
            )
            return
        cookie = f"{self.door.cookie_name}={self.door.cookie}; Path=/; HttpOnly; SameSite=Strict"
        # A redirect would count as a request from the site of the link, without the cookie, so the page moves on.
        moving = moving_page(f"{self.door.root}/")
        await _answer(send, 200, moving, {"set-cookie": cookie, "content-type": "text/html; charset=utf-8"})


def moving_page(address: str) -> str:
    """Return a page that moves on to an address at once."""
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>slowscale workbench</title>'
        f'<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url={address}">'
        f'<p><a href="{address}">Open the workbench</a></p></html>\n'
    )


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _answer(send: Send, status: int, text: str, headers: dict[str, str] | None = None) -> None:
    every = {**HEADERS, "content-type": "text/plain; charset=utf-8", **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(every)})
    await send({"type": "http.response.body", "body": text.encode()})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _limited(receive: Receive) -> Receive:
    """Return `receive` with an end to requests that do not state their length."""
    seen = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return {"type": "http.disconnect"} if seen > LARGEST_REQUEST else message

    return limited


def _with_headers(send: Send, root: str) -> Send:
    """Return `send` that adds the headers of every answer, where it has none of that name, and the root to redirects.

    Parameters
    ----------
    send
        Sends an answer.
    root
        The beginning of the path of every page.
    """

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = [
                (name, root.encode() + value if name.lower() == b"location" and value.startswith(b"/") else value)
                for name, value in message["headers"]
            ]
            known = {name.lower() for name, _ in given}
            more = [(name, value) for name, value in _encoded(HEADERS) if name not in known]
            message = {**message, "headers": [*given, *more]}
        await send(message)

    return sending
