"""Compositionality and retrieval of a model that compares videos with texts (VideoComp, section 3.4)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from hf_datasets.comp.contrasts import Span, SpanReader, span_of
from hf_datasets.comp.counterfactuals import Counterfactual
from hf_models.encoders import Encoder
from hf_models.retrieval import recall_both_ways
from subtle.run.batches import batched
from subtle.run.intervals import CONFIDENCE
from subtle.run.metric_loading import load_metric
from subtle.run.over_seeds import in_percent
from subtle.run.printing import show

HEADINGS = {
    "accuracy/temporal_reorder": "temporal reorder",
    "accuracy/action_replace": "action replace",
    "accuracy/segment_mismatch": "segment mismatch",
    "accuracy/multi": "multi",
    "comprehensive_accuracy": "all",
    "classic_vle": "ClassicVLE",
    "strict_vle": "StrictVLE",
    "text_score": "text",
    "video_score": "video",
    "group_score": "group",
    "t2v_recall@1": "t2v R@1",
    "v2t_recall@1": "v2t R@1",
}
RETRIEVAL = {
    f"{direction}_{name}": f"{direction} {short}"
    for direction in ("t2v", "v2t")
    for name, short in (("recall@1", "R@1"), ("recall@5", "R@5"), ("recall@10", "R@10"), ("median_rank", "MdR"))
}
"""The columns of what is measured by retrieval alone."""
ROW_LABELS = {"captioning": "VidCLIP + captioning loss (VideoCoCa-like)"}
"""What a row of the table is called where its name is too short."""
CHANCE_LEVELS = {
    "classic_vle": "50.0",
    "strict_vle": "<= 25.0",
    "text_score": "25.0",
    "video_score": "25.0",
    "group_score": "16.7",
}
CLIP_SCALE = 100.0
"""What CLIP's cosines are multiplied by before a softmax."""
TIE = 1e-6
"""Similarities, or their shares, this close differ by rounding."""
"""Level of the intervals of the scores of pairs; pairs of one video are drawn together."""
OF_PAIRS = ("text_score", "video_score", "group_score")


