"""The two encoders of TF-CoVR and their processor, from the folders that a recipe's configuration names."""

from typing import Any

from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    AutoVideoProcessor,
)
from transformers.utils.logging import disable_progress_bar

from hf_models import AIMVideoProcessor, TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.checkpoints import open_whole
from hf_models.tfcovr.configuration_tfcovr import COMPOSED_MODEL_TYPES
from subtle.run.model_folders import check_model_folder
from subtle.run.shared_config import EncoderConfig


def load_encoders(
    config: EncoderConfig, model_class: type[TFCoVRForComposedRetrieval] | None = None, **model_fields: Any
) -> tuple[TFCoVRForComposedRetrieval, TFCoVRProcessor]:
    """A model with these encoders and a new fusion described by `model_fields`, and its processor."""
    disable_progress_bar()  # a dozen bars of a millisecond each would bury the one that matters
    is_imported = model_fields.get("imported_video") is not None
    if is_imported and model_class not in {None, TFCoVRForComposedRetrieval}:
        raise SystemExit("imported embeddings come without a classifier of labels: leave out --model factored_covr")
    for folder in (config.text_model,) if is_imported else (config.vision_model, config.text_model):
        check_model_folder(folder)
    model = (model_class or TFCoVRForComposedRetrieval).from_vision_text_pretrained(
        config.vision_model,
        config.text_model,
        vision_model_class=None if is_imported else config.vision_model_class,
        text_model_class=config.text_model_class,
        **model_fields,
    )
    if is_imported:
        tokenizer = AutoTokenizer.from_pretrained(config.text_model)
        return model, TFCoVRProcessor(AIMVideoProcessor(), tokenizer, number_words=config.number_words)
    made_for = getattr(getattr(model.vision_model, "config", None), "num_frames", None)
    processor = load_tfcovr_processor(config, made_for)
    num_frames = processor.video_processor.num_frames
    if made_for not in {None, num_frames}:
        raise SystemExit(
            f"{config.vision_model} takes {made_for} frames, not {num_frames}; leave --num_frames out, or stretch an "
            f"AIM with `resize_temporal_embedding({num_frames})` and save it under another name"
        )
    return model, processor


def load_trained(folder: str) -> tuple[TFCoVRForComposedRetrieval, TFCoVRProcessor]:
    """A model that stage 2 wrote, in evaluation mode, and its processor."""
    disable_progress_bar()
    check_model_folder(folder)
    model = open_whole(AutoModel, folder)
    if not isinstance(model, TFCoVRForComposedRetrieval):
        raise SystemExit(f"{folder} holds a {type(model).__name__}, not a model that stage 2 wrote")
    return model.eval(), AutoProcessor.from_pretrained(folder)


def load_tfcovr_processor(config: EncoderConfig, made_for: int | None = None) -> TFCoVRProcessor:
    """The video processor of the video encoder, or one made from an image model's, and the text encoder's tokenizer.

    Where neither configuration nor video processor name a number of frames, it is that which the model is `made_for`.
    """
    if AutoConfig.from_pretrained(config.vision_model).model_type in COMPOSED_MODEL_TYPES:
        processor: TFCoVRProcessor = AutoProcessor.from_pretrained(config.vision_model)
        processor.video_processor.num_frames = config.num_frames or processor.video_processor.num_frames
        return processor
    try:
        video_processor = AutoVideoProcessor.from_pretrained(config.vision_model)
    except (
        OSError,
        ValueError,
    ):  # an image model has no video processor, but its image processor says how images are prepared
        image_processor = AutoImageProcessor.from_pretrained(config.vision_model)
        video_processor = AIMVideoProcessor.from_image_processor(image_processor)
    video_processor.num_frames = config.num_frames or video_processor.num_frames or made_for or 12
    tokenizer = AutoTokenizer.from_pretrained(config.text_model)
    return TFCoVRProcessor(video_processor, tokenizer, number_words=config.number_words)
