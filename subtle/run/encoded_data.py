"""What features were made of, kept beside them, so that features of other data with the same ids are not used.

`encoded_data.json` in a folder of features maps each id to a digest of what was encoded under it, by kind: videos,
clips, or captions. Features that others made have no such file, and nothing is known of them.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from hf_datasets.drafts import write_json

ENCODED_DATA = "encoded_data.json"

Digests = Mapping[str, Mapping[str, str]]
"""By kind, the digest of each id."""


def digest(*values: Any) -> str:
    """A short digest of values that JSON can hold; floats count to the millisecond.

    Example:
        >>> digest("v1", 12.0004) == digest("v1", 12.0)
        True
    """
    rounded = [round(value, 3) if isinstance(value, float) else value for value in values]
    return blake2b(json.dumps(rounded).encode(), digest_size=6).hexdigest()


def digests_of_moments(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Digests of the videos and captions of moments.

    Args:
        rows: With `desc_id`, `video_id`, `duration_seconds`, and `fine_caption` or `coarse_caption` or both.
    """
    found: dict[str, dict[str, str]] = {"videos": {}, "fine captions": {}, "coarse captions": {}}
    for row in rows:
        found["videos"][row["video_id"]] = digest(float(row["duration_seconds"]))
        for granularity in ("fine", "coarse"):
            if (caption := row.get(f"{granularity}_caption")) is not None:
                found[f"{granularity} captions"][str(row["desc_id"])] = digest(row["video_id"], caption)
    return found


def digests_of_clips(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Digests of clips, rows with `clip_id`, `video_id`, `start_seconds` and `end_seconds`."""
    clips = {row["clip_id"]: digest(row["video_id"], row["start_seconds"], row["end_seconds"]) for row in rows}
    return {"clips": clips}


def check_encoded(folder: Path | str, digests: Digests, cure: str) -> dict[str, dict[str, str]]:
    """Refuse features of other data; returns what the folder knows.

    Args:
        folder: Of the features.
        digests: Of the data that they are to be used for.
        cure: What to do, as the end of a sentence.

    Raises:
        SystemExit: Something was encoded under an id that is something else now.
    """
    path = Path(folder) / ENCODED_DATA
    if not path.is_file():
        return {}
    try:
        known: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
        for kind, items in digests.items():
            both = known.get(kind, {}).keys() & items.keys()
            other = sorted(one for one in both if known[kind][one] != items[one])
            if other:
                raise SystemExit(
                    f"the features in {folder} are of other data: {len(other):,} of {len(both):,} {kind} with the same "
                    f"id differ, such as {other[0]}; {cure}"
                )
    except (ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path} is damaged ({error}); delete {folder} and make its features again") from error
    return known


def remember_encoded(folder: Path | str, digests: Digests) -> None:
    """Note what is about to be encoded into a folder, beside what the folder knows; refuse to mix it with other data.

    Raises:
        SystemExit: The folder has features of other data under these ids.
    """
    known = check_encoded(folder, digests, "name another --output_dir, or delete this one to make it from scratch")
    merged = {kind: known.get(kind, {}) | dict(digests.get(kind, {})) for kind in known.keys() | digests.keys()}
    if merged != known:
        write_json(Path(folder) / ENCODED_DATA, merged)
