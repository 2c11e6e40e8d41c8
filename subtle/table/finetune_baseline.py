"""Train and measure every row of TF-CoVR's Table 3: baselines trained on its triplets beside TF-CoVR-Base."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import AutoConfig
from transformers.utils.logging import disable_progress_bar

from hf_models.encoders import short_name
from subtle.evaluate.evaluate_tfcovr import Prepared, evaluate, is_trained
from subtle.evaluate.options import EvaluateConfig
from subtle.options import adopt, override, parse_config
from subtle.run.accelerator import make_accelerator
from subtle.run.data import load_split, with_split
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.models import load_trained
from subtle.run.over_seeds import summarize
from subtle.run.shared_config import DataConfig
from subtle.table.caption_texts import Captions, describe_clips, read_captions
from subtle.table.costs import Cost, cost_of, show_costs
from subtle.table.cross_attention import CrossAttentionConfig, CrossAttentionTraining, rank_split
from subtle.table.failures import reason_of
from subtle.table.options import NAMES, FinetuneConfig
from subtle.table.random_models import EMBEDDING_SIZE, RANDOM, random_model
from subtle.table.rows import data_of, finish_table, is_done, read_rows, slug, write_failure, write_row
from subtle.tfcovr.batches import embed_config
from subtle.tfcovr.finetuned_rows import ROWS, FineTunedRow
from subtle.tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure
from subtle.tfcovr.stage2_config import Stage2Config
from subtle.train import stage1
from subtle.train.options import Stage1Config
from subtle.train.stage2 import Stage2

METRICS = [f"map@{k}" for k in CUTOFFS]
PASSES = 3
"""Of a trained encoder, forward and backward, in units of a forward pass."""
RunConfig = Stage2Config | CrossAttentionConfig


def run_config(row: FineTunedRow, config: FinetuneConfig, seed: int) -> RunConfig:
    """How a row is trained with one seed; a random model is still called `random`."""
    root = Path(config.output_dir)
    changes: dict[str, Any] = {"seed": seed, "output_dir": str(root / "runs" / slug(row.name) / f"seed-{seed}")}
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
    if row.source == "clip_model":
        changes["vision_model_class"] = "CLIPVisionModelWithProjection"
    return replace(base, **changes)


def width_of(name: str) -> int:
    """Size of the space that a model's videos and texts share."""
    if name == RANDOM:
        return EMBEDDING_SIZE
    fields_of = AutoConfig.from_pretrained(name)
    size = getattr(fields_of, "image_text_hidden_size", None) or getattr(fields_of, "projection_dim", None)
    if not size:
        raise ValueError(f"{name} is a {fields_of.model_type!r}, whose videos and texts share no space; take a CLIP")
    return int(size)


def with_random_models(run: RunConfig, config: FinetuneConfig) -> RunConfig:
    """The same with the folders of random models, which are made now."""
    names = [field.name for field in fields(run) if getattr(run, field.name) == RANDOM]
    if not names:
        return run
    kind = "blip" if isinstance(run, CrossAttentionConfig) else "blip-2"
    with PartialState().main_process_first():
        folder = random_model(kind, Path(config.output_dir) / "models" / f"random-{kind}", MINIATURE_CLIP)
    changes: dict[str, Any] = dict.fromkeys(names, folder)
    return replace(run, **changes)


def row_config(row: FineTunedRow, config: FinetuneConfig) -> dict[str, Any]:
    """The options that decide a row's figures."""
    run = asdict(run_config(row, config, config.seeds[0]))
    return {
        **{name: value for name, value in run.items() if name != "seed"},
        "seeds": config.seeds,
        "split": config.split,
        "captions": config.captions if row.enriched else None,
    }


def columns_of(row: FineTunedRow, config: FinetuneConfig) -> dict[str, Any]:
    """What the table says of a row."""
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


def needs_stage1(config: FinetuneConfig) -> bool:
    """Whether the video encoder of TF-CoVR-Base is a folder, no name on the Hub, and missing."""
    folder = Path(config.vision_model)
    is_hub_name = config.vision_model.count("/") <= 1 and not folder.exists()
    return not (folder / "config.json").is_file() and not is_hub_name


def make_stage1(config: FinetuneConfig) -> None:
    """Train the video encoder of TF-CoVR-Base where it is missing."""
    folder = Path(config.vision_model)
    if not needs_stage1(config):
        return
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
        return read_captions(config.captions, [clip["clip_id"] for clip in clips], "clip_id", "caption")
    if config.dataset_config != "mini":
        raise ValueError(
            "ECDE reads descriptions of clips; give them as --captions, a table `clip_id, caption`, which "
            "`caption_clips.py` writes"
        )
    return describe_clips(clips)


def measure_stage2(run: Stage2Config, config: FinetuneConfig) -> tuple[dict[str, float], dict[str, Any]]:
    """Train one run of a row with stored embeddings, if it is not, and measure it; metrics and details."""
    if run.vision_model == config.vision_model:
        make_stage1(config)
    if not is_trained(run, "--output_dir"):
        Stage2(run).train()
    model, processor = load_trained(str(Path(run.output_dir) / "model"))
    data = {name: getattr(config, name) for name in DataConfig.__dataclass_fields__}
    measured_on = EvaluateConfig(**data, split=config.split)
    ready = Prepared(model, processor, embed_config(run, run.embeddings), run.query, run.query_frames)
    device = make_accelerator(run.device, Path(run.output_dir), mixed_precision=run.mixed_precision).device
    found = evaluate(ready, measured_on, device, ComposedRetrievalMeasure())
    return found.metrics, {"coverage": found.coverage, "signature": found.signature}


