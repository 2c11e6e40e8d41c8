"""Train and measure every row of TF-CoVR's Table 3: baselines trained on its triplets beside TF-CoVR-Base."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig
from transformers.utils.logging import disable_progress_bar

from hf_models.encoders import short_name
from subtle.evaluate.evaluate_tfcovr import evaluate_ranking, is_trained, standard, trained
from subtle.options import adopt, override, parse_config
from subtle.run.accelerator import make_accelerator, processes
from subtle.run.data import load_split, with_split
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.over_seeds import summarize
from subtle.run.shared_config import DataConfig
from subtle.table.caption_texts import Captions, captions_in, describe_clips, texts_digest
from subtle.table.costs import PASSES, Cost, Forward, Machine
from subtle.table.cross_attention import CrossAttentionConfig, CrossAttentionTraining, rank_split
from subtle.table.options import FinetuneConfig
from subtle.table.random_models import EMBEDDING_SIZE, RANDOM, random_model
from subtle.table.rows import data_of, slug
from subtle.table.table import METRICS, Measured, Table, run_table
from subtle.tfcovr.batches import embed_config
from subtle.tfcovr.clip_embeddings import imported_into
from subtle.tfcovr.finetuned_rows import ROWS, FineTunedRow
from subtle.tfcovr.measure import ComposedRetrievalMeasure
from subtle.train import stage1
from subtle.train.options import Stage1Config, Stage2Config

BaselineConfig = Stage2Config | CrossAttentionConfig


def run_config(row: FineTunedRow, config: FinetuneConfig, seed: int) -> BaselineConfig:
    """How a row is trained with one seed; a random model is still called `random`."""
    root = Path(config.output_dir)
    runs = root / "runs" / slug(row.name) / digest_of_captions(row, config)
    changes: dict[str, Any] = {"seed": seed, "output_dir": str(runs / f"seed-{seed}")}
    name = str(getattr(config, row.source))
    if row.fusion == "CA":
        shared: dict[str, Any] = {
            field.name: getattr(config, field.name, field.default) for field in fields(CrossAttentionConfig)
        }
        changes |= {"model": name, "enriched": row.enriched, "target_frames": row.target_frames}
        return CrossAttentionConfig(**shared | changes | {"embeddings": str(root / "embeddings")})
    base = Stage2Config(**{field.name: getattr(config, field.name) for field in fields(Stage2Config)})
    changes |= {"query": row.query, "num_frames": row.target_frames}
    if row.query_frames not in {None, row.target_frames}:
        changes["query_frames"] = row.query_frames
    if row.source != "vision_model":
        folder = f"{row.source.removesuffix('_model')}-{row.target_frames}-frames"
        changes |= {"vision_model": name, "vision_model_class": None, "embeddings": str(root / "embeddings" / folder)}
    if row.combiner:
        width, hidden = (round(factor * width_of(name)) for factor in row.combiner)
        changes |= {"fusion": "gated", "projection_dim": None, "project_text": False, "project_targets": None}
        changes |= {"fusion_projection_dim": width, "fusion_hidden_dim": hidden}
        changes |= {"text_model": name, "text_model_class": None}
    if row.source == "clip_model" and AutoConfig.from_pretrained(name).model_type == "clip":
        changes["vision_model_class"] = "CLIPVisionModelWithProjection"
    return replace(base, **changes)


def digest_of_captions(row: FineTunedRow, config: FinetuneConfig) -> str:
    """Of the file of captions that a row reads; empty for the others."""
    return texts_digest(descriptions_of(config).texts) if row.enriched and config.captions else ""


def width_of(name: str) -> int:
    """Size of the space that a model's videos and texts share."""
    if name == RANDOM:
        return EMBEDDING_SIZE
    fields_of = AutoConfig.from_pretrained(name)
    size = getattr(fields_of, "image_text_hidden_size", None) or getattr(fields_of, "projection_dim", None)
    if not size:
        raise ValueError(f"{name} is a {fields_of.model_type!r}, whose videos and texts share no space; take a CLIP")
    return int(size)


