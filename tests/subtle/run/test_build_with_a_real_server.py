"""The build against a real OpenAI-compatible server, `transformers serve`, with a tiny random model made here."""

import json
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from served_model import SIZES, served, tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tests.fixtures.verbs import typed

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]
TEMPLATE = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a running server, and the folder of its model of a few thousand weights."""
    folder = tmp_path_factory.mktemp("served") / "tiny-random"
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=16384, eos_token_id=2, **SIZES)
    LlamaForCausalLM(config).save_pretrained(folder)
    with served(folder) as url:
        yield url, folder


def test_a_build_with_a_real_server_rejects_nonsense_and_reports_it(server, tmp_path):
    url, model = server
    output = tmp_path / "built"
    options = ["--base-url", url, "--model", str(model), "--limit", "5", "--max-output-tokens", "8"]
    options += ["--output-dir", str(output), "--cache", str(tmp_path / "answers.sqlite"), "--quiet"]
    done = subprocess.run(
        [sys.executable, *typed("build_tfcovr"), *options], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 1, done.stderr
    assert "no answer was accepted in: modifications" in done.stderr
    results = json.loads((output / "results.json").read_text())
    rejected = pq.read_table(output / "rejections.parquet").to_pylist()
    assert len(rejected) == results["figures"]["rejections"] == 5
    assert all(row["reason"] and row["raw"] for row in rejected)
    known = re.compile("truncated|holds no modification_text|begins with .*, which is no instruction")
    assert all(known.match(row["reason"]) for row in rejected)
    offline = [sys.executable, *typed("build_tfcovr"), *options, "--offline"]
    subprocess.run(offline, capture_output=True, check=False, timeout=100)
    assert pq.read_table(output / "rejections.parquet").to_pylist() == rejected
