"""TF-CoVR and AIM follow transformers' conventions: Trainer, tuples, inner states, embeddings, precision, folders."""

import warnings

import pytest
import torch
from peft import PeftModel, get_peft_model
from quiet_trainer import QUIET
from small_tfcovr import CLIPS, IMAGE, SMALL, TOKENS, aim, bert, small_tfcovr
from transformers import (
    AutoModelForVideoClassification,
    BertModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    Trainer,
    TrainingArguments,
)

from hf_models import (
    AIMAdapterConfig,
    AIMConfig,
    AIMForVideoClassification,
    AIMModel,
    TFCoVRConfig,
    TFCoVRForComposedRetrieval,
)
from hf_models.tfcovr.modeling_aim import load_clip_vision


@pytest.mark.parametrize(("loss", "checkpointing"), [("hn_nce", True), ("multi_positive", False)])
def test_the_trainer_of_transformers_trains_and_evaluates(tmp_path, loss, checkpointing):
    rows = [
        {
            "pixel_values": CLIPS[row % 2],
            "input_ids": TOKENS[row % 2],
            "target_pixel_values": CLIPS[row % 2].flip(0),
            "target_labels": torch.tensor(row),
        }
        for row in range(5)
    ]
    options = {"max_steps": 2, "activation_checkpointing": checkpointing, "dataloader_drop_last": True}
    sizes = {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2}
    arguments = TrainingArguments(str(tmp_path), **options, **sizes, **QUIET)
    model = small_tfcovr(loss=loss, learnable_temperature=True)
    before = {name: one.clone() for name, one in model.named_parameters()}
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
    assert trainer.train().global_step == 2
    unmoved = [name for name, one in model.named_parameters() if torch.equal(one, before[name])]
    # A bias of keys changes no attention, and the embedding of positions has more places than the texts have tokens.
    assert all("key.bias" in name or "k_proj.bias" in name for name in unmoved), unmoved
    metrics = trainer.evaluate()
    assert 0 < metrics["eval_loss"] < 100
    assert trainer.predict(rows).predictions[1].shape == (4, 16)


def test_a_loss_comes_on_request_with_labels_and_in_training():
    model = small_tfcovr(loss="infonce")
    assert model(CLIPS, TOKENS, None, CLIPS).loss is None
    requested = model(CLIPS, TOKENS, None, CLIPS, return_loss=True).loss
    with_labels = model(CLIPS, TOKENS, None, CLIPS, target_labels=torch.tensor([0, 1])).loss
    trained = model.train()(CLIPS, TOKENS, None, CLIPS).loss
    torch.testing.assert_close(requested, with_labels)
    assert trained.requires_grad
    model.eval()
    assert model(CLIPS, TOKENS, None, CLIPS, target_labels=torch.tensor([0, 1]), return_loss=False).loss is None


def test_a_tuple_holds_what_the_output_does():
    model = small_tfcovr()
    output = model(CLIPS, TOKENS, None, CLIPS, return_loss=True)
    for plain in (model(CLIPS, TOKENS, None, CLIPS, return_loss=True, return_dict=False), output.to_tuple()):
        assert isinstance(plain, tuple)
        torch.testing.assert_close(
            plain, (output.loss, output.logits_per_query, output.query_embeds, output.target_embeds)
        )
    model.config.return_dict = False
    assert isinstance(model(CLIPS, TOKENS, None, CLIPS), tuple)


def test_hidden_states_and_attention_maps_of_the_encoders_come_on_request():
    model = small_tfcovr()
    model.set_attn_implementation("eager")
    plain = model(CLIPS, TOKENS, None, CLIPS)
    assert set(plain) == {"logits_per_query", "query_embeds", "target_embeds"}
    options = {"output_hidden_states": True, "output_attentions": True}
    full = model(CLIPS, TOKENS, None, CLIPS, **options)
    torch.testing.assert_close(full.query_embeds, plain.query_embeds)
    for seen in (full.vision_model_output, full.target_vision_model_output):
        assert [states.shape for states in seen.hidden_states] == [(2, 4, 5, 16)] * 3
        assert [maps.shape for maps in seen.attentions] == [(8, 2, 5, 5)] * 2
    assert [states.shape for states in full.text_model_output.hidden_states] == [(2, 4, 16)] * 3
    assert [maps.shape for maps in full.text_model_output.attentions] == [(2, 2, 4, 4)] * 2
    nested = model(CLIPS, TOKENS, None, CLIPS, return_dict=False, **options)
    assert [isinstance(part, tuple) for part in nested] == [False] * 3 + [True] * 3
    model.config.output_hidden_states = True
    assert model(CLIPS, TOKENS, None, CLIPS).text_model_output.hidden_states is not None
    stored = model(video_embeds=torch.rand(2, 16), text_embeds=torch.rand(2, 16), target_video_embeds=torch.rand(2, 16))
    assert stored.vision_model_output is None


