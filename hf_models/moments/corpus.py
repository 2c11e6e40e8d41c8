"""Encoded videos that moments are searched in."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .modeling_moments import MomentRetrievalModel


@dataclass(frozen=True)
class VideoBatch:
    """Videos to encode.

    Args:
        video_ids: One for each video.
        video_features: `(V, L, video_feature_size)`, float.
        video_mask: `(V, L)`, 1 for clips, 0 for padding; clips come first.
        clip_seconds: `(V,)` float, how long a clip of each video lasts: the true width where a long video was pooled.
        subtitle_features: `(V, L, subtitle_feature_size)`, for a model with subtitles.
    """

    video_ids: list[str]
    video_features: Tensor
    video_mask: Tensor
    clip_seconds: Tensor
    subtitle_features: Tensor | None = None


@dataclass(frozen=True)
class MomentCorpus:
    """Encoded videos, laid out for search.

    Args:
        video_ids: V ids.
        num_clips: `(V,)` int64.
        clip_seconds: `(V,)` float64.
        retrieval: `(M, V, L, D)` float32 of unit norm; the padding repeats the first clip, which cannot change a
            maximum.
        localization: `(V, L, M * D)` float32; the padding is zero, but for a model without `mask_similarity`.
    """

    video_ids: list[str]
    num_clips: Tensor
    clip_seconds: Tensor
    retrieval: Tensor
    localization: Tensor

    def __len__(self) -> int:
        return len(self.video_ids)


@torch.inference_mode()
def encode_corpus(
    model: MomentRetrievalModel,
    batches: Iterable[VideoBatch],
    *,
    num_videos: int,
    max_clips: int | None = None,
) -> MomentCorpus:
    """Encode the videos of a corpus once, for any number of searches.

    Args:
        model: In evaluation mode.
        batches: Of videos.
        num_videos: How many there are in all.
        max_clips: Of the longest video; default: what the model can read.

    Returns:
        The corpus.

    Raises:
        ValueError: If there are more or fewer videos, one comes twice, has no clip, or is longer than `max_clips`.
    """
    config = model.config
    length = config.max_video_clips if max_clips is None else max_clips
    streams, width = config.num_streams, config.hidden_size
    retrieval = torch.zeros(streams, num_videos, length, width)
    localization = torch.zeros(num_videos, length, streams * width)
    video_ids: list[str] = []
    num_clips, clip_seconds = [], []
    for batch in batches:
        first = len(video_ids)
        video_ids += batch.video_ids
        stop = len(video_ids)
        lengths = batch.video_mask.sum(1).long()
        if stop > num_videos or not lengths.all() or int(lengths.max()) > length:
            raise ValueError(
                f"videos {first} to {stop} have {int(lengths.min())} to {int(lengths.max())} clips; there may be at "
                f"most {num_videos} videos of 1 to {length} clips"
            )
        deep, shallow = (one.cpu() for one in _encode(model, batch))
        here = min(length, deep.shape[2])
        retrieval[:, first:stop, :here] = deep[:, :, :here]
        retrieval[:, first:stop, here:] = deep[:, :, :1]
        localization[first:stop, :here] = shallow[:, :here]
        num_clips.append(lengths)
        clip_seconds.append(batch.clip_seconds.double())
    different = len(set(video_ids))
    if not len(video_ids) == different == num_videos:
        raise ValueError(f"{num_videos} different videos were announced and {different} came in {len(video_ids)} rows")
    return MomentCorpus(video_ids, torch.cat(num_clips), torch.cat(clip_seconds), retrieval, localization)


def _encode(model: MomentRetrievalModel, batch: VideoBatch) -> tuple[Tensor, Tensor]:
    """`retrieval (M, V, L, D)` and `localization (V, L, M * D)` of a batch."""
    device = model.execution_device
    features, mask, subtitles = batch.video_features.to(device), batch.video_mask.to(device), batch.subtitle_features
    subtitles = None if subtitles is None else subtitles.to(device)
    videos = model.encode_video(features, mask, subtitle_features=subtitles)
    padding = ~videos.mask[:, None, :, None]
    unit = F.normalize(videos.retrieval.float(), dim=-1)
    unit = torch.where(padding, unit[:, :, :1], unit)
    localization = videos.localization.float()
    if model.config.mask_similarity:
        localization = localization.masked_fill(padding, 0)
    return unit.transpose(0, 1), localization.permute(0, 2, 1, 3).flatten(2)
