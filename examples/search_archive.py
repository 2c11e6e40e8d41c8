"""Search an archive of videos from a program: an index, a text, a clip, marks, a thousand queries, files for editors.

    python examples/search_archive.py myvideos openai/clip-vit-base-patch32

The folder holds videos, the model is any that the guide names. Without arguments the script draws videos of a lamp that
changes its color every second, and takes the small model that comes with the recipes. `# %%` begins a notebook's cell.
"""

# %%
import sys
import tempfile
import time
from pathlib import Path

from drawn_videos import COLORS, draw

import subtle

folder = Path(tempfile.mkdtemp())
videos, model = folder / "videos", str(Path(__file__).parents[1] / "recipes/weights/miniature-clip")
if len(sys.argv) == 3:
    videos, model = Path(sys.argv[1]), sys.argv[2]
else:
    videos.mkdir()
    draw(videos)
index = subtle.create_index(folder / "archive")
index.update(videos, model=model, window_seconds=1, stride_seconds=1)
print(f"{len(index)} moments")

# %% A text, then a clip: moments of other videos that look like the first one that was found.
found = index.search(text="a red light", limit=3)
print(*(f"  {one.video} {one.start_seconds:g}-{one.end_seconds:g} s {one.score:.3f}" for one in found), sep="\n")
clip = {"clip": found[0].path, "start_seconds": found[0].start_seconds, "end_seconds": found[0].end_seconds}
alike = index.search(**clip, exclude_same_video=True, limit=3)

# %% What you know of the moments moves the query.
moved = index.search(text="a red light", more_like=alike[:1], less_like=alike[-1:], limit=3)
print(f"with marks: {moved[0].video} {moved[0].start_seconds:g} s")

# %% Many queries are encoded and searched together.
queries = [{"text": f"a {color} light {number}"} for number in range(334) for color in COLORS][:1000]
began = time.perf_counter()
many = index.search_many(queries, limit=5)
print(f"{len(many)} queries in {time.perf_counter() - began:.1f} s")

# %% Clips, a contact sheet, timelines for editors, tasks for annotators.
failures = index.export(alike, folder / "found", exact=True)
print(f"{len(list((folder / 'found/clips').iterdir()))} clips, {len(failures)} failures: {folder / 'found'}")
index.close()
