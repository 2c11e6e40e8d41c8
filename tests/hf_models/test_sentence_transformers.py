"""Saved folders as sentence-transformers models: embeddings against our own models', also without this package."""

import json
import sys
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from small_tfcovr import SMALL, aim
from small_vidclip import make_processor, small_vidclip
from torch.nn import functional as F
from transformers import AutoModel, BertConfig, BertTokenizerFast

from hf_models import (
    AIMForVideoClassification,
    AIMModel,
    AIMVideoProcessor,
    FactoredCoVRConfig,
    FactoredCoVRForComposedRetrieval,
    TFCoVRConfig,
    TFCoVRForComposedRetrieval,
    TFCoVRProcessor,
)
from hf_models.encoders import load_encoder, load_sentence_transformer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "show", "with", "two", "turns", "a", "half"]
TEXTS = ["show with 2 turns", "a half"]
FRAMES = 4
ENCODE = """
import json, sys
sys.modules["hf_models"] = None  # as if it were not installed
import numpy as np
from sentence_transformers import SentenceTransformer

root, path = sys.argv[1:]
text, video = "show with 2 turns", {"video": path}
inputs = {"tfcovr": [{**video, "text": text}, video, text], "vidclip": [video, text], "aim": [video]}
inputs |= {"factored": inputs["tfcovr"], "aim-gru": [video]}
found = {}
for family, each in inputs.items():
    model = SentenceTransformer(f"{root}/{family}", trust_remote_code=True)
    assert type(model[0].model).__module__.startswith("transformers_modules")
    found[family] = [model.encode([one])[0].tolist() for one in each]
    model.save_pretrained(f"{root}/again/{family}", create_model_card=False)
    again = SentenceTransformer(f"{root}/again/{family}", trust_remote_code=True)
    for one in each:
        np.testing.assert_allclose(again.encode([one]), model.encode([one]), rtol=1e-5, atol=1e-5)
print(json.dumps(found))
"""


def frames_of(seed, count=FRAMES):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, 16, 16), generator=generator, dtype=torch.uint8)


def write_video(path, frames):
    """A lossless file."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25, width=16, height=16, pix_fmt="bgr0")
        for frame in frames.permute(0, 2, 3, 1).numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return str(path)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A folder with a saved model of each family, the models, their processors, and two videos of 9 frames."""
    root = tmp_path_factory.mktemp("saved")
    (root / "vocab.txt").write_text("\n".join(WORDS))
    videos = [AIMVideoProcessor(size={"height": 8, "width": 8}, num_frames=FRAMES) for _ in range(2)]
    tokenizer = BertTokenizerFast(str(root / "vocab.txt"))
    torch.manual_seed(0)
    text = BertConfig(vocab_size=len(WORDS), **SMALL)
    sizes = {"projection_dim": 12, "fusion_hidden_dim": 8}
    config = TFCoVRConfig(vision_config=aim(), text_config=text, **sizes)
    factored = FactoredCoVRConfig(vision_config=aim(), text_config=text, num_labels=5, **sizes)
    models = {
        "tfcovr": (TFCoVRForComposedRetrieval(config).eval(), TFCoVRProcessor(videos[0], tokenizer)),
        "factored": (FactoredCoVRForComposedRetrieval(factored).eval(), TFCoVRProcessor(videos[0], tokenizer)),
        "vidclip": (small_vidclip(), make_processor()),
        "aim": (AIMModel(aim()).eval(), videos[1]),
        "aim-gru": (AIMModel(aim(temporal_pooling="gru")).eval(), videos[1]),
    }
    for family, parts in models.items():
        for part in parts:
            part.save_pretrained(root / family)
    paths = [write_video(root / f"{seed}.mkv", frames_of(seed, count=9)) for seed in range(2)]
    return SimpleNamespace(root=root, models=models, videos=paths)


@pytest.fixture(scope="module")
def composer(case):
    return SentenceTransformer(str(case.root / "tfcovr"), device="cpu")


@torch.inference_mode()
def native(case, family):
    """Our own model's embeddings of the first video with the first text, the video, and the text, where it has them."""
    model, processor = case.models[family]
    pixels = dict(processor(case.videos[0], return_tensors="pt"))
    if family.startswith("aim"):
        return [model(**pixels).pooler_output]
    tokens = dict(processor(text=TEXTS[0]))
    if family == "vidclip":
        return [model.get_video_features(**pixels), model.get_text_features(**tokens)]
    return [
        model.get_query_features(**pixels, **tokens),
        model.get_target_features(**pixels),
        model.get_query_features(**tokens),
    ]


