"""Features by id: stores of vectors and of sequences, the files of others, lengths and what is refused."""

import os
import platform
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hf_models.feature_store import FeatureStore, checked_features, fit_clips, open_features

VIDEOS = {"a": torch.arange(6.0).view(3, 2), "b": torch.ones(1, 2), "c": -torch.ones(5, 2)}
DETAILS = {"weights": "8c1f"}
DAMAGED = "is damaged .* delete"


def test_a_store_gives_back_sequences_in_any_number_of_shards(tmp_path):
    store = FeatureStore(tmp_path / "video", {"clip_seconds": 0.5})
    store.append(["a", "b"], [VIDEOS["a"], VIDEOS["b"]])
    store.append(["c"], [VIDEOS["c"]])
    for found in (store, open_features(tmp_path, "video")):
        assert set(found) == set(VIDEOS)
        assert all(torch.equal(found[name], value) for name, value in VIDEOS.items())
        assert {name: found.length(name) for name in found} == {"a": 3, "b": 1, "c": 5}
        assert found.details == {"clip_seconds": 0.5}
        assert "d" not in found
    with pytest.raises(ValueError, match="holds sequences of different lengths; read them by id"):
        store.load()


def test_a_store_gives_back_vectors_whole_in_the_order_of_their_ids_and_by_id(tmp_path):
    """Names of shards are random, and a sum over all vectors must not depend on them."""
    store = FeatureStore(tmp_path, DETAILS)
    store.append(["c", "b"], torch.tensor([[5.0, 6.0], [3.0, 4.0]]))
    store.append(["a"], [torch.tensor([1.0, 2.0])])
    for found in (store, FeatureStore(tmp_path, DETAILS)):
        ids, values = found.load()
        assert (ids, values.tolist()) == (["a", "b", "c"], [[1, 2], [3, 4], [5, 6]])
        assert set(found) == set(ids)
        assert found["b"].tolist() == [3, 4]


def test_an_id_in_two_shards_counts_once(tmp_path):
    store = FeatureStore(tmp_path, DETAILS)
    store.append(["a", "b"], torch.ones(2, 2))
    store.append(["b", "c"], 2 * torch.ones(2, 2))
    ids, values = store.load()
    assert ids == ["a", "b", "c"]
    assert values[:, 0].tolist() == [1, 1, 2]
    assert len(store) == 3


def test_a_store_made_with_other_details_is_refused(tmp_path):
    FeatureStore(tmp_path, {"weights": "x", "sampler": "y"}).append(["a"], [VIDEOS["a"]])
    with pytest.raises(ValueError, match=r"made with other processor, weights than this run .* from scratch"):
        FeatureStore(tmp_path, {"weights": "y", "sampler": "y", "processor": "z"})
    assert FeatureStore(tmp_path).details == {"weights": "x", "sampler": "y"}


def test_a_store_that_another_run_filled_meanwhile_with_other_details_is_refused(tmp_path):
    late = FeatureStore(tmp_path, {"weights": "y"})
    FeatureStore(tmp_path, {"weights": "x"}).append(["a"], [VIDEOS["a"]])
    with pytest.raises(ValueError, match="made with other weights"):
        late.append(["b"], [VIDEOS["b"]])


def test_a_store_keeps_to_one_kind_of_features(tmp_path):
    store = FeatureStore(tmp_path)
    store.append(["a"], [VIDEOS["a"]])
    with pytest.raises(ValueError, match=r"has features of shape \(length, size\), not \(2,\)"):
        store.append(["b"], torch.ones(1, 2))
    with pytest.raises(ValueError, match="as many ids as features and at least one; got 2 and 1"):
        store.append(["b", "c"], [VIDEOS["b"]])


def test_an_empty_store_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing holds no features"):
        FeatureStore(tmp_path / "nothing").load()
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_file_of_a_store_is_named_with_the_cure(tmp_path):
    FeatureStore(tmp_path / "video").append(["a"], [VIDEOS["a"]])
    (shard,) = (tmp_path / "video").glob("*.safetensors")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:20])
    with pytest.raises(ValueError, match=f"{shard.name} {DAMAGED}"):
        open_features(tmp_path, "video")
    save_file({"weight": torch.ones(1)}, shard)
    with pytest.raises(ValueError, match=f"{shard.name} {DAMAGED}"):
        open_features(tmp_path, "video")
    shard.write_bytes(whole)
    (tmp_path / "video" / "features.json").write_text("{")
    with pytest.raises(ValueError, match=f"features.json {DAMAGED}"):
        open_features(tmp_path, "video")
    (tmp_path / "video" / "features.json").unlink()
    with pytest.raises(ValueError, match=r"neither store\.json nor features\.json"):
        open_features(tmp_path, "video")


