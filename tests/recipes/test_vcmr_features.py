"""Features by id: stores, the authors' files, lengths and what is refused."""

import json

import numpy as np
import pytest
import torch
from moment_features import FeatureStore, checked, fit_clips, open_features
from safetensors.torch import save_file

VIDEOS = {"a": torch.arange(6.0).view(3, 2), "b": torch.ones(1, 2), "c": -torch.ones(5, 2)}


def test_a_store_gives_back_what_was_written_in_any_number_of_shards(tmp_path):
    store = FeatureStore(tmp_path / "video", {"clip_seconds": 0.5})
    store.append(["a", "b"], [VIDEOS["a"], VIDEOS["b"]])
    store.append(["c"], [VIDEOS["c"]])
    for found in (store, open_features(tmp_path, "video")):
        assert list(found)
        assert set(found) == set(VIDEOS)
        assert all(torch.equal(found[name], value) for name, value in VIDEOS.items())
        assert {name: found.length(name) for name in found} == {"a": 3, "b": 1, "c": 5}
        assert found.details == {"clip_seconds": 0.5}
        assert "d" not in found


def test_a_store_that_something_else_made_is_refused(tmp_path):
    FeatureStore(tmp_path, {"weights": "x"}).append(["a"], [VIDEOS["a"]])
    with pytest.raises(SystemExit, match="made with other weights"):
        FeatureStore(tmp_path, {"weights": "y"})
    assert FeatureStore(tmp_path).details == {"weights": "x"}


def test_a_damaged_shard_is_named(tmp_path):
    store = FeatureStore(tmp_path / "video")
    store.append(["a"], [VIDEOS["a"]])
    (shard,) = (tmp_path / "video").glob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:20])
    with pytest.raises(SystemExit, match=f"{shard.name} is damaged"):
        open_features(tmp_path, "video")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".h5"])
def test_the_authors_files_are_read_where_they_lie(tmp_path, suffix):
    path = tmp_path / f"video{suffix}"
    if suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in VIDEOS.items()})
    elif suffix == ".safetensors":
        save_file(VIDEOS, path)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            for name, value in VIDEOS.items():
                file[name] = value.numpy()
    found = open_features(tmp_path, "video")
    assert set(found) == set(VIDEOS)
    assert "a" in found
    assert "d" not in found
    assert all(torch.equal(found[name], value) for name, value in VIDEOS.items())
    assert found.length("c") == 5


def test_a_file_that_is_no_such_file_and_features_that_are_not_there_are_named(tmp_path):
    (tmp_path / "query-fine.npz").write_text("no zip")
    with pytest.raises(SystemExit, match=r"query-fine.npz cannot be read"):
        open_features(tmp_path, "query-fine")
    with pytest.raises(SystemExit, match=r"neither a folder .* nor a file video\.h5"):
        open_features(tmp_path, "video")


def test_pooled_clips_are_means_over_equal_bins_whose_edges_may_cut_a_row():
    features = torch.tensor([[0.0], [3.0], [6.0]])
    pooled, width = fit_clips(features, 2, "pool")
    assert width == 1.5
    assert pooled.flatten().tolist() == pytest.approx([(0 + 0.5 * 3) / 1.5, (0.5 * 3 + 6) / 1.5])
    long = torch.randn(101, 3, generator=torch.Generator().manual_seed(0))
    pooled, width = fit_clips(long, 7, "pool")
    assert pooled.shape == (7, 3)
    torch.testing.assert_close(pooled.mean(0), long.mean(0))  # equal bins keep the mean
    assert width == pytest.approx(101 / 7)


def test_short_videos_stay_and_long_ones_can_be_cut():
    assert fit_clips(VIDEOS["a"], 3, "pool")[0] is not None
    assert torch.equal(fit_clips(VIDEOS["a"], 3, "pool")[0], VIDEOS["a"])
    cut, width = fit_clips(VIDEOS["a"], 2, "truncate")
    assert torch.equal(cut, VIDEOS["a"][:2])
    assert width == 1.0


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(3), "shape .3,.; they must be .length, 2"),
        (torch.zeros(0, 2), "shape .0, 2."),
        (torch.zeros(3, 4), "shape .3, 4."),
        (torch.tensor([[0.0, float("nan")]]), "not finite"),
    ],
)
def test_features_of_another_shape_or_not_finite_are_refused_by_name(features, message):
    with pytest.raises(SystemExit, match=f"features of video x .*{message}"):
        checked(features, "video x", 2)


def test_the_description_is_json(tmp_path):
    FeatureStore(tmp_path, {"clip_seconds": 1.0}).append(["a"], [VIDEOS["a"]])
    assert json.loads((tmp_path / "features.json").read_text()) == {"clip_seconds": 1.0}
