"""One lock per CPU and per GPU across all runs of a host, so that two measurements never disturb each other unnoticed."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from steelyard.errors import USAGE, SteelyardError
from steelyard.machine.cpu import affinity

VARIABLE = "STEELYARD_LOCKS"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OWNER_BYTES = 200


class LockError(SteelyardError):
    """The locks cannot be used, so other runs could disturb this one."""

    exit_code = USAGE


def cpu_names() -> list[str]:
    """The locks of a measurement that may run on any CPU of this process."""
    return [f"cpu{cpu}" for cpu in affinity()]


def directory() -> Path:
    """The folder of this host's lock files; the same for every user unless the variable names another."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / "steelyard-locks"


@contextmanager
def hold(names: Iterable[str], owner: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold every named lock; they are taken in sorted order, so two runs that want the same ones cannot deadlock.

    The kernel releases them when the holder dies. `waiting` is called once per holder before this blocks; Ctrl-C ends the wait.
    """
    told: set[str] = set()

    def tell(holder: str) -> None:
        if holder not in told:
            told.add(holder)
            waiting(holder)

    with ExitStack() as stack:
        for name in sorted(set(names)):
            descriptor = _take(name, tell)
            stack.callback(os.close, descriptor)
            stack.callback(_sign, descriptor, "")
            _sign(descriptor, owner)
        yield


def held() -> dict[str, str]:
    """All locks that are held now, with their holders, for the doctor."""
    with suppress(OSError):
        names = sorted(path.name for path in directory().iterdir() if _NAME.fullmatch(path.name))
        return {name: holder for name in names if (holder := _holder(name)) is not None}
    return {}


def _take(name: str, tell: Callable[[str], None]) -> int:
    while True:
        descriptor = _open(name)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(_owner(descriptor))
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _still_there(name, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _sign(descriptor: int, owner: str) -> None:
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode()[:_OWNER_BYTES], 0)


def _owner(descriptor: int) -> str:
    text = os.pread(descriptor, _OWNER_BYTES, 0).decode(errors="replace").strip()
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "another run"


def _holder(name: str) -> str | None:
    try:
        descriptor = os.open(directory() / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(descriptor)
    finally:
        os.close(descriptor)
    return None


def _still_there(name: str, descriptor: int) -> bool:
    """Whether the name is still that of our file: a cleaner of temporary files may have removed it while we waited."""
    try:
        return os.path.samestat((directory() / name).lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _open(name: str) -> int:
    """Open without O_CREAT first: kernels refuse O_CREAT on other users' files in a sticky folder (fs.protected_regular)."""
    if not _NAME.fullmatch(name):
        raise LockError(f"not a lock name: {name!r}", do="use letters, digits, '_' and '-', such as cpu0 or gpu1")
    folder = directory()
    _prepare(folder)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = _open_or_create(folder / name, flags)
    except OSError as error:
        raise LockError(f"cannot open the lock {folder / name}", why=_why(folder / name, error), do=_remedy(folder / name)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LockError(f"the lock {folder / name} is not a plain file", do=f"remove it: sudo rm {folder / name}")
    return descriptor


def _open_or_create(path: Path, flags: int) -> int:
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        planted = folder.is_symlink() and VARIABLE not in os.environ
        if planted or not folder.is_dir():
            raise LockError(f"{folder} is not a folder", do=f"remove it, or choose another: export {VARIABLE}=DIR") from None
    except OSError as error:
        why, do = error.strerror or str(error), f"choose a writable one: export {VARIABLE}=DIR"
        raise LockError(f"cannot make the lock folder {folder}", why=why, do=do) from error


def _why(path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    with suppress(OSError):
        return f"{reason}; it belongs to user id {path.lstat().st_uid}, you are {os.getuid()}"
    return reason


def _remedy(path: Path) -> str:
    if path.is_symlink():
        return f"remove the link: sudo rm {path}"
    target, mode = (path, "666") if path.exists() else (path.parent, "1777")
    return f"let every user measure: sudo chmod {mode} {target}   or use your own locks: export {VARIABLE}=DIR"
