"""Compositionality and retrieval of a model that compares videos with texts (VideoComp, section 3.4)."""

from collections.abc import Sequence
from typing import Any

import evaluate
import torch
from rich.table import Table
from torch import Tensor
from tqdm import tqdm

import metrics
from harness.over_seeds import in_percent
from hf_datasets.comp.contrasts import Span, SpanReader, batched, span_of
from hf_models.encoders import VideoTextEncoder
from hf_models.retrieval import recall_at_1

COLUMNS = {
    "accuracy/temporal_reorder": "temporal reorder",
    "accuracy/action_replace": "action replace",
    "accuracy/segment_mismatch": "segment mismatch",
    "accuracy/multi": "multi",
    "comprehensive_accuracy": "all",
    "t2v_recall@1": "t2v R@1",
    "v2t_recall@1": "v2t R@1",
}


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

        Gives results in [0, 1], `accuracy/<type>`, `comprehensive_accuracy`, `t2v_recall@1`, `v2t_recall@1`, and
        `similarities`, one `{"positive", "negative"}` for each row.

        R@1 is over the distinct videos with their positive texts, cropped ones left aside; see `recall_at_1`.
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
        results = self.metric.compute(predictions=similarities, references=kinds)
        if self.pairs:
            shown = videos[[place_of_span[span] for span, _ in self.pairs]]
            text_indices = [place_of_text[text] for _, text in self.pairs]
            results |= recall_at_1(encoder.compare, shown, texts, text_indices, batch_size=self.batch_size)
        return results | {"similarities": similarities}

    def _encode(
        self, encoder: VideoTextEncoder, items: Sequence[Span] | Sequence[str], what: str, progress: bool
    ) -> Tensor:
        bar = tqdm(total=len(items), desc=f"encoding {what}", unit=what[:-1], disable=not progress)
        parts = []
        for batch in batched(items, self.batch_size):
            if what == "videos":
                frames = [self.reader([span], encoder.num_frames) for span in batch]
                parts.append(encoder.encode_video(frames).float().cpu())
            else:
                parts.append(encoder.encode_text(batch).float().cpu())
            bar.update(len(batch))
        bar.close()
        return torch.cat(parts)


def table(results: dict[str, dict[str, Any]], title: str) -> Table:
    """One line per model, in percent."""
    shown = [name for name in COLUMNS if any(name in row for row in results.values())]
    made = Table(title=title, title_justify="left")
    made.add_column("model")
    for name in shown:
        made.add_column(COLUMNS[name], justify="right")
    for model, row in results.items():
        made.add_row(model, *(in_percent(row, name) if name in row else "" for name in shown))
    kinds = sum(name.startswith("accuracy/") for name in shown)
    chance = [0.5] * kinds + [0.5**kinds]
    made.add_section()
    made.add_row("chance", *(f"{100 * value:.1f}" for value in chance), *[""] * (len(shown) - kinds - 1))
    return made
