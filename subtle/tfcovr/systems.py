"""The systems that a composed-retrieval result is compared with, and how each differs from the two-stage one."""

from dataclasses import dataclass

from subtle.run.shared_config import QueryParts


@dataclass(frozen=True)
class System:
    """How a system differs from the two-stage one.

    Attributes:
        name: in tables and file names.
        embeddings: folder of an image model's embeddings, beside the two-stage system's.
        query: the halves of the query that it sees.
        image_model: whether the image model, averaged over frames, replaces the video encoder; in a TF-CoVR, as it has
            no classifier of labels, which a FactoredCoVR takes from stage 1.
        vision_model_class: see `TFCoVRConfig`.
        zero_shot: average the two embeddings and train nothing.
        shuffle_frames: measure the two-stage system's weights on clips with their frames in a random order.
    """

    name: str
    embeddings: str | None = None
    query: QueryParts = "both"
    image_model: bool = False
    vision_model_class: str | None = None
    zero_shot: bool = False
    shuffle_frames: bool = False


SYSTEMS = (
    System("two-stage"),
    System("stage-2-only", embeddings="frames", image_model=True),
    System("text-only", query="text"),
    System("video-only", query="video"),
    System(
        "zero-shot average",
        embeddings="zero-shot",
        image_model=True,
        vision_model_class="CLIPVisionModelWithProjection",
        zero_shot=True,
    ),
    System("two-stage, shuffled frames", shuffle_frames=True),
)
