"""Multimodal language models as encoders: one prompt holds frames, a text or both, and its last token is the embedding.

The prompts are those of the released scripts. They are padded on the right, where no token before sees the padding, so
that an embedding does not depend on its batch.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.video_utils import VideoMetadata

from hf_models.encoders.estimates import PROMPTS_AT_ONCE
from hf_models.encoders.modeling_layer_head import LayerHead, check_layers
from hf_models.encoders.protocol import Encoder, Usage, check_videos, mean_over_frames, unit_rows
from hf_models.fingerprints import weights_fingerprint

QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_VIDEO = "<|video_pad|>"
"""Without the marks around it, which the processor puts around the frames of each time; it would leave others there."""
QWEN_CHAT = (
    "<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
)
LLAMA_3_CHAT = (
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n \n"
)
GME_INSTRUCTION = "You are a helpful assistant."
MM_EMBED_INSTRUCTION = (
    "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
)


class LanguageModelEncoder(Encoder):
    """A multimodal language model that embeds by the last token of a prompt.

    Args:
        model: The model without its language head, in evaluation mode.
        processor: Its own.
        num_frames: How many frames of a video it reads.
        instruction: What the model is asked to do, where its prompts have a place for it; None: as released.
        one_prompt: Put all frames of a video into one prompt; False: one prompt for each frame, and the mean of their
            unit-norm embeddings. None: as the family was used.
        prompts_at_once: How many prompts the model reads at a time.
        layers: Give the last token's states of these layers, each of unit norm, `(B, layers, D)`, in place of rows:
            the features of a `LayerHead`, see `add_head`. 0 is the token embeddings, -1 the last layer. None: rows.

    Raises:
        ValueError: The model does not have one of the layers.
    """

    default_instruction: ClassVar[str] = ""
    default_one_prompt: ClassVar[bool] = False
    default_frames = 15
    image_mark: ClassVar[str]
    has_layers: ClassVar[bool] = True
    """Whether the embedding is a token's state, of which there is one in every layer."""

    def __init__(
        self,
        model: Any,
        processor: Any,
        num_frames: int,
        *,
        instruction: str | None = None,
        one_prompt: bool | None = None,
        prompts_at_once: int = PROMPTS_AT_ONCE,
        layers: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model, processor, num_frames)
        self.layers = None if layers is None else list(layers)
        self.head: LayerHead | None = None
        if layers is not None:
            if not self.has_layers:
                raise ValueError(f"{type(self).__name__} pools over tokens and has no option layers; leave it out")
            check_layers(list(layers), model.config.get_text_config().num_hidden_layers)
        self.instruction = self.default_instruction if instruction is None else instruction
        self.one_prompt = self.default_one_prompt if one_prompt is None else one_prompt
        self.prompts_at_once = prompts_at_once
        processor.tokenizer.padding_side = "right"

    @property
    def image_options(self) -> dict[str, Any]:
        """How the image processor is called; as it was saved, unless the family was used otherwise."""
        return {}

    @property
    def depends_on(self) -> dict[str, str]:
        """See `Encoder`."""
        prompts = [self.prompt(self.image_mark, None), self.prompt("", "TEXT"), self.prompt(self.image_mark, "TEXT")]
        found = {"prompts": json.dumps(prompts), "one_prompt": str(self.one_prompt)}
        found |= {} if self.layers is None else {"layers": json.dumps(self.layers)}
        return found if self.head is None else found | {"head": weights_fingerprint(self.head)}

    def add_head(self, head: LayerHead) -> None:
        """Give rows by a head over layers.

        Raises:
            ValueError: It was made for a model of another size.
        """
        text = self.model.config.get_text_config()
        if head.config.input_size != text.hidden_size:
            raise ValueError(
                f"the head reads states of width {head.config.input_size}, and the model's are {text.hidden_size} "
                f"wide; load {head.config.base_model_name_or_path} with it"
            )
        check_layers(head.config.layers, text.num_hidden_layers)
        self.layers, self.head = list(head.config.layers), head

    def rows(self, features: Tensor) -> Tensor:
        """Rows `(B, D)` of features, by the head where there is one."""
        return features if self.head is None else self.head(features.to(self.model.device))

    def prompt(self, marks: str, text: str | None) -> str:
        """The prompt of frames, a text or both.

        Args:
            marks: Where the frames go; empty without.
            text: The text; None without.
        """
        raise NotImplementedError

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        return self.rows(self.embed(frames, [None] * len(frames)))

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`.

        Raises:
            ValueError: There is no text, or one holds a mark of the prompt.
        """
        if not texts:
            raise ValueError("there is no text to encode; give at least one")
        self.check_texts(texts)
        return self.rows(self.embed_texts(texts))

    def compose(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """Unit-norm `(B, D)`: video and text in one prompt.

        Raises:
            ValueError: A text holds a mark of the prompt.
        """
        self.check_texts(texts)
        return self.rows(self.embed(frames, texts))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Texts alone."""
        return self.read([self.prompt("", text) for text in texts], [[] for _ in texts])

    def embed(self, frames: Sequence[Tensor], texts: Sequence[str | None]) -> Tensor:
        """Videos, each with its text or without."""
        check_videos(frames)
        if self.one_prompt:
            prompts = [
                self.prompt(self.image_mark * len(video), text) for video, text in zip(frames, texts, strict=True)
            ]
            return self.read(prompts, [list(video) for video in frames])
        each = [self.prompt(self.image_mark, text) for video, text in zip(frames, texts, strict=True) for _ in video]
        return mean_over_frames(self.read(each, [[frame] for video in frames for frame in video]), frames)

    def read(self, prompts: list[str], images: list[list[Tensor]]) -> Tensor:
        """Unit-norm embeddings `(N, D)` of prompts, each with its images."""
        return self.in_turn(self.read_images, prompts, images)

    def in_turn(
        self, read: Callable[[list[str], Sequence[Any]], Tensor], prompts: list[str], shown: Sequence[Any]
    ) -> Tensor:
        """Rows of prompts, each with what it shows, of which the model reads `prompts_at_once` at a time."""
        starts = range(0, len(prompts), self.prompts_at_once)
        parts = [slice(start, start + self.prompts_at_once) for start in starts]
        return torch.cat([read(prompts[part], shown[part]) for part in parts])

    def read_images(self, prompts: list[str], images: Sequence[list[Tensor]]) -> Tensor:
        """`read` of as many prompts as the model reads at a time."""
        flat = [image for each in images for image in each]
        options = {"images": flat, "images_kwargs": self.image_options} if flat else {}
        return self.last_token(self.processor(text=prompts, **options, **PADDED))

    def last_token(self, inputs: Any) -> Tensor:
        """Unit-norm `(N, D)`: the output at the last token of each prompt; of several layers `(N, layers, D)`."""
        given = {name: self.on_device(value) for name, value in inputs.items() if isinstance(value, Tensor)}
        output = self.model(**given, use_cache=False, output_hidden_states=self.layers is not None)
        last = given["attention_mask"].sum(1) - 1
        place = torch.arange(len(last), device=last.device)
        if self.layers is None:
            return unit_rows(output.last_hidden_state[place, last])
        return unit_rows(torch.stack([output.hidden_states[layer][place, last] for layer in self.layers], 1))

    def check_texts(self, texts: Sequence[str]) -> None:
        """Refuse texts that would break a prompt apart.

        Raises:
            ValueError: A text holds a special token.
        """
        special = [*self.processor.tokenizer.all_special_tokens, self.processor.image_token]
        for text in texts:
            if found := next((mark for mark in special if mark in text), None):
                raise ValueError(f"the text {text[:60]!r} holds {found!r}, a mark of the prompt; take it out")


PADDED: dict[str, Any] = {"padding": True, "return_tensors": "pt"}


class GMEEncoder(LanguageModelEncoder):
    """GME through Qwen2-VL: the weights load as Qwen2-VL, whose remote code newer versions of transformers refuse."""

    usage = Usage(
        family="GME-Qwen2-VL",
        frames="15, each an image in a prompt of its own (256 to 1280 tokens); the mean of the unit-norm frames",
        prompt=repr(
            QWEN_CHAT.format(instruction="You are a helpful assistant.", content="IMAGE TEXT") + "<|endoftext|>"
        ),
        pooling="the last token, <|endoftext|>, unit-norm",
        query="frame and text in one prompt; the mean over the unit-norm frames",
        source="arXiv:2412.16855, TF-CoVR; Alibaba-NLP/gme-Qwen2-VL-2B-Instruct, gme_inference.py",
        license="Apache-2.0",
        inferred="option one_prompt: all frames in one prompt; texts are not cut to 1800 tokens",
    )
    default_instruction = GME_INSTRUCTION
    image_mark = QWEN_IMAGE

    @property
    def image_options(self) -> dict[str, Any]:
        """256 to 1280 tokens for an image; a token is 28 x 28 pixels of it."""
        images = self.processor.image_processor
        pixels = (images.patch_size * images.merge_size) ** 2
        return {"size": {"shortest_edge": 256 * pixels, "longest_edge": 1280 * pixels}}

    def prompt(self, marks: str, text: str | None) -> str:
        """As `gme_inference.py` writes it."""
        return QWEN_CHAT.format(instruction=self.instruction, content=marks + (text or "")) + "<|endoftext|>"


class E5VEncoder(LanguageModelEncoder):
    """E5-V through LLaVA-NeXT with Llama 3."""

    usage = Usage(
        family="E5-V",
        frames="15, each an image in a prompt of its own; the mean of the unit-norm frames",
        prompt="in Llama 3's chat markup: '<image>\\nSummary above image in one word: ', "
        "'TEXT\\nSummary above sentence in one word: '",
        pooling="the last token, unit-norm",
        query="""'<image>Modify this image with "TEXT", desribe modified image in one word: ' as released (CIRR); """
        "the mean over the unit-norm frames",
        source="arXiv:2407.12580, TF-CoVR; royokong/e5-v, kongds/E5-V",
        license="Llama 3 Community License, of its base",
        inferred="option one_prompt: all frames in one prompt. TF-CoVR averages video and text instead of one prompt",
    )
    image_mark = "<image>"

    def prompt(self, marks: str, text: str | None) -> str:
        """As `retrieval.py` of its release writes it, "desribe" included."""
        if text is None:
            words = f"{marks}\nSummary above image in one word: "
        elif not marks:
            words = f"{text}\nSummary above sentence in one word: "
        else:
            words = f'{marks}Modify this image with "{text}", desribe modified image in one word: '
        return LLAMA_3_CHAT.format(words)


class MMEmbedEncoder(LanguageModelEncoder):
    """MM-Embed, its weights converted by `convert_mmembed`: the mean over tokens instead of the last."""

    usage = Usage(
        family="MM-Embed",
        frames="15, each an image of 577 tokens in a prompt of its own; the mean of the unit-norm frames",
        prompt="'<image>\\n', 'TEXT'",
        pooling="attention over 512 latents, the mean over the tokens after the instruction, unit-norm",
        query=f"'Instruct: {MM_EMBED_INSTRUCTION}\\nQuery: <image>\\nTEXT'; the mean over the unit-norm frames",
        source="arXiv:2411.02571; nvidia/MM-Embed, modeling_nvmmembed.py",
        license="CC-BY-NC-4.0",
        inferred="the instruction is that of CIRR in M-BEIR; option one_prompt: all frames in one prompt",
    )
    default_instruction = MM_EMBED_INSTRUCTION
    image_mark = "<image>"
    has_layers = False

    def prompt(self, marks: str, text: str | None) -> str:
        """As `modeling_nvmmembed.py` writes it."""
        query = f"Instruct: {self.instruction}\nQuery: " if marks and text is not None else ""
        return query + (f"{marks}\n" if marks else "") + (text or "")

    def read_images(self, prompts: list[str], images: Sequence[list[Tensor]]) -> Tensor:
        """`read` of as many prompts as the model reads at a time."""
        ids = [self.token_ids(prompt) for prompt in prompts]
        skipped = [self.count_instruction(prompt) for prompt in prompts]
        place = torch.arange(max(map(len, ids)))
        given = torch.tensor([[*each, *[0] * (len(place) - len(each))] for each in ids])
        mask = (place < torch.tensor([[len(each)] for each in ids])).long()
        pool_mask = mask * (place >= torch.tensor([[count] for count in skipped]))
        inputs = {"input_ids": given, "attention_mask": mask, "pool_mask": pool_mask}
        if flat := [image for each in images for image in each]:  # of each, the view of the whole
            inputs["pixel_values"] = self.processor.image_processor(flat, return_tensors="pt")["pixel_values"][:, 0]
        rows: Tensor = self.model(**{name: self.on_device(value) for name, value in inputs.items()})
        return rows.float()

    def token_ids(self, text: str) -> list[int]:
        """The tokens of a prompt, each image as long as it is, with the token of the end."""
        tokenizer = self.processor.tokenizer
        ids: list[int] = tokenizer(text.replace(self.image_mark, self.image_mark * self.model.image_length))[
            "input_ids"
        ]
        return ids if ids[-1:] == [tokenizer.eos_token_id] else [*ids, tokenizer.eos_token_id]

    def count_instruction(self, prompt: str) -> int:
        """How many tokens at the start of a prompt do not count, as the released code finds them."""
        instruction, found, _ = prompt.partition("\nQuery: ")
        return len(self.token_ids(instruction)) if found and instruction.startswith("Instruct: ") else 0


class Qwen3VLEncoder(LanguageModelEncoder):
    """Qwen3-VL-Embedding, which reads videos."""

    usage = Usage(
        family="Qwen3-VL-Embedding",
        frames="16, one video in one prompt, a time in seconds before each two; a single frame is an image",
        prompt=repr(QWEN_CHAT.format(instruction="Represent the user's input.", content="VIDEO TEXT")),
        pooling="the last token, unit-norm",
        query="video and text in one prompt",
        source="arXiv:2601.04720; Qwen/Qwen3-VL-Embedding-2B, qwen3_vl_embedding.py",
        license="Apache-2.0",
        inferred="frames count as one second apart: the released script samples at 1 frame a second, up to 64",
    )
    default_instruction = "Represent the user's input."
    default_one_prompt = True
    default_frames = 16
    image_mark = QWEN_IMAGE

    def prompt(self, marks: str, text: str | None) -> str:
        """As the released script's chat template writes it."""
        return QWEN_CHAT.format(instruction=self.instruction, content=marks + (text or ""))

    def embed(self, frames: Sequence[Tensor], texts: Sequence[str | None]) -> Tensor:
        """Videos, each with its text or without; a single frame is an image."""
        check_videos(frames)
        if not self.one_prompt or any(len(video) == 1 for video in frames):
            return super().embed(frames, texts)
        return self.in_turn(self.read_videos, [self.prompt(QWEN_VIDEO, text) for text in texts], frames)

    def read_videos(self, prompts: list[str], videos: Sequence[Tensor]) -> Tensor:
        """Unit-norm embeddings `(N, D)` of prompts, each with its video."""
        times = [
            VideoMetadata(total_num_frames=len(video), fps=1.0, frames_indices=list(range(len(video))))
            for video in videos
        ]
        options = {"do_sample_frames": False, "video_metadata": times, "cap_pixels_per_frame": True}
        return self.last_token(self.processor(text=prompts, videos=list(videos), videos_kwargs=options, **PADDED))
