"""Encoders from a folder or the Hub: the family is recognized by the configuration, and nothing loads by halves."""

from collections import Counter
from collections.abc import Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoProcessor,
    CLIPProcessor,
    LlavaNextProcessor,
    PreTrainedConfig,
    Qwen2VLConfig,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import cached_file

from hf_models.checkpoints import numbers_in, open_whole, opening
from hf_models.encoders.adapters import MAY_BE_MISSING, add_adapter, base_of, is_adapter, load_head
from hf_models.encoders.aim import AIMEncoder, adapted_aim, is_aim
from hf_models.encoders.blip import Blip2Encoder, BlipEncoder
from hf_models.encoders.configuration_clip_resnet import CLIPResNetConfig
from hf_models.encoders.configuration_languagebind import LanguageBindConfig
from hf_models.encoders.configuration_mmembed import MMEmbedConfig
from hf_models.encoders.dual_encoders import (
    ImageEncoder,
    LanguageBindEncoder,
    PerceptionEncoder,
    VidCLIPEncoder,
    VideoOnlyEncoder,
    VideoPrismEncoder,
    XCLIPEncoder,
)
from hf_models.encoders.estimates import CONTEXT_BYTES, Estimate, check_memory, estimate_model
from hf_models.encoders.language_models import (
    E5VEncoder,
    GMEEncoder,
    LanguageModelEncoder,
    MMEmbedEncoder,
    Qwen3VLEncoder,
)
from hf_models.encoders.modeling_clip_resnet import CLIPResNetModel
from hf_models.encoders.modeling_languagebind import LanguageBindModel
from hf_models.encoders.modeling_mmembed import MMEmbedModel
from hf_models.encoders.protocol import Encoder
from hf_models.encoders.sentence_transformer import SentenceTransformerEncoder
from hf_models.encoders.tfcovr import TFCoVREncoder

IMAGE_MODELS = ("clip", "clip_resnet", "siglip", "siglip2", "altclip", "metaclip_2")
ENCODERS: dict[str, type[Encoder]] = {
    "tfcovr": TFCoVREncoder,
    "factored_covr": TFCoVREncoder,
    "aim": AIMEncoder,
    "vidclip": VidCLIPEncoder,
    "xclip": XCLIPEncoder,
    "videoprism": VideoPrismEncoder,
    "pe_video": PerceptionEncoder,
    **dict.fromkeys(IMAGE_MODELS, ImageEncoder),
    "blip": BlipEncoder,
    "blip-2": Blip2Encoder,
    "languagebind": LanguageBindEncoder,
    "vjepa2": VideoOnlyEncoder,
    "qwen2_vl": GMEEncoder,
    "llava_next": E5VEncoder,
    "mm_embed": MMEmbedEncoder,
    "qwen3_vl": Qwen3VLEncoder,
}
"""The encoder of each `model_type`."""
MOST_SIDE = 8192
"""Of a frame, in pixels."""
MOST_FRAMES = 2048
"""Of a clip, as a configuration says."""
PATCHES = {name: name for name in ("patch_size", "temporal_patch_size")} | {"merge_size": "spatial_merge_size"}
"""Field of an image processor -> field of a vision model."""
SIDES = {"height", "width", "shortest_edge", "longest_edge"}
for _config, _model, _processor in (
    (CLIPResNetConfig, CLIPResNetModel, CLIPProcessor),
    (LanguageBindConfig, LanguageBindModel, CLIPProcessor),
    (MMEmbedConfig, MMEmbedModel, LlavaNextProcessor),
):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _model, exist_ok=True)
    AutoProcessor.register(_config, _processor, exist_ok=True)


