"""What a card says of each kind of model that a recipe writes: its task, how it is loaded, what it needs."""

from dataclasses import dataclass, replace
from string import Template

PROJECT = "https://github.com/subtle-video/subtle-video"
WITH_VIDEO = 'pip install "transformers>=5.23" torch torchvision av'
WITHOUT_VIDEO = 'pip install "transformers>=5.23" torch'


@dataclass(frozen=True)
class ModelKind:
    """One kind of model folder.

    Attributes:
        about: the first sentence of a card.
        recipe: the verb that trains it.
        library_name, pipeline_tag, tags: of the card's metadata.
        task: type and name of its task, for the model-index.
        install: the command that installs what its code imports.
        code: runs as it stands, with `$repo` and `$base` as ids on the Hub.
        bases: the options of the recipe that name what it starts from.
        has_own_code: whether `trust_remote_code=True` is needed.
    """

    about: str
    recipe: str
    library_name: str
    pipeline_tag: str | None
    tags: tuple[str, ...]
    task: tuple[str, str]
    install: str
    code: Template
    bases: tuple[str, ...] = ()
    has_own_code: bool = True


CLIP = ModelKind(
    about="A CLIP for 48-pixel frames of the miniature's rendered athletes.",
    recipe="pretrain_miniature",
    library_name="transformers",
    pipeline_tag="zero-shot-image-classification",
    tags=("clip",),
    task=("image-text-retrieval", "Retrieval of captions by stills"),
    install=WITH_VIDEO.removesuffix(" av"),
    code=Template("""\
import numpy as np
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("$repo")
processor = AutoProcessor.from_pretrained("$repo")
image = np.zeros((48, 48, 3), dtype=np.uint8)  # RGB
inputs = processor(images=[image], text=["a handstand", "a jump"], padding=True, return_tensors="pt")
print(model(**inputs).logits_per_image)
"""),
    has_own_code=False,
)
AIM = ModelKind(
    about="A video classifier of fine-grained actions: AIM, a CLIP vision tower whose attention also runs over time.",
    recipe="stage1",
    library_name="transformers",
    pipeline_tag="video-classification",
    tags=("aim", "video-classification"),
    task=("video-classification", "Video classification"),
    install=WITH_VIDEO,
    code=Template("""\
import numpy as np
from transformers import AutoModelForVideoClassification, AutoVideoProcessor

model = AutoModelForVideoClassification.from_pretrained("$repo", trust_remote_code=True)
processor = AutoVideoProcessor.from_pretrained("$repo", trust_remote_code=True)
clip = np.zeros((24, 96, 96, 3), dtype=np.uint8)  # RGB frames, or the path of a video
logits = model(**processor([clip], return_tensors="pt")).logits
print(model.config.id2label[logits.argmax(-1).item()])
"""),
    bases=("base",),
)
ADAPTER = ModelKind(
    about="AIM's adapters, which make a frozen CLIP vision tower a video classifier of fine-grained actions.",
    recipe="stage1",
    library_name="peft",
    pipeline_tag="video-classification",
    tags=("aim", "adapter", "video-classification"),
    task=("video-classification", "Video classification"),
    install="pip install subtle-video",
    code=Template("""\
import torch
from peft import PeftModel
from transformers import CLIPVisionModel

import hf_models  # registers AIM with PEFT, which raises KeyError: 'AIM...' without it

tower = CLIPVisionModel.from_pretrained("$base")
model = PeftModel.from_pretrained(tower, "$repo").eval()
# or, with the tower that adapter_config.json names: AutoPeftModel.from_pretrained("$repo")
settings, side = model.peft_config["default"], model.base_model.config.image_size
clip = torch.zeros(1, settings.num_frames, 3, side, side)  # normalized as the base's image processor does
print(settings.id2label[model(clip).logits.argmax(-1).item()])
"""),
    bases=("base",),
)
TFCOVR = ModelKind(
    about="Composed video retrieval: finds the clip that a clip and a sentence of what to change in it ask for.",
    recipe="stage2",
    library_name="transformers",
    pipeline_tag="feature-extraction",
    tags=("tfcovr", "composed-video-retrieval"),
    task=("composed-video-retrieval", "Composed video retrieval"),
    install=WITH_VIDEO,
    code=Template("""\
import numpy as np
import torch
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("$repo", trust_remote_code=True)
clips = [np.zeros((24, 96, 96, 3), dtype=np.uint8)] * 3  # RGB frames, or paths of videos
with torch.no_grad():
    query = model.get_query_features(**processor(videos=clips[:1], text=["show with 2 turns"]))
    gallery = model.get_target_features(**processor(videos=clips))
print(query @ gallery.T)
"""),
    bases=("vision_model", "text_model"),
)
FACTORED = replace(
    TFCOVR,
    about="Composed video retrieval in the space of labels: finds the clip whose label is that which a clip and a "
    "sentence of what to change in it ask for.",
    tags=("factored-covr", "composed-video-retrieval"),
)
VIDCLIP = ModelKind(
    about="VidCLIP: compares videos of several actions with paragraphs about them.",
    recipe="vidclip",
    library_name="transformers",
    pipeline_tag="feature-extraction",
    tags=("vidclip", "video-text-retrieval"),
    task=("video-text-retrieval", "Video-text compositionality and retrieval"),
    install=WITH_VIDEO,
    code=Template("""\
import numpy as np
import torch
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("$repo", trust_remote_code=True)
video = np.zeros((24, 96, 96, 3), dtype=np.uint8)  # RGB frames, or the path of a video
with torch.no_grad():
    print(model(**processor([video], ["A jump, then a turn.", "A turn, then a jump."])).logits_per_video)
"""),
    bases=("model",),
)
MATCHER = ModelKind(
    about="VERIFIED's noise evaluator: scores how well a text describes a clip, reading both together.",
    recipe="noise_evaluator",
    library_name="transformers",
    pipeline_tag=None,
    tags=("vidclip", "video-text-matching"),
    task=("video-text-matching", "Video-text matching"),
    install=WITH_VIDEO.removesuffix(" av"),
    code=Template("""\
import numpy as np
import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
processor = AutoImageProcessor.from_pretrained("$repo")
tokenizer = AutoTokenizer.from_pretrained("$repo", trust_remote_code=True)
frames = [np.zeros((96, 96, 3), dtype=np.uint8)] * model.max_frames  # RGB
pixels = processor(frames, return_tensors="pt")["pixel_values"][None]
tokens = tokenizer(["a jump"], truncation=True, max_length=model.max_tokens, return_tensors="pt")
with torch.no_grad():
    print(model(pixels, tokens["input_ids"], tokens["attention_mask"]).logits)
"""),
    bases=("model",),
)
MOMENTS = ModelKind(
    about="Finds the moment that a sentence describes in a corpus of videos, given as features.",
    recipe="vcmr",
    library_name="transformers",
    pipeline_tag=None,
    tags=("moment-retrieval", "video-corpus-moment-retrieval"),
    task=("video-corpus-moment-retrieval", "Video corpus moment retrieval"),
    install=WITHOUT_VIDEO,
    code=Template("""\
import torch
from transformers import AutoModel

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
query = torch.randn(1, 6, model.config.query_feature_size)  # a vector for each token of a sentence
video = torch.randn(1, 9, model.config.video_feature_size)  # a vector for each clip of a video
with torch.no_grad():
    found = model(query, torch.ones(1, 6), video, torch.ones(1, 9))
print(found.video_scores, found.start_logits.argmax(-1), found.end_logits.argmax(-1))
"""),
    bases=("roberta",),
)
BLIP = ModelKind(
    about="VERIFIED's noise evaluator on BLIP: scores how well a text describes the frames of a clip.",
    recipe="noise_evaluator",
    library_name="transformers",
    pipeline_tag=None,
    tags=("blip", "video-text-matching"),
    task=("video-text-matching", "Video-text matching"),
    install=WITH_VIDEO.removesuffix(" av"),
    code=Template("""\
from transformers import AutoImageProcessor, AutoTokenizer, BlipForImageTextRetrieval

model = BlipForImageTextRetrieval.from_pretrained("$repo")
processor, tokenizer = AutoImageProcessor.from_pretrained("$repo"), AutoTokenizer.from_pretrained("$repo")
"""),
    bases=("model",),
    has_own_code=False,
)
KINDS = {
    "clip": CLIP,
    "aim": AIM,
    "tfcovr": TFCOVR,
    "factored_covr": FACTORED,
    "vidclip": VIDCLIP,
    "vidclip_matcher": MATCHER,
    "blip": BLIP,
    **dict.fromkeys(("xml_moment_retrieval", "reloclnet", "hero_moment_retrieval"), MOMENTS),
}
"""`model_type` of a configuration -> its kind; an adapter's folder has no `model_type`."""
