"""Compression on the way: pieces arrive when they were sent, and nothing is compressed that should not be."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from app.wire import APP, Compress, Message

PIECES = [b'data: {"msg":"one"}\n\n', b'data: {"msg":"two"}\n\n', "data: 東京\n\n".encode()]


def answer(
    pieces: list[bytes], kind: str, accept: str = "gzip, br", more: list[tuple[bytes, bytes]] | None = None
) -> tuple[dict[str, str], list[bytes]]:
    """Headers and bodies that leave the middleware for an application that answers with these pieces."""
    sent: list[Message] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", kind.encode()), *(more or [])]
        if len(pieces) == 1:
            headers.append((b"content-length", str(len(pieces[0])).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at, piece in enumerate(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": at + 1 < len(pieces)})

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": [(b"accept-encoding", accept.encode())]}
    asyncio.run(Compress(application)(scope, None, send))  # type: ignore[arg-type]
    return {k.decode(): v.decode() for k, v in sent[0]["headers"]}, [message["body"] for message in sent[1:]]


def test_every_piece_of_a_stream_can_be_read_as_it_arrives() -> None:
    headers, bodies = answer(PIECES, "text/event-stream; charset=utf-8")
    assert headers["content-encoding"] == "gzip"
    assert headers["vary"] == "accept-encoding"
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert [reader.decompress(body) for body in bodies] == PIECES
    assert reader.eof


def test_a_message_like_the_last_one_costs_little() -> None:
    message = b'data: {"msg":"process_generating","event_id":"161cfa09df744522","output":{"data":[[],[],[]]},"success":true}\n\n'
    _, bodies = answer([message] * 20, "text/event-stream")
    assert max(map(len, bodies[2:])) < 20


def test_a_long_answer_is_compressed_and_its_length_forgotten() -> None:
    text = b'["' + b"abc" * 400 + b'"]'
    headers, bodies = answer([text], "application/json")
    assert "content-length" not in headers
    assert gzip.decompress(b"".join(bodies)) == text


@pytest.mark.parametrize(
    ("pieces", "kind", "accept", "more"),
    [
        ([b"[1]"], "application/json", "gzip", None),
        ([b"x" * 2000], "image/png", "gzip", None),
        ([b"x" * 2000], "application/json", "identity", None),
        ([b"x" * 2000], "application/json", "gzip", [(b"content-encoding", b"br")]),
        (PIECES, "text/event-stream", "", None),
    ],
)
def test_other_answers_pass_as_they_are(pieces: list[bytes], kind: str, accept: str, more: Any) -> None:
    headers, bodies = answer(pieces, kind, accept, more)
    assert bodies == pieces
    assert headers.get("content-encoding") in (None, "br")


def test_the_page_is_told_by_its_launch() -> None:
    (middleware,) = APP["middleware"]
    assert middleware.cls is Compress