def assert_close(found, expected):
    torch.testing.assert_close(torch.as_tensor(found), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # of the families, the tests of cards and of the Hub run the same in processes of their own
def test_a_saved_folder_of_each_family_is_a_model_where_this_package_is_not_installed(case, tmp_path, warm_python):
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = warm_python.run(["-c", ENCODE, case.root, case.videos[0]], env=environment, cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    for family, found in json.loads(done.stdout.splitlines()[-1]).items():
        assert_close(found, torch.cat(native(case, family)))


def test_a_clip_and_a_text_compose_a_clip_alone_is_a_target_and_a_text_is_in_the_same_space(case, composer):
    composed, target, text = native(case, "tfcovr")
    video = {"video": case.videos[0]}
    assert_close(composer.encode([{**video, "text": TEXTS[0]}]), composed)
    assert_close(composer.encode([{"text": TEXTS[0], **video}]), composed)
    assert_close(composer.encode([video]), target)
    assert_close(composer.encode(video), target[0])
    assert_close(composer.encode_query(TEXTS[:1]), text)
    assert_close(composer.encode_document([video]), target)
    assert composer.get_embedding_dimension() == composed.shape[1] == 12
    assert composer.similarity_fn_name == "cosine"
    assert_close(composer.similarity(composed, target), composed @ target.T)


def test_a_factored_model_embeds_as_many_numbers_as_it_has_labels(case):
    model = SentenceTransformer(str(case.root / "factored"), device="cpu")
    composed, target, text = native(case, "factored")
    assert_close(model.encode([{"video": case.videos[0], "text": TEXTS[0]}]), composed)
    assert_close(model.encode([{"video": case.videos[0]}]), target)
    assert_close(model.encode(TEXTS[:1]), text)
    assert model.get_embedding_dimension() == target.shape[1] == 5


@pytest.mark.parametrize("pooling", ["mean", "gru"])
@pytest.mark.parametrize("cls", [AIMModel, AIMForVideoClassification])
def test_a_clip_is_what_an_encoder_or_that_of_a_classifier_pools_of_its_frames(case, tmp_path, cls, pooling):
    model = cls(aim(temporal_pooling=pooling)).eval()
    model.save_pretrained(tmp_path)
    case.models["aim"][1].save_pretrained(tmp_path)
    encoder = SentenceTransformer(str(tmp_path), device="cpu")
    output = model.base_model(**case.models["aim"][1](case.videos[0], return_tensors="pt"))
    assert_close(encoder.encode([{"video": case.videos[0]}]), output.pooler_output.detach())
    is_mean = torch.allclose(output.pooler_output, output.last_hidden_state.mean(1), atol=1e-3)
    assert is_mean == (pooling == "mean")
    assert (encoder.get_embedding_dimension(), len(encoder)) == (16, 2 if is_mean else 1)


def test_a_clip_may_be_a_file_or_frames_of_any_layout_in_one_batch(case, composer):
    frames = frames_of(0, count=9)
    last = frames.permute(0, 2, 3, 1).contiguous().numpy()
    # A segment of a longer video: its frames are all there are, whatever the file holds.
    metadata = {"fps": 25.0, "total_num_frames": 250, "duration": 10.0, "frames_indices": list(range(100, 109))}
    batch = [{"video": clip} for clip in (frames, case.videos[0], last, torch.from_numpy(last))]
    expected = native(case, "tfcovr")[1]
    assert_close(composer.encode(batch), expected.expand(4, -1))
    segments = [{"video": {"array": array, "video_metadata": metadata}} for array in (frames, last)]
    assert_close(composer.encode(segments), expected.expand(2, -1))
    chosen = frames[[0, 2, 4, 7]]  # the middles of four parts of nine, as a frame reader gives them
    sampled = {"array": chosen, "video_metadata": {**metadata, "frames_indices": [100, 102, 104, 107]}}
    assert_close(composer.encode([{"video": chosen}]), expected)
    assert_close(composer.encode([{"video": sampled}]), expected)


def test_a_batch_keeps_the_order_of_its_rows(case, composer):
    inputs = [{"video": path, "text": text} for path in case.videos for text in TEXTS]
    one_by_one = np.concatenate([composer.encode([each]) for each in inputs])
    assert_close(composer.encode(inputs, batch_size=3), torch.from_numpy(one_by_one))
    assert len(np.unique(one_by_one.round(5), axis=0)) == 4


def test_inputs_of_several_kinds_in_one_call_are_refused_with_the_cure(case, composer):
    with pytest.raises(ValueError, match="Encode each modality separately"):
        composer.encode([{"video": case.videos[0]}, TEXTS[0]])


def test_what_a_family_cannot_embed_is_refused(case):
    vidclip = SentenceTransformer(str(case.root / "vidclip"), device="cpu")
    with pytest.raises(ValueError, match="text and video individually, but cannot combine"):
        vidclip.encode([{"video": case.videos[0], "text": "a dog runs"}])
    aim = SentenceTransformer(str(case.root / "aim"), device="cpu")
    with pytest.raises(ValueError, match="'text' is not supported"):
        aim.encode(["a dog runs"])
    assert (vidclip.get_embedding_dimension(), aim.get_embedding_dimension()) == (24, 16)


def test_a_prompt_is_read_before_the_text(composer):
    assert_close(
        composer.encode(TEXTS, prompt="show a "), torch.as_tensor(composer.encode([f"show a {t}" for t in TEXTS]))
    )


def test_half_precision_is_that_of_the_model(case):
    half = SentenceTransformer(str(case.root / "tfcovr"), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    pixels = case.models["tfcovr"][1](case.videos[0])
    own = AutoModel.from_pretrained(case.root / "tfcovr", dtype=torch.bfloat16).get_target_features(**pixels)
    found = half.encode([{"video": case.videos[0]}], convert_to_tensor=True)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, own.detach())
    assert half.float().encode([{"video": case.videos[0]}], convert_to_tensor=True).dtype == torch.float32


def test_settings_that_a_user_gave_are_kept_by_saving_again(case, tmp_path):
    model = SentenceTransformer(
        str(case.root / "tfcovr"), device="cpu", prompts={"query": "show "}, similarity_fn_name="dot"
    )
    model.save_pretrained(str(tmp_path), create_model_card=False)
    model[0].model.save_pretrained(tmp_path)
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert again.prompts["query"] == "show "
    assert again.similarity_fn_name == "dot"


def test_a_folder_of_before_still_loads(case, tmp_path):
    model, processor = case.models["tfcovr"]
    for part in (model, processor):
        part.save_pretrained(tmp_path)
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (tmp_path / name).unlink()
    assert isinstance(load_encoder(str(tmp_path)).model, TFCoVRForComposedRetrieval)


def test_a_training_step_on_queries_and_targets_changes_the_weights(case, tmp_path):
    model = SentenceTransformer(str(case.root / "tfcovr"), device="cpu")
    # Queries of as many tokens as clips have frames: neither may be taken for the other when batches are split.
    queries = [{"video": path, "text": text} for path, text in zip(case.videos, ["show with", "a"], strict=True)]
    pairs = Dataset.from_dict({"query": queries, "target": [{"video": path} for path in reversed(case.videos)]})
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path), per_device_train_batch_size=2, max_steps=1, report_to="none", use_cpu=True, save_strategy="no"
    )
    loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=1)
    trained = SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss).train()
    assert np.isfinite(trained.training_loss)
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    for part in ("vision_model", "text_model", "fusion", "target_projection"):
        assert any(f".{part}." in name for name in changed), part


