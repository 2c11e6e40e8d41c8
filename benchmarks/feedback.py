"""What a round of marks on the first five results adds to mAP@50, and which replays come together.

The model that ships searches the clips of a tier; of each query's first five, its targets are marked as right and the
others as wrong. "All" ranks every clip, so that marked ones may rise or fall; "rest" leaves the five out of both
rankings and of the targets, the residual collection: what the marks teach about other clips. Replays are drawn again,
with other grain and nearly the same zoom, or from another camera.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.timing import Ratio
from hf_datasets.miniature.competitions import TIERS, Shot, plan_competitions
from hf_datasets.miniature.distractions import WIDEST_VIEW
from hf_datasets.miniature.drawing import draw_frames
from hf_datasets.miniature.motion import perform
from hf_datasets.video.resizing import resize
from hf_models.index.feedback import ROCCHIO, rocchio
from hf_models.tfcovr.queries import place_queries
from metrics.map_at_k.significance import interval_of_means
from subtle.embedding import embed_clips
from subtle.footage.models import load_model
from subtle.index import REPLAY_COSINE
from subtle.run.data import load_split
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_TFCOVR
from subtle.run.models import load_trained
from subtle.run.shared_config import EmbedConfig
from subtle.tfcovr.batches import EmbeddingSource

MEASURED = ("mini", "hard")  # tiers
JUDGED = 5
QUERIES_TO_CHOOSE_BY = 1000
QUERIES_PER_DRAW, SEEDS = 200, range(5)
GRID = tuple(itertools.product((1.0,), (0.25, 0.5, 0.75, 1.0, 1.5), (0.0, 0.05, 0.1, 0.15, 0.3)))
SHOTS = 120
COSINES = (0.95, 0.97, 0.98, REPLAY_COSINE, 0.995)


@dataclass(frozen=True)
class Searched:
    """A split: queries `(Q, D)`, clips `(C, D)`, which clips fit and which is a query's own `(Q, C)`, labels `(Q,)`."""

    queries: np.ndarray
    clips: np.ndarray
    fits: np.ndarray
    own: np.ndarray
    labels: np.ndarray

    def drawn(self, number: int, seed: int) -> "Searched":
        """Some of the queries."""
        rows = np.random.default_rng(seed).choice(len(self.queries), number, replace=False)
        return Searched(self.queries[rows], self.clips, self.fits[rows], self.own[rows], self.labels[rows])

    def order(self, queries: np.ndarray) -> np.ndarray:
        """The places of the clips `(Q, C)`, best first, a query's own last."""
        return np.argsort(-(queries @ self.clips.T - 1e3 * self.own), axis=1, kind="stable")


@torch.inference_mode()
def searched(tier: str, split: str) -> Searched:
    """The queries and the clips of a split, as the model that ships embeds them."""
    model, processor = load_trained(MINIATURE_TFCOVR)
    config = EmbedConfig(
        dataset_config=tier,
        vision_model=MINIATURE_TFCOVR,
        text_model=MINIATURE_TFCOVR,
        output_dir=f"outputs/embeddings/feedback-{tier}",
        splits=["validation", "test"],
        num_workers=0,
        device="cpu",
    )
    source = EmbeddingSource.open(config, model, processor, torch.device("cpu"), make=embed_clips.run)
    ids = list(load_split(config, split, clips=True)["clip_id"])
    placed = place_queries(list(load_split(config, split)), ids, source.clips, source.texts)
    video, text = source.video_embeds[placed.query], source.text_embeds[placed.text]
    queries = model.get_query_features(video_embeds=video, text_embeds=text).numpy()
    clips = model.get_target_features(video_embeds=source.video_embeds[placed.gallery]).numpy()
    places = {name: number for number, name in enumerate(placed.gallery_ids)}
    fits, own = (np.zeros((len(placed), len(places)), bool) for _ in range(2))
    for row, query in enumerate(placed.rows):
        fits[row, [places[name] for name in query["target_clip_ids"] if name in places]] = True
        own[row, placed.exclude[row]] = True
    return Searched(queries, clips, fits, own, np.array([query["target_label"] for query in placed.rows]))


def average_precision(hits: np.ndarray, relevant: np.ndarray, k: int = 50) -> np.ndarray:
    """AP@k `(Q,)` of hits in order `(Q, C)` and the number of relevant clips `(Q,)`, as `metrics/map_at_k` has it."""
    hits = hits[:, :k]
    precision = hits.cumsum(1) / np.arange(1, hits.shape[1] + 1)
    found: np.ndarray = (precision * hits).sum(1) / np.minimum(relevant, k)
    return found


def measured(data: Searched, weights: tuple[float, float, float]) -> dict[str, np.ndarray]:
    """AP@50 before and after the marks `(2, Q)`; of the `rest` NaN for queries without a target beside the five."""
    before = data.order(data.queries)
    judged = before[:, :JUDGED]
    right = np.take_along_axis(data.fits, judged, 1)
    marked = zip(data.queries, judged, right, strict=True)
    moved = np.stack(
        [rocchio(one, data.clips[five[yes]], data.clips[five[~yes]], weights) for one, five, yes in marked]
    )
    is_judged = np.zeros_like(data.fits)
    np.put_along_axis(is_judged, judged, values=True, axis=1)
    left = (data.fits & ~is_judged).sum(1)
    found: dict[str, list[np.ndarray]] = {"all": [], "rest": []}
    for order in (before, data.order(moved)):
        hits = np.take_along_axis(data.fits, order, 1)
        found["all"].append(average_precision(hits, data.fits.sum(1)))
        last = np.argsort(np.take_along_axis(is_judged, order, 1), axis=1, kind="stable")[:, :-JUDGED]
        rest = average_precision(np.take_along_axis(hits, last, 1), np.maximum(left, 1))
        found["rest"].append(np.where(left > 0, rest, np.nan))
    return {name: np.stack(both) for name, both in found.items()}


