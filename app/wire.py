"""Answers of the page's server, compressed on their way: the stream of updates above all, which repeats itself a lot."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

STREAMS: Final = ("text/event-stream",)
WHOLE: Final = ("application/json",)
LEAST: Final = 600
"""Whole answers of fewer bytes travel as they are: compression would save less than its header costs."""

GZIP: Final = 16 + zlib.MAX_WBITS


class Compress:
    """Middleware that compresses event streams and JSON for who accepts gzip.

    Every piece of a stream is flushed, so that it arrives when it was sent; pieces share one window, so that a message costs
    little more than what is new in it. (The toolkit's own middleware compresses files alone, and starlette's leaves event
    streams out.)
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            await self._app(scope, receive, _Answer(send).send)
        else:
            await self._app(scope, receive, send)


class _Answer:
    """One answer on its way out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._zip: Any = None  # zlib does not name the type

    async def send(self, message: Message) -> None:
        """Passes a message of the application on, compressed where that pays."""
        if message["type"] == "http.response.start":
            self._begin(MutableHeaders(raw=message["headers"]))
        elif message["type"] == "http.response.body" and self._zip is not None:
            last = not message.get("more_body", False)
            piece = self._zip.compress(message.get("body", b""))
            message = {**message, "body": piece + self._zip.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)}
        await self._send(message)

    def _begin(self, headers: MutableHeaders) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip()
        pays = kind in STREAMS or (kind in WHOLE and int(headers.get("content-length", LEAST)) >= LEAST)
        if not pays or "content-encoding" in headers:
            return
        self._zip = zlib.compressobj(level=9 if kind in STREAMS else 6, wbits=GZIP, memLevel=9)
        del headers["content-length"]
        headers["content-encoding"] = "gzip"
        headers.add_vary_header("accept-encoding")


APP: Final[dict[str, Any]] = {"middleware": [Middleware(Compress)]}
"""For ``demo.launch(app_kwargs=...)``."""
