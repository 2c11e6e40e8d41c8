"""The converter, against a checkpoint and outputs of the reference implementation."""

import re
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hf_models import AIMForVideoClassification, AIMModel, AIMVideoProcessor
from hf_models.tfcovr.convert_aim import convert, main, save

KNOWN = {"adapter_scale": 0.5, "num_attention_heads": 4}


@pytest.fixture(scope="session")
def reference(shared):
    return shared / "parity" / "aim_reference_a.pth"


@pytest.fixture(scope="session")
def expected(shared):
    with np.load(shared / "parity" / "aim_reference_a_io.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file}


@pytest.fixture
def weights(reference):
    return torch.load(reference, weights_only=True)["state_dict"]


def test_the_reference_checkpoint_converts_and_agrees(reference, expected, tmp_path, warm_python):
    command = ["-m", "hf_models.tfcovr.convert_aim", reference, tmp_path / "aim"]
    command += ["--adapter-scale", "0.5", "--num-attention-heads", "4"]
    done = warm_python.run(command)
    assert done.returncode == 0, done.stderr
    assert "2 blocks of width 64, 4 frames of 32 px" in done.stdout
    model = AIMForVideoClassification.from_pretrained(tmp_path / "aim")
    output = model.aim(expected["pixel_values"])
    close = {"atol": 1e-5, "rtol": 0}
    torch.testing.assert_close(output.last_hidden_state, expected["frame_features"], **close)
    torch.testing.assert_close(output.pooler_output, expected["video_embeds"], **close)
    torch.testing.assert_close(model(expected["pixel_values"]).logits, expected["logits"], **close)
    assert AIMVideoProcessor.from_pretrained(tmp_path / "aim").num_frames == 4


def test_settings_that_weights_do_not_show_must_be_given(reference, tmp_path, monkeypatch, capsys):
    for arguments, missing in ((["--adapter_scale", "0.5"], "--num_attention_heads"), ([], "--adapter_scale")):
        monkeypatch.setattr(sys, "argv", ["convert_aim", str(reference), str(tmp_path / "aim"), *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code != 0
        assert missing in f"{stopped.value.code}{capsys.readouterr().err}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prefix", ["", "model.", "module.backbone."])
def test_the_backbone_is_found_under_any_prefix(weights, expected, tmp_path, prefix):
    values = {
        re.sub("^backbone[.]", prefix, name).replace("cls_head.fc_cls", "model.fc"): value
        for name, value in weights.items()
    }
    torch.save({"state_dict": values, "epoch": 3}, tmp_path / "last.ckpt")
    logits = convert(tmp_path / "last.ckpt", **KNOWN)(expected["pixel_values"]).logits
    torch.testing.assert_close(logits, expected["logits"], atol=1e-5, rtol=0)


def test_a_backbone_alone_becomes_an_encoder(weights, expected, tmp_path):
    backbone = {name: value for name, value in weights.items() if name.startswith("backbone.")}
    save_file(backbone, tmp_path / "aim.safetensors")
    model = convert(tmp_path / "aim.safetensors", **KNOWN)
    assert type(model) is AIMModel
    torch.testing.assert_close(
        model(expected["pixel_values"]).pooler_output, expected["video_embeds"], atol=1e-5, rtol=0
    )


def test_a_second_temporal_adapter_is_seen(weights, tmp_path):
    more = {
        name.replace(".T_Adapter.", ".T_Adapter_in."): value for name, value in weights.items() if ".T_Adapter." in name
    }
    torch.save(weights | more, tmp_path / "two.pth")
    assert convert(tmp_path / "two.pth", **KNOWN).config.num_temporal_adapters == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w | {"backbone.extra": w["backbone.class_embedding"]}, r"no place for: backbone\.extra"),
        (lambda w: w | {"backbone.transformer.resblocks.0.extra.bias": torch.zeros(2)}, r"Unexpected.*extra"),
        (
            lambda w: {k: v for k, v in w.items() if "resblocks.1.S_Adapter" not in k},
            r"Missing.*layers\.1\.adapters\.spatial",
        ),
        (lambda w: {k: v for k, v in w.items() if "conv1" not in k}, r"lacks conv1\.weight"),
        (lambda w: {k: v for k, v in w.items() if "temporal_emb" not in k}, "not an AIM checkpoint"),
        (lambda w: {k: (v[:3] if k == "cls_head.fc_cls.bias" else v) for k, v in w.items()}, "size mismatch"),
        (lambda w: {}, "no state_dict"),
    ],
    ids=["extra", "extra-in-block", "missing", "no-patches", "not-aim", "shape", "empty"],
)
def test_weights_that_are_missing_or_too_many_are_errors(weights, tmp_path, change, message):
    torch.save({"state_dict": change(weights)}, tmp_path / "odd.pth")
    with pytest.raises(ValueError, match=f"(?s){message}"):
        convert(tmp_path / "odd.pth", **KNOWN)


class Payload:
    def __reduce__(self):
        return (print, ("this ran",))


def test_code_in_a_checkpoint_is_not_run(tmp_path, capsys):
    torch.save({"state_dict": {}, "payload": Payload()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="plain weights"):
        convert(tmp_path / "evil.pth", **KNOWN)
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint at all"], ids=["missing", "empty", "text"])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_that_is_not_a_checkpoint_is_an_error(tmp_path, content, suffix):
    path = tmp_path / f"file{suffix}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"file\.(pth|safetensors)"):
        convert(path, **KNOWN)


def test_a_folder_appears_complete_or_not_at_all(reference, tmp_path, monkeypatch):
    model = convert(reference, **KNOWN)

    def fail(self, *_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(AIMVideoProcessor, "save_pretrained", fail)
        with pytest.raises(OSError, match="disk is full"):
            save(model, tmp_path / "aim")
    assert not list(tmp_path.iterdir())
    save(model, tmp_path / "aim")
    with pytest.raises(ValueError, match="there already"):
        save(model, tmp_path / "aim")
