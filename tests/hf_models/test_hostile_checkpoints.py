"""Hostile checkpoints: one clear error each, no code run, memory and time bounded, nothing left behind."""

import os
import random
import struct
import sys
import zipfile
from io import BytesIO

import numpy as np
import pytest
import torch
from odd_values import LONG_RUN
from safetensors.torch import save, save_file

from hf_models.checkpoints import read_checkpoint
from hf_models.moments import convert_tvr
from hf_models.tfcovr import convert_aim

KNOWN = {"adapter_scale": 0.5, "num_attention_heads": 2}
OLD = {"_use_new_zipfile_serialization": False}


def aim_weights(width=8, blocks=1):
    """Weights of a tiny AIM under the reference's names."""
    linear = {"attn.in_proj_": (3 * width, width), "attn.out_proj.": (width, width)}
    linear |= {"mlp.c_fc.": (2 * width, width), "mlp.c_proj.": (width, 2 * width)}
    for adapter in ("T_Adapter", "S_Adapter", "MLP_Adapter"):
        linear |= {f"{adapter}.D_fc1.": (2, width), f"{adapter}.D_fc2.": (width, 2)}
    shapes = {
        "class_embedding": (width,),
        "temporal_embedding": (1, 3, width),
        "positional_embedding": (5, width),
        "conv1.weight": (width, 3, 4, 4),
    }
    norms = [f"ln_{name}." for name in ("pre", "post")]
    for block in range(blocks):
        start = f"transformer.resblocks.{block}."
        norms += [f"{start}ln_{number}." for number in (1, 2)]
        for name, shape in linear.items():
            shapes |= {f"{start}{name}weight": shape, f"{start}{name}bias": shape[:1]}
    shapes |= {f"{name}{part}": (width,) for name in norms for part in ("weight", "bias")}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def archive(data_pkl, *, compression=zipfile.ZIP_STORED, **entries):
    """A file of torch made of this pickle."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w", compression) as written:
        written.writestr("archive/data.pkl", data_pkl)
        written.writestr("archive/version", b"3\n")
        written.writestr("archive/byteorder", b"little")
        for name, content in entries.items():
            written.writestr(f"archive/{name}", content)
    return file.getvalue()


def saved(value, **options):
    file = BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def changed(value, old, new):
    """A file of torch whose pickle says something else."""
    with zipfile.ZipFile(BytesIO(saved(value))) as file:
        pickled, storage = file.read("archive/data.pkl"), file.read("archive/data/0")
    assert old in pickled
    return archive(pickled.replace(old, new), **{"data/0": storage})


def declared(numel):
    """An old file whose storage is said to hold so many numbers."""
    return saved({"w": torch.zeros(7)}, **OLD).replace(b"K\x07", b"J" + numel)


class Calls:
    def __init__(self, *call):
        self.call = call[0], call[1:]

    def __reduce__(self):
        return self.call


EXPANDED = torch.zeros(1).expand
PICKLE = b"\x80\x02"
HOSTILE = {
    "a call of a program": (saved({"w": Calls(os.system, "touch hacked")}), "posix.system|nt.system"),
    "an old file with a call": (saved({"w": Calls(os.system, "touch hacked")}, **OLD), "posix.system|nt.system"),
    "an old file that says more than it has": (declared(struct.pack("<i", 2**31 - 1)), "plain weights"),
    "a storage beyond the end": (changed({"w": torch.zeros(64)}, b"K@", b"M\xff\xff"), "plain weights"),
    "one number as a large weight": (saved({"w": EXPANDED(10**6, 10**6)}), "describes weights of 4,000,000,000,000"),
    "one number as many weights": (saved({f"w{n}": EXPANDED(10**4) for n in range(99)}), "describes weights"),
    "whole numbers": (saved({"w": torch.zeros(3, dtype=torch.int64)}), "torch.int64"),
    "complex numbers": (saved({"w": torch.zeros(3, dtype=torch.complex64)}), "torch.complex64"),
    "an empty weight": (saved({"w": torch.zeros(0, 5)}), r"shape \(0, 5\)"),
    "a sparse weight": (saved({"w": torch.eye(3).to_sparse()}), "sparse"),
    "a weight on no device": (saved({"w": torch.zeros(3, device="meta")}), "meta"),
    "weights by number": (saved({1: torch.zeros(3)}), "names a weight '1'"),
    "weights by a long name": (saved({"w" * 10**6: torch.zeros(3)}), "names a weight 'wwww"),
    "weights in a list": (saved([torch.zeros(3)]), "no state_dict"),
    "no weights": (saved({"state_dict": {}}), "no state_dict"),
    "words for weights": (saved({"w": "weights"}), "no state_dict"),
    "a file that ends early": (saved({"w": torch.zeros(300)})[:-700], "plain weights"),
    "an old file that ends early": (saved({"w": torch.zeros(300)}, **OLD)[:-700], "plain weights"),
    "a program of TorchScript": (archive(PICKLE + b"}.", **{"constants.pkl": PICKLE + b")."}), "TorchScript"),
    "an archive of something else": (archive(PICKLE + b"}.").replace(b"data.pkl", b"data.txt"), "data.pkl"),
    "two pickles in one archive": (archive(PICKLE + b"}.", **{"more/data.pkl": PICKLE + b"}."}), "no state_dict"),
}
SAFETENSORS = {
    "a header as long as memory": (struct.pack("<Q", 2**62) + b"{}", "plain weights"),
    "a header of junk": (struct.pack("<Q", 9) + b"[" * 9, "plain weights"),
    "a weight beyond the end": (save({"w": torch.zeros(4)}).replace(b'"shape":[4]', b'"shape":[9]'), "plain weights"),
    "a file that ends early": (save({"w": torch.zeros(64)})[:-8], "plain weights"),
    "whole numbers": (save({"w": torch.zeros(3, dtype=torch.int32)}), "torch.int32"),
}
CASES = [("checkpoint.pth", *case) for case in HOSTILE.items()]
CASES += [("checkpoint.safetensors", *case) for case in SAFETENSORS.items()]


@pytest.mark.parametrize(("file", "name", "case"), CASES, ids=[f"{file}: {name}" for file, name, _ in CASES])
def test_a_hostile_checkpoint_is_refused(file, name, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, message = case
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message) as refusal:
        read_checkpoint(tmp_path / file)
    assert file in str(refusal.value)
    assert len(str(refusal.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_a_path_that_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.pth")  # which would be waited for
    for path in (tmp_path, tmp_path / "pipe.pth", tmp_path / "none.pth"):
        with pytest.raises(ValueError, match="there is no checkpoint"):
            read_checkpoint(path)


def write(path, weights):
    save_file(weights, path) if path.suffix == ".safetensors" else torch.save(weights, path)
    return path


def test_the_weights_that_the_tests_damage_are_a_valid_checkpoint(tmp_path):
    model = convert_aim.convert(write(tmp_path / "a.pth", aim_weights(blocks=2)), **KNOWN)
    assert model(torch.zeros(1, 3, 3, 8, 8)).pooler_output.shape == (1, 8)
    torch.save(aim_weights(), tmp_path / "old.pth", **OLD)
    assert convert_aim.convert(tmp_path / "old.pth", **KNOWN).config.num_hidden_layers == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_embedding": torch.zeros(())}, r"class_embedding has shape \(\), not 1 dim"),
        ({"temporal_embedding": torch.zeros(3)}, "temporal_embedding has shape"),
        ({"positional_embedding": torch.zeros(5)}, "positional_embedding has shape"),
        ({"positional_embedding": torch.zeros(1, 8)}, "0 patches"),
        ({"positional_embedding": torch.zeros(4, 8)}, "3 patches, which make no square"),
        ({"conv1.weight": torch.zeros(8, 3)}, r"conv1\.weight has shape"),
        ({"class_embedding": torch.zeros(100_000)}, "size mismatch"),
        ({"class_embedding": torch.zeros(9)}, "do not go together: The hidden size .9."),
        ({"transformer.resblocks.0.attn.in_proj_bias": torch.zeros(2)}, r"in_proj_bias of shape \(2,\)"),
        ({"transformer.resblocks.0.attn.in_proj_bias": torch.zeros(())}, r"in_proj_bias of shape \(\)"),
        ({"head.weight": torch.zeros(3, 8), "head.bias": torch.zeros(())}, r"bias has shape \(\)"),
        ({"transformer.resblocks.7.ln_1.bias": torch.zeros(8)}, "not numbered from 0: 0, 7"),
        ({"transformer.resblocks.x.ln_1.bias": torch.zeros(8)}, "not numbered from 0"),
        ({"transformer.resblocks": torch.zeros(8)}, "no place for"),
        ({"other": torch.zeros(8)}, "no place for: other"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_a_model_is_built(changes, message, tmp_path):
    path = write(tmp_path / "a.pth", aim_weights() | changes)
    with pytest.raises(ValueError, match=message):
        convert_aim.convert(path, **KNOWN)


CHILD = """
import resource, sys
from hf_models.moments import convert_tvr
from hf_models.tfcovr import convert_aim
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30,) * 2)
for path in sys.argv[1:]:
    for main, options in ((convert_aim.main, ["--adapter_scale", "1"]), (convert_tvr.main, ["--arch", "xml"])):
        sys.argv = ["convert", path, path + ".out", "--num_attention_heads", "2", *options]
        try:
            main()
        except SystemExit as stopped:
            print(str(stopped.code).replace("\\n", " ")[:200], flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_the_commands_stop_with_one_line_and_within_a_gigabyte(tmp_path, warm_python):
    chosen = ["one number as a large weight", "one number as many weights", "a call of a program", "whole numbers"]
    paths = []
    for number, name in enumerate(chosen):
        paths.append(tmp_path / f"{number}.pth")
        paths[-1].write_bytes(HOSTILE[name][0])
    paths.append(write(tmp_path / "wide.pth", aim_weights() | {"class_embedding": torch.zeros(1_000_000)}))
    child = warm_python.run(["-c", CHILD, *paths], cwd=tmp_path)
    lines = child.stdout.splitlines()
    assert [line[:7] for line in lines] == ["error: "] * 2 * len(paths), child.stderr[-2000:]
    assert "Traceback" not in child.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


def mutated_weights(rng, weights):
    weights = dict(weights)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(weights))
        weight = weights[name]
        change = rng.randrange(7)
        if change == 0:
            del weights[name]
        elif change == 1:
            weights[rng.choice((name + ".x", "x." + name, name[:-1], "", "transformer.resblocks.9.ln_1.bias"))] = weight
        elif change == 2:
            weights[name] = weight.reshape(-1)
        elif change == 3:
            weights[name] = weight[:1] if weight.ndim else weight[None]
        elif change == 4:
            weights[name] = weight.new_zeros([rng.randrange(4) for _ in range(rng.randrange(5))])
        elif change == 5:
            weights[name] = weight.to(rng.choice((torch.float16, torch.int8, torch.bool, torch.complex64)))
        else:
            weights[name] = weights[rng.choice(list(weights))]
    return weights


