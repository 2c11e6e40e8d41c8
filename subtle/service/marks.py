"""Marks: which found moments are right for a query and which are wrong, in a CSV file that `tune.py` takes."""

import csv
import io
import shutil
from pathlib import Path
from typing import Any

from filelock import FileLock

from hf_datasets.drafts import replacing, write_text, writing
from subtle.service.searching import Query

MARK_FIELDS = (
    *("query_video", "query_start_seconds", "query_end_seconds", "text"),
    *("video", "start_seconds", "end_seconds", "label", "is_right"),
)
NAME = "marks.csv"
LONGEST_FIELD = 1 << 30  # of a field; the limit of `csv` is shorter than a label may be, and holds in reading alone
QUERY_FOLDER = "marked_queries"
"""Folder beside the file for the uploads that marks are about."""


class Marks:
    """The marks of an index; each change is on disk when it is answered, and several pages may write the same file.

    A moment has one mark for each query (clip, seconds and text): the last one.

    Raises:
        ValueError: It is there and holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def read(self) -> list[dict[str, str]]:
        """All marks, in the order in which they were made.

        Raises:
            ValueError: The file holds something else.
        """
        others = csv.field_size_limit(LONGEST_FIELD)  # of this whole process
        try:
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = csv.DictReader(file, strict=True)
                if tuple(rows.fieldnames or ()) != MARK_FIELDS:
                    raise ValueError(
                        f"{self.path} has other columns than {', '.join(MARK_FIELDS)}; name another with --marks"
                    )
                marks = list(rows)
                if any(tuple(mark) != MARK_FIELDS or mark["is_right"] not in {"true", "false"} for mark in marks):
                    raise ValueError(
                        f"{self.path} has a row that is no whole mark, as after a power loss; correct or remove it, or "
                        "name another with --marks"
                    )
                return marks
        except FileNotFoundError:
            return []
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} is no CSV file of marks ({error}); name another with --marks") from error
        finally:
            csv.field_size_limit(others)

    def set(self, query: Query | None, text: str, row: dict[str, Any], is_right: bool | None) -> None:
        """Mark a found moment as right or wrong, or take its mark back.

        Raises:
            OSError: The file cannot be written.
            ValueError: It holds something else by now.
        """
        made = self.row(query, text, row, is_right)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if query is not None and query.stretch.upload is not None:
                self.keep(query)
        with FileLock(self.path.with_name(f".{self.path.name}.lock")):
            rows = [one for one in self.read() if mark_key(one) != mark_key(made)]
            rows += [made] if is_right is not None else []
            file = io.StringIO()
            writer = csv.DictWriter(file, MARK_FIELDS, lineterminator="\n", quoting=csv.QUOTE_ALL)  # or \r ends a row
            writer.writeheader()
            writer.writerows(rows)
            write_text(self.path, file.getvalue())

    def keep(self, query: Query) -> None:
        """Copy an upload to where its marks are."""
        kept = self.path.parent / video_of_query(query)
        if query.stretch.upload is not None and not kept.is_file():
            with replacing(kept) as draft:
                shutil.copyfile(query.stretch.upload, draft)

    def row(self, query: Query | None, text: str, row: dict[str, Any], is_right: bool | None) -> dict[str, str]:
        """A mark as a row of the file; seconds to the millisecond."""
        times = ("", "") if query is None else (f"{query.start_seconds:.3f}", f"{query.end_seconds:.3f}")
        values = (
            *("" if query is None else video_of_query(query), *times, " ".join((text or "").split())),
            *(
                row["video"],
                *("" if row[name] is None else f"{row[name]:.3f}" for name in ("start_seconds", "end_seconds")),
            ),
            *(row["label"] or "", "" if is_right is None else str(is_right).lower()),
        )
        return dict(zip(MARK_FIELDS, values, strict=True))

    def of(self, query: Query | None, text: str, found: list[dict[str, Any]]) -> dict[int, bool]:
        """The marks of found moments, by their places."""
        marked = {mark_key(one): one["is_right"] == "true" for one in self.read()}
        keys = [mark_key(self.row(query, text, row, None)) for row in found]
        return {place: marked[key] for place, key in enumerate(keys) if key in marked}


def video_of_query(query: Query) -> str:
    """A query's video: its path below the root of the index, or, of an upload, below the folder of the marks."""
    upload = query.stretch.upload
    return query.stretch.video if upload is None else f"{QUERY_FOLDER}/{query.fingerprint[:16]}{upload.suffix}"


def mark_key(mark: dict[str, str]) -> tuple[str, ...]:
    """What a mark is about."""
    return tuple(mark[name] for name in MARK_FIELDS[:7])
