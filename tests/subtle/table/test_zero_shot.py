"""Table 2 by one command: every kind of row, the protocol of the other recipes, what goes wrong, and a kill."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hf_models import AIMModel, AIMVideoProcessor
from hf_models.encoders import load_encoder
from hf_models.encoders.dual_encoders import ImageEncoder, LanguageBindEncoder
from hf_models.feature_store import FeatureStore
from subtle.embedding.loop import Work, read_clip_frames
from subtle.evaluate import evaluate_mteb
from subtle.evaluate.options import EvaluateMTEBConfig
from subtle.run.data import with_split
from subtle.table import costs, zero_shot
from subtle.table.caption_texts import captions_in, check_share
from subtle.table.embedding import Embedder
from subtle.table.options import ZeroShotConfig
from subtle.table.queries import compose_queries
from subtle.table.rows import read_rows
from subtle.table.scoring import EvaluatedSplit
from subtle.table.table import main
from tests.fixtures import small_encoders
from tests.fixtures.colored_videos import write_colored_video
from tests.fixtures.small_encoders import save_small
from tests.fixtures.videos import numbers_of, write_video

FURTHER = {"models": ["none"], **dict.fromkeys(("tf_cvr", "aim_k400_8", "aim_k400_16", "aim_k400_32"))}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Folders of small random models by the option that takes them."""
    root = tmp_path_factory.mktemp("small-models")
    makers = {"gme": "gme", "mm_embed": "mm_embed", "e5_v": "e5_v", "blip2": "blip_2", "blip_covr": "blip"}
    makers |= {"languagebind": "languagebind", "clip": "clip", "v_jepa_2": "v_jepa_2"}
    made = {name: save_small(getattr(small_encoders, maker), root / name) for name, maker in makers.items()}
    aim = root / "aim"
    AIMModel.from_clip(made["clip"], num_frames=4).save_pretrained(aim)
    AIMVideoProcessor(size={"height": 16, "width": 16}, num_frames=4).save_pretrained(aim)
    return made | {"aim": str(aim)}


@pytest.fixture
def options(tiny, tmp_path, caches):
    """Of a run on the tiny dataset that measures no row but those that a test adds."""
    work = {"num_workers": 0, "device": "cpu", "output_dir": str(tmp_path / "table")}
    return {"dataset": tiny["dataset"], **FURTHER, **work}


def results_of(options):
    return json.loads(Path(options["output_dir"], "results.json").read_text())


def test_every_kind_of_row_runs(small, options, capsys):
    named = {name: small[name] for name in ("gme", "mm_embed", "e5_v", "blip2", "blip_covr", "languagebind")}
    named |= {"blip_covr_ecde": small["blip_covr"], "tf_cvr": small["clip"], "aim_text": small["clip"]}
    config = ZeroShotConfig(**options | named | {"aim_k400_8": small["aim"], "aim_diving48_32": small["aim"]})
    assert main(config) == 0
    rows = read_rows([config.output_dir])
    assert {row.name for row in zero_shot.TABLE_2} - set(rows) == {"AIM (k400), 16 frames", "AIM (k400), 32 frames"}
    assert all(0 < row.metrics["map@50"] <= 1 for row in rows.values())
    frames = {name: (row.columns["query frames"], row.columns["target frames"]) for name, row in rows.items()}
    assert frames["GME-Qwen2-VL-2B"] == (1, 15)
    assert frames["BLIP2, text"] == ("-", 15)
    assert frames["LanguageBind"] == (4, 4)
    assert frames["AIM (diving48), 32 frames"] == (32, 32)
    assert rows["AIM (k400), 8 frames"].columns["model"] == "aim (made for 4 frames, stretched)"
    assert rows["BLIP-CoVR-ECDE"].columns["captions"] == rows["TF-CVR"].columns["captions"] == "label captions"
    assert rows["MM-Embed"].columns["license"] == "CC-BY-NC-4.0"
    assert "paper" not in rows["E5-V"].columns
    assert "AIM (k400), 16 frames: not measured: name a model with --aim_k400_16" in capsys.readouterr().out


def test_languagebind_reads_from_the_first_frame_to_the_last_as_it_was_released(tmp_path):
    video = write_video(tmp_path / "video.mp4", 50)
    clip = {"clip_id": "a", "video": str(video), "start_seconds": None, "end_seconds": None}
    for encoder, numbers in ((LanguageBindEncoder, [0, 16, 32, 49]), (ImageEncoder, [5, 18, 30, 43])):
        ((_, frames),) = read_clip_frames([clip], 4, {}, Work(num_workers=0), spread=encoder.spread)
        assert numbers_of(SimpleNamespace(frames=frames)) == numbers


def test_the_average_of_clip_is_that_of_mteb(small, options, tiny):
    config = ZeroShotConfig(**options | {"models": [small["clip"]], "ways": ["average"]})
    assert main(config) == 0
    asked = {"models": [small["clip"]], "baselines": ["none"], "dataset": tiny["dataset"], "num_workers": 0}
    theirs = evaluate_mteb.run(EvaluateMTEBConfig(**asked, device="cpu", output_dir=f"{config.output_dir}-mteb"))
    ours = results_of(options)["figures"]["clip, average"]
    for cut in (5, 10, 25, 50):
        assert ours[f"map@{cut}"] == pytest.approx(
            theirs["clip"][f"TFCoVRMini/map_at_{cut}_own_clip_left_out"], abs=1e-6
        )


