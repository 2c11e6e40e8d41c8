"""Text, video and group score (Winoground, Vinoground), ClassicVLE and StrictVLE (VELOCITI), from similarities."""

from numbers import Integral
from typing import Any

import numpy as np

from .groups import Similarities, read_groups
from .inputs import Names, check_flag, quoted, read_number, read_rows
from .significance import check_confidence, interval_of_means

VERSION = "1.0.0"


def counterfactual_accuracy(
    predictions: Any,
    references: Any = None,
    *,
    threshold: float | None = None,
    per_query: bool = False,
    confidence: float | None = None,
    clusters: Any = None,
) -> dict[str, Any]:
    """How often each of two videos goes with its own of two texts.

    A comparison is right when the similarity of a video with its own text is strictly greater; a tie is wrong.

    Args:
        predictions: `[[a, b], [c, d]]` per group: row i holds the similarities of video i with both texts, and text i
            fits video i. Or `[[a, b]]`: one video with the text that fits it, then one that does not.
        references: The kind of each group, such as "action", for results by kind; None: no group has one.
        threshold: Similarity above which a text counts as true of a video, for `strict_vle`: 0.5 where similarities
            are probabilities of "yes", otherwise from `fit_threshold` on other data; None leaves `strict_vle` out.
        per_query: Also give the results of every group, as `per_query`.
        confidence: Level of an interval over groups (95 % is 0.95), given as `confidence_interval`.
        clusters: What each group is cut from, such as the name of its long video: groups of one cluster are alike, and
            the interval is over clusters, None where there is but one. None: every group counts by itself.

    Returns:
        Fractions in [0, 1], each also as `<name>/<kind>` for every kind, in the order of the kinds' names:

        * `text_score`, of two videos: groups in which both videos prefer their own text. Chance is 1/4.
        * `video_score`, of two videos: groups in which both texts prefer their own video. Chance is 1/4.
        * `group_score`, of two videos: groups in which all four comparisons are right. Chance is 1/6.
        * `classic_vle`: videos that prefer their own text. Chance is 1/2.
        * `strict_vle`, with a threshold: videos whose own text is above it and whose other text is below it. Chance
          is at most 1/4.

        And `signature`, which counts the groups of each kind.

    Raises:
        ValueError: Naming the row and the cure, for a malformed row or option, kinds of only some groups, or no group.

    Example:
        >>> result = counterfactual_accuracy([[[0.9, 0.4], [0.7, 0.8]], [[0.9, 0.4], [0.7, 0.6]]], threshold=0.5)
        >>> [result[name] for name in ("text_score", "video_score", "group_score", "classic_vle", "strict_vle")]
        [0.5, 1.0, 0.5, 0.75, 0.5]
    """
    confidence, level = check_confidence(confidence), None if threshold is None else read_number(threshold)
    if threshold is not None and (level is None or not np.isfinite(level)):
        raise ValueError(f"threshold must be a finite number or None, not {quoted(threshold)}")
    check_flag(per_query, "per_query")
    groups, kinds = read_groups(predictions, references)
    if not len(groups):
        raise ValueError("there is no group; give at least one")
    places = _places(kinds)
    verdicts = judge(groups, level)
    result: dict[str, Any] = {name: float(values.mean()) for name, values in verdicts.items()}
    for kind, rows in places.items():
        result |= {f"{name}/{kind}": float(values[rows].mean()) for name, values in verdicts.items()}
    if per_query:
        result["per_query"] = {name: values.tolist() for name, values in verdicts.items()}
    if confidence is not None:
        drawn = _clusters(clusters, len(groups))
        bounds = interval_of_means(np.column_stack(list(verdicts.values())), confidence, drawn)
        result["confidence_interval"] = dict(zip(verdicts, bounds, strict=True))
    counts = ",".join(f"{kind}={len(rows)}" for kind, rows in places.items()) or str(len(groups))
    facts = [f"groups:{counts}", f"videos:{groups.values.shape[1]}", "ties:wrong"]
    facts.append("threshold:none" if level is None else f"threshold:{level:g}")
    if confidence is not None:
        units = "" if drawn is None else f",clusters={len(set(drawn))}"
        facts.append(f"interval:{confidence:g},jackknife-t{units}")
    result["signature"] = "|".join(["counterfactual_accuracy", *facts, f"version:{VERSION}"])
    return result


def judge(groups: Similarities, threshold: float | None) -> dict[str, np.ndarray]:
    """The results of every group, each `(num_groups,)` float64: 0 or 1, or the mean over its videos for VLE."""
    own, other_text = _own_and_other_text(groups)
    verdicts = {}
    if groups.values.shape[1] == 2:
        other_video = other_text[:, ::-1]  # of text i: that of video 1 - i
        text, video = (own > other_text).all(axis=1), (own > other_video).all(axis=1)
        verdicts = {"text_score": text, "video_score": video, "group_score": text & video}
    verdicts["classic_vle"] = (own > other_text).mean(axis=1)
    if threshold is not None:
        verdicts["strict_vle"] = ((own > threshold) & (other_text < threshold)).mean(axis=1)
    return {name: np.asarray(values, dtype=np.float64) for name, values in verdicts.items()}


def fit_threshold(predictions: Any, references: Any = None) -> float:
    """The threshold at which `strict_vle` is highest, for similarities that are no probabilities, such as cosines.

    Fit it on data that is not measured. Of equally good ones it is the middle of the widest gap between similarities.

    Args:
        predictions: As for `counterfactual_accuracy`.
        references: As for `counterfactual_accuracy`; they do not matter.

    Raises:
        ValueError: For a malformed row, or no group.

    Example:
        >>> fit_threshold([[[0.75, 0.25]], [[0.5, 0.0]]])
        0.375
    """
    groups, _ = read_groups(predictions, references)
    if not len(groups):
        raise ValueError("there is no group; give at least one")
    own, other = _own_and_other_text(groups)
    values = np.unique(groups.values)
    if len(values) == 1:
        return float(values[0])
    middles = values[:-1] / 2 + values[1:] / 2
    right = own > other
    below = np.searchsorted(np.sort(other[right]), middles, side="left")
    not_above = np.searchsorted(np.sort(own[right]), middles, side="right")
    counts = below - not_above
    gaps = values[1:] / 2 - values[:-1] / 2
    return float(middles[np.argmax(np.where(counts == counts.max(), gaps, -1.0))])


def _own_and_other_text(groups: Similarities) -> tuple[np.ndarray, np.ndarray]:
    # Of every video `(num_groups, num_videos)`: the similarity with its own text, and with the other one.
    videos = np.arange(groups.values.shape[1])
    return groups.values[:, videos, videos], groups.values[:, videos, 1 - videos]


def _places(kinds: Names) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for row, kind in enumerate(kinds.names):
        if (kind is None) != (kinds.names[0] is None):
            raise ValueError(f"references[{row}] is {quoted(kind)} where references[0] is {quoted(kinds.names[0])}")
        if kind is not None:
            places.setdefault(kind, []).append(row)
    return dict(sorted(places.items()))


def _clusters(clusters: Any, count: int) -> list[str | int] | None:
    if clusters is None:
        return None
    names = read_rows(clusters, "clusters", "a name per group")
    if len(names) != count:
        raise ValueError(f"{count} groups but {len(names)} clusters; give one of each per group")
    for row, name in enumerate(names):
        if isinstance(name, bool) or not isinstance(name, (str, Integral)):
            raise ValueError(f"clusters[{row}] must be a text or a whole number, not {quoted(name)}")
    return names
