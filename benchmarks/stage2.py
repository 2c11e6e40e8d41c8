"""A training step of stage 2 from stored embeddings against the released procedure, and how fast stores load.

The released procedure, written afresh: each item is a dict in a Python list, a batch is stacked and its texts are
tokenized to 32 tokens; BERT-base, trainable, encodes them in the loop; the gated combiner (84,960,001 parameters), the
loss and AdamW over all of it follow. Batch 512, as released. An epoch is the same number of steps for both, so the
ratio of steps is the ratio of epochs. BERT's pass is taken in slices, because that of 512 texts at once does not fit
into the memory of a small machine; the arithmetic is the same.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, BertModel, BertTokenizerFast, CLIPVisionConfig

from benchmarks.timing import Ratio, interleave
from hf_models import TFCoVRConfig, TFCoVRForComposedRetrieval
from hf_models.feature_store import FeatureStore
from hf_models.tfcovr.losses import infonce
from hf_models.tfcovr.queries import Triplets
from subtle.tfcovr.batches import EmbeddingSource

BATCH, SIZE, NUM_CLIPS, NUM_TEXTS, TOKENS, SLICE = 512, 768, 4000, 1000, 32, 32
WORDS = [f"word{number}" for number in range(500)]


def make_model() -> TFCoVRForComposedRetrieval:
    tiny = {"hidden_size": SIZE, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 12}
    config = TFCoVRConfig(
        vision_config=CLIPVisionConfig(image_size=32, patch_size=32, **tiny),
        text_config=BertConfig(vocab_size=9, **tiny),
        fusion="gated",
        loss="infonce",
    )
    model = TFCoVRForComposedRetrieval(config).train()
    model.vision_model = model.text_model = None
    return model


def text_of(number: int) -> str:
    generator = torch.Generator().manual_seed(number)
    return "show " + " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (5,), generator=generator))


def our_step(model: TFCoVRForComposedRetrieval, optimizer: torch.optim.Optimizer, batches: Iterator[dict]) -> None:
    model(**next(batches), return_loss=True).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


class Released:
    """The released procedure around the same combiner."""

    def __init__(self, video: Tensor, folder: Path) -> None:
        vocabulary = folder / "vocab.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "show", *WORDS]))
        self.tokenizer = BertTokenizerFast(str(vocabulary))
        self.bert = BertModel(BertConfig(), add_pooling_layer=False).train()
        self.model = make_model()
        self.optimizer = torch.optim.AdamW([*self.bert.parameters(), *self.model.parameters()], lr=1e-5)
        self.items = [
            {"ref_img": video[i], "edit": text_of(i % NUM_TEXTS), "tar_img_feat": video[-1 - i]} for i in range(BATCH)
        ]

    def step(self) -> None:
        """One batch of an epoch."""
        texts = [item["edit"] for item in self.items]
        tokens = self.tokenizer(texts, padding="max_length", truncation=True, max_length=TOKENS, return_tensors="pt")
        reference, target = (torch.stack([item[name] for item in self.items]) for name in ("ref_img", "tar_img_feat"))
        encoded = torch.zeros(BATCH, SIZE, requires_grad=True)
        for start in range(0, BATCH, SLICE):
            part = slice(start, start + SLICE)
            hidden = self.bert(**{name: value[part] for name, value in tokens.items()}).last_hidden_state[:, 0]
            hidden.backward(torch.full_like(hidden, 1e-6))
        query = self.model.get_query_features(video_embeds=reference, text_embeds=encoded)
        infonce(query, self.model.get_target_features(video_embeds=target), 0.07).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def our_seconds(batches: Iterator[dict]) -> float:
    """Median time of our step; its model is gone before the released one takes memory."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return interleave({"ours": lambda: our_step(model, optimizer, batches)}, rounds=5)["ours"]


def step_ratio(folder: Path) -> Ratio:
    torch.manual_seed(0)
    video, text = torch.randn(NUM_CLIPS, SIZE), torch.randn(NUM_TEXTS, SIZE)
    source = EmbeddingSource({}, {}, video, text, video)
    rows = 100_000
    triplets = Triplets(
        query=torch.randint(0, NUM_CLIPS, (rows,)),
        text=torch.randint(0, NUM_TEXTS, (rows,)),
        target=torch.randint(0, NUM_CLIPS, (rows,)),
        label=torch.randint(0, 306, (rows,)),
        coverage={},
    )
    ours = our_seconds(source.batches(triplets, torch.randperm(rows).split(BATCH), "both"))
    released = Released(video, folder)
    start = time.perf_counter()
    released.step()
    theirs = time.perf_counter() - start
    return Ratio(
        f"stage 2, gated combiner, batch {BATCH}: speed of an epoch",
        "released procedure",
        theirs / ours,
        20.0,
        detail=f"{ours:.2f} s against {theirs:.1f} s for a step",
    )


def loading_ratio(folder: Path) -> Ratio:
    embeddings = torch.randn(NUM_CLIPS, SIZE)
    ids = [f"clip_{number:05d}" for number in range(NUM_CLIPS)]
    store = FeatureStore(folder / "store", {"weights": "random"})
    for part in torch.arange(NUM_CLIPS).split(1024):
        store.append([ids[i] for i in part], embeddings[part])
    (folder / "files").mkdir()
    for one, row in zip(ids, embeddings, strict=True):
        torch.save(row.clone(), folder / "files" / f"{one}.pth")

    def load_files() -> Tensor:
        return torch.stack([torch.load(folder / "files" / f"{one}.pth", weights_only=True) for one in ids])

    ways = {"store": lambda: FeatureStore(folder / "store").load(), "files": load_files}
    seconds = interleave(ways, rounds=5)
    return Ratio(
        f"loading {NUM_CLIPS:,} stored embeddings: speed",
        "one .pth file for each clip, as released",
        seconds["files"] / seconds["store"],
        50.0,
        detail=f"{1000 * seconds['store']:.1f} ms against {1000 * seconds['files']:.0f} ms",
    )


def measure() -> Iterator[Ratio]:
    """The two ratios; about two minutes on two cores."""
    with tempfile.TemporaryDirectory() as folder:
        yield loading_ratio(Path(folder))
        yield step_ratio(Path(folder))
