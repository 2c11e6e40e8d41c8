"""Find when something happens: a query, a corpus of video features, and the best start and end in seconds.

    python examples/moment_search.py

The features are made here: in each of eight videos some seconds resemble one query, all else is noise. A small XML is
trained on them. With features of your own, one vector per clip of video and one per word of a query, the same lines
work; `ReLoCLNetConfig` and `ReLoCLNetForMomentRetrieval` take the place of XML's without another change.
"""

import torch
from torch.nn import functional as F

from hf_models import XMLConfig, XMLForMomentRetrieval
from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.spans import SpanSearch

VIDEOS, CLIPS, SIZE = 8, 20, 32  # clips of one second


def main() -> None:
    """Train, search the whole corpus, print the best moment of three queries beside the true one."""
    torch.manual_seed(0)
    queries = F.normalize(torch.randn(VIDEOS, 1, SIZE), dim=-1)
    starts = torch.randint(0, CLIPS - 6, (VIDEOS,))
    ends = starts + torch.randint(2, 6, (VIDEOS,))  # the last second of each moment
    seconds = torch.arange(CLIPS)
    inside = (seconds >= starts[:, None]) & (seconds <= ends[:, None])
    videos = torch.randn(VIDEOS, CLIPS, SIZE) / SIZE**0.5 + 2 * inside[..., None] * queries
    query_mask, video_mask = torch.ones(VIDEOS, 1), torch.ones(VIDEOS, CLIPS)

    sizes = {"video_feature_size": SIZE, "query_feature_size": SIZE, "hidden_size": SIZE, "num_attention_heads": 4}
    model = XMLForMomentRetrieval(XMLConfig(**sizes, max_query_tokens=4, max_video_clips=CLIPS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        loss = model(queries, query_mask, videos, video_mask, start_positions=starts, end_positions=ends).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    batch = VideoBatch([f"video{number}" for number in range(VIDEOS)], videos, video_mask, torch.ones(VIDEOS))
    corpus = encode_corpus(model, [batch], num_videos=VIDEOS)
    search = SpanSearch(model, corpus, min_clips=2, max_clips=8, num_spans=5)
    ranking, _ = search.rank(model.encode_query(queries, query_mask))
    for number in range(3):
        video = corpus.video_ids[ranking.video_indices[number, 0]]
        start, end = ranking.start_seconds[number, 0], ranking.end_seconds[number, 0]
        print(f"query {number}: {video}, {start:.0f} to {end:.0f} s", end="")
        print(f" (true: video{number}, {starts[number]} to {ends[number] + 1} s)")


if __name__ == "__main__":
    main()
