"""Hugging Face models for telling nearly identical videos apart.

Importing this package makes the `Auto*.from_pretrained` of transformers know them. A saved folder also carries its
code, for `trust_remote_code=True` where this package is not installed.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForVideoClassification,
    AutoProcessor,
    AutoVideoProcessor,
)

from hf_models.moments.configuration_hero import HEROConfig
from hf_models.moments.configuration_reloclnet import ReLoCLNetConfig
from hf_models.moments.configuration_xml import XMLConfig
from hf_models.moments.modeling_hero import HEROForMomentRetrieval
from hf_models.moments.modeling_reloclnet import ReLoCLNetForMomentRetrieval
from hf_models.moments.modeling_xml import XMLForMomentRetrieval
from hf_models.tfcovr import adapter_aim  # noqa: F401 (registers the PEFT method)
from hf_models.tfcovr.configuration_aim import AIMConfig
from hf_models.tfcovr.configuration_aim_adapter import AIMAdapterConfig
from hf_models.tfcovr.configuration_tfcovr import TFCoVRConfig
from hf_models.tfcovr.modeling_aim import AIMForVideoClassification, AIMModel
from hf_models.tfcovr.modeling_tfcovr import TFCoVRForComposedRetrieval
from hf_models.tfcovr.processing_tfcovr import TFCoVRProcessor
from hf_models.tfcovr.video_processing_aim import AIMVideoProcessor
from hf_models.vidclip.configuration_vidclip import VidCLIPConfig
from hf_models.vidclip.modeling_vidclip import VidCLIPModel
from hf_models.vidclip.processing_vidclip import VidCLIPProcessor

# Configuration -> the class that each Auto class gives for it.
AUTO_CLASSES = {
    AIMConfig: {
        AutoModel: AIMModel,
        AutoModelForVideoClassification: AIMForVideoClassification,
        AutoVideoProcessor: AIMVideoProcessor,
    },
    TFCoVRConfig: {AutoModel: TFCoVRForComposedRetrieval, AutoProcessor: TFCoVRProcessor},
    VidCLIPConfig: {AutoModel: VidCLIPModel, AutoProcessor: VidCLIPProcessor},
    XMLConfig: {AutoModel: XMLForMomentRetrieval},
    ReLoCLNetConfig: {AutoModel: ReLoCLNetForMomentRetrieval},
    HEROConfig: {AutoModel: HEROForMomentRetrieval},
}

for config_class, classes in AUTO_CLASSES.items():
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    config_class.register_for_auto_class()
    for auto_class, model_class in classes.items():
        auto_class.register(config_class, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_class.__name__)

__all__ = [
    "AIMAdapterConfig",
    "AIMConfig",
    "AIMForVideoClassification",
    "AIMModel",
    "AIMVideoProcessor",
    "HEROConfig",
    "HEROForMomentRetrieval",
    "ReLoCLNetConfig",
    "ReLoCLNetForMomentRetrieval",
    "TFCoVRConfig",
    "TFCoVRForComposedRetrieval",
    "TFCoVRProcessor",
    "VidCLIPConfig",
    "VidCLIPModel",
    "VidCLIPProcessor",
    "XMLConfig",
    "XMLForMomentRetrieval",
]
