"""An index of one's own videos as a library: what `subtle index`, `subtle search` and the page are made of.

    import subtle

    with subtle.open_index("archive") as index:
        found = index.search(clip="query.mp4", start_seconds=3.2, end_seconds=5.0, text="with two turns")
        print(found[0].video, found[0].start_seconds, found[0].end_seconds, found[0].score)

What can go wrong, for a caller to catch:

    FileNotFoundError           there is no index, or no query clip
    IndexDamagedError           the index is damaged, or of another version (a ValueError)
    ModelChangedError           the model is no longer the one that made the vectors (a ValueError)
    VideoError                  a query clip cannot be read
    ImportError                 the extra `index` is not installed
    ValueError, OSError         the rest: a query, filter or option that cannot be; a disk that fails
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from hf_models.index.feedback import grouped, rocchio
from hf_models.index.matrix import COLUMNS
from hf_models.index.search import checked_rows, default_probes, search_many
from hf_models.index.store import IndexedModel, MomentIndex
from hf_models.query_texts import ExportedTextEncoder, check_text
from subtle.footage.options import IndexConfig, SearchConfig
from subtle.footage.output import Say
from subtle.footage.text_queries import exported_text_encoder, keep_text_queries

NARROWING = ("where", "folder", "approximate", "probes", "limit")
"""What `search_many` has for all of its queries together."""
REPLAY_COSINE = 0.99
"""Of moments that are one: of drawn replays few others reach it, by the model that ships or by CLIP; see RESULTS.md."""
LOOKED_AT_PER_GROUP = 10
FEW = 8
"""Most queries at once for which the text half of a model does without it."""
TOGETHER = 64
"""Most queries that are encoded and searched at once."""
OF_QUERY = ("text", "clip", "start_seconds", "end_seconds", "more_like", "less_like")


@dataclass(frozen=True, slots=True)
class Moment:
    """A found moment.

    Attributes:
        video: Its path below the folder of the videos, with `/`.
        start_seconds: Where it starts.
        end_seconds: Where it ends.
        score: The dot product with the query; after a second step that one's score.
        label: As the table of moments had it, or None.
        text: The same.
        moment_id: Unique in the index.
        fingerprint: Of the video's content.
        path: Where the video is; None where it is not known, as in an index of somebody else.
        window_start_seconds: Where a refined moment started before; None without refinement, as the next.
        window_end_seconds: Where it ended before.
        vector_score: The dot product; None without a second step.
        span_score: Of `refine`; None without it.
        rerank_score: Of `rerank`; None without it.
        replays: With `group_replays` the moments that are nearly equal to this one, best first.
    """

    video: str
    start_seconds: float
    end_seconds: float
    score: float
    label: str | None
    text: str | None
    moment_id: str
    fingerprint: str | None
    path: Path | None = None
    window_start_seconds: float | None = None
    window_end_seconds: float | None = None
    vector_score: float | None = None
    span_score: float | None = None
    rerank_score: float | None = None
    replays: tuple["Moment", ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What is known of it, as JSON has it; what was not asked for, such as scores of steps, is left out."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["path"] = None if self.path is None else str(self.path)
        values["replays"] = [one.to_dict() for one in self.replays] or None
        return {name: value for name, value in values.items() if value is not None or name in {"label", "text", "path"}}


Marked = Sequence[Moment | str] | Moment | str
"""Moments, or their ids."""


class Index:
    """An index that is open: its model is loaded once, and its vectors are read where a new version has others.

    Threads may share it. What another process adds is found by the next search; another model that it activates is
    used by who opens the index after that.

    Args:
        path: Folder, or the address of a bucket.
        model: One of its models, by name or key; None: the active one.
        device: "auto", "cpu" or "cuda".
        video_dir: Folder of the videos; None: as this user named it when they were indexed, or beside the index.
        trust_remote_code: Run the code that a model's folder or repository holds.

    Raises:
        FileNotFoundError: There is no index.
        ImportError: LanceDB is not installed.
        IndexDamagedError: It is damaged, or of another version.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: str | None = None,
        device: str = "auto",
        video_dir: str | Path | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.store = MomentIndex(path)
        videos = None if video_dir is None else str(video_dir)
        options = {"model": model, "device": device, "video_dir": videos, "trust_remote_code": trust_remote_code}
        self.asked: dict[str, Any] = options
        self.lock = RLock()
        self.forget()

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self.store.moments(self.model.key).count_rows()) if self.store.models else 0

    def close(self) -> None:
        """Let the model and the vectors go."""
        self.forget()
        self.store.matrices.clear()

    def forget(self) -> None:
        """Load the models again for the next search."""
        self.encoder: Any = None
        self.texts: ExportedTextEncoder | None = None
        self.keeps_texts = False
        self.steps: dict[str, Any] = {}

    @property
    def model(self) -> IndexedModel:
        """The model of the index that searches use.

        Raises:
            ValueError: The index has none yet, or not the one that was named.
        """
        return self.store.find(self.asked["model"])

    def loaded(self) -> Any:
        """The encoder that made the vectors.

        Raises:
            ModelChangedError: What is in its place makes other vectors.
            ValueError: It has code that was not allowed to run.
        """
        with self.lock:
            if self.encoder is None:
                from subtle.footage.models import load_again

                trust = self.asked["trust_remote_code"]
                self.encoder = load_again(self.model, self.asked["device"], trust_remote_code=trust)
            return self.encoder

    def root(self) -> Path:
        """The folder of the videos.

        Raises:
            ValueError: It is not known on this machine.
        """
        from subtle.footage.roots import root_of

        return root_of(self.store, self.model, self.asked["video_dir"])

    def update(
        self, source: str | Path, *, model: str | None = None, progress: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Bring the index up to date with a folder of videos or a table of moments.

        Args:
            source: Folder or table; new, changed, moved and deleted files are found.
            model: Model folder or Hub name; None: that of the index, or of one that is empty the one that ships.
            progress: Show a bar and say what was done.
            options: Further ones of `subtle index`, such as `window_seconds` or `num_workers`.

        Returns:
            The counts of `subtle index`, such as `moments_in_index` and `files_quarantined`.

        Raises:
            OSError: Another run writes to the index, or a file cannot be written.
            ValueError: An option cannot be, or the model embeds no videos.
        """
        from subtle.footage import index

        known = {"model": model or self.model.name} if model or self.store.models else {}
        own = {name: self.asked[name] for name in ("device", "video_dir", "trust_remote_code")}
        config = IndexConfig(**{"source": str(source), "output": self.store.path, **known, **own, **options})
        counts = index.run(config, print if progress else None)
        with self.lock:
            self.store = MomentIndex(self.store.path)
            self.forget()
        return counts

    def search(
        self,
        *,
        text: str | None = None,
        clip: str | Path | None = None,
        start_seconds: float | None = None,
        end_seconds: float | None = None,
        more_like: Marked = (),
        less_like: Marked = (),
        limit: int = 10,
        say: Say | None = None,
        **options: Any,
    ) -> list[Moment]:
        """The moments that fit best, best first.

        Args:
            text: What to look for, or what is different from the clip.
            clip: Video file with the query clip.
            start_seconds: Where the clip starts; None: at the beginning.
            end_seconds: Where it ends; None: at the end.
            more_like: Moments of this index that fit, or their ids: the query moves towards their vectors, see
                `hf_models.index.feedback`. They are found again, as whatever fits. Enough without text and clip.
            less_like: Moments that do not fit, or their ids: the query moves away; they may still be found.
            limit: Most moments to give.
            say: Takes what a user should know beside the result, one line each; None: a warning of Python.
            options: Further ones of `subtle search`: `where`, `folder`, `exclude_same_video`, `min_score`,
                `nothing_fits`, `approximate`, `probes`; of the second step `refine`, `rerank`, `shortlist` and so on;
                `group_replays`, the least cosine of moments that are shown as one, or True for 0.99, among ten times
                the limit.

        Raises:
            ValueError: There is neither clip, text nor `more_like`, a marked moment is not in the index, or an option
                cannot be.
            VideoError: The clip cannot be read.
            ModelChangedError: The model is no longer the one that made the vectors.
            OSError: The index cannot be read.
        """
        asked = {"text": text, "clip": clip, "start_seconds": start_seconds, "end_seconds": end_seconds, "limit": limit}
        marked = {"more_like": more_like, "less_like": less_like}
        return self.as_moments([self.find(self.asking(asked | marked | options), say or warned)])[0]

    def search_many(
        self, queries: Sequence[Mapping[str, Any]], *, limit: int = 10, **narrowing: Any
    ) -> list[list[Moment]]:
        """The moments that fit each of several queries, which are encoded together, then one product for all.

        Args:
            queries: Each with `text`, `clip`, `start_seconds`, `end_seconds`, `more_like` and `less_like`, as far as it
                has them.
            limit: Most moments to give for each.
            narrowing: `where`, `folder`, `approximate` and `probes`, the same for all.

        Raises:
            ValueError: There is neither clip nor text in one, or an option cannot be.
            VideoError: A clip cannot be read.
        """
        if unknown := sorted(narrowing.keys() - set(NARROWING)):
            raise ValueError(f"search_many has no {unknown[0]}; it has {', '.join(NARROWING)}, or ask one by one")
        if unknown := sorted(set().union(*queries) - set(OF_QUERY)):
            raise ValueError(f"a query of search_many has no {unknown[0]}; it has {', '.join(OF_QUERY)}")
        configs = [self.asking({**query, "limit": limit, **narrowing}) for query in queries]
        if not configs:
            return []
        known = self.embedded_together(configs) if len(configs) > FEW else {}
        vectors = np.stack([self.moved(config, known.get(number)) for number, config in enumerate(configs)])
        return self.as_moments(self.nearest(vectors, configs[0]))

    def export(
        self, found: Sequence[Moment], folder: str | Path, *, exact: bool = False, mute: bool = False
    ) -> list[str]:
        """Write moments into a new folder: clips, a contact sheet, timelines, a playlist, and JSON.

        Args:
            found: Moments of this index.
            folder: Missing or empty.
            exact: Encode every clip again; else copies begin at the keyframe before the moment.
            mute: Leave the sound out.

        Returns:
            Why moments could not be cut; they are left out of everything.

        Raises:
            FileExistsError: The folder is not empty.
            ValueError: It is not known where the videos are; give `video_dir` to `open_index`.
        """
        from subtle.footage.exporting import export

        return export([as_row(one) for one in found], str(self.root()), Path(folder), exact=exact, mute=mute)

    def asking(self, asked: Mapping[str, Any]) -> SearchConfig:
        """A query with what the index was opened with.

        Raises:
            ValueError: There is no such option, or it cannot be.
        """
        known = {one.name for one in fields(SearchConfig)}
        if unknown := sorted(asked.keys() - known):
            raise ValueError(f"a search has no {unknown[0]}; it has {', '.join(sorted(known - self.asked.keys()))}")
        clip = None if asked.get("clip") is None else str(asked["clip"])
        grouping = asked.get("group_replays")
        marked = {name: ids_of(asked.get(name, ())) for name in ("more_like", "less_like")}
        least = {"group_replays": REPLAY_COSINE if grouping is True else grouping or None}
        return SearchConfig(**{"index": self.store.path, **self.asked, **asked, "clip": clip, **marked, **least})

    def as_moments(self, found: Sequence[Sequence[dict[str, Any]]]) -> list[list[Moment]]:
        """The rows that were found for each query as what a caller gets."""
        try:
            root = self.root() if any(found) else None
        except ValueError:
            root = None
        known = {one.name for one in fields(Moment)}

        def moment(row: dict[str, Any]) -> Moment:
            values = {name: value for name, value in row.items() if name in known}
            values["replays"] = tuple(moment(one) for one in row.get("replays", ()))
            return Moment(**values, path=root and root / row["video"])

        return [[moment(row) for row in rows] for rows in found]

    def query_frames(self, config: SearchConfig) -> Any:
        """The frames of a query clip as the model reads them, `(T, 3, H, W)` uint8; None without a clip.

        Raises:
            ValueError: The clip ends after its video.
        """
        if config.clip is None:
            return None
        from hf_datasets.video import read_frames

        encoder = self.loaded()
        span = config.start_seconds, config.end_seconds
        read = read_frames(config.clip, encoder.num_frames, *span, size=encoder.frame_size, spread="seconds")
        if config.end_seconds is not None and read.missing_seconds:
            end = config.end_seconds - read.missing_seconds
            raise ValueError(
                f"{config.clip} ends at {end:.3f} s, before --end_seconds {config.end_seconds:g}; give an end within it"
            )
        return read.frames

    def embedded(self, config: SearchConfig) -> np.ndarray:
        """The vector of a query, `(D,)`; of a text alone without the model, where that is possible.

        Raises:
            ValueError: There is neither clip nor text.
            VideoError: The clip is not there, or no file.
        """
        if config.clip is None and config.text is None:
            raise ValueError("say what to look for: --text, --clip, or both, or --more_like")
        if config.clip is not None:  # before a model is loaded
            from hf_datasets.video.frame_folder import version_of

            version_of(Path(config.clip))
        is_text = config.clip is None and not config.nothing_fits
        if is_text and self.encoder is None and config.text is not None:
            check_text(config.text)
            self.texts = self.texts or exported_text_encoder(self.model)
            if self.texts is not None:
                with suppress(RuntimeError):
                    return self.texts.query(config.text)
        encoder, frames = self.loaded(), self.query_frames(config)
        with self.lock:
            if is_text and not self.keeps_texts:
                keep_text_queries(self.model.name, encoder)  # for the next process
                self.keeps_texts = True
            return np.asarray(encoder.query(frames, config.text))

    def embedded_together(self, configs: Sequence[SearchConfig]) -> dict[int, np.ndarray]:
        """The vectors of queries by their number, those of one kind encoded together; not those that are marks alone.

        Raises:
            ValueError: The model reads no such text; a clip ends after its video.
            VideoError: A clip cannot be read.
        """
        encoder = self.loaded()
        found: dict[int, np.ndarray] = {}
        kinds = [(one.clip is not None, one.text is not None) for one in configs]
        for kind in {*kinds} - {(False, False)}:
            numbers = [number for number, one in enumerate(kinds) if one == kind]
            for start in range(0, len(numbers), TOGETHER):
                some = [configs[number] for number in numbers[start : start + TOGETHER]]
                texts = [one.text for one in some if one.text is not None]
                frames = [self.query_frames(one) for one in some if one.clip is not None]
                with self.lock:
                    rows = encoder.queries(frames or None, texts or None)
                found |= zip(numbers[start : start + TOGETHER], rows, strict=True)
        return found

    def moved(self, config: SearchConfig, embedded: np.ndarray | None = None) -> np.ndarray:
        """The vector of a query, `(D,)`, moved by the moments that were marked; `embedded` where that is known.

        Raises:
            ValueError: As `embedded`; the index has no such moment, or the marks cancel each other.
            VideoError: As `embedded`.
        """
        marked = [*config.more_like, *config.less_like]
        if not marked:
            return self.embedded(config) if embedded is None else embedded
        vectors = self.store.vectors_of(self.model.key, marked)  # refused before a model is loaded
        is_alone = config.clip is None and config.text is None and config.more_like
        if embedded is None and not is_alone:
            embedded = self.embedded(config)
        return rocchio(embedded, vectors[: len(config.more_like)], vectors[len(config.more_like) :])

    def judged(self, vector: np.ndarray | None, more_like: Sequence[str], less_like: Sequence[str]) -> np.ndarray:
        """The vector of a query, `(D,)`, after some moments, named by their ids, were judged; None: of marks alone.

        Raises:
            ValueError: The index has no such moment, or the marks cancel each other.
        """
        vectors = self.store.vectors_of(self.model.key, [*more_like, *less_like])
        return rocchio(vector, vectors[: len(more_like)], vectors[len(more_like) :])

    def rows(self, where: str, limit: int | None = None) -> list[dict[str, Any]]:
        """The moments for which a condition of the store holds, with all columns but the vector."""
        table = self.store.moments(self.model.key)
        table.checkout_latest()
        found = table.search().where(where).select(list(COLUMNS)).limit(limit).to_arrow()
        rows: list[dict[str, Any]] = checked_rows(self.store.path, found).to_pylist()
        return rows

    def nearest(self, vectors: np.ndarray, config: SearchConfig, **more: Any) -> list[list[dict[str, Any]]]:
        """The best moments for each of some queries."""
        probes = (config.probes or default_probes(self.store, self.model)) if config.approximate else None
        named = {"limit": config.limit, "where": config.where, "folder": config.folder, "probes": probes}
        return search_many(self.store, self.model, vectors, **named | more)

    def find(self, config: SearchConfig, say: Say) -> list[dict[str, Any]]:
        """The moments that fit best as rows, with the columns of the steps that were asked for."""
        has_second_step = config.refine is not None or config.rerank is not None
        looked_at = config.limit if config.group_replays is None else config.limit * LOOKED_AT_PER_GROUP
        more: dict[str, Any] = {"limit": config.shortlist if has_second_step else looked_at}
        query = self.moved(config)
        if config.exclude_same_video:
            from hf_datasets.footage.files import file_fingerprint

            assert config.clip is not None  # the configuration refuses it without one
            more["exclude_fingerprint"] = file_fingerprint(Path(config.clip))
        (found,) = self.nearest(query[None], config, **more)
        least, why = config.min_score, "--min_score"
        if config.nothing_fits and found:
            least, why = self.calibrated(config)
        if least is not None and found and found[0]["score"] < least:
            say(f"nothing fits: the best score is {found[0]['score']:.3f}, below {least:.3f} ({why})")
        if config.min_score is not None or (least is not None and found and found[0]["score"] < least):
            found = [row for row in found if row["score"] >= least]
        if has_second_step:
            found = self.second_step(config, found, say)
        if config.group_replays is not None:
            vectors = self.store.vectors_of(self.model.key, [row["moment_id"] for row in found])
            groups = grouped(vectors, config.group_replays)
            found = [found[first] | {"replays": [found[row] for row in rest]} for first, *rest in groups]
        return found[: config.limit]

    def calibrated(self, config: SearchConfig) -> tuple[float, str]:
        """The least score of `--nothing_fits`, and what it was chosen by."""
        from subtle.footage.calibration import query_kind, threshold_of
        from subtle.footage.second_step import cache_of

        encoder = self.loaded()
        return threshold_of(
            self.store,
            self.model,
            encoder,
            query_kind(encoder, clip=config.clip is not None, text=config.text is not None),
            cache=cache_of(self.store),
            root=str(self.root()),
            where=config.where,
            folder=config.folder,
        )

    def second_step(self, config: SearchConfig, found: list[dict[str, Any]], say: Say) -> list[dict[str, Any]]:
        """Refined and re-ranked moments; the models of a step are kept for the next query that has the same."""
        from hf_datasets.video import read_frames
        from subtle.footage.second_step import SecondStep, cache_of

        is_chat = config.rerank is not None and not Path(config.rerank).is_dir()  # whose costs are counted by query
        query = dict.fromkeys([*OF_QUERY, "exclude_same_video"])
        key = repr([asdict(config) | ({} if is_chat else query)])
        with self.lock:
            if key not in self.steps:
                self.steps = {key: SecondStep(config, cache_of(self.store), config.device, str(self.root()))}
            clip = None
            if config.clip is not None and config.rerank is not None:
                span = config.start_seconds, config.end_seconds
                clip = read_frames(config.clip, config.num_frames, *span, spread="seconds").frames
            return list(self.steps[key](config.text, clip, found, say))


def open_index(path: str | Path, **options: Any) -> Index:
    """Open an index that is there; `options` are those of `Index`.

    Raises:
        FileNotFoundError: There is none.
        IndexDamagedError: It is damaged, or of another version.
    """
    return Index(path, **options)


def create_index(path: str | Path, **options: Any) -> Index:
    """Open an index, or make an empty one for `Index.update` to fill; `options` are those of `Index`.

    Raises:
        IndexDamagedError: It is damaged, or of another version.
        ValueError: The folder holds something else.
    """
    MomentIndex.create(path)
    return Index(path, **options)


def as_row(moment: Moment) -> dict[str, Any]:
    """A moment as what is exported and printed knows it."""
    return {name: value for name, value in moment.to_dict().items() if name not in {"path", "replays"}}


def ids_of(marked: Marked) -> list[str]:
    """The ids of marked moments; one alone is a list of one."""
    several = [marked] if isinstance(marked, str | Moment) else marked
    return [one.moment_id if isinstance(one, Moment) else one for one in several]


def warned(message: str) -> None:
    """Warn."""
    import warnings

    warnings.warn(message, stacklevel=4)
