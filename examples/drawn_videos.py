"""Videos for the examples to run on where you give none: a lamp that changes its color every second."""

from pathlib import Path

import numpy as np

COLORS = {"red": (230, 20, 20), "green": (20, 230, 20), "blue": (20, 20, 230)}


def draw(folder: Path) -> None:
    """Write `clips.csv` and `lamp0.mp4` to `lamp5.mp4`; 0 and 3, 1 and 4, 2 and 5 have the same order of colors."""
    import av

    rows = ["clip_id,video_id,start_seconds,end_seconds,label"]
    for number in range(6):
        order = [*COLORS, *COLORS][number % 3 :][:3]
        noise = np.random.default_rng(number)
        with av.open(str(folder / f"lamp{number}.mp4"), "w") as video:
            stream = video.add_stream("libx264", rate=8)
            stream.width, stream.height, stream.pix_fmt = 48, 48, "yuv420p"
            for second, color in enumerate(order):
                rows.append(f"{number}-{color},lamp{number},{second},{second + 1},{color} light")
                for _ in range(8):
                    pixels = np.clip(np.array(COLORS[color]) + noise.integers(-20, 20, (48, 48, 3)), 0, 255)
                    frame = av.VideoFrame.from_ndarray(pixels.astype(np.uint8), format="rgb24")
                    video.mux(stream.encode(frame))
            video.mux(stream.encode())
    (folder / "clips.csv").write_text("\n".join(rows), encoding="utf-8")
