"""FactoredCoVR: embeddings and loss by hand, what trains, save and load in every way, and what it refuses."""

import json
from functools import partial

import pytest
import torch
from loads_equal import assert_loads_equal
from quiet_trainer import QUIET
from safetensors.torch import load_file, save_file
from small_tfcovr import CLIPS, IMAGE, MASK, NARROW, SMALL, TOKENS, aim, bert
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoProcessor,
    BertModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    Trainer,
    TrainingArguments,
)

from hf_models import (
    AIMForVideoClassification,
    AIMModel,
    FactoredCoVRConfig,
    FactoredCoVRForComposedRetrieval,
    TFCoVRConfig,
    TFCoVRForComposedRetrieval,
    TFCoVRProcessor,
)
from hf_models.checkpoints import open_whole

NAMES = ("leap", "turn", "leap with turn")  # trained on
LABELS = {"id2label": dict(enumerate(NAMES)), "label2id": {name: number for number, name in enumerate(NAMES)}}
FACTORS = {"label_factors": [["leap"], ["turn"], ["leap", "turn", "leap with turn"]]}
UNSEEN = {
    "id2label": dict(enumerate((*NAMES, "leap with leap"))),
    "label2id": {name: number for number, name in enumerate((*NAMES, "leap with leap"))},
    "num_trained_labels": 3,
    "label_words": [["leap"], ["turn"], ["leap", "with", "turn"], ["leap", "with"]],
    "word_tokens": [[5], [7, 2], [3]],
}
ANSWERS = torch.tensor([2, 0])


def recurrent_aim(**changes):
    return aim(temporal_pooling="gru", **changes)


def spread(model, std=0.5):
    """Weights at their first values give much the same for every input."""
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std)
    return model.eval()


def make_model(**config):
    torch.manual_seed(0)
    fields = {"vision_config": recurrent_aim(), "text_config": bert(), **NARROW, **UNSEEN, **FACTORS, **config}
    return spread(FactoredCoVRForComposedRetrieval(FactoredCoVRConfig(**fields)))


def experts_of_query(model, video, text, read=None):
    """Probabilities of labels by the two classifiers of queries, and those of the second among the labels that train.

    Args:
        model: The model.
        video: As stage 1 gives it.
        text: With its words.
        read: The video as the fusion reads it, if standardized.
    """
    read = video if read is None else read
    projected = F.normalize(model.text_projection(text), dim=-1)
    label = model.query_classifier(model.fusion(read, projected)).softmax(-1)
    return (label, *edited(model, shown_by(model, video, read), projected, text[:, 16:]))


def edited(model, shown, projected, named):
    """What a text makes of the labels that clips show, clip by clip and label by label."""
    membership, edit, rows = model.word_classifier.membership, model.word_edit, []
    numbers = torch.tensor([-4.0, 7.0, 5.0, -6.0]) + 8 * edit.strengths(projected)
    bias = torch.tensor([0.0, 0.0, 0.0, 0.5])
    for clip in range(len(named)):
        start, if_named, if_shown, if_both = numbers[clip]
        words, trained = torch.zeros(4), torch.zeros(3)
        for source in range(4):
            logits = []
            for word in range(3):
                has, names = membership[source, word], named[clip, word]
                others = sum(edit.company[word, other] * named[clip, other] for other in range(3))
                logits.append(start + if_named * names + others + (if_shown + if_both * names) * has)
            labels = torch.stack([sum(of * one for of, one in zip(logits, row, strict=True)) for row in membership])
            words = words + shown[clip, source] * (labels + bias).softmax(-1)
            trained = trained + shown[clip, source] * labels[:3].softmax(-1)
        rows.append((words, trained))
    return tuple(torch.stack(part) for part in zip(*rows, strict=True))


def shown_by(model, video, read):
    """Probabilities of what clips show."""
    return combined(model.target_classifier(video).softmax(-1), model.word_classifier(read).softmax(-1))


def combined(label, words):
    """Clip by clip: the words' share of what is trained on, dealt out by the geometric mean of both."""
    rows = []
    for one, other in zip(label, words, strict=True):
        means = [(mine * yours).sqrt() for mine, yours in zip(one, other[:3], strict=True)]
        dealt = [sum(other[:3]) * mean / sum(means) for mean in means]
        rows.append(torch.stack([*dealt, *other[3:]]))
    return torch.stack(rows)