def test_the_average_of_a_model_of_ours_is_its_own_query(factored_retriever, options, tmp_path):
    """The mean of its stored halves would be of a target and of a query without a video."""
    encoder, work = load_encoder(factored_retriever), Work(num_workers=0)
    benchmark = EvaluatedSplit.load(with_split(ZeroShotConfig(**options)))
    rows = benchmark.rows[:3]
    made = compose_queries("average", Embedder(encoder, tmp_path, work), rows, benchmark.clips.values())
    clips = [benchmark.clips[row["query_clip_id"]] for row in rows]
    frames = dict(read_clip_frames(clips, encoder.num_frames, {}, work))
    with torch.inference_mode():
        texts = [row["modification_text"] for row in rows]
        expected = encoder.encode_query([frames[row["query_clip_id"]] for row in rows], texts)
    torch.testing.assert_close(made.rows(row["query_id"] for row in rows), expected)


def test_a_run_that_was_ended_goes_on_and_encodes_nothing_twice(small, options, monkeypatch):
    options |= {"models": [small["clip"]], "ways": ["average", "text"], "batch_size": 2, "shard_size": 2}
    append, files = FeatureStore.append, iter(range(2))

    def append_and_end(store, *rows):
        append(store, *rows)
        if next(files, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FeatureStore, "append", append_and_end)
        with pytest.raises(KeyboardInterrupt):
            main(ZeroShotConfig(**options))
    assert stored(options) == 6
    encoded = count_videos(monkeypatch)
    assert main(ZeroShotConfig(**options)) == 0
    assert sum(encoded[1:]) == 12 - 6  # the first is the trial of a model that is loaded
    assert stored(options) == 12
    whole = options | {"output_dir": f"{options['output_dir']}-whole"}
    assert main(ZeroShotConfig(**whole)) == 0
    assert results_of(options)["figures"] == results_of(whole)["figures"]
    del encoded[:]
    assert main(ZeroShotConfig(**options)) == 0
    assert not encoded


def stored(options):
    """How many clips the embeddings of clips hold, each as often as it was written."""
    files = Path(options["output_dir"], "embeddings").glob("clips-*/shard-*.safetensors")
    return sum(len(json.loads(safe_open(file, framework="pt").metadata()["ids"])) for file in files)


def count_videos(monkeypatch):
    """How many videos an image model embeds at a time, from now on."""
    counts, encode = [], ImageEncoder.encode_video

    def counted(self, frames):
        counts.append(len(frames))
        return encode(self, frames)

    monkeypatch.setattr(ImageEncoder, "encode_video", counted)
    return counts


def test_what_is_wrong_with_a_row_is_its_reason_and_the_others_are_measured(small, options, tmp_path):
    mixed, halved = (save_small(small_encoders.clip, tmp_path / name) for name in ("mixed", "half"))
    small_encoders.siglip()[1].save_pretrained(mixed)
    take_weights_away(Path(halved))
    captions = write_captions(tmp_path)
    wrong = {
        "gme": small["clip"],
        "blip_covr": small["blip2"],
        "blip_covr_ecde": small["blip_covr"],
        "captions": captions,
        "aim_k400_8": small["aim"],
        "aim_text": save_other_clip(tmp_path / "other"),
        "aim_k400_16": "no/such/folder",
        "models": [small["v_jepa_2"], mixed, halved, small["clip"]],
        "ways": ["average"],
    }
    assert main(ZeroShotConfig(**options | wrong)) == 1
    results = results_of(options)
    assert list(results["figures"]) == ["clip, average"]
    reasons = results["failed"]
    assert "no multimodal language model" in reasons["GME-Qwen2-VL-2B"]
    assert "no text encoder that looks at a frame" in reasons["BLIP-CoVR"]
    assert "V-JEPA 2 has no text tower" in reasons["v_jepa_2, average"]
    assert "a 'clip' model takes a CLIPProcessor" in reasons["mixed, average"]
    assert "are missing" in reasons["half, average"]
    assert "was built on another CLIP" in reasons["AIM (k400), 8 frames"]
    assert "no/such/folder is not a model folder" in reasons["AIM (k400), 16 frames"]
    assert reasons["BLIP-CoVR-ECDE"].startswith("captions.csv: 8 of 12 captions are usable")