def with_random_models(run: BaselineConfig, config: FinetuneConfig) -> BaselineConfig:
    """The same with the folders of random models, which are made now."""
    names = [field.name for field in fields(run) if getattr(run, field.name) == RANDOM]
    if not names:
        return run
    kind = "blip" if isinstance(run, CrossAttentionConfig) else "blip-2"
    with processes().main_process_first():
        folder = random_model(kind, Path(config.output_dir) / "models" / f"random-{kind}", MINIATURE_CLIP)
    changes: dict[str, Any] = dict.fromkeys(names, folder)
    return replace(run, **changes)


def needs_stage1(config: FinetuneConfig) -> bool:
    """Whether the video encoder of TF-CoVR-Base is a folder, no name on the Hub, and missing, and will be used."""
    folder = Path(config.vision_model)
    if imported_into(config.embeddings):
        return False
    is_hub_name = config.vision_model.count("/") <= 1 and not folder.exists()
    return not (folder / "config.json").is_file() and not is_hub_name


def make_stage1(config: FinetuneConfig) -> None:
    folder = Path(config.vision_model)
    if folder.name != "model":
        raise ValueError(f"{folder} is not a model folder, and stage1.py writes to RUN/model; name such a folder")
    training = stage1_config(config)
    training.output_dir = str(folder.parent)
    stage1.run(training)


def stage1_config(config: FinetuneConfig) -> Stage1Config:
    """How `stage1.py` trains; the data that only its file names are also those of all rows."""
    training = parse_config(Stage1Config, None, [config.stage1_config] if config.stage1_config else [])
    data = DataConfig.__dataclass_fields__
    adopt(config, [training], data)
    override(training, config, [*data, "cache_dir", "num_workers", "device"])
    return training


def descriptions_of(config: FinetuneConfig) -> Captions:
    """A description of each clip, for ECDE."""
    assert config.split is not None  # `with_split` filled it
    clips = [clip for split in ("train", "validation", config.split) for clip in load_split(config, split, clips=True)]
    if config.captions:
        return captions_in(config.captions, [clip["clip_id"] for clip in clips], "clip_id", "caption")
    if config.dataset_config != "mini":
        raise ValueError(
            "ECDE reads descriptions of clips; give them as --captions, a table `clip_id, caption`, which "
            "`caption.py write` makes"
        )
    return describe_clips(clips)


def measure_stage2(run: Stage2Config, config: FinetuneConfig) -> tuple[dict[str, float], dict[str, Any]]:
    """Train one run of a row with stored embeddings, if it is not, and measure it; metrics and details."""
    if run.vision_model == config.vision_model and needs_stage1(config):
        make_stage1(config)
    ready = trained(run, embed_config(run, run.embeddings), "--output_dir")
    device = make_accelerator(run.device, Path(run.output_dir), mixed_precision=run.mixed_precision).device
    found = evaluate_ranking(ready, standard(config), device, ComposedRetrievalMeasure())
    return found.metrics, {"coverage": found.coverage, "signature": found.signature}


def measure_cross_attention(
    run: CrossAttentionConfig, config: FinetuneConfig
) -> tuple[dict[str, float], dict[str, Any]]:
    captions = descriptions_of(config) if run.enriched else None
    texts = captions.texts if captions else None
    if not is_trained(run, "--output_dir"):
        CrossAttentionTraining(run, texts).train()
    device = make_accelerator(run.device, Path(run.output_dir), mixed_precision=run.mixed_precision).device
    measure = ComposedRetrievalMeasure()
    assert config.split is not None  # `with_split` filled it
    ranked, queries = rank_split(run, texts, config.split, device)
    metrics = {name: value for name, value in measure(ranked, queries).items() if name in METRICS}
    details: dict[str, Any] = {"coverage": queries.coverage, "signature": measure.signature}
    return metrics, details | ({"captions": captions.coverage} if captions else {})


