"""Mutated folders of models and adapters: each opens and works as it was, or is refused in one error that names it.

Every file of JSON in a folder is mutated, and the file of weights is cut or its header changed. What decides the shape
of the model stands in its weights, too: where it is mutated and the model loads, its embeddings must be the same.
"""

import json
import re
import resource
import shutil
import struct
import traceback
from pathlib import Path
from random import Random

import pytest
import torch
from mutations import edited, mutated_value, places_in
from odd_values import LONG_RUN
from peft import LoraConfig, get_peft_model
from small_encoders import blip, clip, gme, random_videos, save_small, siglip, v_jepa_2, x_clip
from transformers import AutoModel

from hf_models.encoders import load_encoder
from tests.hostile.tables import HangError, Outcomes, time_limit

WEIGHTS = Path(__file__).parents[2] / "recipes" / "weights"
FAMILIES = {make.__name__: make for make in (blip, clip, gme, siglip, v_jepa_2, x_clip)}
SHIPPED = ("miniature-aim", "miniature-clip", "miniature-tfcovr", "miniature-vidclip")
KINDS = (*FAMILIES, *SHIPPED, "adapter")
SIZES = (0, -1, 1, 3, 5, 1000, 200_000, 10_000_000, 10**9, 2**40)
SHAPES = re.compile(
    "hidden_size|intermediate_size|layers$|vocab_size|max_position|image_size|patch_size|projection_dim|num_channels"
)
SECONDS, BYTES = 30, 2 << 30
FOLDERS = LONG_RUN // 2

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(0)]


def save_adapter(base, folder):
    """Save a LoRA of a small CLIP, whose changes are not zero."""
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    torch.manual_seed(0)
    get_peft_model(AutoModel.from_pretrained(base), config).save_pretrained(folder)
    return folder


def opened(name, folder, base):
    """What a folder gives for fixed clips and texts; `base` is the model of an adapter."""
    videos = random_videos(2, 4, 64 if name in SHIPPED else 16)
    encoder = load_encoder(base, adapter=str(folder)) if base else load_encoder(str(folder))
    if name == "miniature-tfcovr":
        frames = random_videos(1, encoder.num_frames, 64)
        return torch.from_numpy(encoder.query(frames[0], "with 2 turns"))
    parts = [encoder.encode_video(videos)]
    if encoder.reads_texts:
        parts.append(encoder.encode_text(["a dog runs", "a dog sits then runs"]))
    return torch.cat([part.float().flatten() for part in parts])


def leaves(value, path=""):
    """Path -> value of each node of JSON that holds no other."""
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {name: leaf for key, item in pairs for name, leaf in leaves(item, f"{path}.{key}").items()}
    return {path: value}


def mutate(dice, folder):
    """Mutate one file of a folder; whether what decides the shape of the model changed, and nothing else."""
    config = folder / ("adapter_config.json" if (folder / "adapter_config.json").is_file() else "config.json")
    path = dice.choice([config] * 6 + sorted(folder.glob("*.json")) + sorted(folder.glob("*.safetensors")))
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        size = struct.unpack("<Q", content[:8])[0]
        header = edited(dice, content[8 : 8 + size].decode(), ["{}"]).encode(errors="replace")
        cut = content[: dice.randrange(len(content))]
        path.write_bytes(dice.choice([cut, struct.pack("<Q", len(header)) + header + content[8 + size :]]))
        return False
    before = json.loads(content)
    after = mutated_value(dice, before)
    numbers = [place for place in places_in(after) if isinstance(place[0][place[1]], int)]
    if numbers and dice.random() < 0.5:
        holder, key = dice.choice(numbers)
        holder[key] = dice.choice(SIZES)
    try:
        text = json.dumps(after)
    except ValueError:  # more digits than Python writes
        text = "1" * 5000
    text = edited(dice, text, ["{}"]) if dice.random() < 0.1 else text
    path.write_text(text, encoding="utf-8", errors="replace")
    if path.name != "config.json":
        return False
    old, new = leaves(before), leaves(after)
    changed = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return bool(changed) and all(map(SHAPES.search, changed))


def outcome(name, folder, base, decides_shape, expected):
    """What becomes of a mutated folder, and the trace of what should not be."""
    try:
        with time_limit(SECONDS):
            found = opened(name, folder, base)
    except HangError:
        return "hang", traceback.format_exc()
    except (ValueError, OSError, ImportError) as error:
        is_clear = str(folder) in str(error) or str(error).endswith("shorten it")  # of our text, by a model of 3 tokens
        return ("clear error", "") if is_clear else ("traceback", traceback.format_exc())
    except Exception:
        return "traceback", traceback.format_exc()
    same = found.shape == expected.shape and torch.allclose(found, expected, atol=1e-3)
    return ("wrong", "other embeddings") if decides_shape and not same else ("works", "")


@pytest.mark.parametrize("name", KINDS)
def test_a_mutated_model_folder_works_or_is_refused_by_its_name(name, tmp_path, record_property, capfd):
    base = str(save_small(clip, tmp_path / "base")) if name == "adapter" else None
    if base:
        whole = save_adapter(base, tmp_path / "whole")
    else:
        whole = WEIGHTS / name if name in SHIPPED else Path(save_small(FAMILIES[name], tmp_path / "whole"))
    expected, found = opened(name, whole, base), Outcomes(f"model folders: {name}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(FOLDERS // len(KINDS)):
        folder = tmp_path / "mutated"
        shutil.copytree(whole, folder, copy_function=shutil.copyfile)
        what, trace = outcome(name, folder, base, mutate(Random(f"{name} {seed}"), folder), expected)
        found.note(what, f"{name} {seed}\n{trace[-1500:]}")
        shutil.rmtree(folder)
    growth = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
    found.end(record_property)
    assert growth < BYTES
