"""A tiny TF-CoVR with its videos and two tiny encoders, so that the recipes run in seconds and offline."""

import pytest
import torch
from colored_videos import write_colored_video
from datasets import Dataset, Features, List, Value
from small_datasets import write_dataset
from transformers import BertConfig, BertModel, BertTokenizerFast, CLIPConfig, CLIPImageProcessor, CLIPModel

LABELS = {"red": (250, 20, 20), "green": (20, 250, 20), "blue": (20, 20, 250), "grey": (120, 120, 120)}
CLIPS_PER_SPLIT = {"train": 4, "validation": 2, "test": 3}
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
CLIP_FEATURES = Features(
    {name: Value("string") for name in ("clip_id", "video_id", "video", "label", "description", "split")}
    | {name: Value("float64") for name in ("start_seconds", "end_seconds")}
)
QUERY_TEXTS = ("query_id", "query_clip_id", "query_label", "modification_text", "change_type", "target_label")
QUERY_FEATURES = Features({name: Value("string") for name in QUERY_TEXTS} | {"target_clip_ids": List(Value("string"))})


def make_clips(folder, split):
    for label, color in LABELS.items():
        for number in range(CLIPS_PER_SPLIT[split]):
            clip_id = f"{split}-{label}-{number}"
            path = folder / f"{clip_id}.mp4"
            write_colored_video(path, [color], seed=len(clip_id) + number)
            yield {
                "clip_id": clip_id,
                "video_id": clip_id,
                "video": str(path),
                "start_seconds": None,
                "end_seconds": None,
                "label": label,
                "description": label,
                "split": split,
            }


def make_queries(clips, split):
    of_label = {label: [clip["clip_id"] for clip in clips if clip["label"] == label] for label in LABELS}
    for clip in clips:
        for label in LABELS:
            if label == clip["label"]:
                continue
            targets = [[one] for one in of_label[label]] if split == "train" else [of_label[label]]
            for number, target in enumerate(targets):
                yield {
                    "query_id": f"{clip['clip_id']}-{label}-{number}",
                    "query_clip_id": clip["clip_id"],
                    "query_label": clip["label"],
                    "modification_text": f"show {label}",
                    "change_type": "event" if label == "grey" else "temporal",
                    "target_clip_ids": target,
                    "target_label": label,
                }


def save_spread(model, folder):
    """Random weights of the usual size give much the same for every input; larger ones tell the colors apart."""
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)


def save_aim(folder, num_frames=4, **options):
    from hf_models import AIMConfig, AIMForVideoClassification, AIMVideoProcessor

    torch.manual_seed(0)
    config = AIMConfig(num_frames=num_frames, image_size=16, patch_size=8, **options, **SMALL)
    save_spread(AIMForVideoClassification(config), folder)
    AIMVideoProcessor(size={"height": 16, "width": 16}, num_frames=num_frames).save_pretrained(folder)


def embed(arguments, folder):
    from subtle.embedding.embed_clips import EmbedConfig, run

    run(EmbedConfig(**arguments, output_dir=str(folder / "stage1")))
    return str(folder / "stage1")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Arguments that point a recipe to the tiny dataset and encoders."""
    root = tmp_path_factory.mktemp("tiny")
    videos, data = root / "videos", root / "data"
    videos.mkdir()
    tables = {"mini": {}, "mini-clips": {}}
    for split in CLIPS_PER_SPLIT:
        clips = list(make_clips(videos, split))
        tables["mini-clips"][split] = Dataset.from_list(clips, CLIP_FEATURES)
        tables["mini"][split] = Dataset.from_list(list(make_queries(clips, split)), QUERY_FEATURES)
    write_dataset(data, tables)
    save_aim(root / "aim")
    (root / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "show", *LABELS]))
    save_spread(BertModel(BertConfig(vocab_size=10, **SMALL)), root / "text")
    BertTokenizerFast(str(root / "vocab.txt")).save_pretrained(root / "text")
    small = {**SMALL, "projection_dim": 16}
    clip = CLIPConfig(vision_config={"image_size": 16, "patch_size": 8, **small}, text_config=small, projection_dim=16)
    save_spread(CLIPModel(clip), root / "clip")
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(root / "clip")
    return {"dataset": str(data), "vision_model": str(root / "aim"), "text_model": str(root / "text"), "num_workers": 0}


@pytest.fixture(scope="session")
def embedded(tiny, tmp_path_factory, caches):
    """The folder of the tiny dataset's embeddings."""
    return embed(tiny, tmp_path_factory.mktemp("embeddings"))


