"""A PostgreSQL server within the tests, where its programs are installed."""

import atexit
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from l2d.logs.databases import connect

TABLES = "calls, steps, trials, outcomes, decisions, runs, swaps, l2d_version, asks"


def find_programs() -> Path | None:
    """Debian does not put them on the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class PostgresServer:
    """url: of an empty database."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.data = folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.port = door.getsockname()[1]
        self.url = f"postgresql://l2d@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "--username=l2d", "--auth=trust", "--no-sync", "-D", str(self.data))

    def start(self) -> None:
        listen = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", str(self.data), "-w", "-o", listen, "-l", str(self.folder / "log"), "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}  # it refuses to run as root
        command = [str(self.programs / program), *arguments]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]


@cache
def the_server() -> PostgresServer | None:
    """One for all tests of this process: to make one takes seconds. None where it is not installed."""
    programs = find_programs()
    if programs is None or (os.getuid() == 0 and "postgres" not in {user.pw_name for user in pwd.getpwall()}):
        return None
    folder = Path(tempfile.mkdtemp())  # not pytest's: the server's user must be able to enter it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    server = PostgresServer(programs, folder)
    server.start()
    atexit.register(server.stop)
    return server


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    server = the_server()
    if server is None:
        pytest.skip("PostgreSQL is not installed here")
    yield server
    with contextlib.closing(connect(server.url)) as database:
        database.execute(f"DROP TABLE IF EXISTS {TABLES}")
