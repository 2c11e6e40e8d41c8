"""Where the moments of a batch are, and which pairs of queries and videos are negatives of each other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .distributed_gather import from_first_process, gather_with_gradient, rows_before
from .losses import negative_pairs


@dataclass(frozen=True)
class Labels:
    """The labels of queries that the loss reads: of this process, Q, and of all that train together, N.

    Args:
        start_positions: `(Q,)` integers.
        end_positions: `(Q,)` integers.
        targets: `(Q,)` integers, the place of each query's video among the videos of this process.
        rows: Where the queries of this process stand among all.
        all_targets: `(N,)` integers, the place of each query's video among all videos.
        videos: `(N,)` integers, the video of each query.
        is_negative: `(N, N)` bool.
        shared: Whether there are several processes.
    """

    start_positions: Tensor
    end_positions: Tensor
    targets: Tensor
    rows: slice
    all_targets: Tensor
    videos: Tensor
    is_negative: Tensor
    shared: bool

    def gather(self, queries: Tensor) -> Tensor:
        """From the queries of this process, `(Q, ...)`, to all, `(N, ...)`, with gradient."""
        return gather_with_gradient(queries) if self.shared else queries

    def mean(self, mean: Tensor) -> Tensor:
        """From the mean over the queries of this process to that over all, with gradient."""
        if not self.shared:
            return mean
        return gather_with_gradient(mean[None] * len(self.targets)).sum() / len(self.all_targets)

    def pairs(self, scores: Tensor) -> Tensor:
        """From all queries with this process's videos, `(N, v)`, to all pairs, `(N, N)`, with gradient."""
        if self.shared:
            scores = gather_with_gradient(scores.T).T.contiguous()
        return scores[:, self.all_targets]

    def draw(self, numbers: Tensor) -> Tensor:
        """Random numbers, the same on all processes."""
        return from_first_process(numbers.to(self.targets.device)) if self.shared else numbers


def collect_labels(
    positions: tuple[Tensor | None, Tensor | None],
    target_indices: Tensor | None,
    video_indices: Tensor | None,
    *,
    num_queries: int,
    mask: Tensor,
    shared: bool,
) -> Labels | None:
    """Check what the loss is computed from, and bring it together from all processes.

    Args:
        positions: Start and end, `(Q,)` integers each.
        target_indices: `(Q,)` integers, or None where query i belongs to video i.
        video_indices: `(V,)` integers, or None where every row is another video.
        num_queries: Q.
        mask: `(V, L)` bool, of the videos.
        shared: Whether the loss is over several processes.

    Returns:
        What the loss needs, or None where there are no positions.

    Raises:
        ValueError: If there is one kind of positions only, they do not fit the videos, or nothing says which video they
            are in.
    """
    start_positions, end_positions = positions
    if start_positions is None and end_positions is None:
        return None
    if start_positions is None or end_positions is None:
        given, missing = ("end", "start") if start_positions is None else ("start", "end")
        raise ValueError(
            f"{given}_positions came without {missing}_positions: the loss needs both; give neither for scores alone"
        )
    if target_indices is None and num_queries != len(mask):
        raise ValueError(
            f"{num_queries} queries and {len(mask)} videos are no pairs; say by target_indices which belongs to which"
        )
    targets = target_indices
    if targets is None:
        targets = torch.arange(num_queries, device=mask.device)
    check_indices("target_indices", targets, num_queries, len(mask))
    if video_indices is not None and (video_indices.shape != mask.shape[:1]):
        raise ValueError(
            f"video_indices has shape {tuple(video_indices.shape)}; it must be ({len(mask)},), "
            "one integer for each video"
        )
    check_positions("start_positions", start_positions, mask, targets)
    check_positions("end_positions", end_positions, mask, targets)
    first_row, first_video = (rows_before(targets), rows_before(mask)) if shared else (0, 0)
    all_targets = gather_with_gradient(targets + first_video) if shared else targets
    video_of_query = all_targets
    if video_indices is not None:
        video_of_query = video_indices[targets]
        video_of_query = gather_with_gradient(video_of_query) if shared else video_of_query
    return Labels(
        start_positions.long(),
        end_positions.long(),
        targets,
        slice(first_row, first_row + num_queries),
        all_targets,
        video_of_query,
        negative_pairs(video_of_query),
        shared,
    )


def check_indices(name: str, indices: Tensor, length: int, stop: int) -> None:
    """Refuse what is not `(length,)` integers from 0 to `stop` - 1.

    Raises:
        ValueError: Saying what they are and what they must be.
    """
    if indices.shape != (length,) or indices.is_floating_point() or indices.dtype == torch.bool:
        raise ValueError(
            f"{name} is {indices.dtype} of shape {tuple(indices.shape)}; it must be integers of shape ({length},)"
        )
    if ((indices < 0) | (indices >= stop)).any():
        raise ValueError(f"{name} is {indices.tolist()}; each must lie between 0 and {stop - 1}")


def check_positions(name: str, positions: Tensor, mask: Tensor, targets: Tensor) -> None:
    """Refuse positions `(Q,)` outside the videos `targets (Q,)` of their queries, of which `mask (V, L)` has the clips.

    Raises:
        ValueError: Saying which one lies where, and how to get positions that do not.
    """
    check_indices(name, positions, len(targets), mask.shape[1])
    outside = ~mask[targets, positions]
    if outside.any():
        query = int(outside.nonzero()[0])
        clips = int(mask[targets[query]].sum())
        raise ValueError(
            f"{name}[{query}] is {int(positions[query])}, in the padding of a video of {clips} clips; it must lie "
            f"between 0 and {clips - 1}: spans.clip_labels with num_clips={clips} ends a moment with its video"
        )
