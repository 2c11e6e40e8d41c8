"""XML, ReLoCLNet and HERO whose weights accelerate keeps in memory or on disk until a layer runs."""

import copy

import pytest
import torch
from accelerate import cpu_offload, disk_offload
from small_moment_models import both_streams, every_model, inputs, small

from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.spans import SpanSearch


def in_memory(model, path):
    return cpu_offload(model, execution_device=torch.device("cpu"))


def on_disk(model, path):
    return disk_offload(model, str(path / "weights"), execution_device=torch.device("cpu"))


def loaded_with_little_memory(model, path):
    model.save_pretrained(path / "model")
    size = sum(parameter.nbytes for parameter in model.parameters())
    limits = {"device_map": "auto", "max_memory": {"cpu": size // 2}, "offload_folder": path / "weights"}
    loaded = type(model).from_pretrained(path / "model", **limits)
    assert "disk" in loaded.hf_device_map.values()
    return loaded


@pytest.mark.parametrize(
    "offload", [in_memory, pytest.param(on_disk, marks=pytest.mark.slow), loaded_with_little_memory]
)
@every_model
@both_streams
@torch.no_grad()
def test_an_offloaded_model_gives_what_the_plain_one_does(name, subtitles, offload, tmp_path):
    model, batch = small(name, subtitles=subtitles), inputs(subtitles=subtitles)
    expected = model(**batch)
    found = offload(copy.deepcopy(model), tmp_path)(**batch)
    for output in ("video_scores", "start_logits", "end_logits"):
        torch.testing.assert_close(found[output], expected[output], atol=1e-5, rtol=1e-5)


@every_model
@torch.no_grad()
def test_an_offloaded_model_searches_as_the_plain_one_does(name, tmp_path):
    model, batch = small(name), inputs()
    queries, rankings = (batch["query_features"], batch["query_mask"]), []
    for one in (model, on_disk(copy.deepcopy(model), tmp_path)):
        videos = VideoBatch(["a", "b", "c"], batch["video_features"], batch["video_mask"], torch.ones(3))
        corpus = encode_corpus(one, [videos], num_videos=3)
        search = SpanSearch(one, corpus, min_clips=1, max_clips=4, num_spans=20)
        rankings.append(search.rank(one.encode_query(*queries))[0])
    assert (rankings[0].start_seconds == rankings[1].start_seconds).all()
    torch.testing.assert_close(*(torch.from_numpy(ranking.scores) for ranking in rankings))
