"""A proxy in front of the stores of the tests: it counts what goes through, and can misbehave.

Requests are grouped by bucket, which is one of the first two parts of their path.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any
from urllib.parse import unquote

from tests.gs_words import Generations

__all__ = ["Misbehaviour", "run_front"]

_BLOCK = 1 << 16
_HEAD = 1 << 20

Headers = list[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Misbehaviour:
    """Which requests are treated badly, and how.

    Attributes:
        methods: Requests with these methods; all where it is empty.
        matching: Requests whose path and query this regular expression is found in.
        first: Only this number of them, from the start; 0 is all.
        after: Only those after this number of them.
        every: Only each so-manieth of them.
        status: Answered with this status instead of by the store; the body is an error of S3's.
        code: The code in that error, such as SlowDown or ExpiredToken.
        text: What that error says.
        delay: Seconds until anything happens.
        held: Nothing happens until the store is given other rules.
        rate: Bytes a second that a body is sent with; 0 is as fast as may be.
        cut_after: So many bytes of the body are sent, and then the connection is closed.
        hang_up_after: So many bytes of what is uploaded are read, then the connection is reset.
        lose_answer: The store does what it is asked to, and the connection is reset instead of
            its answer.
        hide_for: Seconds for which a listing doesn't have what was put.
        clock: Hours by which the store's clock is off, in its headers.
        unsaid: Headers of the answer that are left out, in lower case.
        unheard: Headers of the request that the store doesn't get, in lower case.
        extra: Bytes that are sent behind the body, and counted in its length.
        endless: A listing says that there is more, and starts over each time.
        having: Only requests with a header, in lower case, in which this regular expression is
            found: "if-match: .*".
    """

    methods: tuple[str, ...] = ()
    matching: str = ""
    first: int = 0
    after: int = 0
    every: int = 1
    status: int = 0
    code: str = "InternalError"
    text: str = "We encountered an internal error. Please try again."
    delay: float = 0
    held: bool = False
    rate: float = 0
    cut_after: int = -1
    hang_up_after: int = -1
    lose_answer: bool = False
    hide_for: float = 0
    clock: float = 0
    unsaid: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    having: str = ""
    extra: int = 0
    endless: bool = False


class _Bucket:
    """What happened with one bucket, and what shall happen."""

    def __init__(self) -> None:
        self.rules: list[Misbehaviour] = []
        self.met: Counter[int] = Counter()
        self.log: list[dict[str, Any]] = []
        self.put: dict[str, float] = {}

    def apply(self, method: str, target: str, headers: Headers) -> list[Misbehaviour]:
        """Return the rules for a request."""
        found = []
        lines = [f"{name}: {value}" for name, value in headers]
        for number, rule in enumerate(self.rules):
            if rule.having and not any(re.search(rule.having, line) for line in lines):
                continue
            if (rule.methods and method not in rule.methods) or not re.search(
                rule.matching, target
            ):
                continue
            place = self.met[number]
            self.met[number] += 1
            if place < rule.after or (rule.first and place >= rule.after + rule.first):
                continue
            if (place - rule.after) % rule.every == 0:
                found.append(rule)
        return found


class _HungUpError(Exception):
    """The connection to the client is not to be used any more."""


@dataclasses.dataclass
class _Exchange:
    """One request on its way, and its answer."""

    method: str
    target: str
    headers: Headers
    rules: list[Misbehaviour]
    bucket: _Bucket
    started: float
    words: Generations | None
    status: int = 0
    up: int = 0
    down: int = 0

    @property
    def path(self) -> str:
        """The bucket and the key, as they were sent."""
        return self.target.partition("?")[0]

    def most(self, name: str, nothing: Any = 0) -> Any:
        """Return the value of a rule that has one."""
        values = [getattr(rule, name) for rule in self.rules if getattr(rule, name) != nothing]
        return values[-1] if values else nothing

    def note(self) -> None:
        """Keep what happened."""
        asked = dict(self.headers).get("range")
        self.bucket.log.append(
            {
                "method": self.method,
                "target": self.target,
                "range": asked,
                "status": self.status,
                "up": self.up,
                "down": self.down,
                "started": self.started,
                "seconds": time.monotonic() - self.started,
            }
        )


class _Front:
    def __init__(self, store: tuple[str, int], words: Generations | None) -> None:
        self.store = store
        self.words = words
        self.buckets: dict[str, _Bucket] = {}

    def bucket(self, target: str) -> _Bucket:
        parts = target.partition("?")[0].split("/")[1:3]
        for part in parts:
            if part in self.buckets:
                return self.buckets[part]
        return self.buckets.setdefault("", _Bucket())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        # A client or a store that goes away is what this is made for.
        with contextlib.suppress(_HungUpError, ConnectionError, asyncio.IncompleteReadError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line, headers = await _read_head(reader)
        started = time.monotonic()
        method, target, _ = line.split(" ", 2)
        bucket = self.bucket(target)
        rules, rules_now = bucket.apply(method, target, headers), bucket.rules
        exchange = _Exchange(method, target, headers, rules, bucket, started, self.words)
        try:
            await asyncio.sleep(exchange.most("delay"))
            while exchange.most("held", nothing=False) and bucket.rules is rules_now:
                await asyncio.sleep(0.005)
            if exchange.most("status"):
                await _discard(reader, exchange)
                await _answer_error(writer, exchange)
            else:
                await _forward(reader, writer, exchange, self.store)
        finally:
            exchange.note()
        return True

    def control(self, asked: dict[str, Any]) -> Any:
        """Do what a test asks for."""
        bucket = self.buckets.setdefault(asked["bucket"], _Bucket())
        if "rules" in asked:
            bucket.rules = [Misbehaviour(**rule) for rule in asked["rules"]]
            bucket.met.clear()
        if asked.get("forget"):
            bucket.log.clear()
        return bucket.log


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, Headers]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.strip("\r\n").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    return first, [(name.lower(), value.strip()) for name, _, value in pairs]


async def _blocks(
    reader: asyncio.StreamReader, headers: Headers, *, answer: bool
) -> AsyncIterator[bytes]:
    """Yield the blocks of a body, however its length is given."""
    fields = dict(headers)
    if fields.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif "content-length" in fields or not answer:
        left = int(fields.get("content-length", 0))
        while left:
            block = await reader.read(min(left, _BLOCK))
            if not block:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(block)
            yield block
    else:
        while block := await reader.read(_BLOCK):
            yield block


async def _discard(reader: asyncio.StreamReader, exchange: _Exchange) -> None:
    async for block in _blocks(reader, exchange.headers, answer=False):
        exchange.up += len(block)


async def _answer_error(writer: asyncio.StreamWriter, exchange: _Exchange) -> None:
    code, text = exchange.most("code"), exchange.most("text")
    body = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    exchange.status = exchange.most("status")
    kind = [("content-type", "application/xml"), ("content-length", str(len(body)))]
    _write_head(writer, f"HTTP/1.1 {exchange.status} No", kind)
    if exchange.method != "HEAD":
        exchange.down += len(body)
        writer.write(body)
    await writer.drain()


def _write_head(writer: asyncio.StreamWriter, first: str, headers: Headers) -> None:
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    writer.write("\r\n".join(lines).encode("latin-1"))


async def _forward(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    exchange: _Exchange,
    store: tuple[str, int],
) -> None:
    from_store, to_store = await asyncio.open_connection(*store, limit=_HEAD)
    try:
        await _send_request(reader, writer, exchange, to_store)
        await _send_answer(writer, exchange, from_store)
    finally:
        to_store.close()


async def _send_request(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    exchange: _Exchange,
    to_store: asyncio.StreamWriter,
) -> None:
    unheard = {"connection", "expect", *exchange.most("unheard", ())}
    headers = [pair for pair in exchange.headers if pair[0] not in unheard]
    headers = exchange.words.asked(headers) if exchange.words else headers
    headers.append(("connection", "close"))
    target = exchange.target
    if exchange.most("endless", nothing=False):
        target = re.sub(r"&?continuation-token=[^&]*", "", target)
    _write_head(to_store, f"{exchange.method} {target} HTTP/1.1", headers)
    if any(name == "expect" for name, _ in exchange.headers):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    chunked = ("transfer-encoding", "chunked") in exchange.headers
    hang_up = exchange.most("hang_up_after", -1)
    async for block in _blocks(reader, exchange.headers, answer=False):
        exchange.up += len(block)
        if 0 <= hang_up <= exchange.up:
            writer.transport.abort()
            raise _HungUpError
        to_store.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
        await to_store.drain()
    if chunked:
        to_store.write(b"0\r\n\r\n")


async def _send_answer(
    writer: asyncio.StreamWriter, exchange: _Exchange, from_store: asyncio.StreamReader
) -> None:
    first, headers = await _read_head(from_store)
    exchange.status = int(first.split(" ")[1])
    if exchange.most("lose_answer"):
        writer.transport.abort()
        raise _HungUpError
    unsaid = {"connection", "transfer-encoding", *exchange.most("unsaid", ())}
    kept = [(name, _later(name, value, exchange)) for name, value in headers if name not in unsaid]
    kept = exchange.words.answered(kept, exchange.path) if exchange.words else kept
    without_body = exchange.method == "HEAD" or exchange.status in (204, 304)
    whole_first = _listing(exchange) or exchange.most("extra")
    if not without_body and (whole_first or "content-length" not in dict(headers)):
        whole = [block async for block in _blocks(from_store, headers, answer=True)]
        body = _hidden(b"".join(whole), exchange) + bytes(exchange.most("extra"))
        if _listing(exchange) and exchange.most("endless", nothing=False):
            more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>same<"
            more += b"/NextContinuationToken></ListBucketResult>"
            body = re.sub(rb"(?i)<IsTruncated>\w*</IsTruncated>", b"", body)
            body = body.replace(b"</ListBucketResult>", more)
        kept = [pair for pair in kept if pair[0] != "content-length"]
        kept.append(("content-length", str(len(body))))
        _write_head(writer, f"HTTP/1.1 {first.split(' ', 1)[1]}", kept)
        await _send_body(writer, exchange, _alone(body))
    else:
        _write_head(writer, f"HTTP/1.1 {first.split(' ', 1)[1]}", kept)
        if not without_body:
            await _send_body(writer, exchange, _blocks(from_store, headers, answer=True))
    await writer.drain()
    query = exchange.target.partition("?")[2]
    if exchange.status == 200 and (
        (exchange.method == "PUT" and not query)
        or (exchange.method == "POST" and "uploadId" in query)
    ):
        key = unquote(exchange.path.split("/", 2)[-1])
        exchange.bucket.put[key] = time.monotonic()


async def _alone(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _send_body(
    writer: asyncio.StreamWriter, exchange: _Exchange, blocks: AsyncIterator[bytes]
) -> None:
    cut, rate = exchange.most("cut_after", -1), exchange.most("rate")
    async for block in blocks:
        part = block if cut < 0 else block[: max(0, cut - exchange.down)]
        if rate:
            await asyncio.sleep(len(part) / rate)
        writer.write(part)
        await writer.drain()
        exchange.down += len(part)
        if len(part) < len(block):
            writer.close()
            raise _HungUpError


def _listing(exchange: _Exchange) -> bool:
    return exchange.method == "GET" and "list-type=2" in exchange.target


def _hidden(body: bytes, exchange: _Exchange) -> bytes:
    """Return a listing without the keys that it must not have yet."""
    limit = time.monotonic() - exchange.most("hide_for")
    if not _listing(exchange) or not exchange.most("hide_for"):
        return body
    late = {key for key, when in exchange.bucket.put.items() if when > limit}

    def without(match: re.Match[bytes]) -> bytes:
        return b"" if unquote(match[1].decode()) in late else match[0]

    return re.sub(rb"<Contents>\s*<Key>(.*?)</Key>.*?</Contents>", without, body, flags=re.DOTALL)


def _later(name: str, value: str, exchange: _Exchange) -> str:
    """Return a header's value as a store would say it whose clock is off."""
    hours = exchange.most("clock")
    if not hours or name not in ("date", "last-modified"):
        return value
    return format_datetime(parsedate_to_datetime(value) + timedelta(hours=hours), usegmt=True)


async def run_front(store: tuple[str, int], *, google: bool) -> None:
    """Serve in front of a store, print this port and that for control, and do what is asked.

    Whoever controls it sends a line of JSON, and gets one. With ``google``, clients may speak with
    S3's store as if it were Google's.
    """
    front = _Front(store, Generations() if google else None)

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        writer.write(json.dumps(front.control(asked)).encode() + b"\n")
        await writer.drain()
        writer.close()

    ports = []
    for serve in (front.serve, control):
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD)
        ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)  # noqa: T201
    await asyncio.Event().wait()
