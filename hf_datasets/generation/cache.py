"""The answer cache: one record per request, keyed by request and model, so that no answer is paid for twice."""

import asyncio
import json
import re
import secrets
import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tenacity import Retrying, retry_if_exception_message, stop_after_delay, wait_fixed

from hf_datasets.generation.chat import Answer, Request, without_images

CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, task TEXT, model TEXT, messages TEXT, text TEXT, input_tokens INTEGER,
    output_tokens INTEGER, finish_reason TEXT, created TEXT);
CREATE TABLE IF NOT EXISTS batches (
    fingerprint TEXT PRIMARY KEY, endpoint TEXT, batch_id TEXT, keys TEXT, done INTEGER DEFAULT 0, created TEXT);
CREATE TABLE IF NOT EXISTS spending (spender TEXT PRIMARY KEY, budget TEXT, usd REAL);
"""


MOUNTS = Path("/proc/self/mounts")
OF_NETWORKS = re.compile(
    r"nfs|cifs|smb|lustre|gpfs|beegfs|ceph|afs|9p|glusterfs|fuse\.|virtiofs|ocfs2|gfs2|panfs|wekafs"
)
"""Types of file systems that may have several machines."""


def journal_of(path: Path) -> str:
    """How SQLite keeps the file whole: "WAL", which needs memory that all writers share, or else "TRUNCATE".

    Several machines share none: on their file systems SQLite's documentation forbids WAL. Both survive a kill.
    """
    try:
        mounts = [line.split(" ")[1:3] for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
    except OSError:  # not Linux: a disk of this machine
        return "WAL"
    place = path.resolve()
    under = [(folder, kind) for name, kind in mounts if place.is_relative_to(folder := name.replace("\\040", " "))]
    kind = max(under, key=lambda one: len(one[0]), default=("", ""))[1]
    return "TRUNCATE" if OF_NETWORKS.match(kind) else "WAL"


class AnswerCache:
    """Answers in one SQLite file, safe under several threads and processes. Keys and headers are never in it.

    On a file system of several machines, such as NFS, it is safe as far as that system's locks are, and slower: a
    commit takes longer, and waits for those who read.

    Args:
        path: The file; it and its folder are created where absent.

    `under_way` holds the keys of the requests that are being sent on the event loop, each with a future whose result is
    None or the error of the request.

    Raises:
        ValueError: The file is not an answer cache.
        OSError: It cannot be read or written, such as on a full disk; so do all methods.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with AnswerCache(Path(folder) / "answers.sqlite") as cache:
        ...         print(len(cache))
        0
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.under_way: dict[str, asyncio.Future[Exception | None]] = {}
        self._lock = threading.Lock()
        try:
            self._base = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise self._failure(error) from error
        try:
            # Two processes may create the file at once, and the switch to WAL does not wait for a lock by itself.
            for attempt in Retrying(
                retry=retry_if_exception_message(match="database is locked"),
                stop=stop_after_delay(30),
                wait=wait_fixed(0.05),
                reraise=True,
            ):
                with attempt:
                    self._base.execute(f"PRAGMA journal_mode={journal_of(self.path)}")
                    self._base.executescript("PRAGMA synchronous=FULL;" + CREATE_TABLES)
        except sqlite3.OperationalError as error:
            self._base.close()
            raise self._failure(error) from error
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise ValueError(
                f"{path} is not an answer cache ({error}); name another file or remove this one"
            ) from error

    def __enter__(self) -> "AnswerCache":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return cast(int, self._query("SELECT count(*) FROM answers")[0][0])

    def close(self) -> None:
        """Close the file; the cache cannot be used afterwards."""
        with self._lock:
            self._base.close()

    def get(self, key: str) -> Answer | None:
        """The answer to the request of that key, or None."""
        rows = self._query("SELECT text, input_tokens, output_tokens, finish_reason FROM answers WHERE key = ?", key)
        return Answer(*rows[0]) if rows else None

    def put(self, key: str, answer: Answer, model: str, request: Request | None = None) -> Answer:
        """Store an answer; where another process stored one first, that one stays and is returned.

        Args:
            key: The `request_key` of the request.
            answer: The answer.
            model: The model that answered.
            request: The request, stored beside the answer for readers of the file.

        Returns:
            The answer that the cache now holds.
        """
        self._query(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            key,
            request.task.name if request else None,
            model,
            json.dumps(without_images(request.messages)) if request else None,
            answer.text,
            answer.input_tokens,
            answer.output_tokens,
            answer.finish_reason,
            _now(),
        )
        return self.get(key) or answer

    def plan_batch(self, endpoint: str, keys: list[str]) -> str:
        """Record that a batch of these requests is about to be sent, and return its fingerprint."""
        fingerprint = secrets.token_hex(32)
        self._query(
            "INSERT INTO batches (fingerprint, endpoint, keys, created) VALUES (?, ?, ?, ?)",
            fingerprint,
            endpoint,
            json.dumps(keys),
            _now(),
        )
        return fingerprint

    def name_batch(self, fingerprint: str, batch_id: str) -> None:
        """Record the server's id of a planned batch."""
        self._query("UPDATE batches SET batch_id = ? WHERE fingerprint = ?", batch_id, fingerprint)

    def end_batch(self, fingerprint: str, budget: str = "") -> None:
        """Record that a batch is done, and that what it cost of a budget is now noted by who read its answers."""
        self._query("UPDATE spending SET usd = 0 WHERE spender = ? AND budget = ?", fingerprint, budget)
        self._query("UPDATE batches SET done = 1 WHERE fingerprint = ?", fingerprint)

    def open_batches(self, endpoint: str) -> list[tuple[str, str | None]]:
        """Fingerprint and id of each batch sent to that endpoint whose answers have not been read, oldest first."""
        return self._query(
            "SELECT fingerprint, batch_id FROM batches WHERE endpoint = ? AND NOT done ORDER BY rowid",
            endpoint,
        )

    def batch_keys(self, fingerprint: str) -> list[str]:
        """The keys of the requests that went into a batch."""
        rows = self._query("SELECT keys FROM batches WHERE fingerprint = ?", fingerprint)
        keys: list[str] = json.loads(rows[0][0]) if rows else []
        return keys

    def note_spending(self, spender: str, budget: str, usd: float) -> None:
        """Record what a client or a batch has cost so far at most, in place of what was recorded of it before."""
        self._query("INSERT OR REPLACE INTO spending VALUES (?, ?, ?)", spender, budget, usd)

    def spent(self, budget: str, *, besides: str = "") -> float:
        """Dollars that all of a budget have cost at most, but for one of them."""
        rows = self._query("SELECT total(usd) FROM spending WHERE budget = ? AND spender != ?", budget, besides)
        return cast(float, rows[0][0])

    def _query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._base.execute(statement, values).fetchall()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
                    raise  # an error of this code
                raise self._failure(error) from error

    def _failure(self, error: sqlite3.DatabaseError) -> OSError:
        return OSError(
            f"the answer cache {self.path} cannot be read or written ({error}); free space or name another file with "
            "--cache, then run again: the answers in it are kept"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
