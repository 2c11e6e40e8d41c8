"""Videos to `pixel_values` for AIM: TF-CoVR's choice of frames, CLIP's size and normalization."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from transformers import BatchFeature
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD, PILImageResampling
from transformers.video_processing_utils import BaseVideoProcessor
from transformers.video_utils import VideoMetadata, is_valid_video, make_batched_metadata, make_batched_videos

# What a video may be and ask for, as in hf_datasets: containers that point to no other file, and no absurd sizes.
FORMATS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,h264,hevc,m4v,mpegvideo,gif,ivf"
MAX_PIXELS = 8192 * 4320
MAX_DURATION_SECONDS = 24 * 3600


def middle_frame_indices(total_num_frames: int, num_frames: int) -> np.ndarray:
    """Choose the middle frame of each of `num_frames` equal parts, TF-CoVR's rule.

    A shorter video is cut into its single frames, and the list is repeated from its start until it is long enough.

    Args:
        total_num_frames: Frames of the video, at least 1.
        num_frames: Frames wanted, at least 1.

    Returns:
        `num_frames` indices, int64, in `[0, total_num_frames)`.

    Raises:
        ValueError: If there is no frame, or none is wanted.

    Example:
        >>> middle_frame_indices(30, 12).tolist()
        [0, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28]
        >>> middle_frame_indices(5, 12).tolist()
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    """
    if total_num_frames < 1 or num_frames < 1:
        raise ValueError(f"{num_frames} frames of a video with {total_num_frames}: both must be at least 1")
    parts = min(num_frames, total_num_frames)
    cuts = np.arange(parts + 1) * total_num_frames // parts
    return np.resize((cuts[:-1] + cuts[1:] - 1) // 2, num_frames)


def decode_frames(
    path: str, choose: Callable[..., Sequence[int] | np.ndarray] | None = None
) -> tuple[np.ndarray, VideoMetadata]:
    """Decode the chosen frames of a video, in the order and as often as they are chosen.

    Args:
        path: A file, or an http(s) address.
        choose: Called with `metadata=`, gives the indices wanted; default: all frames.

    Returns:
        Frames `(frames, height, width, 3)`, uint8, RGB; and what is known of the video.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it does not decode, or its frames or its duration are too large.
        ImportError: If PyAV is not installed.
    """
    try:  # only decoding needs it, also by the check that transformers makes of a saved folder's code
        import av
    except ImportError as error:
        raise ImportError(f"reading the video {path!r} needs PyAV: `pip install av`") from error

    is_address = path.startswith(("http://", "https://"))
    if not is_address and not os.path.isfile(path):  # noqa: PTH113 (a str may be an address)
        raise FileNotFoundError(f"there is no video {path!r}, or it is not an ordinary file")
    protocols = "http,https,httpproxy,tcp,tls" if is_address else "file"
    options = {"format_whitelist": FORMATS, "protocol_whitelist": protocols}
    # PyAV 19 reads metadata in any encoding, and has no argument for it; earlier ones refuse what is not UTF-8.
    lenient: Any = {"metadata_errors": "replace"} if int(av.__version__.partition(".")[0]) < 19 else {}
    try:
        with av.open(path, options=options, **lenient) as container:
            stream = container.streams.video[0]
            seconds = (container.duration or 0) / av.time_base
            if stream.width * stream.height > MAX_PIXELS or seconds > MAX_DURATION_SECONDS:
                raise ValueError(
                    f"{path!r}: {stream.width} x {stream.height} pixels and {seconds:.0f} s exceed {MAX_PIXELS} "
                    f"pixels or {MAX_DURATION_SECONDS} s; re-encode it smaller, or cut it"
                )
            stream.thread_type = "AUTO"
            # Containers may leave the number of frames out or get it wrong, and packets are cheap to count.
            total_num_frames = sum(packet.size > 0 and not packet.is_discard for packet in container.demux(stream))
            metadata = VideoMetadata(
                total_num_frames=total_num_frames,
                fps=float(stream.average_rate) if stream.average_rate else None,
                width=stream.width,
                height=stream.height,
                video_backend="pyav",
            )
            indices = np.arange(total_num_frames) if choose is None else np.asarray(choose(metadata=metadata))
            chosen: list[int] = indices.tolist()
            wanted = set(chosen)
            frames: dict[int, np.ndarray] = {}
            container.seek(0)
            for index, frame in enumerate(container.decode(stream)):
                if index in wanted:
                    frames[index] = frame.to_ndarray(format="rgb24")
                if len(frames) == len(wanted):
                    break
    except (av.FFmpegError, IndexError) as error:
        raise ValueError(f"{path!r} does not decode as a video: {error}") from error
    if missing := wanted - set(frames):
        raise ValueError(f"{path!r} is damaged: of {total_num_frames} frames {sorted(missing)} did not decode")
    metadata.frames_indices = chosen
    return np.stack([frames[index] for index in chosen]), metadata


class AIMVideoProcessor(BaseVideoProcessor):
    """Turn videos into `pixel_values (batch, frames, channels, height, width)`, float32.

    A video is a path, an address, an array or tensor of frames (uint8; channels first or last), or a list of images;
    several are a list, of one kind or of several. Of frames in memory all are there to choose from, whatever their
    metadata count: a segment is its own frames. The default is what TF-CoVR's features were made with: the middle
    frames of 12 equal parts, stretched to 224 x 224 without keeping the aspect. To keep the aspect and cut out the
    center instead, pass `size={"shortest_edge": 256}, do_center_crop=True`.

    Example:
        >>> processor = AIMVideoProcessor(num_frames=8)
        >>> clip = torch.zeros(25, 3, 90, 160, dtype=torch.uint8)
        >>> processor(clip, return_tensors="pt").pixel_values.shape
        torch.Size([1, 8, 3, 224, 224])
    """

    resample = PILImageResampling.BICUBIC
    image_mean = OPENAI_CLIP_MEAN
    image_std = OPENAI_CLIP_STD
    size = {"height": 224, "width": 224}  # noqa: RUF012 (transformers copies class defaults to the instance)
    crop_size = {"height": 224, "width": 224}  # noqa: RUF012
    default_to_square = False  # a single number is the short side
    do_resize = True
    do_center_crop = False
    do_rescale = True
    do_normalize = True
    do_convert_rgb = True
    do_sample_frames = True
    num_frames = 12
    model_input_names = ["pixel_values"]  # noqa: RUF012

    @classmethod
    def from_image_processor(cls, image_processor: Any, *, num_frames: int = 12) -> "AIMVideoProcessor":
        """Prepare frames as an image model reads images: stretched to its size, normalized with its mean and deviation.

        Args:
            image_processor: Of the image model; its `size`, or `crop_size` where it crops, `image_mean` and `image_std`
                are read.
            num_frames: Frames of each video.

        Example:
            >>> from transformers import CLIPImageProcessor
            >>> AIMVideoProcessor.from_image_processor(CLIPImageProcessor(crop_size=96), num_frames=8).size["height"]
            96
        """
        size = image_processor.crop_size if getattr(image_processor, "do_center_crop", False) else image_processor.size
        height, width = (size.get(side) or size["shortest_edge"] for side in ("height", "width"))
        return cls(
            size={"height": height, "width": width},
            image_mean=image_processor.image_mean,
            image_std=image_processor.image_std,
            num_frames=num_frames,
        )

    def preprocess(self, videos: Any, **kwargs: Any) -> BatchFeature:
        """See the class; keyword arguments replace the processor's own values for this call."""
        if kwargs.get("fps") is not None:
            kwargs.setdefault("num_frames", None)  # a rate replaces the processor's number
        if isinstance(videos, (list, tuple)):
            videos = [os.fspath(video) if isinstance(video, os.PathLike) else video for video in videos]
        features: BatchFeature = super().preprocess(
            os.fspath(videos) if isinstance(videos, os.PathLike) else videos, **kwargs
        )
        return features

    def sample_frames(
        self, metadata: VideoMetadata, num_frames: int | None = None, fps: float | None = None, **_: Any
    ) -> np.ndarray:
        """Choose frames by `middle_frame_indices`.

        Args:
            metadata: Of the video; `total_num_frames` is read, and `fps` where frames per second are wanted.
            num_frames: Frames wanted; default: the processor's.
            fps: Frames per second wanted, instead of a number of them.

        Returns:
            Indices of frames.

        Raises:
            ValueError: If both or neither are given, or if the video's frame rate is needed and unknown.
        """
        if (num_frames is None) == (fps is None):
            raise ValueError(f"give num_frames or fps, not both and not neither; got {num_frames} and {fps}")
        if num_frames is None:
            if not metadata.fps:
                raise ValueError("sampling by fps needs the frame rate of the video; pass it in video_metadata")
            num_frames = max(1, round(metadata.total_num_frames / metadata.fps * cast("float", fps)))
        return middle_frame_indices(metadata.total_num_frames, num_frames)

    def fetch_videos(self, video_url_or_urls: Any, sample_indices_fn: Callable[..., Any] | None = None) -> Any:
        """Decode with PyAV, which is installed with this package; transformers would need torchcodec."""
        if isinstance(video_url_or_urls, list):
            return list(zip(*(decode_frames(path, sample_indices_fn) for path in video_url_or_urls), strict=True))
        return decode_frames(video_url_or_urls, sample_indices_fn)

    def _decode_and_sample_videos(  # type: ignore[override]  # the options are handed on as they are
        self, videos: Any, video_metadata: Any = None, **options: Any
    ) -> tuple[list[Any], list[VideoMetadata]]:
        decode = cast("Callable[..., tuple[list[Any], list[VideoMetadata]]]", super()._decode_and_sample_videos)
        batch: list[Any] = make_batched_videos(videos)
        if any(isinstance(video, list) for video in batch):  # paths of images
            return decode(videos, video_metadata=video_metadata, **options)
        taken: list[Any] = []
        known: list[VideoMetadata] = []
        for video, metadata in zip(batch, make_batched_metadata(batch, video_metadata), strict=True):
            if is_valid_video(video):
                metadata = replace(metadata, total_num_frames=len(video))
            frames, described = decode([video], video_metadata=[metadata], **options)
            taken.extend(frames)
            known.extend(described)
        return taken, known

    def _prepare_input_videos(  # type: ignore[override]  # the options are handed on as they are
        self, videos: Sequence[Any], **options: Any
    ) -> list[torch.Tensor]:
        """One by one: the base class takes the first one's channels to be where those of all are."""
        return [super(AIMVideoProcessor, self)._prepare_input_videos([video], **options)[0] for video in videos]

    def _preprocess(  # type: ignore[override]  # the options are handed on as they are
        self, videos: list[torch.Tensor], **kwargs: Any
    ) -> BatchFeature:
        for video in videos:
            if kwargs["do_rescale"] and video.is_floating_point() and 0 < video.max() <= 1:
                raise ValueError("the frames are floats in [0, 1] already: pass uint8 frames, or do_rescale=False")
        features = super()._preprocess(videos, **kwargs)
        features["pixel_values"] = features.pop("pixel_values_videos")
        return features