def rewritten(shard, change):
    """The same file with other tensors or another header."""
    with safe_open(shard, "pt") as opened:
        tensors, header = {name: opened.get_tensor(name).clone() for name in opened.keys()}, opened.metadata()  # noqa: SIM118
    change(tensors, header)
    save_file(tensors, shard, metadata=header)


@pytest.mark.parametrize("features", [list(VIDEOS.values()), [torch.ones(2), torch.zeros(2), -torch.ones(2)]])
def test_a_store_that_is_not_as_it_was_written_is_refused_not_read_wrongly(tmp_path, features):
    changes = {
        "fewer ids": lambda tensors, header: header.update(ids='["a", "b"]'),
        "more ids": lambda tensors, header: header.update(ids='["a", "b", "c", "d"]'),
        "other ids": lambda tensors, header: header.update(ids='["b", "a", "c"]'),
        "ids that are no texts": lambda tensors, header: header.update(ids="[1, 2, 3]"),
        "one value": lambda tensors, header: max(tensors.values(), key=torch.numel).view(-1)[1:2].add_(1),
        "no checksum, as earlier versions wrote": lambda tensors, header: header.pop("checksum"),
        "other lengths": lambda tensors, header: tensors.update(lengths=torch.tensor([1, 3, 5])),
    }
    for number, change in enumerate(changes.values()):
        folder = tmp_path / str(number)
        FeatureStore(folder, {"clip_seconds": 0.5}).append(list(VIDEOS), features)
        (shard,) = folder.glob("*.safetensors")
        rewritten(shard, lambda tensors, header: None)
        assert set(FeatureStore(folder)) == set(VIDEOS)
        rewritten(shard, change)
        with pytest.raises(ValueError, match=f"{shard.name} {DAMAGED}"):
            FeatureStore(folder)
    (description,) = (tmp_path / "0").glob("*.json")
    FeatureStore(tmp_path / "last", {"clip_seconds": 0.5}).append(list(VIDEOS), features)
    description = tmp_path / "last" / description.name
    description.write_text(description.read_text().replace("0.5", "0.7"))
    with pytest.raises(ValueError, match=DAMAGED):
        FeatureStore(tmp_path / "last")


KILLED_WHILE_WRITING = """
import os, signal, sys, torch
from hf_models import feature_store
def killed(tensors, path, **_):
    path.write_bytes(b"half a shard")
    os.kill(os.getpid(), signal.SIGKILL)
feature_store.save_file = killed
feature_store.FeatureStore(sys.argv[1]).append(["a"], [torch.ones(3, 2)])
"""


def test_an_unfinished_file_of_a_killed_run_is_not_read_as_a_shard_and_the_next_run_removes_it(tmp_path, warm_python):
    killed = warm_python.run(["-c", KILLED_WHILE_WRITING, tmp_path])
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("*.tmp")
    assert not len(FeatureStore(tmp_path))
    assert left.exists(), "a reader removes nothing"
    FeatureStore(tmp_path).append(["a"], [VIDEOS["a"]])
    assert not list(tmp_path.glob("*.tmp"))
    assert list(FeatureStore(tmp_path)) == ["a"]


def test_unfinished_files_of_running_processes_stay(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone, host = int(gone.stdout), platform.node()
    kept = {f"shard-0.safetensors.{host}.{os.getpid()}.tmp", f"shard-1.safetensors.another-host.{gone}.tmp"}
    removed = {
        f"shard-2.safetensors.{gone}.tmp",
        f"shard-3.safetensors.{host}.{gone}.tmp",
        "shard-4.safetensors.a.1.tmp",
    }
    for name in kept | removed:
        (tmp_path / name).write_bytes(b"half a shard")
    os.utime(tmp_path / "shard-4.safetensors.a.1.tmp", (time.time() - 7200,) * 2)
    FeatureStore(tmp_path).append(["a"], [VIDEOS["a"]])
    assert {path.name for path in tmp_path.glob("*.tmp")} == kept


def test_a_shard_that_cannot_be_written_leaves_nothing_and_names_the_place(tmp_path, monkeypatch):
    def full(tensors, path, **_):
        path.write_bytes(b"half a shard")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hf_models.feature_store.save_file", full)
    with pytest.raises(OSError, match=rf"{tmp_path}/shard-.* cannot be written .* run again"):
        FeatureStore(tmp_path).append(["a"], [VIDEOS["a"]])
    assert [path.name for path in tmp_path.iterdir()] == ["features.json"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".h5"])
def test_files_of_others_are_read_in_place(tmp_path, suffix):
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


def test_a_damaged_file_and_missing_features_are_named(tmp_path):
    (tmp_path / "query-fine.npz").write_text("no zip")
    with pytest.raises(ValueError, match=r"query-fine.npz cannot be read"):
        open_features(tmp_path, "query-fine")
    with pytest.raises(FileNotFoundError, match=r"neither a folder .* nor a file video\.h5"):
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
    with pytest.raises(ValueError, match=f"features of video x .*{message}"):
        checked_features(features, "video x", 2)
