"""transformers' own common tests on our classes: `make test-peers`.

The suites come with transformers' source distribution of the installed version, which pip fetches into a temporary
folder; three modules that the distribution leaves out are replaced by stubs. What is skipped or fails there must be
explained here, and what is explained must still happen.
"""

import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]

STUBS = {
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/test_configuration_utils.py": (
        "config_common_kwargs = {'return_dict': False, 'output_hidden_states': True, 'output_attentions': True, "
        "'dtype': 'float16', 'id2label': {0: 'a', 1: 'b', 2: 'c'}, 'label2id': {'a': 0, 'b': 1, 'c': 2}, "
        "'problem_type': 'regression'}\n"
    ),
}

# Failing test -> the message it fails with, and why that is right for us.
NO_STATES = (
    "hidden states and attention maps are in the outputs of the two towers, as in CLIP, not beside the logits"
)
BARE_FEATURES = "VidCLIP's features are bare unit-norm tensors, not an output object with states"
EXPLAINED_FAILURES = {
    "AIMVideoProcessorTest.test_call_sample_frames": (
        "ValueError not raised",
        "the suite wants an error for more frames than the video has; TF-CoVR repeats the video, which has clips of 1 frame",
    ),
    "VidCLIPModelTest.test_capture_outputs_decorator": (
        "needs the attention 'eager'",
        "the suite asks 'sdpa' for attention maps, which it does not make; VidCLIP says so instead of giving none",
    ),
    "VidCLIPModelTest.test_hidden_states_output": ("no attribute 'hidden_states'", NO_STATES),
    "VidCLIPModelTest.test_retain_grad_hidden_states_attentions": ("no attribute 'hidden_states'", NO_STATES),
    **{
        f"VidCLIPModelTest.test_get_{kind}_features_{test}": (message, BARE_FEATURES)
        for kind in ("text", "video")
        for test, message in {
            "hidden_states": "unexpected keyword argument",
            "output_0": "must return a",
            "output_1": "AssertionError: tensor(",  # a tuple is wanted
            "output_2": "must return a",
        }.items()
    },
}

# Reason that the suite gives for a skip -> why it is right for us.
EXPLAINED_SKIPS = {
    r"requires (multiple )?accelerator|requires MPS": "needs a GPU",
    r"requires (Flash Attention|the kernels library|deepspeed)": "needs a library that is not installed",
    r"test is slow": "the library's slow tests are asked for by RUN_SLOW",
    r"does not (support|output) (output_)?attentions": "its maps are in the outputs of its towers; see test_vidclip_library.py",
    r"No model with a differentiable loss": "the suite looks for a loss among its own auto classes",
    r"Only PrefixChange conversions": "VidCLIP's weights have the names they are saved under",
    r"[Nn]ot a? ?composite|No subconfigs|does not support SDPA": "AIM is one model without sub-models",
    r"language modeling head|`inputs_embeds`|test_resize_embeddings|sliding window|position embeddings": "for text models",
    r"grouped_mm|sparse experts|output_router_logits": "for mixtures of experts",
    r"TP plan|_keep_in_fp32_modules|No conversion found|base_model_class|prioritized": "an option that AIM does not use",
    r"capture_outputs|[Cc]annot capture hidden states": "AIM collects its states itself and tests them in test_aim.py",
    r"dict size or list image_mean|No validation found for `preprocess`": "the suite asks for types of older processors",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Every test of the suites with its outcome and message."""
    folder = tmp_path_factory.mktemp("peers")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    fetch += ["--no-build-isolation", f"transformers=={transformers.__version__}", "--dest", str(folder)]
    subprocess.run(fetch, check=True)
    with tarfile.open(next(folder.glob("transformers-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    suites = next(folder.glob("transformers-*/tests"))
    (suites / "__init__.py").touch()
    for name, text in STUBS.items():
        (suites / name).parent.mkdir(exist_ok=True)
        (suites / name).parent.joinpath("__init__.py").touch()
        (suites / name).write_text(text)
    ours = Path(__file__).with_name("peer_suites.py").read_text()
    (suites / "test_peer_suites.py").write_text(ours)
    run = [
        sys.executable,
        "-m",
        "pytest",
        "tests/test_peer_suites.py",
        "-q",
        "-W",
        "ignore",
        "--junitxml=results.xml",
    ]
    subprocess.run(run, cwd=suites.parent, check=False)
    outcomes = {}
    for case in ElementTree.parse(suites.parent / "results.xml").iter("testcase"):
        name = f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"
        problem = next(
            (case.find(kind) for kind in ("failure", "error", "skipped") if case.find(kind) is not None), None
        )
        outcomes[name] = ("passed", "") if problem is None else (problem.tag, problem.get("message") or "")
    return outcomes


def test_most_of_the_suite_passes(results, capsys):
    counts = Counter(outcome for outcome, _ in results.values())
    with capsys.disabled():
        print(f"\ntransformers {transformers.__version__} on our classes: {dict(counts)}")  # noqa: T201 (the figures)
    assert counts["passed"] >= 100


def test_every_failure_is_explained_and_every_explanation_needed(results):
    failures = {
        name: message for name, (outcome, message) in results.items() if outcome in {"failure", "error"}
    }
    assert failures.keys() == EXPLAINED_FAILURES.keys(), failures
    for name, (message, _) in EXPLAINED_FAILURES.items():
        assert message in failures[name]


def test_every_skip_is_explained(results):
    skips = {name: message for name, (outcome, message) in results.items() if outcome == "skipped"}
    unexplained = {
        name: message
        for name, message in skips.items()
        if not any(re.search(reason, message) for reason in EXPLAINED_SKIPS)
    }
    assert not unexplained
