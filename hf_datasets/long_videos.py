"""The configurations `*-videos`: one row for each long video, which clips, pairs and moments name by `video_id`.

The column `video` is a `datasets.Video`, so that the Hub's viewer shows the published files. Reading it as frames needs
`torchcodec`; without it take the file, a path on the machine that made the row or the bytes of a published one:

    videos = load_dataset("tfcovr", "mini-videos", split="test").cast_column("video", Video(decode=False))
    videos[0]["video"]  # {"bytes": None, "path": ".../videos/mini_0061.mp4"}

In a stream, `videos.decode(False)` does the same. `hf_datasets.video.streaming.stream_clips` gives the frames of clips.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, Features, Video

from hf_datasets.class_labels import labeled_features, replace_column
from hf_datasets.sharding import Tables, shards_of

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
VIDEO_SCHEMA = pa.schema(
    {
        "video_id": pa.string(),
        "video": pa.string(),
        "duration_seconds": pa.float64(),
        "frame_rate": pa.float64(),
        "split": pa.string(),
    }
)
"""The tables of the builders: `video` is a path or null; `frame_rate`, in frames per second, is null where unknown."""
VIDEO_FEATURES = Features(labeled_features(VIDEO_SCHEMA, {"split": SPLITS}) | {"video": Video()})


def video_tables(rows: Iterable[Mapping[str, Any]]) -> dict[Split, Tables]:
    """Rows of `VIDEO_SCHEMA` by split, in their order; a video alone can be a shard."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["split"], []).append(row)
    return {
        split: shards_of(pa.Table.from_pylist(found[split], schema=VIDEO_SCHEMA), least_rows=1)
        for split in SPLITS
        if split in found
    }


def miniature_videos(root: Path) -> dict[Split, Tables]:
    """The long videos of a rendered miniature by split, sorted by id.

    Args:
        root: A folder that `prepare_miniature` made.
    """
    names = ["video_id", "duration_seconds", "split"]
    rows = pq.read_table(root / "videos.parquet", columns=names).sort_by("video_id").to_pylist()
    for row in rows:
        path = root / "videos" / f"{row['video_id']}.mp4"
        row |= {"video": str(path), "frame_rate": read_header(path)[1]}
    return video_tables(rows)


def read_header(path: str | Path) -> tuple[float | None, float | None]:
    """Duration in seconds and frames per second as a video's container gives them; None where it does not open."""
    from hf_datasets.video import VideoError  # imports PyAV's neighbors only where a file is read
    from hf_datasets.video.backends import open_video

    try:
        with open_video(Path(path)) as video:
            return video.container_seconds, float(video.frame_rate)
    except VideoError:
        return None, None  # the frame reader reports a damaged file; the annotation may still be right


def damage_of(path: str | Path) -> str | None:
    """Why a video cannot be read, as far as its header and its table of frames tell: nothing is decoded.

    A download that stopped opens where the table comes first, as in a file for streaming: then frames of the table lie
    behind the end of the file.

    Returns:
        None where nothing is wrong.
    """
    from hf_datasets.video import VideoError
    from hf_datasets.video.backends import open_video

    path = Path(path)
    try:
        with open_video(path) as video:
            frames = video.stream.index_entries
            if path.is_file() and len(frames):
                size, last = path.stat().st_size, max(entry.pos + entry.size for entry in (frames[0], frames[-1]))
                return f"{path}: ends after {size:,} bytes, its frames after {last:,}" if last > size else None
            has_frames = path.is_dir() or next(video.packets(None), None) is not None
            return None if has_frames else f"{path}: holds no frame"
    except VideoError as error:
        return str(error)


def with_paths(rows: Dataset | DatasetDict) -> Any:
    """Rows with the path of each file in place of a `Video`; a published one, which is bytes and no file, becomes null.

    Nothing is decoded, and nothing but the paths is copied.
    """
    if isinstance(rows, DatasetDict):
        return DatasetDict({split: with_paths(part) for split, part in rows.items()})
    for name, feature in (rows.features or {}).items():
        if isinstance(feature, Video):
            column = rows.select_columns(name).flatten_indices() if rows._indices else rows.select_columns(name)
            rows = replace_column(rows, name, _file_paths(column.data.column(name)))
    return rows


def _file_paths(videos: pa.ChunkedArray) -> pa.ChunkedArray:
    is_file = pc.is_null(pc.struct_field(videos, "bytes"))
    return pc.if_else(is_file, pc.struct_field(videos, "path"), pa.scalar(None, pa.string()))
