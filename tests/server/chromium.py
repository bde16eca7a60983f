"""A headless Chromium that is told what to do through a pipe (the DevTools protocol)."""

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
PIPE = "--remote-debugging-pipe"  # commands and answers go through it
SECONDS = 60.0  # that an answer may take


class Chromium:
    """One page. problems: errors and warnings that it reported. requests: the addresses that it loaded."""

    def __init__(self, profile: str) -> None:
        assert BROWSER is not None
        (theirs_in, self._write), (self._read, theirs_out) = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4; copies above 9 do not get in the way of that.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(high, (3, 4), strict=True)]
        command = [BROWSER, *FLAGS, PIPE, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(BROWSER, command, os.environ, file_actions=[*nowhere, *ends], setsid=True)
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._rest, self._number, self._session = b"", 0, None
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{part}.enable")

    def tell(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {} if self._session is None else {"sessionId": self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (found := self._next()).get("id") != self._number:
            self._note(found)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']['message']}")
        return found["result"]

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window, at two pixels per point below 500; and which colours the user prefers."""
        small = width < 500
        scale = 2 if small else 1
        about = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": small}
        self.tell("Emulation.setDeviceMetricsOverride", **about)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.tell("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression. Raises RuntimeError with what the page says went wrong."""
        found = self.tell("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Until an expression is true. On a page that is being loaded it may fail."""
        end = time.monotonic() + seconds
        asked = f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"
        while True:
            with suppress(RuntimeError):  # the page went away while it was asked
                if self.run(asked):
                    return
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}\n{self.problems}\n{self.run('document.body.innerText')}")
            time.sleep(0.02)

    def type_into(self, id: str, text: str) -> None:
        """In place of what is there."""
        self.run(f"document.getElementById({json.dumps(id)}).select()")
        self.tell("Input.insertText", text=text)

    def close(self) -> None:
        with suppress(OSError, TimeoutError, EOFError):
            self._session = None
            self.tell("Browser.close")
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._read)
        os.close(self._write)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise EOFError("Chromium has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(about["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning"):
                self.problems.append(json.dumps(about["args"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")


@contextmanager
def chromium() -> Iterator[Chromium]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        found = Chromium(profile)
        try:
            yield found
        finally:
            found.close()
