"""Hugging Face models for telling nearly identical videos apart.

Importing this package makes the `Auto*.from_pretrained` of transformers know them. A saved folder also carries its
code, for `trust_remote_code=True` where this package is not installed. Nothing is loaded before it is used: a public
name when it is first read, a registration when transformers' Auto classes or PEFT are first imported.
"""

from typing import TYPE_CHECKING, Any

from hf_models.registration import import_object, register_lazily, register_peft_method

if TYPE_CHECKING:
    from hf_models.moments.configuration_hero import HEROConfig
    from hf_models.moments.configuration_reloclnet import ReLoCLNetConfig
    from hf_models.moments.configuration_xml import XMLConfig
    from hf_models.moments.modeling_hero import HEROForMomentRetrieval
    from hf_models.moments.modeling_reloclnet import ReLoCLNetForMomentRetrieval
    from hf_models.moments.modeling_xml import XMLForMomentRetrieval
    from hf_models.tfcovr.configuration_aim import AIMConfig
    from hf_models.tfcovr.configuration_aim_adapter import AIMAdapterConfig
    from hf_models.tfcovr.configuration_factored_covr import FactoredCoVRConfig
    from hf_models.tfcovr.configuration_tfcovr import TFCoVRConfig
    from hf_models.tfcovr.modeling_aim import AIMForVideoClassification, AIMModel
    from hf_models.tfcovr.modeling_factored_covr import FactoredCoVRForComposedRetrieval
    from hf_models.tfcovr.modeling_tfcovr import TFCoVRForComposedRetrieval
    from hf_models.tfcovr.processing_tfcovr import TFCoVRProcessor
    from hf_models.tfcovr.video_processing_aim import AIMVideoProcessor
    from hf_models.vidclip.configuration_vidclip import VidCLIPConfig
    from hf_models.vidclip.configuration_vidclip_matching import VidCLIPMatcherConfig
    from hf_models.vidclip.modeling_vidclip import VidCLIPModel
    from hf_models.vidclip.modeling_vidclip_matching import VidCLIPMatcher
    from hf_models.vidclip.processing_vidclip import VidCLIPProcessor

__all__ = [
    "AIMAdapterConfig",
    "AIMConfig",
    "AIMForVideoClassification",
    "AIMModel",
    "AIMVideoProcessor",
    "FactoredCoVRConfig",
    "FactoredCoVRForComposedRetrieval",
    "HEROConfig",
    "HEROForMomentRetrieval",
    "ReLoCLNetConfig",
    "ReLoCLNetForMomentRetrieval",
    "TFCoVRConfig",
    "TFCoVRForComposedRetrieval",
    "TFCoVRProcessor",
    "VidCLIPConfig",
    "VidCLIPMatcher",
    "VidCLIPMatcherConfig",
    "VidCLIPModel",
    "VidCLIPProcessor",
    "XMLConfig",
    "XMLForMomentRetrieval",
]

# Public class, its module, the Auto class that gives it, and for what: a `model_type` or a configuration.
CLASSES = (
    ("AIMConfig", "tfcovr.configuration_aim", "AutoConfig", "aim"),
    ("AIMModel", "tfcovr.modeling_aim", "AutoModel", "AIMConfig"),
    ("AIMForVideoClassification", "tfcovr.modeling_aim", "AutoModelForVideoClassification", "AIMConfig"),
    ("AIMVideoProcessor", "tfcovr.video_processing_aim", "AutoVideoProcessor", "AIMConfig"),
    ("AIMAdapterConfig", "tfcovr.configuration_aim_adapter", None, None),
    ("TFCoVRConfig", "tfcovr.configuration_tfcovr", "AutoConfig", "tfcovr"),
    ("TFCoVRForComposedRetrieval", "tfcovr.modeling_tfcovr", "AutoModel", "TFCoVRConfig"),
    ("TFCoVRProcessor", "tfcovr.processing_tfcovr", "AutoProcessor", "TFCoVRConfig"),
    ("FactoredCoVRConfig", "tfcovr.configuration_factored_covr", "AutoConfig", "factored_covr"),
    ("FactoredCoVRForComposedRetrieval", "tfcovr.modeling_factored_covr", "AutoModel", "FactoredCoVRConfig"),
    ("TFCoVRProcessor", "tfcovr.processing_tfcovr", "AutoProcessor", "FactoredCoVRConfig"),
    ("VidCLIPConfig", "vidclip.configuration_vidclip", "AutoConfig", "vidclip"),
    ("VidCLIPModel", "vidclip.modeling_vidclip", "AutoModel", "VidCLIPConfig"),
    ("VidCLIPProcessor", "vidclip.processing_vidclip", "AutoProcessor", "VidCLIPConfig"),
    ("VidCLIPMatcherConfig", "vidclip.configuration_vidclip_matching", "AutoConfig", "vidclip_matcher"),
    ("VidCLIPMatcher", "vidclip.modeling_vidclip_matching", "AutoModel", "VidCLIPMatcherConfig"),
    ("XMLConfig", "moments.configuration_xml", "AutoConfig", "xml_moment_retrieval"),
    ("XMLForMomentRetrieval", "moments.modeling_xml", "AutoModel", "XMLConfig"),
    ("ReLoCLNetConfig", "moments.configuration_reloclnet", "AutoConfig", "reloclnet"),
    ("ReLoCLNetForMomentRetrieval", "moments.modeling_reloclnet", "AutoModel", "ReLoCLNetConfig"),
    ("HEROConfig", "moments.configuration_hero", "AutoConfig", "hero_moment_retrieval"),
    ("HEROForMomentRetrieval", "moments.modeling_hero", "AutoModel", "HEROConfig"),
)
NAMES = {name: f"{__name__}.{module}:{name}" for name, module, _, _ in CLASSES}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = globals()[name] = import_object(NAMES[name])
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


for _name, _module, _auto_class, _key in CLASSES:
    if _auto_class is not None and _key is not None:
        register_lazily(_auto_class, NAMES.get(_key, _key), NAMES[_name])
_RESNET = f"{__name__}.encoders.configuration_clip_resnet:CLIPResNet"
for _key, _name in (("clip_resnet", "Config"), ("clip_resnet_vision", "VisionConfig")):
    register_lazily("AutoConfig", _key, f"{_RESNET}{_name}")
    _model = f"{_RESNET}{_name}".replace("configuration", "modeling").replace("Config", "Model")
    register_lazily("AutoModel", f"{_RESNET}{_name}", _model)
register_peft_method(
    "peft",
    f"{__name__}.tfcovr.adapter_aim",
    needs=(f"{__name__}.tfcovr.configuration_aim_adapter", f"{__name__}.tfcovr.layers_aim_adapter"),
)
