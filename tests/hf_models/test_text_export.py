"""The exported text half of a model gives its vectors and refusals, in a process that never imports torch."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from transformers import AutoModel, AutoProcessor

from hf_models import FactoredCoVRConfig, FactoredCoVRForComposedRetrieval
from hf_models.encoders import TFCoVREncoder, load_encoder
from hf_models.query_texts import ExportedTextEncoder
from hf_models.text_export import export_text_half

WEIGHTS = Path(__file__).parents[2] / "recipes/weights"
SHIPPED = ("miniature-tfcovr", "miniature-clip", "miniature-vidclip")
MODELS = (*SHIPPED, "factored")
TEXTS = ("show with 2 turns", "A VAULT; (tucked)", "\u00fcber 1.5 saltos", "a", "turn " * 12)


def factored():
    """Encoder of a FactoredCoVR on the encoders of the TF-CoVR that ships."""
    model = AutoModel.from_pretrained(WEIGHTS / "miniature-tfcovr")
    fields = {f"{kind}_{part}" for kind in ("vision", "text") for part in ("config", "model_class")}
    taken = {name: getattr(model.config, name) for name in fields}
    made = FactoredCoVRForComposedRetrieval(FactoredCoVRConfig(**taken, num_labels=5, fusion_hidden_dim=32))
    made.text_model = model.text_model
    return TFCoVREncoder(made.eval(), AutoProcessor.from_pretrained(WEIGHTS / "miniature-tfcovr"), 12)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Encoders, and the folders to which their text halves were exported, by name."""
    folder = tmp_path_factory.mktemp("exported")
    encoders = {name: load_encoder(str(WEIGHTS / name)) for name in SHIPPED} | {"factored": factored()}
    assert [export_text_half(encoder, folder / name) for name, encoder in encoders.items()] == [None] * len(MODELS)
    return {name: (encoder, folder / name) for name, encoder in encoders.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_export_gives_the_vectors_of_the_model(exported, name):
    encoder, folder = exported[name]
    half = ExportedTextEncoder(folder)
    for text in TEXTS:
        np.testing.assert_allclose(half.query(text), encoder.query(text=text), atol=1e-5)
        assert half.query(text).dtype == np.float32


@pytest.mark.parametrize("text", ["", "  \n", "turn " * 500])
@pytest.mark.parametrize("name", MODELS)
def test_the_export_refuses_a_text_as_the_model_does(exported, name, text):
    encoder, folder = exported[name]
    with pytest.raises(ValueError, match=r".") as ours:
        ExportedTextEncoder(folder).query(text)
    with pytest.raises(ValueError, match=r".") as theirs:
        encoder.query(text=text)
    assert str(ours.value) == str(theirs.value)


def test_numbers_become_words_where_the_processor_writes_them_so(exported, tmp_path):
    encoder, _ = exported["miniature-tfcovr"]
    encoder.processor.number_words = True
    try:
        assert export_text_half(encoder, tmp_path) is None
        expected = encoder.query(text="show with 2.5 turns")
    finally:
        encoder.processor.number_words = False
    half = ExportedTextEncoder(tmp_path)
    np.testing.assert_allclose(half.query("show with 2.5 turns"), expected, atol=1e-5)
    np.testing.assert_allclose(half.query("Show with two and a half turns"), expected, atol=1e-5)


def test_an_encoding_that_imports_no_torch(exported):
    _, folder = exported["miniature-tfcovr"]
    code = (
        "import sys; from hf_models.query_texts import ExportedTextEncoder as E; "
        f"print(E({str(folder)!r}).query('a vault').shape); "
        "print([name for name in ('torch', 'transformers', 'datasets', 'polars', 'pandas') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.splitlines() == ["(128,)", "[]"]


def copied(folder, tmp_path, **changed):
    """A copy in which files have another content, and the description says so."""
    fields = json.loads((folder / "text.json").read_text())
    for path in folder.iterdir():
        content = changed.get(path.stem, path.read_bytes())
        (tmp_path / path.name).write_bytes(content)
        if path.stem in changed:
            fields["sha256"][path.name] = hashlib.sha256(content).hexdigest()
    (tmp_path / "text.json").write_text(json.dumps(fields | changed.get("fields", {})))
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"text": b"no model"}, "cannot be read"),
        ({"tokenizer": b"{}"}, "cannot be read"),
        ({"fields": {"length": 10**9}}, "another version"),
        ({"fields": {"longest": "many"}}, "damaged"),
    ],
    ids=str,
)
def test_files_from_anyone_are_refused_unless_they_are_what_they_say(exported, tmp_path, changed, message):
    _, folder = exported["miniature-clip"]
    with pytest.raises(ValueError, match=message):
        ExportedTextEncoder(copied(folder, tmp_path, **changed))


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def elsewhere():
    """A tensor that lies in another file; `onnx.save` writes none of its bytes."""
    tensor = TensorProto(name="far", data_type=FLOAT, dims=[1, 3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../neighbor")
    return tensor


def program(nodes, *, initializers=(), kind=FLOAT, outputs=("vector",)):
    """A program that gives three numbers, but for what is planted in it."""
    tokens = [helper.make_tensor_value_info(name, INT64, [1, "L"]) for name in ("input_ids", "attention_mask")]
    vectors = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = helper.make_graph(nodes, "half", tokens, vectors, initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def constant(values, kind=FLOAT, name="vector"):
    shape = [1, len(values)]
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("value", kind, shape, values))


def branch():
    inner = helper.make_graph([constant([1.0])], "inner", [], [helper.make_tensor_value_info("vector", FLOAT, None)])
    condition = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("value", TensorProto.BOOL, [], [1]))
    return [condition, helper.make_node("If", ["yes"], ["vector"], then_branch=inner, else_branch=inner)]


def hidden(attribute):
    """An operator with a graph in an attribute in which a tensor lies elsewhere."""
    inner = helper.make_graph([], "inner", [], [], initializer=[elsewhere()])
    return helper.make_node("SequenceMap", ["input_ids"], ["vector"], **{attribute: inner})


PROGRAMS = {
    "external initializer": (program([constant([1.0])], initializers=[elsewhere()]), "other files"),
    "external attribute": (program([helper.make_node("Constant", [], ["vector"], value=elsewhere())]), "other files"),
    "external in a graph of an attribute": (program([hidden("body")]), "other files"),
    "branch": (program(branch()), "ai.onnx.If"),
    "operator of others": (program([helper.make_node("Run", ["input_ids"], ["vector"], domain="evil")]), "evil.Run"),
    "integers": (program([constant([1, 2, 3], INT64)], kind=INT64), "not one float32 vector"),
    "two outputs": (program([constant([1.0]), constant([1.0], name="b")], outputs=("vector", "b")), "not one float32"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_does_more_than_a_text_half_is_refused(exported, tmp_path, name):
    content, message = PROGRAMS[name]
    with pytest.raises(ValueError, match=message):
        ExportedTextEncoder(copied(exported["miniature-clip"][1], tmp_path, text=content))


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, float("nan"), 3.0], [1.0, float("inf"), 3.0]], ids=str)
def test_what_a_program_gives_is_a_finite_vector(exported, tmp_path, values):
    fields = {"dimensions": 3}
    half = ExportedTextEncoder(
        copied(exported["miniature-clip"][1], tmp_path, text=program([constant(values)]), fields=fields)
    )
    with pytest.raises(RuntimeError, match="not 3 finite numbers"):
        half.query("a vault")


def test_a_file_that_was_cut_short_is_refused(exported, tmp_path):
    _, folder = exported["miniature-clip"]
    copied(folder, tmp_path)
    (tmp_path / "text.onnx").write_bytes((folder / "text.onnx").read_bytes()[:-1])
    with pytest.raises(ValueError, match="not the file that was written"):
        ExportedTextEncoder(tmp_path)


def test_a_model_that_would_answer_otherwise_leaves_no_export(exported, tmp_path, monkeypatch):
    encoder, _ = exported["miniature-clip"]
    query = encoder.query
    monkeypatch.setattr(encoder, "query", lambda text: query(text=text) + 2e-5)
    assert "another vector" in export_text_half(encoder, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_without_texts_is_not_exported(tmp_path):
    class Videos:
        pass

    assert "cannot be exported" in export_text_half(Videos(), tmp_path)
    assert not list(tmp_path.iterdir())