@pytest.fixture(scope="session")
def tiny_factored(tiny, tmp_path_factory):
    """The arguments of `tiny` with a classifier of its labels, which share factors, as stage 1 may write it."""
    folder = tmp_path_factory.mktemp("factored") / "stage1"
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: place for place, label in enumerate(LABELS)}}
    factors = [["color", label] if label != "grey" else [label] for label in LABELS]  # what all have, none can learn
    save_aim(folder, temporal_pooling="gru", label_factors=factors, **labels)
    return {**tiny, "vision_model": str(folder)}


@pytest.fixture(scope="session")
def embedded_factored(tiny_factored, tmp_path_factory, caches):
    """The folder of the embeddings that it gives."""
    return embed(tiny_factored, tmp_path_factory.mktemp("embeddings-factored"))


@pytest.fixture(scope="session")
def factored_retriever(tiny_factored, tmp_path_factory):
    """A FactoredCoVR with a random fusion, as stage 2 writes it."""
    from hf_models import FactoredCoVRForComposedRetrieval
    from subtle.run.models import load_encoders
    from subtle.run.shared_config import EmbedConfig

    folder = tmp_path_factory.mktemp("factored-retriever") / "model"
    torch.manual_seed(0)
    sizes = {"projection_dim": 12, "fusion_hidden_dim": 32}
    for part in load_encoders(EmbedConfig(**tiny_factored), FactoredCoVRForComposedRetrieval, **sizes):
        part.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory):
    """A dataset cache of these tests' own."""
    import datasets

    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets-cache")
    yield
    datasets.config.HF_DATASETS_CACHE = before


@pytest.fixture(scope="session")
def tiny_comp(tmp_path_factory):
    """Arguments that point a recipe to a tiny miniature of contrast pairs and a tiny CLIP."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import CLIPProcessor, PreTrainedTokenizerFast

    from hf_datasets.comp.miniature import read_clips
    from hf_datasets.miniature import MiniatureConfig, prepare_miniature

    root = tmp_path_factory.mktemp("tiny-comp")
    rendered = MiniatureConfig(
        labels=("119", "45", "93", "241", "103b", "10"),
        clips_per_label={"train": 6, "validation": 2, "test": 2},
        videos_per_split={"train": 4, "validation": 2, "test": 2},
        size=32,
        fps=6,
    )
    data = prepare_miniature(root / "data", config=rendered, num_workers=0, progress=False)
    clips = read_clips(data, "activitynet")
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "<unk>", "</s>"]
    trainer = trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([clip["caption"].lower() for clip in clips["train"]], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", model_max_length=40
    )
    text = {**SMALL, "vocab_size": len(fast), "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    text["max_position_embeddings"] = 40
    vision = {**SMALL, "image_size": 16, "patch_size": 8}
    torch.manual_seed(0)
    save_spread(CLIPModel(CLIPConfig(vision_config=vision, text_config=text, projection_dim=16)), root / "clip")
    images = CLIPImageProcessor(size={"height": 16, "width": 16}, do_center_crop=False)
    CLIPProcessor(images, fast).save_pretrained(root / "clip")
    return {"data_dir": str(data), "model": str(root / "clip")}


@pytest.fixture(scope="session")
def short_clips(tiny_comp, tmp_path_factory):
    """A table of the single actions of the tiny miniature, as one makes it of one's own short clips."""
    from datasets import load_dataset

    folder = tmp_path_factory.mktemp("short-clips")
    clips = load_dataset("activitynet_comp", "mini-clips", data_dir=tiny_comp["data_dir"], split="train")
    clips.to_parquet(folder / "train.parquet")
    return str(folder)