def test_any_video_model_of_sentence_transformers_compares_videos_with_texts(case):
    model, processor = case.models["tfcovr"]
    clips = [frames_of(seed) for seed in range(3)]
    with torch.inference_mode():
        targets = model.get_target_features(**processor(clips, do_sample_frames=False))
        texts = model.get_query_features(**processor(text=TEXTS))
        queries = model.get_query_features(**processor(clips, text=TEXTS[:1] * 3, do_sample_frames=False))
    folder = str(case.root / "tfcovr")
    for encoder in (load_sentence_transformer(folder, "cpu", None, False), load_encoder(folder)):
        assert encoder.num_frames == FRAMES
        with torch.inference_mode():
            assert_close(encoder.compare(encoder.encode_video(clips), encoder.encode_text(TEXTS)), targets @ texts.T)
            assert_close(F.normalize(encoder.encode_video(clips), dim=-1), targets)
            assert_close(F.normalize(encoder.encode_query(clips, TEXTS[:1] * 3), dim=-1), queries)
    with pytest.raises(ValueError, match="does not embed text"):
        load_sentence_transformer(str(case.root / "aim"), "cpu", None, False)


def test_a_model_of_sentence_transformers_whose_parts_lie_in_folders_is_found(case, composer, tmp_path, monkeypatch):
    monkeypatch.setattr(type(composer[0]), "save_in_root", False)
    composer.save_pretrained(str(tmp_path), create_model_card=False)
    assert not (tmp_path / "config.json").exists()
    encoder = load_encoder(str(tmp_path), trust_remote_code=True)
    assert encoder.num_frames == FRAMES
    assert_close(encoder.encode_text(TEXTS), torch.as_tensor(composer.encode(TEXTS)))
    with pytest.raises(ValueError, match="Unrecognized model"):
        load_encoder(str(tmp_path.parent))


def test_a_model_that_needs_sentence_transformers_says_how_to_install_it(case, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r'pip install "subtle-video\[sentence-transformers\]"'):
        load_sentence_transformer(str(case.root / "tfcovr"), "cpu", None, False)
