"""One class for anything that embeds: `encode_video`, `encode_text`, `encode_query`, for any family of models.

    encoder = load_encoder("openai/clip-vit-base-patch32")
    encoder.compare(encoder.encode_video(videos), encoder.encode_text(texts))

Each takes a batch and gives one row per item. `encoder.usage` says how the family is used: frames, prompt, pooling,
query, source, license, and what of it is inferred. `estimate` says what a model costs before it is loaded.
"""

from hf_models.encoders.aim import AIMEncoder
from hf_models.encoders.blip import BlipEncoder
from hf_models.encoders.dual_encoders import (
    DotProductEncoder,
    ImageEncoder,
    PerceptionEncoder,
    VidCLIPEncoder,
    XCLIPEncoder,
)
from hf_models.encoders.estimates import Estimate
from hf_models.encoders.language_models import GMEEncoder, LanguageModelEncoder
from hf_models.encoders.loading import (
    ENCODERS,
    estimate,
    load_encoder,
    load_sentence_transformer,
    short_name,
    short_names,
)
from hf_models.encoders.modeling_blip_composed import BlipForComposedRetrieval
from hf_models.encoders.protocol import Encoder, pooled
from hf_models.encoders.sentence_transformer import SentenceTransformerEncoder
from hf_models.encoders.tfcovr import TFCoVREncoder

__all__ = [
    "ENCODERS",
    "AIMEncoder",
    "BlipEncoder",
    "BlipForComposedRetrieval",
    "DotProductEncoder",
    "Encoder",
    "Estimate",
    "GMEEncoder",
    "ImageEncoder",
    "LanguageModelEncoder",
    "PerceptionEncoder",
    "SentenceTransformerEncoder",
    "TFCoVREncoder",
    "VidCLIPEncoder",
    "XCLIPEncoder",
    "estimate",
    "load_encoder",
    "load_sentence_transformer",
    "pooled",
    "short_name",
    "short_names",
]
