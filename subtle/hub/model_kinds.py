"""What a card says of each kind of model that a recipe writes: its task, how it is loaded, what it needs."""

from dataclasses import dataclass, replace

PROJECT = "https://github.com/subtle-video/subtle-video"
WITH_VIDEO = 'pip install "transformers>=5.23" torch torchvision av'
WITHOUT_VIDEO = 'pip install "transformers>=5.23" torch'


@dataclass(frozen=True)
class ModelKind:
    """One kind of model folder.

    Attributes:
        about: the first sentence of a card.
        made_by: the command that trains it.
        tags, library_name, pipeline_tag: of the card's metadata.
        task: type and name of its task, for the model-index.
        code: runs as it stands, with `$repo` and `$base` as ids on the Hub.
        install: the command that installs what its code imports.
        bases: the options of the recipe that name what it starts from.
        has_own_code: whether `trust_remote_code=True` is needed.
        is_adapter: whether it is put on a base.
    """

    about: str
    made_by: str
    tags: tuple[str, ...]
    task: tuple[str, str]
    code: str
    library_name: str = "transformers"
    pipeline_tag: str | None = None
    install: str = WITH_VIDEO
    bases: tuple[str, ...] = ()
    has_own_code: bool = True
    is_adapter: bool = False


CLIP = ModelKind(
    about="A CLIP for 48-pixel frames of the miniature's rendered athletes.",
    made_by="python -m benchmarks.pretrain_miniature",
    pipeline_tag="zero-shot-image-classification",
    tags=("clip",),
    task=("image-text-retrieval", "Retrieval of captions by stills"),
    install=WITH_VIDEO.replace(" av", " pillow"),
    code="""\
from PIL import Image
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("$repo")
processor = AutoProcessor.from_pretrained("$repo")
image = Image.open("image.png")
inputs = processor(images=[image], text=["a handstand", "a jump"], padding=True, return_tensors="pt")
print(model(**inputs).logits_per_image)
""",
    has_own_code=False,
)
AIM = ModelKind(
    about="A video classifier of fine-grained actions: AIM, a CLIP vision tower whose attention also runs over time "
    "([paper](https://arxiv.org/abs/2302.03024), [code](https://github.com/taoyang1122/adapt-image-models)).",
    made_by="subtle stage1",
    pipeline_tag="video-classification",
    tags=("aim", "video-classification"),
    task=("video-classification", "Video classification"),
    code="""\
from transformers import pipeline

classify = pipeline("video-classification", "$repo", trust_remote_code=True)
print(classify("video.mp4", top_k=3))

model, processor = classify.model, classify.video_processor  # the same in steps
print(model(**processor(["video.mp4"], return_tensors="pt")).logits)
""",
    bases=("base", "init_from"),
)
ADAPTER = ModelKind(
    about="AIM's adapters, which make a frozen CLIP vision tower a video classifier of fine-grained actions "
    "([paper](https://arxiv.org/abs/2302.03024), [code](https://github.com/taoyang1122/adapt-image-models)).",
    made_by="subtle stage1",
    library_name="peft",
    pipeline_tag="video-classification",
    tags=("aim", "adapter", "video-classification"),
    task=("video-classification", "Video classification"),
    install="pip install subtle-video",
    code="""\
from peft import PeftModel
from transformers import AutoImageProcessor, CLIPVisionModel

from hf_models import AIMVideoProcessor  # also registers AIM with PEFT, which raises KeyError: 'AIM...' without it

tower = CLIPVisionModel.from_pretrained("$base")
model = PeftModel.from_pretrained(tower, "$repo").eval()
# or, with the tower that adapter_config.json names: AutoPeftModel.from_pretrained("$repo")
settings, images = model.peft_config["default"], AutoImageProcessor.from_pretrained("$base")
processor = AIMVideoProcessor.from_image_processor(images, num_frames=settings.num_frames)
logits = model(**processor(["video.mp4"], return_tensors="pt")).logits
print(settings.id2label[logits.argmax(-1).item()])
""",
    bases=("base",),
    is_adapter=True,
)
TFCOVR = ModelKind(
    about="Composed video retrieval: finds the clip that a clip and a sentence of what to change in it ask for. "
    "TF-CoVR's model ([paper](https://arxiv.org/abs/2506.05274), [code](https://github.com/UCF-CRCV/TF-CoVR)).",
    made_by="subtle stage2",
    pipeline_tag="feature-extraction",
    tags=("tfcovr", "composed-video-retrieval"),
    task=("composed-video-retrieval", "Composed video retrieval"),
    code="""\
import torch
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("$repo", trust_remote_code=True)
clips = ["video.mp4"] * 3  # paths, or RGB frames: (frames, height, width, 3), uint8
with torch.no_grad():
    query = model.get_query_features(**processor(videos=clips[:1], text=["show with 2 turns"]))
    gallery = model.get_target_features(**processor(videos=clips))
print(query @ gallery.T)
""",
    bases=("vision_model", "text_model"),
)
FACTORED = replace(
    TFCOVR,
    about="Composed video retrieval in the space of labels: finds the clip whose label is that which a clip and a "
    "sentence of what to change in it ask for, also a label without training clips whose words others have.",
    tags=("factored-covr", "composed-video-retrieval"),
)
HEAD = ModelKind(
    about="Composed video retrieval with a vision-language model: a head over the last token's states of its layers.",
    made_by="subtle finetune_vlm",
    tags=("composed-video-retrieval", "video-retrieval"),
    task=TFCOVR.task,
    install="pip install subtle-video",
    code="""\
from hf_models.encoders import load_encoder

encoder = load_encoder("$base", adapter="$repo")  # encode_video, encode_text, encode_query
print(encoder.encode_text(["show with 2 turns"]).shape)
""",
    bases=("model",),
    has_own_code=False,
    is_adapter=True,
)
LORA = replace(
    HEAD,
    about="Composed video retrieval with a vision-language model: LoRA adapters of it.",
    library_name="peft",
    tags=("lora", *HEAD.tags),
    code=f"""\
{HEAD.code}
from peft import AutoPeftModel

model = AutoPeftModel.from_pretrained("$repo")  # the bare model with its adapter
""",
)
VIDCLIP = ModelKind(
    about="VidCLIP: compares videos of several actions with paragraphs about them, after VideoComp "
    "([paper](https://arxiv.org/abs/2504.03970), [repository](https://github.com/google-deepmind/video_comp)).",
    made_by="subtle vidclip",
    pipeline_tag="feature-extraction",
    tags=("vidclip", "video-text-retrieval"),
    task=("video-text-retrieval", "Video-text compositionality and retrieval"),
    code="""\
import torch
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("$repo", trust_remote_code=True)
video = "video.mp4"  # a path, or RGB frames: (frames, height, width, 3), uint8
with torch.no_grad():
    print(model(**processor([video], ["A jump, then a turn.", "A turn, then a jump."])).logits_per_video)
""",
    bases=("model",),
)
MATCHER = ModelKind(
    about="VERIFIED's noise evaluator ([paper](https://arxiv.org/abs/2410.08593), "
    "[repository](https://github.com/hlchen23/VERIFIED)): scores "
    "how well a text describes a clip, reading both together.",
    made_by="subtle noise_evaluator",
    tags=("vidclip", "video-text-matching"),
    task=("video-text-matching", "Video-text matching"),
    code="""\
import av
import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
processor = AutoImageProcessor.from_pretrained("$repo")
tokenizer = AutoTokenizer.from_pretrained("$repo", trust_remote_code=True)
with av.open("video.mp4") as container:
    frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
frames = [frames[number * len(frames) // model.max_frames] for number in range(model.max_frames)]
pixels = processor(frames, return_tensors="pt")["pixel_values"][None]
tokens = tokenizer(["a jump"], truncation=True, max_length=model.max_tokens, return_tensors="pt")
with torch.no_grad():
    print(model(pixels, tokens["input_ids"], tokens["attention_mask"]).logits)
""",
    bases=("model",),
)
MOMENTS = ModelKind(
    about="Finds the moment that a sentence describes in a corpus of videos, given as features.",
    made_by="subtle vcmr",
    tags=("moment-retrieval", "video-corpus-moment-retrieval"),
    task=("video-corpus-moment-retrieval", "Video corpus moment retrieval"),
    install=WITHOUT_VIDEO,
    code="""\
import torch
from transformers import AutoModel

model = AutoModel.from_pretrained("$repo", trust_remote_code=True)
query = torch.randn(1, 6, model.config.query_feature_size)  # a vector for each token of a sentence
video = torch.randn(1, 9, model.config.video_feature_size)  # a vector for each clip of a video
with torch.no_grad():
    found = model(query, torch.ones(1, 6), video, torch.ones(1, 9))
print(found.video_scores, found.start_logits.argmax(-1), found.end_logits.argmax(-1))
""",
    bases=("roberta",),
)
BLIP = ModelKind(
    about="VERIFIED's noise evaluator ([paper](https://arxiv.org/abs/2410.08593), "
    "[repository](https://github.com/hlchen23/VERIFIED)) on BLIP: scores "
    "how well a text describes the frames of a clip.",
    made_by="subtle noise_evaluator",
    tags=("blip", "video-text-matching"),
    task=("video-text-matching", "Video-text matching"),
    install=WITH_VIDEO.removesuffix(" av"),
    code="""\
from transformers import AutoImageProcessor, AutoTokenizer, BlipForImageTextRetrieval

model = BlipForImageTextRetrieval.from_pretrained("$repo")
processor, tokenizer = AutoImageProcessor.from_pretrained("$repo"), AutoTokenizer.from_pretrained("$repo")
""",
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
    "layer_head": HEAD,
    **{
        name: replace(MOMENTS, about=f"{MOMENTS.about} {method}")
        for name, method in {
            "xml_moment_retrieval": "XML ([paper](https://arxiv.org/abs/2001.09099), "
            "[code](https://github.com/jayleicn/TVRetrieval)).",
            "reloclnet": "ReLoCLNet ([paper](https://arxiv.org/abs/2105.06247), "
            "[code](https://github.com/26hzhang/ReLoCLNet)).",
            "hero_moment_retrieval": "HERO ([paper](https://arxiv.org/abs/2005.00200), "
            "[code](https://github.com/linjieli222/HERO)).",
        }.items()
    },
}
"""`model_type` of a configuration -> its kind; an adapter's folder has no `model_type` but a method."""
ADAPTERS = {"AIM": ADAPTER, "LORA": LORA}
"""The first word of an adapter's `peft_type` -> its kind."""
