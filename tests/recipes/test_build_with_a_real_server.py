"""The build against a real OpenAI-compatible server, `transformers serve`, with a tiny random model made here."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]
RECIPE = Path(__file__).parents[2] / "recipes" / "build_tfcovr.py"
TEMPLATE = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
LINES = ["show with a turn", "the source and the target", "answer with a JSON object", "one two three"]


def make_model(folder):
    """A random language model of a few thousand weights, with a tokenizer and a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"])
    tokenizer.train_from_iterator(LINES, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(fast), max_position_embeddings=16384, eos_token_id=2, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a running `transformers serve`, and the folder of its model."""
    pytest.importorskip("fastapi", reason="transformers[serving] is not installed")
    pytest.importorskip("uvicorn", reason="transformers[serving] is not installed")
    folder = tmp_path_factory.mktemp("served") / "tiny-random"
    make_model(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        Path(sys.executable).with_name("transformers"),
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = (folder.parent / "server.log").open("w")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen([*command, "--device", "cpu"], stdout=log, stderr=log, env=environment)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, Path(log.name))
        yield f"http://127.0.0.1:{port}/v1", folder
    finally:
        process.kill()
        process.wait()
        log.close()


def wait_for(url, process, log):
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no server at {url} after three minutes")


def test_a_build_runs_rejects_the_nonsense_and_reports_it(server, tmp_path):
    url, model = server
    output = tmp_path / "built"
    options = ["--base-url", url, "--model", str(model), "--limit", "5", "--max-output-tokens", "8"]
    options += ["--output-dir", str(output), "--cache", str(tmp_path / "answers.sqlite"), "--quiet"]
    done = subprocess.run(
        [sys.executable, RECIPE, *options], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 1, done.stderr
    assert "no answer was accepted in: modifications" in done.stderr
    results = json.loads((output / "results.json").read_text())
    rejected = pq.read_table(output / "rejections.parquet").to_pylist()
    assert len(rejected) == results["figures"]["rejections"] == 5
    assert all(row["reason"] and row["raw"] for row in rejected)
    assert {row["reason"].partition(":")[0] for row in rejected} <= {
        "truncated",
        "holds no modification_text",
    }
    offline = [sys.executable, RECIPE, *options, "--offline"]
    subprocess.run(offline, capture_output=True, check=False, timeout=100)
    assert pq.read_table(output / "rejections.parquet").to_pylist() == rejected
