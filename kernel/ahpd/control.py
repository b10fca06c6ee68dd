"""The private door of a running daemon, for commands of the same home: one JSON line in, one JSON line out.

A lock that lives exactly as long as the daemon says whether one runs, so that a process id left behind by a
crash fools nobody. The record beside it says where the door is. The client half is plain sockets: commands
that ask a daemon something must not pay for the import of trio.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ahpd import log
from ahpd.errors import AhpdError, StartError
from ahpd.places import Places, private_folder, write_private

if TYPE_CHECKING:
    import trio

Handler: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers `status`, `reload` or `stop` with a JSON object; an `AhpdError` is told to whoever asked."""

LONGEST_REQUEST = 64 * 1024
LONGEST_ANSWER = 4 * 1024 * 1024
LONGEST_PATH = 100
"""A Unix socket's path may hold 107 bytes on Linux and 103 on macOS."""
PATIENCE = 10.0
"""Seconds one side waits for the other's line."""
MOST_CALLERS = 16


class NotRunning(AhpdError):
    """No daemon of this home runs."""


# The record


def claim(places: Places) -> contextlib.AbstractContextManager[Callable[[Mapping[str, Any]], None]]:
    """Be the one daemon of a home while the context lasts; yields a function that publishes the record.

    Raises `StartError` when another one is running. The record is removed at the end, the lock file stays:
    removing it would let two daemons lock two files of one name.
    """
    return _claimed(places)


@contextlib.contextmanager
def _claimed(places: Places) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    record = private_folder(places.run) / "daemon.json"
    descriptor = os.open(places.run / "daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _lock(descriptor, fcntl.LOCK_EX, patience=1.0):
            raise StartError(_running_already(record))
        record.unlink(missing_ok=True)
        yield lambda content: write_private(record, json.dumps(dict(content)) + "\n")
        record.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def withdraw(places: Places) -> None:
    """Leave nothing that says a daemon runs here; for one that cannot leave `claim`."""
    (places.run / "daemon.json").unlink(missing_ok=True)
    socket_path(places).unlink(missing_ok=True)


def _lock(descriptor: int, kind: int, patience: float) -> bool:
    # A command that looks whether a daemon runs holds the lock for a moment; a daemon must outwait that.
    last = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= last:
                return False
            time.sleep(0.02)


def _running_already(record: Path) -> str:
    found = _read_record(record) or {}
    where = f" (pid {found['pid']}) at {found.get('ws', '?')}" if "pid" in found else ""
    return f"another ahpd of this home is running{where}; stop it, or set AHPD_HOME to another folder"


def _read_record(record: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(record.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def running(places: Places) -> dict[str, Any] | None:
    """The record of this home's daemon: pid, ws, http, version, startedAt, control. `None` when none runs."""
    try:
        descriptor = os.open(places.run / "daemon.lock", os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _lock(descriptor, fcntl.LOCK_SH, patience=0) else _read_record(places.run / "daemon.json")
    finally:
        os.close(descriptor)


def socket_path(places: Places) -> Path:
    """Where the door is: in the run folder, or, when that is too long for a socket, in a folder of this user's."""
    path = places.run / "control.sock"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    folder = Path(tempfile.gettempdir(), f"ahpd-{os.getuid()}")
    private_folder(folder)
    # The temporary folder is everybody's; one that somebody else made under this name is no place for a door.
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise StartError(f"{folder} is not a private folder of this user")
    return folder / f"{hashlib.sha256(os.fsencode(places.run)).hexdigest()[:16]}.sock"


# The client's half


def ask(path: str | Path, verb: str, *, patience: float = 30.0, **args: Any) -> dict[str, Any]:
    """Ask the daemon behind a control socket. Raises `NotRunning`, or `AhpdError` with the daemon's sentence."""
    request = json.dumps({"verb": verb, "args": args}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(patience)
        try:
            link.connect(str(path))
            link.sendall(request)
            answer = _line_from(link)
        except TimeoutError as error:
            raise AhpdError(f"the running ahpd did not answer within {patience:g} s") from error
        except OSError as error:
            raise NotRunning("no ahpd of this home is running") from error
    try:
        parsed = json.loads(answer)
        if parsed["ok"]:
            return dict(parsed["result"])
        sentence = str(parsed["error"])
    except (ValueError, TypeError, KeyError) as error:
        raise AhpdError("the running ahpd gave no answer that can be read") from error
    raise AhpdError(sentence)


def ask_daemon(verb: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Ask this home's running daemon, from a command of a plugin: `verb` is `<plugin>/<name>` of a `ControlVerb`.

    Raises `AhpdError` with the daemon's sentence; when none runs, one that ends the command with exit code 3.
    """
    record = running(Places.from_environment())
    if record is None or not record.get("control"):
        raise NotRunning("no ahpd of this home is running; start one with: ahpd run")
    return ask(record["control"], verb, **(args or {}))


def _line_from(link: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) <= LONGEST_ANSWER:
        part = link.recv(65536)
        if not part:
            break
        received += part
    return received


# The daemon's half


async def serve(
    path: str | Path,
    handler: Handler,
    *,
    task_status: trio.TaskStatus[Path] | None = None,
) -> None:
    """Answer at a control socket until cancelled. Raises `StartError` when somebody answers there already.

    Whoever asks is this user: the folder and the socket let nobody else in.
    """
    import trio

    path = Path(path)
    listener = trio.SocketListener(_bound(path))
    inode = path.stat().st_ino
    callers = trio.Semaphore(MOST_CALLERS)

    async def call(stream: trio.SocketStream) -> None:
        async with callers, stream:
            await _answer(stream, handler)

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, call, [listener])
            if task_status is not None:
                task_status.started(path)
    finally:
        with contextlib.suppress(OSError):
            if path.stat().st_ino == inode:
                path.unlink()


def _bound(path: Path) -> Any:
    import trio

    private_folder(path.parent)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            if probe.connect_ex(str(path)) == 0:
                raise StartError(
                    "another ahpd of this home is running; stop it, or set AHPD_HOME to another folder"
                )
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(str(path))
        path.chmod(0o600)
        door.listen(MOST_CALLERS)
    except OSError as error:
        door.close()
        raise StartError(f"{path} cannot be opened: {error.strerror}") from error
    return trio.socket.from_stdlib_socket(door)


async def _answer(stream: trio.SocketStream, handler: Handler) -> None:
    import trio

    request = None
    try:
        with trio.move_on_after(PATIENCE):
            request = await _request_from(stream)
        if request is None:
            return
        answer = json.dumps(await _handled(request, handler)).encode() + b"\n"
        with trio.move_on_after(PATIENCE):
            await stream.send_all(answer)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def _request_from(stream: trio.SocketStream) -> bytes | None:
    received = b""
    while b"\n" not in received:
        part = await stream.receive_some(65536)
        received += part
        if not part or len(received) > LONGEST_REQUEST:
            return None
    return received


async def _handled(request: bytes, handler: Handler) -> dict[str, Any]:
    try:
        asked = json.loads(request)
        verb, args = str(asked["verb"]), dict(asked.get("args") or {})
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"ok": False, "error": "that is no request"}
    try:
        return {"ok": True, "result": dict(await handler(verb, args))}
    except AhpdError as error:
        return {"ok": False, "error": error.sentence}
    except Exception:
        # The fence of this door: a fault in one verb is logged, and the daemon goes on.
        log.get("ahpd.control").exception("a control verb failed", verb=verb)
        return {"ok": False, "error": f"{verb} failed inside the daemon; its log says why"}