def load_encoder(
    name_or_path: str,
    device: torch.device | str = "cpu",
    num_frames: int | None = None,
    *,
    trust_remote_code: bool = False,
    adapter: str | None = None,
    aim_text: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Encoder:
    """A model and its processor from a folder or the Hub.

    Args:
        name_or_path: Any model of `ENCODERS`, or of sentence-transformers, or a folder of adapters, with which the
            model that they name is loaded.
        device: Where it runs.
        num_frames: Frames of a video; None: as the model was made for or its paper used it.
        trust_remote_code: Run the code that the folder or repository holds, where its model is of no library.
        adapter: A PEFT adapter or a `LayerHead` of this very model, a folder or a name on the Hub.
        aim_text: The CLIP that an AIM was built on, whose texts it takes; None: an AIM reads no text.
        options: Further arguments of the encoder, such as `{"pooling": "max"}` for BLIP-2.

    Returns:
        The encoder, in evaluation mode.

    Raises:
        ValueError: The model is of a family that is not in `ENCODERS`, nor does sentence-transformers load it as one
            that embeds videos and texts; its weights are not all there; its processor or the adapter belongs to
            another model; it takes another number of frames; or the GPU is too small.
        OSError: There is no such model.
        ImportError: The model needs a package that is not installed, such as timm for Perception Encoder, or
            sentence-transformers.

    Example:
        >>> encoder = load_encoder("recipes/weights/miniature-clip", num_frames=4)
        >>> video = torch.zeros(4, 3, 64, 64, dtype=torch.uint8)
        >>> encoder.compare(encoder.encode_video([video]), encoder.encode_text(["a vault", "a dive"])).shape
        torch.Size([1, 2])
        >>> encoder.encode_query([video], ["with 2 turns"]).shape
        torch.Size([1, 64])
    """
    options = dict(options or {})
    if aim_text is not None and is_aim(name_or_path):
        options["clip"] = _load_clip(aim_text, device)
    if is_adapter(name_or_path):
        return _load_adapted(name_or_path, device, num_frames, trust_remote_code, aim_text, options)
    config = read_config(name_or_path, trust_remote_code=trust_remote_code)
    kind = SentenceTransformerEncoder if config is None else ENCODERS[config.model_type]
    _check_options(kind, options)
    if config is None:
        if adapter is not None:
            raise ValueError(
                f"{name_or_path} is of sentence-transformers, which loads adapters itself; leave it out here"
            )
        return load_sentence_transformer(name_or_path, device, num_frames, trust_remote_code)
    try:
        with opening(name_or_path, checked=True):
            processor = load_processor(name_or_path, kind, config)
            frames = choose_frames(kind, config, num_frames, name_or_path, processor)
        if torch.device(device).type == "cuda":
            check_memory(estimate_model(config, kind.model_class, frames), device, name_or_path)
        model = load_whole(name_or_path, kind, config)
    except ImportError as error:  # Perception Encoder's tower is one of timm's
        raise ImportError(f"{name_or_path}: {str(error).strip()}") from error
    head = None if adapter is None else load_head(adapter, name_or_path, kind)
    if adapter is not None and head is None:
        add_adapter(model, adapter, name_or_path)
    encoder = kind(model.to(device).eval(), processor, frames, **options)
    try_out(encoder, name_or_path)
    if head is not None:
        encoder.add_head(head.to(torch.device(device)).eval())  # type: ignore[attr-defined, arg-type]
    return encoder


def _load_adapted(
    adapter: str,
    device: torch.device | str,
    num_frames: int | None,
    trust_remote_code: bool,
    aim_text: str | None,
    options: dict[str, Any],
) -> Encoder:
    """The model that adapters name, with them; those of AIM make an AIM of a CLIP. See `load_encoder`."""
    base = base_of(adapter)
    if not is_aim(adapter):
        given: dict[str, Any] = {"trust_remote_code": trust_remote_code, "options": options}
        return load_encoder(base, device, num_frames, adapter=adapter, **given)
    model, processor = adapted_aim(adapter, aim_text or base)
    return AIMEncoder(model.to(device).eval(), processor, num_frames or model.config.num_frames, **options)


def _load_clip(name_or_path: str, device: torch.device | str) -> Encoder:
    model_type = AutoConfig.from_pretrained(name_or_path).model_type
    if model_type != "clip":
        raise ValueError(f"{name_or_path} is a {model_type!r} model; AIM is built on a 'clip', with both its towers")
    return load_encoder(name_or_path, device)


def estimate(
    name_or_path: str,
    num_frames: int | None = None,
    *,
    trust_remote_code: bool = False,
    aim_text: str | None = None,
) -> Estimate:
    """What `load_encoder` will download and need, from the configuration alone.

    Args:
        name_or_path: As of `load_encoder`.
        num_frames: As of `load_encoder`.
        trust_remote_code: As of `load_encoder`.
        aim_text: As of `load_encoder`.

    Raises:
        ValueError: The model is of a family that cannot be estimated.
        OSError: There is no such model.

    Example:
        >>> cost = estimate("recipes/weights/miniature-clip")
        >>> 4 * cost.parameters == cost.download_bytes < cost.memory_bytes
        True
    """
    if aim_text is not None and is_aim(name_or_path):
        own = estimate(name_or_path, num_frames)
        text = estimate_model(AutoConfig.from_pretrained(aim_text), "CLIPModel", 1)
        return Estimate(
            own.parameters + text.parameters,
            own.download_bytes + text.download_bytes,
            own.memory_bytes + text.memory_bytes - CONTEXT_BYTES,
        )
    if is_adapter(name_or_path):
        name_or_path = base_of(name_or_path)  # of which an adapter is a small part
    config = read_config(name_or_path, trust_remote_code=trust_remote_code)
    if config is not None:
        kind = ENCODERS[config.model_type]
        return estimate_model(config, kind.model_class, choose_frames(kind, config, num_frames, name_or_path))
    try:
        config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):
        raise ValueError(
            f"{name_or_path} is a model of sentence-transformers without a configuration at its root, whose size only "
            "its files tell"
        ) from None
    return estimate_model(config, "AutoModel", num_frames or default_frames(config))