def convert_or_refuse(seed, number, convert, path, *arguments, **options):
    try:
        convert(path, *arguments, **options)
    except ValueError as error:
        assert 0 < len(str(error)) < 3000, (seed, number)  # noqa: PT017 (what is refused, is refused in a few words)
    except Exception as error:
        pytest.fail(f"seed {seed!r}, input {number} gave {type(error).__name__}: {error}")


def fuzz_weights(tmp_path, seed, times, weights, convert, *arguments, **options):
    rng = random.Random(seed)
    for number in range(times):
        path = write(tmp_path / "a.pth", mutated_weights(rng, weights))
        convert_or_refuse(seed, number, convert, path, *arguments, **options)


def fuzz_bytes(tmp_path, seed, times):
    rng = random.Random(seed)
    contents = [saved(aim_weights(), _use_new_zipfile_serialization=new) for new in (True, False)]
    contents.append(save(aim_weights()))
    for number in range(times):
        content, suffix = rng.choice(list(zip(contents, (".pth", ".pth", ".safetensors"), strict=True)))
        content = bytearray(content)
        for _ in range(rng.choice((1, 1, 3, 20))):
            content[rng.randrange(min(len(content), 6000))] = rng.choice((rng.randrange(256), 0, 255, 0x85, 0x2E))
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content[: rng.choice((len(content), len(content), rng.randrange(len(content))))])
        convert_or_refuse(seed, number, convert_aim.convert, path, **KNOWN)


def test_mutated_weights_and_bytes_are_refused_or_converted(tmp_path):
    fuzz_weights(tmp_path, "short", 120, aim_weights(), convert_aim.convert, **KNOWN)
    fuzz_bytes(tmp_path, "short", 120)


@pytest.mark.slow  # the other mutated weights in each run
def test_mutated_weights_of_the_released_xml_are_refused_or_converted(shared, tmp_path):
    with np.load(shared / "parity" / "xml_video_parity.npz") as file:
        weights = {name[6:]: torch.from_numpy(file[name]) for name in file if name.startswith("param/")}
    fuzz_weights(tmp_path, "xml", 120, weights, convert_tvr.convert, "xml", num_attention_heads=2)


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_many_mutated_weights_and_bytes_are_refused_or_converted(tmp_path, record_property):
    record_property("inputs", 2 * (LONG_RUN // 10))
    fuzz_weights(tmp_path, "long", LONG_RUN // 10, aim_weights(), convert_aim.convert, **KNOWN)
    fuzz_bytes(tmp_path, "long", LONG_RUN // 10)
