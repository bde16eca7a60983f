"""HTTP within limits: heads of requests, which uvicorn reads without any limit of size or time."""

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 131_072  # bytes; x-l2d-features may have 65,536
MOST_HEADERS = 200
HEAD_SECONDS = 10.0  # in which the head of a request must be there
H2C = re.compile(rb"(?i)\r\nupgrade(?=: *h2c\r)")  # Java's clients offer HTTP/2; the parser would stop at the head


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose heads are too large or too slow. Trailers and the lines between chunks count as heads too."""

    head_began: float | None = None  # None if no head is under way
    in_body = False
    beside_bodies = in_headers = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.head_began = self.loop.time()
        self.watch()

    def watch(self) -> None:
        """Look again and again whether a head is late. The next request waits for the answer of this one."""
        answering = self.cycle is not None and not self.cycle.response_complete
        late = self.head_began is not None and self.loop.time() - self.head_began > HEAD_SECONDS
        if late and not answering:
            self.transport.close()
        if not self.transport.is_closing():
            self.loop.call_later(HEAD_SECONDS / 4, self.watch)

    def data_received(self, data: bytes) -> None:
        self.beside_bodies += len(data)
        if self.head_began is None and not self.in_body:
            self.head_began = self.loop.time()
        super().data_received(data if self.in_body else H2C.sub(b"\r\nignored", data))
        if self.beside_bodies > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self.beside_bodies = self.in_headers = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.in_headers += len(name) + len(value)
        if self.in_headers + len(self.url) > LARGEST_HEAD or len(self.headers) >= MOST_HEADERS:
            raise ValueError("the head is too large")  # the parser makes it a mistake of the client
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_body, self.head_began = True, None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.beside_bodies -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.in_body = False
        super().on_message_complete()
