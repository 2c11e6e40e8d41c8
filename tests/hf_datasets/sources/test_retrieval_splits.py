"""The splits of retrieval benchmarks in the forms that people have them, and ActivityNet's real one."""

import json

import pytest

from hf_datasets.records import Rejection
from hf_datasets.sources.retrieval_splits import read_retrieval_split


def test_a_video_of_1ka_has_the_sentence_of_its_row(tmp_path):
    (tmp_path / "data").mkdir()
    lines = ["key,vid_key,video_id,sentence", 'ret0,msr9770,video9770,"a person, singing"', "ret1,msr1,video1,"]
    (tmp_path / "data" / "MSRVTT_JSFUSION_test.csv").write_text("\n".join(lines), encoding="utf-8")
    refused, found = read_retrieval_split(tmp_path, "msrvtt_1ka")
    assert found == ("video9770", ("a person, singing",))
    assert isinstance(refused, Rejection)
    assert refused.key == "video1"


@pytest.mark.parametrize("name", ["MSRVTT_data.json", "test_videodatainfo.json"])
def test_a_video_of_the_whole_test_split_has_all_its_sentences(tmp_path, name):
    splits = {"video1": "train", "video2": "test", "video3": "test"}
    videos = [{"video_id": video_id, "split": split} for video_id, split in splits.items()]
    sentences = [{"video_id": f"video{n}", "caption": f"caption {k} of {n}"} for k in range(2) for n in (1, 2)]
    (tmp_path / name).write_text(json.dumps({"videos": videos, "sentences": sentences}), encoding="utf-8")
    found, refused = read_retrieval_split(tmp_path, "msrvtt")
    assert found == ("video2", ("caption 0 of 2", "caption 1 of 2"))
    assert (refused.key, refused.reason) == ("video3", "no text")
    (tmp_path / name).write_text('{"videos": [{"id": 3}]}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"is not MSR-VTT's .*; fetch it again"):
        list(read_retrieval_split(tmp_path, "msrvtt"))


def test_a_paragraph_of_activitynet_is_all_sentences_of_the_video(shared):
    folder = shared / "data" / "activitynet_captions"
    read = list(read_retrieval_split(folder, "activitynet"))
    content = json.loads((folder / "val_1.json").read_text(encoding="utf-8"))
    whole = {video_id: " ".join(" ".join(entry["sentences"]).split()) for video_id, entry in content.items()}
    found = dict(one for one in read if not isinstance(one, Rejection))
    assert len(found) == len(content) == 4917
    assert sum(whole[video_id] == text for video_id, (text,) in found.items()) >= 4910  # others have a refused event


def test_a_folder_without_the_file_says_which_it_is(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no MSRVTT_data.json or test_videodatainfo.json"):
        list(read_retrieval_split(tmp_path, "msrvtt"))
