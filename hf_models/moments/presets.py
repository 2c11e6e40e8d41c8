"""How moments of each dataset are predicted: their lengths, what is read of a video, the threshold of NMS."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpanPreset:
    """How moments of a dataset are predicted (VERIFIED, section 4.1).

    Args:
        min_clips: Shortest moment.
        max_clips: Longest moment.
        max_video_clips: What is read of a video.
        nms_threshold: Spans that overlap a better one more than this are dropped.
        clip_seconds: Seconds of video in a clip.
    """

    min_clips: int
    max_clips: int
    max_video_clips: int
    nms_threshold: float
    clip_seconds: float = 1.0


PRESETS = {
    "charades_fig": SpanPreset(min_clips=2, max_clips=12, max_video_clips=48, nms_threshold=0.6),
    "didemo_fig": SpanPreset(min_clips=5, max_clips=30, max_video_clips=30, nms_threshold=0.6),
    "activitynet_fig": SpanPreset(min_clips=1, max_clips=180, max_video_clips=240, nms_threshold=0.5),
}
# The miniature's moments last 1.1 to 1.9 seconds, its videos one and a half minutes. In clips of a second, three
# moments of four could not be marked to an IoU of 0.7.
MINIATURE = SpanPreset(min_clips=2, max_clips=5, max_video_clips=192, nms_threshold=0.6, clip_seconds=0.5)
