"""XML and ReLoCLNet against the released code: its tensors, its names, and its arithmetic written a second time."""

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from hf_models import XMLForMomentRetrieval
from hf_models.moments.convert_tvr import TVR_MODELS, convert, main
from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.spans import SpanSearch


@pytest.fixture(scope="module")
def parity(shared):
    return {
        name: torch.from_numpy(value) for name, value in np.load(shared / "parity" / "xml_video_parity.npz").items()
    }


def xml_weights(parity):
    return {name.removeprefix("param/"): value for name, value in parity.items() if name.startswith("param/")}


@pytest.fixture(scope="module")
def checkpoint(parity, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "xml.safetensors"
    save_file(xml_weights(parity), path)
    return path


@pytest.fixture(scope="module")
def xml(checkpoint):
    return convert(checkpoint, "xml", num_attention_heads=2)


def query_and_video(parity):
    return [parity[name] for name in ("query_feat", "query_mask", "video_feat", "video_mask")]


@torch.no_grad()
def test_scores_and_logits_are_those_of_the_released_xml(parity, xml):
    output = xml(*query_and_video(parity))
    torch.testing.assert_close(output.video_scores, parity["q2v_score"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.start_logits, parity["st_logits"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.end_logits, parity["ed_logits"], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_losses_are_those_of_the_released_xml(parity, xml):
    start, end = parity["st_ed"].unbind(1)
    output = xml(*query_and_video(parity), start_positions=start, end_positions=end)
    expected = dict(zip(("span", "video_ranking", "query_ranking"), parity["loss_parts"], strict=True))
    for name, value in expected.items():
        assert output.loss_parts[name].item() == pytest.approx(value.item(), abs=1e-5), name
    assert output.loss.item() == pytest.approx(parity["loss"].item(), abs=1e-5)


def test_the_best_spans_are_those_of_the_released_xml(parity, xml):
    *query, features, mask = query_and_video(parity)
    batch = VideoBatch(["a", "b"], features, mask, torch.ones(2))
    corpus = encode_corpus(xml, [batch], num_videos=2)
    limits = {"min_clips": int(parity["min_l"]), "max_clips": int(parity["max_l"])}
    search = SpanSearch(xml, corpus, **limits, num_spans=20)
    with torch.no_grad():
        ranking, videos = search.rank(xml.encode_query(*query))
    rank, span = np.divmod(parity["vcmr_top20_flat"].numpy(), 81)
    assert np.array_equal(ranking.video_indices, np.take_along_axis(videos, rank, 1))
    assert np.array_equal(ranking.start_seconds, span // 9)
    assert np.array_equal(ranking.end_seconds, span % 9 + 1)
    np.testing.assert_allclose(np.exp(ranking.scores), parity["vcmr_top20_score"], rtol=1e-4)


def reference_weights(parity, streams, architecture="reloclnet"):
    """Weights under the released names, random, at the size of the XML file."""
    generator = torch.Generator().manual_seed(0)
    xml = xml_weights(parity)
    attention = {
        name.removeprefix("query_encoder."): value for name, value in xml.items() if name.startswith("query_encoder.")
    }
    shapes = {name: value for name, value in xml.items() if name.startswith(("query_", "ctx_"))}
    if architecture == "reloclnet":
        shapes |= {f"query_encoder1.{name}": value for name, value in attention.items()}
    shapes |= {f"merged_{end}_predictor.weight": torch.empty(1, 1, 5) for end in ("st", "ed")}
    shapes["modular_vector_mapping.weight"] = torch.empty(len(streams), 16)
    for stream in streams:
        projection = {name: value for name, value in xml.items() if name.startswith("video_input_proj.")}
        shapes |= {name.replace("video", stream): value for name, value in projection.items()}
        for layer in "123" if architecture == "reloclnet" else "12":
            shapes |= {f"{stream}_encoder{layer}.{name}": value for name, value in attention.items()}
        cross = {name.removeprefix("self."): v for name, v in attention.items() if name.startswith("self.")}
        shapes |= {f"{stream}_cross_att.{name}": value for name, value in cross.items()}
        for part in ("weight", "bias"):
            shapes[f"{stream}_cross_layernorm.{part}"] = torch.empty(16)
            shapes[f"{stream}_query_linear.{part}"] = torch.empty((16, 16) if part == "weight" else 16)
    return {name: 0.3 * torch.randn(value.shape, generator=generator) for name, value in shapes.items()}


class Released:
    """The arithmetic of the released ReLoCLNet, or XML with subtitles, on a dictionary of its weights."""

    def __init__(self, weights, num_heads, architecture="reloclnet"):
        self.weights, self.num_heads, self.is_xml = weights, num_heads, architecture == "xml"

    def linear(self, name, x):
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def attend(self, name, x, context, mask):
        heads = [
            self.linear(f"{name}.{part}", states).view(*states.shape[:2], self.num_heads, -1)
            for part, states in (("query", x), ("key", context), ("value", context))
        ]
        scores = torch.einsum("bqhd,bkhd->bhqk", *heads[:2]) / heads[0].shape[-1] ** 0.5
        mask = mask[:, None] if mask.ndim == 2 else mask  # (batch, 1 or readers, read)
        weights = (scores - 10000 * (1 - mask[:, None])).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", weights, heads[2]).flatten(2)

    def block(self, name, x, mask):
        read = self.linear(f"{name}.output.dense", self.attend(f"{name}.self", x, x, mask))
        return self.norm(f"{name}.output.LayerNorm", read + x)

    def embed(self, name, positions, x):
        x = self.linear(f"{name}.net.1", self.norm(f"{name}.LayerNorm", x)).relu()
        table = self.weights[f"{positions}.position_embeddings.weight"]
        return self.norm(f"{positions}.LayerNorm", x + table[: x.shape[1]])

    def query(self, x, mask):
        x = self.block("query_encoder", self.embed("query_input_proj", "query_pos_embed", x), mask)
        x = x if self.is_xml else self.block("query_encoder1", x, mask)
        weights = self.linear("modular_vector_mapping", x) - 1e10 * (1 - mask[..., None])
        return weights.softmax(1).transpose(1, 2) @ x

    def clips(self, features, mask):
        shallow = {
            stream: self.block(f"{stream}_encoder1", self.embed(f"{stream}_input_proj", "ctx_pos_embed", x), mask)
            for stream, x in features.items()
        }
        # The released cross-attention masks readers as well as read: a padded reader is left with no choice but all.
        both = torch.einsum("bm,bn->bmn", mask, mask) if len(shallow) == 2 else mask
        deep = []
        for stream, x in shallow.items():
            other = next((name for name in shallow if name != stream), stream)
            crossed = self.attend(f"{stream}_cross_att", x, shallow[other], both)
            middle = self.block(f"{stream}_encoder2", self.norm(f"{stream}_cross_layernorm", crossed + x), mask)
            deep.append(middle if self.is_xml else self.block(f"{stream}_encoder3", middle, mask))
        return (list(shallow.values()) if self.is_xml else deep), deep

    def __call__(self, query, query_mask, features, mask):
        queries, (found, clips) = self.query(query, query_mask).unbind(1), self.clips(features, mask)
        score, similarity = 0, 0
        for stream, one, y, x in zip(features, queries, found, clips, strict=True):
            cosine = torch.einsum("qd,vld->qvl", F.normalize(one, dim=-1), F.normalize(y, dim=-1))
            score = score + cosine.masked_fill(mask == 0, -1e10).amax(-1) / len(clips)
            projected = self.linear(f"{stream}_query_linear", one)
            similarity = similarity + torch.einsum("qd,vld->qvl", projected, x) / len(clips)
        logits = []
        for end in ("st", "ed"):
            kernel = self.weights[f"merged_{end}_predictor.weight"]
            rows = F.conv1d(similarity.view(-1, 1, similarity.shape[-1]), kernel, padding=2)
            logits.append(rows.view_as(similarity).masked_fill(mask == 0, -1e10))
        return score, *logits


@pytest.mark.parametrize(
    ("architecture", "streams", "convention"),
    [
        ("reloclnet", ["video"], ("exclusive", "pool")),
        ("reloclnet", ["video", "sub"], ("exclusive", "pool")),
        ("xml", ["video", "sub"], ("xml_legacy", "truncate")),
    ],
    ids=["reloclnet-video", "reloclnet-video-and-subtitles", "xml-video-and-subtitles"],
)
@torch.no_grad()
def test_a_converted_checkpoint_computes_what_the_released_code_does_also_beside_padding(
    parity, tmp_path, architecture, streams, convention
):
    weights = reference_weights(parity, streams, architecture)
    torch.save({"model": weights, "epoch": 3}, tmp_path / "model.ckpt")
    model = convert(tmp_path / "model.ckpt", architecture, num_attention_heads=4)
    assert type(model) is TVR_MODELS[architecture]
    assert (model.config.end_convention, model.config.long_videos) == convention
    query, query_mask, video, video_mask = query_and_video(parity)
    assert not video_mask.all()
    subtitles = torch.randn(video.shape, generator=torch.Generator().manual_seed(2))
    features = dict(zip(streams, (video, subtitles), strict=False))
    score, start, end = Released(weights, 4, architecture)(query, query_mask, features, video_mask)
    output = model(query, query_mask, video, video_mask, features.get("sub"))
    torch.testing.assert_close(output.video_scores, score, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.start_logits, start, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.end_logits, end, atol=1e-5, rtol=1e-5)


def hero_weights():
    """A HERO of width 16 under the released names, random, with heads of its pretraining."""
    f, c, q = "v_encoder.f_encoder", "v_encoder.c_encoder", "q_feat_attn"
    norms = [f"{f}.embeddings.LayerNorm", f"{f}.img_embeddings.LayerNorm", f"{c}.embeddings.LayerNorm"]
    norms += [f"{q}.query_pos_embed.LayerNorm", f"{q}.query_self_attention.output.LayerNorm"]
    wide = {f"{f}.img_embeddings.img_LayerNorm": 10, "v_encoder.frame_transform.LayerNorm": 10}
    linears = {f"{f}.img_embeddings.img_linear": (16, 10), "v_encoder.frame_transform.net.1": (16, 10)}
    linears |= {f"{q}.query_input_proj.net.1": (16, 16), "video_query_linear": (16, 16)}
    linears |= {f"{q}.query_self_attention.{part}": (16, 16) for part in (*QUERY_KEY_VALUE, "output.dense")}
    for layer in (f"{f}.encoder.layer.0", f"{f}.encoder.layer.1", f"{c}.encoder.layer.0"):
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        linears |= {f"{layer}.attention.{part}": (16, 16) for part in (*QUERY_KEY_VALUE, "output.dense")}
        linears |= {f"{layer}.intermediate.dense": (24, 16), f"{layer}.output.dense": (16, 24)}
    wide |= {**dict.fromkeys(norms, 16), f"{q}.query_input_proj.LayerNorm": 16}
    tables = {f"{f}.embeddings.word": 32, f"{f}.embeddings.position": 20, f"{f}.embeddings.token_type": 2}
    tables |= {f"{f}.img_embeddings.position": 9, f"{c}.embeddings.position": 20, f"{q}.query_pos_embed.position": 20}
    shapes = {f"{name}.weight": shape for name, shape in linears.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linears.items()}
    shapes |= {f"{name}.{part}": (size,) for name, size in wide.items() for part in ("weight", "bias")}
    shapes |= {f"{name}_embeddings.weight": (rows, 16) for name, rows in tables.items()}
    shapes |= {f"video_{end}_predictor.weight": (1, 1, 5) for end in ("st", "ed")}
    shapes |= {f"{q}.modular_vector_mapping.weight": (1, 16), "v_encoder.feat_regress.net.0.bias": (16,)}
    shapes |= {f"{f}.lm_head.bias": (32,), f"{f}.pad": (8, 16), "v_encoder.mask_embedding.weight": (2, 10)}
    generator = torch.Generator().manual_seed(0)
    return {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


QUERY_KEY_VALUE = ("self.query", "self.key", "self.value")


class ReleasedHERO(Released):
    """The arithmetic of the released HERO for video only, checked against its code when this was written."""

    def table(self, name, places):
        return self.weights[f"{name}_embeddings.weight"][places]

    def layers(self, name, number, x, mask):
        for layer in (f"{name}.encoder.layer.{place}" for place in range(number)):
            x = self.block(f"{layer}.attention", x, mask)
            inner = F.gelu(self.linear(f"{layer}.intermediate.dense", x))
            x = self.norm(f"{layer}.output.LayerNorm", self.linear(f"{layer}.output.dense", inner) + x)
        return x

    def texts(self, ids):
        name = "v_encoder.f_encoder.embeddings"
        embeds = self.table(f"{name}.word", ids) + self.table(f"{name}.position", slice(ids.shape[1]))
        return self.norm(f"{name}.LayerNorm", embeds + self.table(f"{name}.token_type", 1))

    def query(self, ids, mask):
        x = self.layers("v_encoder.f_encoder", 2, self.texts(ids), mask)
        x = self.embed("q_feat_attn.query_input_proj", "q_feat_attn.query_pos_embed", x)
        x = self.block("q_feat_attn.query_self_attention", x, mask)
        weights = self.linear("q_feat_attn.modular_vector_mapping", x) - 1e10 * (1 - mask[..., None])
        return weights.softmax(1).transpose(1, 2) @ x

    def clips(self, features, mask):
        name, (number, length) = "v_encoder.f_encoder.img_embeddings", mask.shape
        x = self.linear(f"{name}.img_linear", self.norm(f"{name}.img_LayerNorm", features["video"]))
        x = (
            x
            + self.table(f"{name}.position", slice(length))
            + self.table("v_encoder.f_encoder.embeddings.token_type", 1)
        )
        together = torch.cat([self.norm(f"{name}.LayerNorm", x), self.texts(torch.zeros(number, 1).long())], 1)
        seen = self.layers("v_encoder.f_encoder", 2, together, torch.cat([mask, torch.ones(number, 1)], 1))
        name = "v_encoder.frame_transform"
        x = self.linear(f"{name}.net.1", self.norm(f"{name}.LayerNorm", features["video"])).relu()
        x = x + seen[:, :length] * mask[..., None]  # only what stands at a frame is brought back to its place
        name = "v_encoder.c_encoder"
        x = self.norm(f"{name}.embeddings.LayerNorm", x + self.table(f"{name}.embeddings.position", slice(length)))
        x = self.layers(name, 1, x, mask)
        return [x], [x]


@torch.no_grad()
def test_a_converted_hero_computes_what_the_released_code_does_also_beside_padding(tmp_path):
    weights = hero_weights()
    torch.save(weights, tmp_path / "hero.pt")
    model = convert(tmp_path / "hero.pt", "hero", num_attention_heads=2)
    assert (model.config.end_convention, model.config.positions_from_zero) == ("hero_legacy", True)
    video, mask = torch.randn(3, 9, 10, generator=torch.Generator().manual_seed(1)), torch.ones(3, 9)
    mask[1, 6:], mask[2, 4:] = 0, 0
    video = video * mask[..., None]  # as its batches are padded
    ids = torch.tensor([[0, 5, 6, 7], [0, 8, 9, 1]])
    names = {"merged_st": "video_st", "merged_ed": "video_ed"}
    weights |= {f"{new}_predictor.weight": weights[f"{old}_predictor.weight"] for new, old in names.items()}
    score, start, end = ReleasedHERO(weights, 2)(ids, (ids != 1).float(), {"video": video}, mask)
    output = model(ids, ids != 1, video, mask)
    torch.testing.assert_close(output.video_scores, score, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.start_logits, start, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(output.end_logits, end, atol=1e-4, rtol=1e-5)


@pytest.fixture
def run_command(monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["convert_tvr", *map(str, arguments)])
        main()

    return run


def test_the_command_writes_a_folder_that_loads_equal(checkpoint, xml, parity, tmp_path, run_command, capsys):
    run_command("--arch", "xml", checkpoint, tmp_path / "model", "--num-attention-heads", "2")
    assert "video only, width 16, 2 heads" in capsys.readouterr().out
    loaded = XMLForMomentRetrieval.from_pretrained(tmp_path / "model").eval()
    assert loaded.config.end_convention == "xml_legacy"
    with torch.no_grad():
        expected, found = (model(*query_and_video(parity)).start_logits for model in (xml, loaded))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("video_encoder3.output.dense.bias"), r"Missing key.*video\.deep\.1\.dense\.bias"),
        (lambda weights: weights.update(tef_proj=torch.zeros(2)), "Unexpected key.*tef_proj"),
        (lambda weights: weights.pop("video_input_proj.net.1.weight"), "not a checkpoint of xml with a video stream"),
        (lambda weights: weights.update({"video_st_predictor.weight": torch.zeros(1, 1, 7)}), "size mismatch"),
    ],
    ids=["missing", "unexpected", "no-video", "shape"],
)
def test_a_checkpoint_that_does_not_fit_is_refused(parity, tmp_path, change, message):
    weights = xml_weights(parity)
    change(weights)
    torch.save(weights, tmp_path / "xml.pt")
    with pytest.raises(ValueError, match=f"(?s){message}"):
        convert(tmp_path / "xml.pt", "xml", num_attention_heads=2)


def test_heads_that_the_width_does_not_show_must_be_given(checkpoint):
    with pytest.raises(ValueError, match=r"width 16 .*--num_attention_heads"):
        convert(checkpoint, "xml")


def test_a_failed_conversion_leaves_nothing(checkpoint, tmp_path, run_command):
    (tmp_path / "evil.ckpt").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    for source, output_dir in ((tmp_path / "evil.ckpt", tmp_path / "a"), (tmp_path / "no.pt", tmp_path / "b")):
        with pytest.raises(SystemExit, match=r"^error: "):
            run_command("--arch", "xml", source, output_dir)
        assert not output_dir.exists()
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit, match="is there already"):
        run_command("--arch", "xml", checkpoint, tmp_path / "occupied", "--num_attention_heads", "2")
    assert (tmp_path / "occupied" / "notes.txt").read_text() == "mine"