def read_config(name_or_path: str, *, trust_remote_code: bool = False) -> Any | None:
    """The configuration of a model of `ENCODERS`; None for one of sentence-transformers.

    Raises:
        ValueError: It is a model of another kind.
        OSError: There is no such model.
    """
    try:
        with opening(name_or_path):
            config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):  # the parts of a sentence-transformers model may lie in folders of their own
        if config := gme_config(name_or_path):
            return config
        if not is_sentence_transformer(name_or_path):
            raise
        return None
    if "NVMMEmbedModel" in (config.architectures or ()):
        raise ValueError(
            f"{name_or_path} is MM-Embed as it was released; convert it once: "
            "python -m hf_models.encoders.convert_mmembed FOLDER OUTPUT_DIR"
        )
    if config.model_type in ENCODERS:
        return config
    if is_sentence_transformer(name_or_path):
        return None
    raise ValueError(
        f"{name_or_path} is a {config.model_type!r} model, which does not compare videos with texts; there are "
        f"{', '.join(ENCODERS)} and what sentence-transformers has saved"
    )


def gme_config(name_or_path: str) -> Any | None:
    """The configuration of GME as one of Qwen2-VL, whatever remote code it asks for; None for another model."""
    try:
        with opening(name_or_path):
            fields, _ = PreTrainedConfig.get_config_dict(name_or_path)
            is_gme = any(str(name).startswith("Gme") for name in fields.get("architectures") or ())
    except (OSError, ValueError):
        return None
    if not is_gme:
        return None
    for name in ("auto_map", "model_type"):
        fields.pop(name, None)
    with opening(name_or_path, checked=True):
        return Qwen2VLConfig.from_dict(fields)


def _check_options(kind: type[Encoder], options: Mapping[str, Any]) -> None:
    known = [name for name in signature(kind).parameters if name not in {"model", "processor", "num_frames"}]
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"{kind.__name__} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")


def choose_frames(kind: type[Encoder], config: Any, num_frames: int | None, name: str, processor: Any = None) -> int:
    """How many frames an encoder reads.

    Raises:
        ValueError: The model takes another number.
    """
    if num_frames is not None and num_frames < 1:
        raise ValueError(f"num_frames is {num_frames}; give 1 or more")
    fixed = kind.fixed_frames(config, processor)
    if fixed is not None and num_frames not in {None, fixed}:
        raise ValueError(f"{name} takes {fixed} frames, not {num_frames}; leave num_frames out")
    frames = fixed or num_frames or default_frames(config, kind.default_frames)
    if num_frames is None and not 1 <= frames <= MOST_FRAMES:
        raise ValueError(f"the configuration of {name} asks for {frames:,} frames of a clip; copy it again")
    return frames


def load_processor(name_or_path: str, kind: type[Encoder], config: Any) -> Any:
    """The processor of a model.

    Raises:
        ValueError: It is missing or another model's.
    """
    processor = getattr(transformers, kind.processor_class).from_pretrained(name_or_path)
    wanted: Any = PROCESSOR_MAPPING.get(type(config), None) if kind.processor_class == "AutoProcessor" else None
    if wanted is not None and not isinstance(processor, wanted):
        raise ValueError(
            f"{name_or_path} holds a {type(processor).__name__}, and a {config.model_type!r} model takes a "
            f"{wanted.__name__}; save the processor of the model that it was trained from into the folder"
        )
    _check_pixels(processor, name_or_path)
    _check_patches(processor, config, name_or_path)
    read = getattr(kind.text_config(config), "vocab_size", None)
    tokenizer = getattr(processor, "tokenizer", None)
    written = getattr(tokenizer, "vocab_size", 0)  # less added tokens that none reads
    if backend := getattr(tokenizer, "backend_tokenizer", None):
        written = 1 + max(backend.get_vocab(with_added_tokens=False).values(), default=-1)
    if read and written > read:
        raise ValueError(
            f"the tokenizer of {name_or_path} has {written:,} tokens and the model reads {read:,}; save the processor "
            "of the model that it was trained from into the folder"
        )
    return processor


