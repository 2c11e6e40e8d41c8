"""Compositionality and retrieval of a model that compares videos with texts (VideoComp, section 3.4)."""

from collections.abc import Sequence
from typing import Any, Protocol

import evaluate
import torch
from torch import Tensor
from tqdm import tqdm

import metrics
from hf_datasets.comp.contrasts import Span, SpanReader, batched, span_of


class VideoTextEncoder(Protocol):
    """What a model must do to be measured.

    `num_frames` is how many frames of a video it wants; `encode_videos` and `encode_texts` give what `compare` takes,
    one row per video or text; `compare` gives similarities `(videos, texts)`.
    """

    num_frames: int

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """Videos, each `(num_frames, 3, height, width)` uint8, as rows."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Texts as rows."""
        ...

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Similarities `(videos, texts)`; higher fits better."""
        ...


class Scores:
    """Comprehensive accuracy by the project's metric, and R@1 both ways.

    Args:
        rows: Contrast pairs with `video`.
        reader: Reads their frames.
        batch_size: Videos or texts at a time.
    """

    def __init__(self, rows: list[dict[str, Any]], reader: SpanReader, *, batch_size: int = 32) -> None:
        evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
        self.metric = evaluate.load(metrics.space("comprehensive_accuracy"))
        self.rows, self.reader, self.batch_size = rows, reader, batch_size
        self.spans = list(dict.fromkeys(span_of(row) for row in rows))
        texts = (row[name] for row in rows for name in ("positive_text", "negative_text"))
        self.texts = list(dict.fromkeys(texts))
        whole = (row for row in rows if row["disruption_type"] != "segment_mismatch")
        self.pairs = list(dict.fromkeys((span_of(row), row["positive_text"]) for row in whole))

    @torch.inference_mode()
    def __call__(self, encoder: VideoTextEncoder, *, progress: bool = False) -> dict[str, Any]:
        """Measure a model.

        Gives figures in [0, 1], `accuracy/<type>`, `comprehensive_accuracy`, `t2v_recall@1`, `v2t_recall@1`, and
        `similarities`, one `{"positive", "negative"}` for each row.

        R@1 is over the distinct videos with their positive texts, cropped ones left aside; a text that two videos share is
        right for both, and a tie goes to the first video or text.
        """
        videos = self._encode(encoder, self.spans, "videos", progress)
        texts = self._encode(encoder, self.texts, "texts", progress)
        place_of_span = {span: place for place, span in enumerate(self.spans)}
        place_of_text = {text: place for place, text in enumerate(self.texts)}
        similarities = []
        for row in self.rows:
            both = [place_of_text[row["positive_text"]], place_of_text[row["negative_text"]]]
            place = place_of_span[span_of(row)]
            positive, negative = encoder.compare(videos[place : place + 1], texts[both])[0].tolist()
            similarities.append({"positive": positive, "negative": negative})
        kinds = [row["disruption_type"] for row in self.rows]
        figures = self.metric.compute(predictions=similarities, references=kinds)
        if self.pairs:
            shown = videos[[place_of_span[span] for span, _ in self.pairs]]
            told = [place_of_text[text] for _, text in self.pairs]
            figures |= recall_at_1(encoder, shown, texts, told, self.batch_size)
        return figures | {"similarities": similarities}

    def _encode(
        self, encoder: VideoTextEncoder, items: Sequence[Span] | Sequence[str], what: str, progress: bool
    ) -> Tensor:
        bar = tqdm(total=len(items), desc=f"encoding {what}", unit=what[:-1], disable=not progress)
        parts = []
        for batch in batched(items, self.batch_size):
            if what == "videos":
                frames = [self.reader([span], encoder.num_frames) for span in batch]
                parts.append(encoder.encode_videos(frames).float().cpu())
            else:
                parts.append(encoder.encode_texts(batch).float().cpu())
            bar.update(len(batch))
        bar.close()
        return torch.cat(parts)


def recall_at_1(
    encoder: VideoTextEncoder, videos: Tensor, texts: Tensor, told: list[int], batch_size: int
) -> dict[str, float]:
    """How often the best text of a video, and the best video of a text, is a right one.

    Args:
        encoder: Compares.
        videos: One row per video.
        texts: Rows of all texts.
        told: For each video the row of its text.
        batch_size: Videos at a time.

    Returns:
        `t2v_recall@1`, `v2t_recall@1` and the size of the corpus.
    """
    right = torch.tensor(told)
    distinct, which = right.unique(return_inverse=True)
    blocks = [encoder.compare(block, texts[distinct]).cpu() for block in videos.split(batch_size)]
    similarity = torch.cat(blocks)  # (videos, distinct texts)
    best_text, best_video = similarity.argmax(1), similarity.argmax(0)
    return {
        "v2t_recall@1": (best_text == which).double().mean().item(),
        "t2v_recall@1": (which[best_video[which]] == which).double().mean().item(),
        "retrieval_corpus": len(told),
    }