def test_the_input_embeddings_are_those_of_the_texts_and_may_grow(tmp_path):
    model = small_tfcovr()
    assert model.get_input_embeddings() is model.text_model.embeddings.word_embeddings
    before = model.get_query_features(CLIPS, TOKENS)
    model.resize_token_embeddings(23, mean_resizing=False)
    assert model.config.text_config.vocab_size == model.get_input_embeddings().num_embeddings == 23
    torch.testing.assert_close(model.get_query_features(CLIPS, TOKENS), before)
    model.save_pretrained(tmp_path)
    again = TFCoVRForComposedRetrieval.from_pretrained(tmp_path)
    torch.testing.assert_close(
        again.get_query_features(CLIPS, TOKENS + 15), model.get_query_features(CLIPS, TOKENS + 15)
    )


@pytest.mark.parametrize("cls", [AIMModel, AIMForVideoClassification])
def test_the_input_embeddings_of_aim_are_those_of_patches_and_can_be_replaced(cls):
    model = cls(aim())
    other = torch.nn.Conv2d(3, 16, 4, 4, bias=False)
    assert isinstance(model.get_input_embeddings(), torch.nn.Conv2d)
    model.set_input_embeddings(other)
    assert model.get_input_embeddings() is other is model.base_model.embeddings.patch_embedding


@pytest.mark.parametrize(
    "config", [{}, {"fusion": "gated"}, {"fusion": "average"}, {"standardize_video": True}], ids=str
)
def test_a_model_in_half_precision_takes_stored_embeddings(config):
    model = small_tfcovr(fusion_projection_dim=4, **config)
    stored = {"video_embeds": 3 + torch.rand(2, 16), "text_embeds": torch.rand(2, 16)}
    if model.config.standardize_video:
        model.set_video_statistics(3 + torch.rand(50, 16))
    expected = model(**stored, target_video_embeds=stored["video_embeds"], return_loss=True)
    half = model.bfloat16()(**stored, target_video_embeds=stored["video_embeds"], return_loss=True)
    for name in ("query_embeds", "target_embeds"):
        torch.testing.assert_close(half[name].float(), expected[name], atol=0.05, rtol=0.05)
    assert half.loss.isfinite()


@pytest.mark.parametrize(
    ("cls", "way_out"),
    [
        (TFCoVRForComposedRetrieval, "from_vision_text_pretrained"),
        (AIMForVideoClassification, "from_clip"),
        (AIMModel, "from_clip"),
        (TFCoVRConfig, "from_vision_text_pretrained"),
        (AIMConfig, "from_clip"),
    ],
)
def test_a_folder_of_another_architecture_is_refused(tmp_path, cls, way_out):
    BertModel(bert()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"'bert' configuration.*{way_out}"):
        cls.from_pretrained(tmp_path)


def test_a_composed_model_is_refused_as_a_video_classifier(tmp_path):
    small_tfcovr().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="TFCoVRConfig"):
        AutoModelForVideoClassification.from_pretrained(tmp_path)
    for cls in (AIMForVideoClassification, AIMModel):
        with pytest.raises(ValueError, match=rf"not an {cls.__name__} but .*vision_model"):
            cls.from_pretrained(tmp_path)


def test_an_adapter_on_a_clip_works_without_warnings(tmp_path):
    CLIPVisionModel(CLIPVisionConfig(**IMAGE, **SMALL)).save_pretrained(tmp_path / "clip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tower, _ = load_clip_vision(str(tmp_path / "clip"))
        get_peft_model(tower, AIMAdapterConfig(num_frames=4)).save_pretrained(tmp_path / "adapter")
        tower, _ = load_clip_vision(str(tmp_path / "clip"))
        PeftModel.from_pretrained(tower, tmp_path / "adapter")
