"""The judge against `transformers serve` with a tiny random model: its prose is counted, never scored."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from served_model import SIZES, served, tiny_tokenizer
from transformers import CLIPImageProcessor, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]
RECIPE = Path(__file__).parents[2] / "recipes" / "judge.py"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %} {% endfor %}{% endfor %}"
)
IMAGE = 16
PATCH = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a running server, and the folder of its LLaVA of a few thousand weights."""
    folder = tmp_path_factory.mktemp("served") / "tiny-llava"
    tokenizer = tiny_tokenizer("<image>")
    images = CLIPImageProcessor(size={"shortest_edge": IMAGE}, crop_size={"height": IMAGE, "width": IMAGE})
    seen = {
        "patch_size": PATCH,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    LlavaProcessor(images, tokenizer, chat_template=TEMPLATE, **seen).save_pretrained(folder)
    vision = {"model_type": "clip_vision_model", "image_size": IMAGE, "patch_size": PATCH, **SIZES}
    text = {"model_type": "llama", "vocab_size": len(tokenizer), "max_position_embeddings": 16384, **SIZES}
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    with served(folder) as url:
        yield url, folder


def test_a_real_model_sees_the_frames_and_its_prose_is_counted_and_kept(server, tiny_comp, tmp_path):
    url, model = server
    output = tmp_path / "judged"
    command = [
        sys.executable,
        RECIPE,
        "--base_url",
        url,
        "--model",
        model,
        "--data_dir",
        tiny_comp["data_dir"],
    ]
    command += [
        "--num_frames",
        "3",
        "--cache",
        tmp_path / "answers.sqlite",
        "--output_dir",
        output,
        "--quiet",
        "true",
    ]

    def judge(limit, num_frames):
        given = [*command, "--limit", limit, "--num_frames", num_frames]
        done = subprocess.run(list(map(str, given)), capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 1, done.stderr
        assert "no answer can be read" in done.stderr
        return json.loads((output / "results.json").read_text())

    one_frame, measured = (judge(2, num_frames)["figures"] for num_frames in (1, 3))
    assert (measured["requests"], measured["cached"]) == (2, 0)
    seen = measured["input_tokens"] - one_frame["input_tokens"]
    assert seen >= 2 * 2 * (IMAGE // PATCH) ** 2  # two rows, two frames more
    found = judge(5, 3)  # the answers of the first two rows are paid for
    assert (found["figures"]["requests"], found["figures"]["cached"]) == (3, 2)
    assert found["coverage"]["asked"] == found["coverage"]["unreadable or failed"] == 5
    assert not any("accuracy" in name for name in found["figures"])
    refused = pq.read_table(output / "rejections.parquet").to_pylist()
    assert all(row["raw"] and row["key"] for row in refused)
    assert {row["reason"].partition(":")[0] for row in refused} <= {"truncated", "the answer is not 1 or 2"}