def of_marks() -> Iterator[Ratio]:
    """The weights that are best for the rest of both validation splits; both test splits with those in use."""
    validation = [searched(tier, "validation").drawn(QUERIES_TO_CHOOSE_BY, 0) for tier in MEASURED]
    after = {w: float(np.mean([np.nanmean(measured(data, w)["rest"][1]) for data in validation])) for w in GRID}
    best = max(after, key=lambda weights: after[weights])
    what = f"validation, rest: weights {ROCCHIO}"
    yield Ratio(what, f"the best, {best}", after[ROCCHIO] / after[best], 0.99, detail=f"{100 * after[ROCCHIO]:.1f} %")
    for tier in MEASURED:
        test = searched(tier, "test")
        draws = [measured(test.drawn(QUERIES_PER_DRAW, seed), ROCCHIO) for seed in SEEDS]
        for name, every in measured(test, ROCCHIO).items():
            counted = ~np.isnan(every[0])
            gain = (every[1] - every[0])[counted, None]
            ((low, high),) = (100 * np.array(one) for one in interval_of_means(gain, 0.95, list(test.labels[counted])))
            means = 100 * np.array([np.nanmean(draw[name], axis=1) for draw in draws])
            (before, moved), (spread, other) = means.mean(0), means.std(0, ddof=1)
            detail = f"{before:.1f} ± {spread:.1f} to {moved:.1f} ± {other:.1f} %; all {counted.sum()} queries: "
            detail += f"{100 * gain.mean():+.1f}, {low:+.1f} to {high:+.1f}"
            yield Ratio(f"{tier}: mAP@50, {name}", "before the marks", moved / before, 1.0, detail=detail)


def replayed(encoder: Any, tier: str, split: str) -> np.ndarray:
    """Vectors of shots, of each drawn again and of each from another camera, `(3, SHOTS, D)`."""
    shots = [shot for plan in plan_competitions(TIERS[tier]) if plan.split == split for shot in plan.shots]
    generator = np.random.default_rng(1)

    def vector(shot: Shot, **changes: float) -> np.ndarray:
        scene = replace(shot.scene, **changes)
        frames = np.stack([*draw_frames(perform(shot.action, shot.style, shot.num_frames), scene, TIERS[tier].size)])
        places = np.linspace(0, len(frames) - 1, encoder.num_frames).round().astype(int)
        small = torch.from_numpy(np.ascontiguousarray(resize(frames[places], encoder.frame_size)))
        found: np.ndarray = encoder.vectors([small.permute(0, 3, 1, 2).contiguous()])[0]
        return found / np.linalg.norm(found)

    found = []
    for place in generator.choice(len(shots), SHOTS, replace=False):
        shot, scene = shots[place], shots[place].scene
        grain = scene.noise_seed + 1
        again = {"noise_seed": grain, "zoom": scene.zoom * generator.uniform(0.95, 1.05)}
        camera = {"noise_seed": grain, "zoom": scene.zoom * generator.uniform(0.8, 1.1)}
        camera |= {"azimuth": generator.uniform(-WIDEST_VIEW, WIDEST_VIEW), "elevation": generator.uniform(0.05, 0.5)}
        found.append([vector(shot), vector(shot, **again), vector(shot, **camera)])
    return np.array(found).swapaxes(0, 1)


def of_replays() -> Iterator[Ratio]:
    """Of the pairs that reach a cosine, how many are of one shot; of the pairs of a shot, how many reach it."""
    for name, tier in itertools.product((MINIATURE_TFCOVR, MINIATURE_CLIP), MEASURED):
        options = {"device": "cpu", "num_frames": 12, "mixed_precision": "no", "trust_remote_code": False}
        vectors = replayed(load_model(SimpleNamespace(model=name, **options)), tier, "test")
        every = vectors.reshape(3 * SHOTS, -1)
        pairs = np.triu_indices(3 * SHOTS, 1)
        cosines, is_one = (every @ every.T)[pairs], (pairs[0] - pairs[1]) % SHOTS == 0
        again, camera = ((vectors[0] * other).sum(1) for other in vectors[1:])
        for cosine in COSINES:
            reached = cosines >= cosine
            precision = float(is_one[reached].mean()) if reached.any() else float("nan")
            detail = f"finds {100 * (again >= cosine).mean():.0f} % of the same view, "
            detail += f"{100 * (camera >= cosine).mean():.0f} % of another camera's"
            yield Ratio(
                f"replays, {tier}, {name.rpartition('/')[2]}, {cosine:g}", "all pairs", precision, detail=detail
            )


def measure() -> Iterator[Ratio]:
    """Marks, then replays; no time."""
    yield from of_marks()
    yield from of_replays()