def measure_cross_attention(
    run: CrossAttentionConfig, config: FinetuneConfig
) -> tuple[dict[str, float], dict[str, Any]]:
    """The same for a row with cross attention."""
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


def measure_row(row: FineTunedRow, config: FinetuneConfig) -> None:
    """Train and measure a row with all its seeds, and write it."""
    several: list[dict[str, float]] = []
    details: dict[str, Any] = {}
    for seed in config.seeds:
        run = with_random_models(run_config(row, config, seed), config)
        if isinstance(run, CrossAttentionConfig):
            metrics, details = measure_cross_attention(run, config)
        else:
            metrics, details = measure_stage2(run, config)
        several.append(metrics)
    if PartialState().is_main_process:
        assert config.split is not None  # `with_split` filled it
        gallery = load_split(config, config.split, clips=True)["clip_id"]
        data = data_of(config, config.split, load_split(config, config.split), gallery, details["signature"])
        write_row(
            config.output_dir,
            row.name,
            summarize(several),
            config=row_config(row, config),
            seed=config.seeds[0],
            columns=columns_of(row, config),
            data=data,
            by_seed=several,
            **details,
        )


def hint_of(row: FineTunedRow, config: FinetuneConfig) -> str | None:
    """How to measure a row that has no model."""
    return None if getattr(config, row.source) else f"not measured: name a model with --{row.source}"


def wanted(config: FinetuneConfig) -> list[FineTunedRow]:
    """The rows to measure that have a model."""
    return [row for row in ROWS if row.name in (config.rows or NAMES) and not hint_of(row, config)]


def measure_rows(config: FinetuneConfig) -> None:
    """Measure the wanted rows that neither this folder nor those of --merge hold, whatever happens to each."""
    brought = read_rows([config.output_dir, *config.merge])
    todo = []
    for row in wanted(config):
        try:
            made = row_config(row, config)
        except (OSError, ValueError) as error:  # its model's configuration cannot be read
            fail(row, config, error)
            continue
        is_brought = row.name in brought and brought[row.name].metrics is not None
        if not is_done(config.output_dir, row.name, made) and not is_brought:
            todo.append(row)
    for number, row in enumerate(todo, start=1):
        say(f"{row.name} ({number} of {len(todo)} to measure)")
        try:
            measure_row(row, config)
        except (Exception, SystemExit) as error:
            fail(row, config, error)


def fail(row: FineTunedRow, config: FinetuneConfig, error: BaseException) -> None:
    """Keep why a row could not be measured.

    Raises:
        BaseException: It is a bug.
    """
    reason = reason_of(error, "the GPU ran out of memory; lower --batch_size")
    say(f"{row.name} failed: {reason}")
    if PartialState().is_main_process:
        write_failure(config.output_dir, row.name, reason, columns_of(row, config))


def costs(config: FinetuneConfig) -> list[Cost]:
    """What each row will cost as if nothing were stored; no weight is read."""
    assert config.split is not None  # `with_split` filled it
    splits = ("train", "validation", config.split)
    num_clips = sum(len(load_split(config, split, clips=True)) for split in splits)
    num_triplets, num_texts = len(load_split(config, "train")), sum(len(load_split(config, split)) for split in splits)
    runs = config.epochs * len(config.seeds)
    found = []
    for row in ROWS:
        if row.name not in (config.rows or NAMES):
            continue
        name = getattr(config, row.source)
        frames, texts = num_clips * row.target_frames, num_texts
        if row.query_frames not in {None, row.target_frames}:
            frames += num_clips * row.query_frames
        if row.fusion == "CA":  # every batch runs the vision encoder, and the text encoder there and back
            frames += runs * num_triplets
            texts += runs * num_triplets * PASSES * (1 + row.enriched)
        if name is None or name == RANDOM:
            note = hint_of(row, config) or "made here, with random weights"
            found.append(Cost(row.name, name, note=note))
        elif row.source == "vision_model" and needs_stage1(config):
            found.append(Cost(row.name, name, note="its video encoder is trained first, by stage1.py"))
        else:
            most = max(row.query_frames or 1, row.target_frames)
            device = "cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu"
            found.append(cost_of(row.name, name, most, (frames, texts), config.tflops, device=device))
    return found


def say(line: str) -> None:
    if PartialState().is_main_process:
        print(line, flush=True)


def main(config: FinetuneConfig) -> int:
    disable_progress_bar()  # a dozen bars of a millisecond each would bury the one that matters
    stage1_config(config)
    config = with_split(config)
    if config.dry_run:
        show_costs(costs(config), config.tflops)
        return 0
    measure_rows(config)
    if not PartialState().is_main_process:
        return 0
    return finish_table(
        config.output_dir,
        read_rows([config.output_dir, *config.merge]),
        NAMES,
        METRICS,
        "Trained on TF-CoVR's triplets (Table 3)",
        config=config,
        seed=config.seeds[0],
        hints={row.name: hint for row in ROWS if (hint := hint_of(row, config))},
    )