def _check_pixels(processor: Any, name_or_path: str) -> None:
    # Frames larger than any model reads would fill the memory.
    for part in (getattr(processor, name, None) for name in ("image_processor", "video_processor")):
        fields = list(numbers_in(part.to_dict())) if part else []
        most = MOST_SIDE**2 if "min_pixels" in dict(fields) or "Qwen" in type(part).__name__ else MOST_SIDE
        for name, value in fields:
            if name in SIDES and value > most:
                raise ValueError(
                    f"the processor of {name_or_path} makes frames with {name}={value:,}; save the processor of "
                    "the model that it was trained from into the folder"
                )


def _check_patches(processor: Any, config: Any, name_or_path: str) -> None:
    images, vision = getattr(processor, "image_processor", None), getattr(config, "vision_config", None)
    pairs = [(images, vision, *names) for names in PATCHES.items()]
    for maker, reader, name, other in [*pairs, (processor, config, "image_token_id", "image_token_id")]:
        made, read = getattr(maker, name, None), getattr(reader, other, None)
        if made is not None and hasattr(reader, other) and made != read:
            raise ValueError(
                f"the processor of {name_or_path} has {name}={made}, and the model reads {read}; save the processor of "
                "the model that it was trained from into the folder"
            )


@torch.inference_mode()
def try_out(encoder: Any, name_or_path: str) -> None:
    """Encode two texts and, but for a language model, which takes its time, a small video: what is damaged shows now.

    Raises:
        ValueError: It cannot.
    """
    with opening(name_or_path, checked=True):
        tokens, longest = encoder.count_tokens("a") if encoder.reads_texts else (0, None)
        if longest is not None and tokens > longest:
            raise ValueError(f"{name_or_path} reads texts of {longest} tokens, too few for a word; copy it again")
        made = [encoder.encode_text(["a", "a a a"])] if encoder.reads_texts else []
        video = torch.zeros(encoder.num_frames, 3, 48, 64, dtype=torch.uint8)
        if isinstance(encoder, LanguageModelEncoder):
            encoder.processor.image_processor([video[0]], return_tensors="pt")
        else:
            made.append(encoder.encode_video([video]))
        if not all(one.isfinite().all() for one in made):
            raise ValueError(f"{name_or_path} gives embeddings that are not finite; copy it again")


def load_whole(name_or_path: str, kind: type[Encoder], config: Any) -> Any:
    """A model all of whose weights are in its files; see `open_whole`."""
    cure = f"it was saved for another task, by an earlier version or not to its end. A whole one: {kind.usage.source}"
    return open_whole(getattr(transformers, kind.model_class), name_or_path, cure=cure, config=config)


def is_sentence_transformer(name_or_path: str) -> bool:
    """Whether a folder or repository says of what modules a sentence-transformers model consists."""
    return cached_file(name_or_path, "modules.json", **MAY_BE_MISSING) is not None


def load_sentence_transformer(
    name_or_path: str, device: torch.device | str, num_frames: int | None, trust_remote_code: bool
) -> SentenceTransformerEncoder:
    """A model of sentence-transformers; see `load_encoder`.

    Raises:
        ImportError: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        message = f'{name_or_path} needs sentence-transformers: `pip install "subtle-video[sentence-transformers]"`'
        raise ImportError(message) from error
    model = SentenceTransformer(name_or_path, device=str(device), trust_remote_code=trust_remote_code)
    return SentenceTransformerEncoder(model, num_frames or default_frames(model.config))


def default_frames(config: Any, otherwise: int = 16) -> int:
    """How many frames of a video a model was made for."""
    for part in (config, getattr(config, "vision_config", None)):
        for name in ("num_frames", "frames_per_clip"):
            num_frames: int | None = getattr(part, name, None)
            if num_frames:
                return num_frames
    return otherwise


def short_name(name_or_path: str) -> str:
    """What a model is called in tables: the folder above `model`, or the name on the Hub."""
    path = Path(name_or_path)
    return path.parent.name if path.name == "model" else path.name


def short_names(models: Iterable[str]) -> dict[str, str]:
    """Models by what they are called in tables: a short name, or all of it where two would be called the same.

    Example:
        >>> short_names(["outputs/stage2/model", "a/clip", "b/clip"])
        {'stage2': 'outputs/stage2/model', 'a/clip': 'a/clip', 'b/clip': 'b/clip'}
    """
    short = {model: short_name(model) for model in models}
    several = Counter(short.values())
    return {model if several[name] > 1 else name: model for model, name in short.items()}
