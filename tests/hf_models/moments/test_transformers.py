"""XML, ReLoCLNet and HERO do what one expects of any model of transformers."""

import pytest
import torch
from quiet_trainer import QUIET
from small_moment_models import LABELS, MODELS, both_streams, every_model, inputs, small
from transformers import AutoModel, BertConfig, BertModel, Trainer, TrainingArguments

from hf_models import HEROForMomentRetrieval, XMLForMomentRetrieval

# Layers that run over queries, and over videos without and with subtitles.
LAYERS = {"xml": (1, 3, 6), "reloclnet": (2, 4, 8), "hero": (3, 3, 3)}


@every_model
def test_return_dict_false_gives_a_tuple(name):
    model, batch = small(name, ranking_negatives="all"), inputs()
    expected = model(**batch, **LABELS)
    found = model(**batch, **LABELS, return_dict=False)
    assert type(found) is tuple
    for place, name in ((0, "loss"), (1, "video_scores"), (3, "end_logits")):
        torch.testing.assert_close(found[place], getattr(expected, name))
    model.config.return_dict = False
    assert type(model(**batch)) is tuple


@every_model
@both_streams
def test_hidden_states_and_attention_maps_come_on_request_and_change_nothing(name, subtitles):
    model, batch = small(name, subtitles=subtitles), inputs(subtitles=subtitles)
    plain = model(**batch)
    assert plain.hidden_states is plain.attentions is plain.query_hidden_states is plain.query_attentions is None
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output.start_logits, plain.start_logits, atol=1e-4, rtol=1e-5)
    for_queries, for_videos = LAYERS[name][0], LAYERS[name][1 + subtitles]
    assert [len(output.query_hidden_states), len(output.query_attentions)] == [for_queries + 1, for_queries]
    assert [len(output.hidden_states), len(output.attentions)] == [for_videos + 1, for_videos]
    assert output.query_hidden_states[-1].shape == (3, 5, 16)
    assert output.hidden_states[-1].shape == (3, 9, 16)
    assert output.attentions[-1].shape == (3, 2, 9, 9)
    for weights in (*output.attentions, *output.query_attentions):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert output.attentions[-1][1, :, :, 6:].max() < 1e-5  # the padding of the second video
    queries = model.query_encoder.pooling(output.query_hidden_states[-1], batch["query_mask"].bool())
    torch.testing.assert_close(queries, model.encode_query(batch["query_features"], batch["query_mask"]))
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == for_videos + 1
    assert model(**batch, output_hidden_states=False).hidden_states is None


@every_model
def test_hidden_states_of_chosen_layers_leave_none_in_the_places_of_the_others(name):
    model, batch = small(name), inputs()
    full = model(**batch, output_hidden_states=True)
    chosen = model(**batch, output_hidden_states=[1, -1])
    for every, some in (
        (full.hidden_states, chosen.hidden_states),
        (full.query_hidden_states, chosen.query_hidden_states),
    ):
        last = len(every) - 1
        assert [index for index, states in enumerate(some) if states is not None] == sorted({1, last})
        torch.testing.assert_close(some[1], every[1])
        torch.testing.assert_close(some[last], every[last])


@every_model
@both_streams
@torch.no_grad()
def test_eager_and_sdpa_attention_are_two_computations_of_the_same(name, subtitles, tmp_path, monkeypatch):
    model, batch = small(name, subtitles=subtitles), inputs(subtitles=subtitles)
    assert model.config._attn_implementation == "sdpa"
    expected = model(**batch)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="eager").eval()
    model.set_attn_implementation("eager")

    def refuse(*args, **kwargs):
        raise AssertionError("sdpa ran")

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", refuse)
    for eager in (loaded, model):
        for output in ("video_scores", "start_logits", "end_logits"):
            torch.testing.assert_close(eager(**batch)[output], expected[output], atol=1e-4, rtol=1e-5)
    model.set_attn_implementation("sdpa")
    with pytest.raises(AssertionError, match="sdpa ran"):
        model(**batch)


def gradients(model, subtitles):
    torch.manual_seed(3)  # of the dropout
    model.train()(**inputs(subtitles=subtitles), **LABELS).loss.backward()
    return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


@every_model
@both_streams
def test_gradient_checkpointing_gives_the_same_gradients_and_runs_layers_twice(name, subtitles):
    plain, saving = (small(name, subtitles=subtitles, span_loss_probability=1.0) for _ in range(2))
    saving.gradient_checkpointing_enable()
    runs = []
    saving.query_encoder.layers[0].attention.register_forward_hook(lambda *_: runs.append(1))
    expected, found = gradients(plain, subtitles), gradients(saving, subtitles)
    assert len(runs) == 2
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, atol=1e-5, rtol=1e-5)


@every_model
def test_the_trainer_trains_and_evaluates(name, tmp_path):
    fixed = {"span_loss_weight": 1.0, "span_loss_probability": 1.0, "ranking_negatives": "all"}
    model, batch = small(name, **fixed), {**inputs(), **LABELS}
    rows = [{key: value[index] for key, value in batch.items()} for index in range(3)]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    options = {"num_train_epochs": 2, "eval_strategy": "epoch", "gradient_checkpointing": True}
    sizes = {"per_device_train_batch_size": 3, "per_device_eval_batch_size": 3}
    arguments = TrainingArguments(tmp_path, **options, **sizes, **QUIET)
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == 2
    assert losses[-1] == pytest.approx(model.eval()(**batch).loss.item(), rel=1e-4)
    assert [one.shape for one in trainer.predict(rows).predictions] == [(3, 3), (3, 3, 9), (3, 3, 9)]
    assert any(not torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model(**batch, return_loss=False).loss is None


def test_hero_gives_the_embedding_of_its_tokens_and_features_have_none():
    hero = small("hero", query_feature_size=None)
    assert hero.get_input_embeddings() is hero.cross_modal.embeddings.word_embeddings
    hero.resize_token_embeddings(40)
    tokens = torch.tensor([[0, 39, 6]])
    assert hero.encode_query(tokens, torch.ones_like(tokens)).shape == (1, 1, 16)
    for name in ("xml", "reloclnet"):
        with pytest.raises(NotImplementedError, match="reads features, not tokens"):
            small(name).get_input_embeddings()
        with pytest.raises(NotImplementedError, match="reads features, not tokens"):
            small(name).set_input_embeddings(torch.nn.Embedding(2, 2))


def test_the_folder_of_another_family_is_refused(tmp_path):
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 1}
    BertModel(BertConfig(**sizes, vocab_size=30)).save_pretrained(tmp_path / "bert")
    small("reloclnet").save_pretrained(tmp_path / "reloclnet")
    for folder in ("bert", "reloclnet"):
        for model_class in (XMLForMomentRetrieval, HEROForMomentRetrieval):
            with pytest.raises(ValueError, match=rf"this is a '{folder}' configuration.*AutoModel"):
                model_class.from_pretrained(tmp_path / folder)
    with pytest.raises(ValueError, match="'bert' model"):
        HEROForMomentRetrieval.from_roberta(tmp_path / "bert", num_cross_modal_layers=1)
    assert type(AutoModel.from_pretrained(tmp_path / "reloclnet")) is MODELS["reloclnet"][1]
