"""A corpus encoded on disk survives a kill."""

import json

import pytest
import torch
from small_moment_models import small

from hf_models.moments import corpus as corpora
from hf_models.moments.corpus import MomentCorpus, VideoBatch, encode_corpus

VIDEOS, CLIPS = 40, 9


def batches(seed=3):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(VIDEOS, CLIPS, 10, generator=generator)
    lengths = torch.arange(VIDEOS) % CLIPS + 1
    for first in range(0, VIDEOS, 8):
        rows = slice(first, first + 8)
        mask = (torch.arange(CLIPS) < lengths[rows, None]).float()
        ids = [f"video {number}" for number in range(VIDEOS)[rows]]
        yield VideoBatch(ids, features[rows], mask, torch.ones(len(ids)))


def test_a_killed_encoding_goes_on_and_one_that_is_done_is_kept(tmp_path, monkeypatch):
    model, encoded, real = small("xml"), [], corpora._encode
    monkeypatch.setattr(corpora, "_encode", lambda *given: (encoded.append(given[1].video_ids[0]), real(*given))[1])

    def killed():
        for number, batch in enumerate(batches()):
            if number == 3:
                raise KeyboardInterrupt
            yield batch

    folder = tmp_path / "corpus"
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(model, killed(), num_videos=VIDEOS, folder=folder)
    journal = tmp_path / ".corpus-unfinished" / "encoded.jsonl"
    journal.write_text(journal.read_text()[:-7])  # killed while it was writing
    assert not folder.exists()
    resumed = encode_corpus(model, batches(), num_videos=VIDEOS, folder=folder)
    expected = encode_corpus(model, batches(), num_videos=VIDEOS)
    assert resumed.video_ids == expected.video_ids
    torch.testing.assert_close(resumed.retrieval, expected.retrieval)
    assert encoded[:-5] == ["video 0", "video 8", "video 16", "video 16", "video 24", "video 32"]
    encoded.clear()
    encode_corpus(model, batches(), num_videos=VIDEOS, folder=folder)
    assert not encoded
    whole = encode_corpus(model, batches(seed=9), num_videos=VIDEOS, folder=folder)
    in_memory = encode_corpus(model, batches(seed=9), num_videos=VIDEOS)
    torch.testing.assert_close(whole.retrieval, in_memory.retrieval)
    torch.testing.assert_close(whole.localization, in_memory.localization)
    assert torch.equal(MomentCorpus.open(folder).num_clips, in_memory.num_clips)
    encoded.clear()
    encode_corpus(small("reloclnet"), batches(), num_videos=VIDEOS, folder=folder)
    assert len(encoded) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert json.loads((folder / "corpus.json").read_text())["video_ids"] == [f"video {n}" for n in range(VIDEOS)]