class Table3(Table[FineTunedRow]):
    """The rows of one run, each with all its seeds."""

    title = "Trained on TF-CoVR's triplets (Table 3)"
    rows = ROWS

    def hint(self, row: FineTunedRow) -> str:
        """The option that a row without a model misses."""
        return "" if getattr(self.config, row.source) else f"not measured: name a model with --{row.source}"

    def settings(self, row: FineTunedRow) -> dict[str, Any]:
        """The options that decide a row's figures."""
        config = self.config
        run = asdict(run_config(row, config, config.seeds[0]))
        return {
            **{name: value for name, value in run.items() if name != "seed"},
            "seeds": config.seeds,
            "split": config.split,
            "captions": config.captions if row.enriched else None,
            **({"captions_digest": digest} if (digest := digest_of_captions(row, config)) else {}),
        }

    def columns(self, row: FineTunedRow) -> dict[str, Any]:
        """What the table says of a row."""
        config = self.config
        name = getattr(config, row.source)
        weights = "" if name is None else "random weights" if name == RANDOM else short_name(name)
        if row.enriched and name is not None:
            weights += f"; {Path(config.captions).name if config.captions else 'label captions'}"
        shown: dict[str, Any] = {
            "model": row.model,
            "modalities": row.modalities,
            "fusion": row.fusion,
            "query frames": row.query_frames or "-",
            "target frames": row.target_frames,
            "weights": weights,
        }
        if config.dataset_config == "release":
            shown["paper: mAP@50"] = row.paper[-1]
        return shown

    def measure(self, row: FineTunedRow) -> Measured:
        """Train and measure a row with all its seeds."""
        config, several = self.config, []
        for seed in config.seeds:
            run = with_random_models(run_config(row, config, seed), config)
            if isinstance(run, CrossAttentionConfig):
                metrics, details = measure_cross_attention(run, config)
            else:
                metrics, details = measure_stage2(run, config)
            several.append(metrics)
        gallery = load_split(config, config.split, clips=True)["clip_id"]
        data = data_of(config, config.split, load_split(config, config.split), gallery, details["signature"])
        return Measured(summarize(several), data, details={"by_seed": several, **details})

    def costs(self, machine: Machine) -> list[Cost]:
        """With all that a row embeds as if nothing were stored."""
        config = self.config
        splits = ("train", "validation", config.split)
        num_clips = sum(len(load_split(config, split, clips=True)) for split in splits)
        num_texts = sum(len(load_split(config, split)) for split in splits)
        num_triplets = len(load_split(config, "train"))
        runs = config.epochs * len(config.seeds)
        found = []
        for row in self.asked():
            name = getattr(config, row.source)
            clips, frames, texts = num_clips, num_clips * row.target_frames, num_texts
            if row.query_frames not in {None, row.target_frames}:
                frames += num_clips * (row.query_frames or 0)
                clips += num_clips
            if row.fusion == "CA":  # every batch runs the vision encoder, and the text encoder there and back
                frames += runs * num_triplets
                texts += runs * num_triplets * PASSES * (1 + row.enriched)
            if name is None or name == RANDOM:
                note = self.hint(row) or "made here, with random weights"
                found.append(Cost(row.name, {name: None} if name else {}, note=note))
            elif row.source == "vision_model" and imported_into(config.embeddings):
                found.append(Cost(row.name, {}, note="its embeddings were imported"))
            elif row.source == "vision_model" and needs_stage1(config):
                note = "its video encoder is trained first, by stage1.py"
                found.append(Cost(row.name, {name: None}, note=note))
            else:
                forward = Forward.of(name, max(row.query_frames or 1, row.target_frames))
                found.append(forward.cost(row.name, machine, frames=frames, texts=texts, clips=clips))
        return found


def main(config: FinetuneConfig) -> int:
    """Train and measure the rows, or say what they will cost; the exit status."""
    disable_progress_bar()  # a dozen bars of a millisecond each would bury the one that matters
    stage1_config(config)
    return run_table(Table3(with_split(config)))