def loss_inputs():
    return {
        "pixel_values": CLIPS,
        "input_ids": TOKENS,
        "attention_mask": MASK,
        "target_pixel_values": CLIPS.flip(0),
        "target_labels": ANSWERS,
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A classifier with factors and pooling, an encoder, a text model, a CLIP, both composed models, by name."""
    root = tmp_path_factory.mktemp("folders")
    torch.manual_seed(0)
    models = {
        "stage1": AIMForVideoClassification(recurrent_aim(**LABELS, **FACTORS)),
        "plain": AIMForVideoClassification(aim(**LABELS)),
        "encoder": AIMModel(recurrent_aim()),
        "text": BertModel(bert()),
        "clip": CLIPVisionModel(CLIPVisionConfig(**IMAGE, **SMALL)),
        "tfcovr": TFCoVRForComposedRetrieval(TFCoVRConfig(vision_config=recurrent_aim(), text_config=bert(), **NARROW)),
        "factored": make_model(),
    }
    for name, model in models.items():
        spread(model, std=0.3).save_pretrained(root / name)
    return root


def test_clips_are_roots_of_probabilities_and_queries_are_probabilities_and_both_have_unit_length():
    model = make_model()
    video, text = model.encode_video(CLIPS), model.encode_text(TOKENS, MASK)
    label, words, _ = experts_of_query(model, video, text)
    output = model(**loss_inputs())
    torch.testing.assert_close(output.query_embeds, F.normalize(combined(label, words), dim=-1))
    torch.testing.assert_close(output.target_embeds, shown_by(model, video, video).flip(0).sqrt())
    for embeds in (output.query_embeds, output.target_embeds):
        torch.testing.assert_close(embeds.norm(dim=1), torch.ones(2))


def test_a_text_says_which_words_it_has():
    assert make_model().encode_text(TOKENS, MASK)[:, 16:].tolist() == [[1, 0, 0], [0, 1, 0]]  # 5; 7 and 2; no 3


def test_an_edit_that_has_learned_nothing_adds_what_is_named_and_keeps_the_rest_also_in_a_label_that_nobody_trains_on():
    """The clip shows "one turn" or "two turn"; the text names "hop": each leads to its own."""
    words = [["one", "turn"], ["two", "turn"], ["one", "hop"], ["two", "hop"]]
    names = dict(enumerate(" ".join(own) for own in words))
    labels = {"id2label": names, "label2id": {name: place for place, name in names.items()}, "label_words": words}
    tokens = {"word_tokens": [[3], [4], [5], [6]], "num_trained_labels": 3, "label_factors": None}
    model = make_model(**labels, **tokens)  # the words are one, turn, two, hop
    with torch.no_grad():
        for weight in model.word_edit.parameters():
            weight.zero_()
        for part in (model.target_classifier, model.word_classifier.linear):
            part.weight.zero_()
            part.bias.zero_()
        model.target_classifier.bias[1] = 20.0
        model.word_classifier.linear.bias.copy_(torch.tensor([0.0, 10, 20, 0]))
        query = model._compose(torch.zeros(1, 16), torch.cat([torch.zeros(1, 16), torch.tensor([[0.0, 0, 0, 1]])], -1))
    # "two hop": two stays (-4 + 5), hop comes (-4 + 7); "two turn" keeps both; "one hop" has one for two
    logits = torch.tensor([-4 + 1.0, 1 + 1, -4 + 3, 1 + 3 + 0.5])
    torch.testing.assert_close(query.words, logits.log_softmax(-1)[None], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("factors", [FACTORS, {"label_factors": None}], ids=["factored", "plain"])
def test_the_loss_is_the_cross_entropy_of_every_classifier_that_trains(factors):
    model = make_model(**factors)
    video, text = model.encode_video(CLIPS), model.encode_text(TOKENS, MASK)
    label, _, trained = experts_of_query(model, video, text)
    of_query = sum(F.nll_loss(one.log(), ANSWERS) for one in (label, trained))
    of_query = of_query + 5e-3 * (model.word_edit.company**2).sum()
    classifiers = (model.target_classifier, model.word_classifier)
    of_target = sum(F.cross_entropy(classifier(video.flip(0)), ANSWERS) for classifier in classifiers)
    torch.testing.assert_close(model(**loss_inputs()).loss, of_query + of_target)
    model.freeze_encoders()
    torch.testing.assert_close(model(**loss_inputs()).loss, of_query)
    assert model(**{**loss_inputs(), "target_labels": None}).loss is None
    with pytest.raises(ValueError, match="learns from target_labels"):
        model(**{**loss_inputs(), "target_labels": None}, return_loss=True)


def test_words_are_fitted_to_clips_where_the_slope_of_their_loss_is_zero():
    model, labels = make_model(standardize_video=True), torch.arange(60) % 3
    clips = 5 + 3 * torch.randn(60, 16, generator=torch.Generator().manual_seed(0)) + 8 * F.one_hot(labels, 16)
    model.set_video_statistics(clips)
    model.fit_words(clips, labels)
    linear, membership = model.word_classifier.linear, model.word_classifier.membership
    assert linear.weight.grad is None
    weight = linear.weight.detach().double().requires_grad_()
    read = ((clips - clips.mean(0)) / clips.std(0)).double()
    logits = (read @ weight.T + linear.bias.detach().double()) @ membership.double().T
    (F.cross_entropy(logits, labels) + 5e-3 * (weight**2).sum()).backward()
    assert weight.grad.abs().max() < 1e-3
    assert (logits[:, :3].argmax(1) == labels).float().mean() > 0.8


def test_an_answer_that_the_model_is_sure_is_wrong_still_has_the_right_loss_and_gradient():
    """Its root of a probability is below float32's smallest number, so the loss must not come from the embeddings."""
    model = make_model(label_factors=None)
    model.freeze_encoders()
    with torch.no_grad():
        model.query_classifier.weight.zero_()
        model.query_classifier.bias.copy_(torch.tensor([800.0, 0.0, 0.0]))
        for weight in model.word_edit.parameters():
            weight.zero_()
    stored = {"video_embeds": torch.zeros(2, 16), "text_embeds": torch.zeros(2, 19)}
    output = model(**stored, target_video_embeds=torch.zeros(2, 16), target_labels=torch.tensor([1, 1]))
    trained = model._compose(stored["video_embeds"], stored["text_embeds"]).trained[0, 1]
    torch.testing.assert_close(output.loss, 800 - trained)
    assert (output.query_embeds[:, 1] == 0).all()
    output.loss.backward()
    torch.testing.assert_close(model.query_classifier.bias.grad, torch.tensor([1.0, -1.0, 0.0]))


def test_frozen_encoders_and_their_classifier_get_no_gradient_and_all_else_does():
    model = make_model().train()
    model.freeze_encoders()
    model(**loss_inputs()).loss.backward()
    frozen = ("vision_model", "text_model", "target_classifier", "word_classifier")
    with_gradient = {name for name, one in model.named_parameters() if one.grad is not None}
    assert with_gradient == {name for name, _ in model.named_parameters() if not name.startswith(frozen)}


@pytest.mark.parametrize("config", [{}, {"label_factors": None}, {"standardize_video": True}], ids=str)
def test_every_parameter_that_may_train_gets_a_gradient(config, tmp_path):
    """Otherwise DDP fails in its second step, unless it searches for unused parameters in each."""
    make_model(**config).save_pretrained(tmp_path)
    loaded, info = FactoredCoVRForComposedRetrieval.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    for model in (make_model(**config), loaded):
        model.requires_grad_(True).train()
        model(**loss_inputs()).loss.backward()
        assert [name for name, one in model.named_parameters() if one.grad is None] == []


def test_the_trainer_of_transformers_trains_and_evaluates(tmp_path):
    rows = [{name: value[row % 2] for name, value in loss_inputs().items()} for row in range(4)]
    sizes = {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2, "max_steps": 2}
    arguments = TrainingArguments(str(tmp_path), **sizes, **QUIET)
    model = make_model()
    before = {name: one.clone() for name, one in model.named_parameters()}
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
    assert trainer.train().global_step == 2
    unmoved = [name for name, one in model.named_parameters() if torch.equal(one, before[name])]
    assert all("key.bias" in name or "k_proj.bias" in name for name in unmoved), unmoved
    assert 0 < trainer.evaluate()["eval_loss"] < 100
    assert trainer.predict(rows).predictions[1].shape == (4, 4)


def test_videos_are_standardized_but_for_the_classifier_of_stage_1():
    model, train = make_model(standardize_video=True), 3 + 0.1 * torch.randn(50, 16)
    model.set_video_statistics(train)
    text, read = torch.randn(50, 19), (train - train.mean(0)) / train.std(0)
    query = model.get_query_features(video_embeds=train, text_embeds=text)
    label, words, _ = experts_of_query(model, train, text, read)
    torch.testing.assert_close(query, F.normalize(combined(label, words), dim=-1), atol=1e-4, rtol=1e-4)
    target = shown_by(model, train, read).sqrt()
    torch.testing.assert_close(model.get_target_features(video_embeds=train), target, atol=1e-4, rtol=1e-4)


def test_a_query_without_text_or_video_is_that_half_as_zeros():
    model = make_model(projection_dim=12)
    video, text = torch.randn(2, 16), torch.randn(2, 19)
    projected, nothing = F.normalize(model.text_projection(text), dim=-1), torch.zeros(2, 12)
    for given, seen, read, named in (
        ({"video_embeds": video}, video, nothing, torch.zeros(2, 3)),
        ({"text_embeds": text}, torch.zeros(2, 16), projected, text[:, 16:]),
    ):
        words, _ = edited(model, shown_by(model, seen, seen), read, named)
        label = model.query_classifier(model.fusion(seen, read)).softmax(-1)
        expected = F.normalize(combined(label, words), dim=-1)
        torch.testing.assert_close(model.get_query_features(**given), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_in_half_precision_takes_clips_and_stored_embeddings(tmp_path, dtype):
    model = make_model(standardize_video=True)
    model.save_pretrained(tmp_path)
    half = AutoModel.from_pretrained(tmp_path, dtype=dtype)
    assert {one.dtype for one in half.parameters()} == {dtype}
    stored = {"video_embeds": torch.rand(2, 16), "text_embeds": torch.rand(2, 19)}
    for given in (stored, {"pixel_values": CLIPS.to(dtype), "input_ids": TOKENS}):
        found = half.get_query_features(**given)
        wanted = model.get_query_features(
            **{name: one.float() if one.dtype == dtype else one for name, one in given.items()}
        )
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=0.1, rtol=0.1)
        torch.testing.assert_close(found.norm(dim=1), torch.ones(2))
    loss = half(**stored, target_video_embeds=stored["video_embeds"], target_labels=ANSWERS).loss
    assert loss.isfinite()


def test_the_size_of_embeddings_is_the_number_of_labels_whatever_the_fusion_gives(tmp_path):
    config = make_model(projection_dim=12).config
    assert (config.fused_dim, config.projection_dim, config.text_embed_dim) == (12, 4, 19)
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert (again.fused_dim, again.projection_dim, again.video_embed_dim) == (12, 4, 16)


def test_a_saved_model_loads_equal_through_every_class(processor, tmp_path):
    model = make_model(projection_dim=12, standardize_video=True)
    model.set_video_statistics(torch.randn(9, 16))
    processor.save_pretrained(tmp_path)

    def features(model):
        return model.get_query_features(CLIPS, TOKENS, MASK), model.get_target_features(CLIPS)

    assert_loads_equal(model, tmp_path, features)
    assert isinstance(AutoProcessor.from_pretrained(tmp_path), TFCoVRProcessor)


@pytest.mark.parametrize("source", ["stage1", "plain", "factored"])
def test_encoder_and_classifier_come_from_stage_1_or_another_factored_model(folders, source):
    model = FactoredCoVRForComposedRetrieval.from_vision_text_pretrained(folders / source, folders / "text", **NARROW)
    assert not model.training
    assert model.config.id2label == LABELS["id2label"]  # from these labels no other is put together
    if source == "factored":
        trained = AutoModel.from_pretrained(folders / source)
        expected = trained.target_classifier(trained.encode_video(CLIPS))
    else:
        expected = AIMForVideoClassification.from_pretrained(folders / source)(CLIPS).logits
    torch.testing.assert_close(model.target_classifier(model.encode_video(CLIPS)), expected)


@pytest.mark.parametrize("source", ["stage1", "plain"])
def test_labels_that_are_trained_on_keep_their_classes_and_others_are_put_together_from_their_words(folders, source):
    texts = {"turn": "a tucked with two", "leap": "A tucked with one"}
    make = partial(FactoredCoVRForComposedRetrieval.from_vision_text_pretrained, folders / source, folders / "text")
    model = make(
        label_texts={**texts, "leap with turn": "a piked with one"},
        tokenizer=lambda word, **_: {"input_ids": [len(word)]},
        **NARROW,
    )
    assert list(model.config.id2label.values()) == [*NAMES, "a piked with two"]  # in the order of stage 1
    assert model.config.label_words == [
        ["a", "tucked", "with", "one"],
        ["a", "tucked", "with"],
        ["a", "with", "one"],
        ["a", "with"],
    ]
    assert model.config.word_tokens == [[2], [7], [5], [4]]  # as they stand after a space
    known = make(label_texts={**texts, "leap with turn": "a piked with one"}, composed_labels=False, **NARROW)
    assert known.config.num_labels == known.config.num_trained_labels == 3
    with torch.no_grad():
        logits = AIMForVideoClassification.from_pretrained(folders / source)(CLIPS).logits
        torch.testing.assert_close(model.target_classifier(model.encode_video(CLIPS)), logits)
        two = make(label_texts=texts, **NARROW)
        torch.testing.assert_close(two.target_classifier(two.encode_video(CLIPS)), logits[:, :2])
    with pytest.raises(ValueError, match="has no class for 1 of 1 labels, such as 'salto'; train stage 1 on clips"):
        make(label_texts={"salto": "salto"}, **NARROW)


def test_tf_covr_takes_its_encoders_from_a_factored_model(folders):
    trained = AutoModel.from_pretrained(folders / "factored")
    model = TFCoVRForComposedRetrieval.from_vision_text_pretrained(folders / "factored", folders / "factored", **NARROW)
    assert type(model) is TFCoVRForComposedRetrieval
    torch.testing.assert_close(model.encode_video(CLIPS), trained.encode_video(CLIPS))
    torch.testing.assert_close(model.encode_text(TOKENS, MASK), trained.encode_text(TOKENS, MASK)[:, :16])


@pytest.mark.parametrize("source", ["encoder", "clip", "tfcovr"])
def test_a_video_model_without_a_classifier_is_refused_with_the_cure(folders, source):
    make = FactoredCoVRForComposedRetrieval.from_vision_text_pretrained
    with pytest.raises(ValueError, match=r"without a classifier of labels; give the model that stage1\.py wrote"):
        make(folders / source, folders / "text", **NARROW)


def test_a_folder_of_an_earlier_version_is_refused_in_one_line_with_the_cure(tmp_path, capfd):
    make_model().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights = {name: weight for name, weight in weights.items() if not name.startswith("word_edit")}
    weights["text_projection.weight"] = weights["text_projection.weight"][:, :16].clone()  # without words
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    says = (
        "4 weights of .* do not fit, such as text_projection.weight, word_edit.*an earlier version .*: train it again"
    )
    with pytest.raises(ValueError, match=says) as refusal:
        open_whole(AutoModel, tmp_path)
    assert "\n" not in str(refusal.value)
    assert "REPORT" not in capfd.readouterr().err


def test_a_classifier_whose_weights_are_missing_is_refused(folders, tmp_path):
    config = json.loads((folders / "stage1" / "config.json").read_text()) | {"architectures": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = load_file(folders / "stage1" / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier.linear")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"classifier\.linear\.bias.*are missing, which would leave it random"):
        FactoredCoVRForComposedRetrieval.from_vision_text_pretrained(tmp_path, folders / "text", **NARROW)


@pytest.mark.parametrize(
    ("cls", "source", "kind"),
    [
        (FactoredCoVRForComposedRetrieval, "tfcovr", "tfcovr"),
        (TFCoVRForComposedRetrieval, "factored", "factored_covr"),
    ],
)
def test_the_folder_of_the_other_composed_model_is_refused(folders, cls, source, kind):
    with pytest.raises(ValueError, match=f"'{kind}' config.*{cls.__name__}.from_vision_text_pretrained builds"):
        cls.from_pretrained(folders / source)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fusion": "gated"}, "'gated' has no place in it"),
        ({"fusion": "average"}, "'average' has no place in it"),
        ({"learnable_temperature": True}, "leave learnable_temperature out"),
        ({"project_targets": False}, "leave project_targets out"),
        ({"label_factors": [["leap"]]}, "those of 1 labels, but there are 3; give each label its own, or None"),
        ({"label_factors": [["leap"], [], ["turn"]]}, "of label 1 are empty"),
        ({"label_factors": "leap"}, "label_factors"),
        ({"project_text": False}, "projects texts with the words that they have"),
        ({"num_trained_labels": 5}, "must lie between 1 and the 4 labels, not be 5"),
        ({"label_words": [["leap"]]}, "label_words are those of 1 labels, but there are 4"),
        ({"word_tokens": [[1]]}, "word_tokens are those of 1 words, but labels have 3"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(config, message):
    with pytest.raises(Exception, match=message):
        make_model(**config)