class Scores:
    """Comprehensive accuracy and counterfactual scores by the project's metrics, and retrieval both ways.

    Args:
        rows: Contrast pairs with `video`; may be empty where there are `pairs`.
        reader: Reads their frames.
        batch_size: Videos or texts at a time.
        pairs: Counterfactual pairs, for text, video and group score.
        retrieval: Videos, each with a text that describes it, to measure R@K on by comparing each video with all texts;
            None: the distinct videos of `rows` with their positive texts, cropped ones left aside.
        dual_softmax: As in `recall_both_ways`.
        num_workers: Processes that decode, as in `VideoReaderPool`.
        accelerator: Each of its processes encodes a part of the videos; None: this one all of them.
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        reader: SpanReader,
        *,
        batch_size: int = 32,
        pairs: Sequence[Counterfactual] = (),
        retrieval: Sequence[tuple[Span, str]] | None = None,
        dual_softmax: float | None = None,
        num_workers: int = 0,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.num_workers, self.accelerator = num_workers, accelerator
        self.metric = load_metric("comprehensive_accuracy")
        self.counterfactual = load_metric("counterfactual_accuracy")
        self.rows, self.reader, self.batch_size, self.counterfactuals = rows, reader, batch_size, pairs
        if retrieval is None:
            whole = (row for row in rows if row["disruption_type"] != "segment_mismatch")
            retrieval = [(span_of(row), row["positive_text"]) for row in whole]
        self.pairs, self.dual_softmax = list(dict.fromkeys(retrieval)), dual_softmax
        spans = [*(span_of(row) for row in rows), *(span for pair in pairs for span in pair.videos)]
        self.spans = list(dict.fromkeys([*spans, *(span for span, _ in self.pairs)]))
        texts = [row[name] for row in rows for name in ("positive_text", "negative_text")]
        texts += [text for pair in pairs for text in pair.texts]
        self.texts = list(dict.fromkeys([*texts, *(text for _, text in self.pairs)]))

    @torch.inference_mode()
    def __call__(self, encoder: Encoder, *, threshold: float | None = None, progress: bool = False) -> dict[str, Any]:
        """Measure a model.

        Gives results in [0, 1], `accuracy/<type>`, `comprehensive_accuracy`, what `recall_both_ways` gives; with a
        threshold `strict_vle` (and by type); with counterfactual pairs `text_score`, `video_score` and `group_score`;
        without rows also `classic_vle` of the pairs, and all of it by kind. And `similarities`, one `{"positive",
        "negative"}` for each row; of counterfactual pairs `intervals` and `pair_similarities`, `[[a, b], [c, d]]` each.
        """
        videos = self._videos(encoder, progress)
        texts = self._encode(encoder.encode_text, self.texts, len(self.texts), "text", progress)
        place_of_span = {span: place for place, span in enumerate(self.spans)}
        place_of_text = {text: place for place, text in enumerate(self.texts)}

        def compare(spans: Sequence[Span], both: Sequence[str]) -> list[list[float]]:
            shown, told = [place_of_span[span] for span in spans], [place_of_text[text] for text in both]
            found = encoder.compare(videos[shown], texts[told])
            # Texts that differ only behind what the model reads are a tie, whatever batches they were encoded in.
            first = found[:, :1]
            compared: list[list[float]] = first.where(found.isclose(first, rtol=TIE, atol=TIE), found).tolist()
            return compared

        of_rows = [compare([span_of(row)], [row["positive_text"], row["negative_text"]]) for row in self.rows]
        of_pairs = [compare(pair.videos, pair.texts) for pair in self.counterfactuals]
        similarities = [{"positive": positive, "negative": negative} for ((positive, negative),) in of_rows]
        results: dict[str, Any] = {}
        signatures: list[str] = []
        if self.rows:
            kinds = [row["disruption_type"] for row in self.rows]
            results = self.metric.compute(predictions=similarities, references=kinds)
            if threshold is not None:
                strict = self.counterfactual.compute(predictions=of_rows, references=kinds, threshold=threshold)
                results |= {name: value for name, value in strict.items() if name.startswith("strict_vle")}
                signatures.append(strict["signature"])
        if self.counterfactuals:
            scores, signature = self._scores_of_pairs(of_pairs, threshold)
            results |= scores | {"pair_similarities": of_pairs}
            signatures.append(signature)
        if signatures:
            results["counterfactual_signature"] = "; ".join(signatures)
        if self.pairs:
            shown = {span: place for place, span in enumerate(dict.fromkeys(span for span, _ in self.pairs))}
            results |= recall_both_ways(
                encoder.compare,
                videos[[place_of_span[span] for span in shown]],
                texts,
                [(shown[span], place_of_text[text]) for span, text in self.pairs],
                dual_softmax=self.dual_softmax,
                batch_size=self.batch_size,
            )
        return results | {"similarities": similarities}

    def fit_threshold(self, encoder: Encoder) -> float:
        """The similarity that best tells the texts that fit from those that do not, over all rows."""
        similarities = self(encoder)["similarities"]
        fitted: float = self.counterfactual.fit_threshold(
            [[[row["positive"], row["negative"]]] for row in similarities]
        )
        return fitted

    def _scores_of_pairs(
        self, similarities: list[list[list[float]]], threshold: float | None
    ) -> tuple[dict[str, Any], str]:
        kinds = [pair.kind for pair in self.counterfactuals]
        options = {"predictions": similarities, "references": kinds, "confidence": CONFIDENCE}
        options["clusters"] = [pair.videos[0].path for pair in self.counterfactuals]
        measured: dict[str, Any] = self.counterfactual.compute(**options, threshold=None if self.rows else threshold)
        names = {name for name in measured if name.startswith(OF_PAIRS) or not self.rows} - {"signature"}
        scores = {name: measured[name] for name in measured if name in names and name != "confidence_interval"}
        bounds = {name: value for name, value in measured["confidence_interval"].items() if name in names}
        return scores | {"intervals": bounds}, measured["signature"]

    def _videos(self, encoder: Encoder, progress: bool) -> Tensor:
        rank, ranks = (0, 1) if (shared := self.accelerator) is None else (shared.process_index, shared.num_processes)
        own, spread = self.spans[rank::ranks], encoder.spread
        frames = self.reader.read_all(own, encoder.num_frames, spread, num_workers=self.num_workers)
        rows = self._encode(encoder.encode_video, frames, len(own), "video", progress)
        if ranks == 1:
            return rows
        parts = gather_object([rows])
        found = torch.empty(len(self.spans), *parts[0].shape[1:])  # the first process has at least one
        for part, encoded in enumerate(parts):
            if len(encoded):
                found[part::ranks] = encoded
        return found

    def _encode(
        self, encode: Callable[[list[Any]], Tensor], items: Iterable[Any], total: int, unit: str, progress: bool
    ) -> Tensor:
        bar = tqdm(total=total, desc=f"encoding {unit}s", unit=unit, disable=not progress)
        parts = [torch.empty(0)] if not total else []
        for batch in batched(items, self.batch_size):
            parts.append(encode(batch).float().cpu())
            bar.update(len(batch))
        bar.close()
        return torch.cat(parts)


def show_scores(results: dict[str, dict[str, Any]], title: str) -> None:
    """Print one line per model, in percent, and chance where it does not depend on the number of videos."""
    if all(name in row for row in results.values() for name in RETRIEVAL) and not any(
        "comprehensive_accuracy" in row for row in results.values()
    ):
        cells = [
            [model, *(f"{row[name]:g}" if "rank" in name else in_percent(row, name) for name in RETRIEVAL)]
            for model, row in results.items()
        ]
        show(["model", *RETRIEVAL.values()], cells, title)
        return
    shown = [name for name in HEADINGS if any(name in row for row in results.values())]
    cells = [
        [ROW_LABELS.get(model, model), *(in_percent(row, name) if name in row else "" for name in shown)]
        for model, row in results.items()
    ]
    kinds = sum(name.startswith("accuracy/") for name in shown)
    chance = CHANCE_LEVELS | {"comprehensive_accuracy": f"{100 * 0.5**kinds:.1f}"}
    cells.append(["chance", *("50.0" if name.startswith("accuracy/") else chance.get(name, "") for name in shown)])
    show(["model", *(HEADINGS[name] for name in shown)], cells, title)


def draw_confidence(models: list[str], columns: dict[str, list[Any]]) -> Figure:
    """How sure each model is of the text that fits, disruption by disruption, as VideoComp's Figure 4.

    Confidence is the softmax over the two texts of a row, their cosines times CLIP's 100; a bar is its mean.

    Args:
        models: The names of the models.
        columns: Of all rows `disruption_type`, and of each model `MODEL/positive` and `MODEL/negative`.
    """
    kinds = [name.partition("/")[2] for name in HEADINGS if name.partition("/")[2] in columns["disruption_type"]]
    figure = Figure(figsize=(1.5 + 0.6 * (len(models) + 1) * len(kinds), 3.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(models)
    for place, model in enumerate(models):
        gaps = torch.tensor(columns[f"{model}/positive"]) - torch.tensor(columns[f"{model}/negative"])
        sure = (CLIP_SCALE * gaps).sigmoid()
        of_kind = [torch.tensor([one == kind for one in columns["disruption_type"]]) for kind in kinds]
        heights = [sure[chosen].mean().item() for chosen in of_kind]
        axes.bar([at + place * width for at in range(len(kinds))], heights, width, label=model)
    axes.axhline(0.5, color="gray", linewidth=0.8)
    ticks = [at + 0.4 - width / 2 for at in range(len(kinds))]
    axes.set_xticks(ticks, [HEADINGS[f"accuracy/{kind}"] for kind in kinds])
    axes.set(ylabel="confidence in the text that fits", ylim=(0, 1))
    axes.legend()
    return figure