def test_captions_are_counted_and_named_by_what_is_wrong_with_them(tmp_path):
    wanted = [*(f"test-red-{number}" for number in range(3)), "gone"]
    found = captions_in(write_captions(tmp_path), wanted, "clip_id", "caption")
    assert found.unusable == {
        "test-red-0": "empty answer",
        "test-red-1": "refused by the model",
        "test-red-2": "is in another language than English",
        "gone": "not in the file",
    }
    with pytest.raises(ValueError, match=r"1 refused by the model.*such as of test-red-0, test-red-1.*with --captions"):
        check_share(found, "--captions")
    (tmp_path / "two.csv").write_text("clip_id,caption\na,salto forward tucked\na,salto backward tucked\n")
    with pytest.raises(ValueError, match="gives clip_id 'a' two captions; leave one of them"):
        captions_in(tmp_path / "two.csv", ["a"], "clip_id", "caption")


def write_captions(folder):
    """A table of which some captions cannot be used."""
    texts = {f"test-red-{n}": text for n, text in enumerate(("", "I'm sorry, I can't help with that.", FRENCH))}
    texts |= {f"test-{color}-{n}": f"a {color} clip" for color in ("green", "blue", "grey") for n in range(3)}
    texts["test-grey-2"] = None
    pl.DataFrame({"clip_id": texts.keys(), "caption": texts.values()}).write_csv(folder / "captions.csv")
    return str(folder / "captions.csv")


FRENCH = "Le plongeur saute du tremplin de trois mètres et fait deux tours."


def take_weights_away(folder):
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "text_projection" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def save_other_clip(folder):
    """Of other weights than `save_small` gives."""
    for part in small_encoders.clip():
        part.save_pretrained(folder)
    return str(folder)


def test_clips_without_labels_have_no_label_captions(small, options, tiny, tmp_path):
    data = shutil.copytree(tiny["dataset"], tmp_path / "no-labels")
    for path in data.glob("mini/*.parquet"):
        pl.read_parquet(path).with_columns(target_label=pl.lit(None, pl.String)).write_parquet(path)
    assert main(ZeroShotConfig(**options | {"dataset": str(data), "tf_cvr": small["clip"]})) == 1
    first = ", ".join(pl.read_parquet(data / "mini/test.parquet")["query_id"][:5])
    assert f"36 no label; such as of {first})" in results_of(options)["failed"]["TF-CVR"]
    assert "--rewritten" in results_of(options)["failed"]["TF-CVR"]


def test_a_dry_run_loads_nothing_and_names_a_gpu_that_is_too_small(small, options, monkeypatch, capsys):
    monkeypatch.setattr(zero_shot, "load_encoder", None)
    monkeypatch.setattr(costs.torch.cuda, "mem_get_info", lambda _: (100, 200))
    chosen = options | {"blip2": small["blip2"], "aim_k400_8": small["aim"], "aim_text": small["clip"]}
    assert main(ZeroShotConfig(**chosen, dry_run=True)) == 0
    assert "not configured" in capsys.readouterr().out
    machine = costs.Machine(costs.torch.device("cuda"), 1e12, 1)
    found = {cost.name: cost for cost in zero_shot.Table2(ZeroShotConfig(**chosen)).costs(machine)}
    refused = {name for name, cost in found.items() if cost.note == "refused: cuda has 0.0 GB free"}
    assert refused == {"BLIP2, text", "BLIP2, video", "AIM (k400), 8 frames"}
    assert found["BLIP2, text"].models[small["blip2"]].download_bytes > 0 < found["BLIP2, text"].hours


def test_a_row_that_is_not_there_is_refused_with_the_nearest(options):
    with pytest.raises(SystemExit, match="did you mean BLIP2, video"):
        main(ZeroShotConfig(**options | {"rows": ["BLIP2 video"]}))


def test_own_clips_of_any_vocabulary_are_measured(small, options, tmp_path):
    (tmp_path / "videos").mkdir()
    colors = {"turns red": (250, 20, 20), "turns green": (20, 250, 20), "goes out": (10, 10, 10)}
    rows = []
    for video in range(6):
        write_colored_video(tmp_path / f"videos/match{video}.mp4", list(colors.values()), seed=video)
        times = [{"video_id": f"match{video}", "start_seconds": place, "end_seconds": place + 1} for place in range(3)]
        names = enumerate(colors)
        rows += [{"clip_id": f"{video}-{place}", "label": label} | times[place] for place, label in names]
    pl.DataFrame(rows).write_csv(tmp_path / "clips.csv")
    folders = {"data_dir": str(tmp_path), "video_dir": str(tmp_path / "videos")}
    own = {"dataset": "tfcovr", "dataset_config": "own", **folders}
    assert main(ZeroShotConfig(**options | own | {"models": [small["clip"]], "tf_cvr": small["clip"]})) == 0
    results = results_of(options)
    assert list(results["figures"]) == ["TF-CVR", *(f"clip, {way}" for way in ("average", "text", "video"))]
    assert results["data"]["dataset_config"] == "own"


def test_the_rows_that_are_asked_for_are_measured_and_one_of_another_configuration_is_refused(small, options):
    options |= {"models": [small["clip"]], "blip2": small["blip2"], "rows": ["clip, text"]}
    assert main(ZeroShotConfig(**options)) == 0
    assert list(results_of(options)["figures"]) == ["clip, text"]
    with pytest.raises(ValueError, match="measured with other target_frames"):
        main(ZeroShotConfig(**options | {"target_frames": 3}))
