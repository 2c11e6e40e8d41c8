"""Keyframes of a moment: the middle of each scene in it, by PySceneDetect's adaptive threshold."""

from itertools import pairwise
from pathlib import Path


def keyframe_seconds(path: str | Path, start_seconds: float, end_seconds: float) -> list[float]:
    """The times of a moment's keyframes: the middle of each scene, at least one.

    Scenes are found by PySceneDetect with the adaptive threshold, as in the paper. It is an optional dependency.

    Args:
        path: The video.
        start_seconds: Where the moment starts.
        end_seconds: Where it ends; one beyond the video is taken as the video's end.

    Returns:
        Times in seconds, ascending, inside the moment.

    Raises:
        ImportError: PySceneDetect is not installed.
        OSError: The video cannot be opened.
        ValueError: The moment is empty or begins after the video ends.
    """
    try:
        import scenedetect
    except ImportError as error:
        raise ImportError("keyframes need PySceneDetect: pip install 'subtle-video[keyframes]'") from error
    if not 0 <= start_seconds < end_seconds:
        raise ValueError(f"the moment from {start_seconds} to {end_seconds} s is empty")
    start_seconds, end_seconds = float(start_seconds), float(end_seconds)  # integers would be numbers of frames
    try:
        video = scenedetect.open_video(str(path))
    except scenedetect.VideoOpenFailure as error:
        raise OSError(f"{path} cannot be opened ({error})") from None
    end = min(end_seconds, video.duration.seconds)
    if start_seconds >= end:
        raise ValueError(f"the moment begins at {start_seconds} s, {path} ends at {end:.2f} s")
    manager = scenedetect.SceneManager()
    manager.add_detector(scenedetect.AdaptiveDetector())
    video.seek(start_seconds)
    manager.detect_scenes(video, end_time=end)
    starts = (scene_start.seconds for scene_start, _ in manager.get_scene_list())
    cuts = [seconds for seconds in starts if start_seconds < seconds < end]
    edges = [start_seconds, *cuts, end]
    return [(first + last) / 2 for first, last in pairwise(edges)]
