"""Kinds of encoders from a folder of videos to a result: by clip, and by text where the model reads texts.

TF-CoVR is in `test_search.py`.
"""

from pathlib import Path

import numpy as np
import pytest
from colored_videos import write_colored_video
from small_encoders import save_small, siglip, siglip_2
from small_index import index_config

from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from hf_models.index.store import MomentIndex
from subtle.footage import index, search
from subtle.footage.options import SearchConfig
from subtle.options import run_recipe
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP

COLORS = [(250, 20, 20), (20, 250, 20), (20, 20, 250), (245, 245, 245)]
WINDOWS = {"window_seconds": 2, "stride_seconds": 1}


def sentence_transformers(folder, tiny):
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(MINIATURE_VIDCLIP, device="cpu", trust_remote_code=True)
    type(model[0]).save_in_root, before = False, type(model[0]).save_in_root
    try:
        model.save_pretrained(str(folder), create_model_card=False)
    finally:
        type(model[0]).save_in_root = before
    return str(folder)


ENCODERS = {
    "CLIP": lambda folder, tiny: MINIATURE_CLIP,
    "VidCLIP": lambda folder, tiny: MINIATURE_VIDCLIP,
    "AIM": lambda folder, tiny: tiny["vision_model"],
    "SigLIP": lambda folder, tiny: save_small(siglip, folder),
    "SigLIP 2": lambda folder, tiny: save_small(siglip_2, folder),
    "sentence-transformers": sentence_transformers,
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number in range(2):
        write_colored_video(folder / f"{number}.mp4", COLORS[number:] + COLORS[:number], seed=number)
    return folder


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_finds_a_clip_again_and_answers_texts(name, videos, tiny, tmp_path, capsys):
    model = ENCODERS[name](tmp_path / "model", tiny)
    is_code = name == "sentence-transformers"
    made = index_config(videos, tmp_path / "index", model, **WINDOWS, trust_remote_code=is_code)
    index.run(made)
    asked = {"index": made.output, "device": "cpu", "limit": 100, "trust_remote_code": is_code}
    clip = {"clip": str(videos / "1.mp4"), "start_seconds": 1.0, "end_seconds": 3.0}
    best = search.find(SearchConfig(**asked, **clip))[0]
    assert (Path(best["video"]).name, best["start_seconds"]) == ("1.mp4", 1.0)
    assert best["score"] == pytest.approx(1.0, abs=1e-4)
    texts = {"text": "show red"}
    if name == "AIM":
        assert run_recipe(search.main, SearchConfig(**asked, **texts)) == 2
        assert "embeds videos only" in capsys.readouterr().err
        return
    found = search.find(SearchConfig(**asked, **texts))
    assert len(found) == 6
    assert len(search.find(SearchConfig(**asked, **clip, **texts))) == 6
    # Of sentence-transformers the length is unknown; SigLIP 2's own tokenizer makes one token of these words.
    if name not in {"sentence-transformers", "SigLIP 2"}:
        assert run_recipe(search.main, SearchConfig(**asked, text=" ".join(["show"] * 400))) == 2
        assert "tokens and the model reads" in capsys.readouterr().err


def test_an_index_of_a_factored_model_scores_as_the_model_does(videos, tmp_path, factored_retriever):
    made = index_config(videos, tmp_path / "index", factored_retriever, **WINDOWS)
    index.run(made)
    opened, encoder = MomentIndex(made.output), load_encoder(factored_retriever)
    rows = opened.moments(opened.active.key).to_arrow().to_pylist()
    assert len(rows[0]["vector"]) == 4
    clip = {"clip": str(videos / "1.mp4"), "start_seconds": 1, "end_seconds": 3}
    frames = read_frames(clip["clip"], 4, 1, 3, size=(16, 16)).frames
    for asked, query in (
        ({"text": "show red", **clip}, encoder.query(frames, "show red")),
        (clip, encoder.query(frames)),
        ({"text": "show red"}, encoder.query(text="show red")),
    ):
        scores = {row["moment_id"]: float(np.dot(row["vector"], query)) for row in rows}
        found = search.find(SearchConfig(index=made.output, device="cpu", **asked))
        best = sorted(scores.values(), reverse=True)[: len(found)]
        assert [row["score"] for row in found] == pytest.approx(best, abs=1e-5)
        assert all(row["score"] == pytest.approx(scores[row["moment_id"]], abs=1e-5) for row in found)
