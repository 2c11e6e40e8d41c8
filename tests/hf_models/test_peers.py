"""transformers' and PEFT's own common tests on our classes: `make test-peers`.

The suites come with the source distributions of the installed versions, which pip fetches into a temporary folder; what
the distributions leave out is replaced by stubs. What is skipped or fails there must be explained here, and what is
explained must still happen. A table says so at the end of the run.

Some mixins do not apply: the pipelines' needs modules that the distribution lacks and models on the Hub, the one for
training knows only language models, and those for FSDP and for tensor and expert parallelism need accelerators.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from transformers import PreTrainedModel, ProcessorMixin
from transformers.video_processing_utils import BaseVideoProcessor

import hf_models

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]

# Our test class -> the suite's classes that it runs, and the classes of ours that it tests.
TESTERS = {
    "AIMModelTest": ("ModelTesterMixin, ConfigTester", ["AIMModel", "AIMForVideoClassification"]),
    "AIMTrainingTest": ("ModelTesterMixin: training", ["AIMForVideoClassification"]),
    "RecurrentAIMTest": ("ModelTesterMixin: gru, factors", ["AIMModel", "AIMForVideoClassification"]),
    "VidCLIPModelTest": ("ModelTesterMixin, ConfigTester", ["VidCLIPModel"]),
    "VidCLIPMatcherTest": ("ModelTesterMixin, ConfigTester: a head", ["VidCLIPMatcher"]),
    "TFCoVRModelTest": ("ModelTesterMixin, ConfigTester", ["TFCoVRForComposedRetrieval"]),
    "FactoredCoVRTest": ("ModelTesterMixin, ConfigTester", ["FactoredCoVRForComposedRetrieval"]),
    "XMLTest": ("ModelTesterMixin, ConfigTester", ["XMLForMomentRetrieval"]),
    "ReLoCLNetTest": ("ModelTesterMixin, ConfigTester", ["ReLoCLNetForMomentRetrieval"]),
    "HEROTest": ("ModelTesterMixin, ConfigTester", ["HEROForMomentRetrieval"]),
    "AIMVideoProcessorTest": ("VideoProcessingTestMixin", ["AIMVideoProcessor"]),
    "TFCoVRProcessorTest": ("ProcessorTesterMixin", ["TFCoVRProcessor"]),
    "VidCLIPProcessorTest": ("ProcessorTesterMixin", ["VidCLIPProcessor"]),
    "TestAIMAdapter": ("PeftCommonTester", ["AIMAdapterConfig"]),
}
SUITES = {
    "transformers": ["peer_suites.py", "peer_moment_suites.py", "peer_processor_suites.py"],
    "peft": ["peer_adapter_suites.py"],
}
MODULES = ["peer_attention.py"]  # that these import
STUBS = {
    "transformers": {
        "tests/exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
        "tests/generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
        "tests/utils/test_configuration_utils.py": (
            "config_common_kwargs = {'return_dict': False, 'output_hidden_states': True, 'output_attentions': True, "
            "'dtype': 'float16', 'id2label': {0: 'a', 1: 'b', 2: 'c'}, 'label2id': {'a': 0, 'b': 1, 'c': 2}, "
            "'problem_type': 'regression'}\n"
        ),
        "utils/fetch_hub_objects_for_ci.py": "def url_to_local_path(url):\n    return url\n",
    },
    "peft": {},
}

# Failing test -> the message it fails with, and why that is right for us.
STATES = "states and attention maps are in the outputs of the encoders, as in CLIP, not beside the logits"
TOWERS = "a matcher gives logits and embeddings; states and maps are outputs of its VidCLIP"
BARE = "VidCLIP's features are bare unit-norm tensors, not an output object with states"
MAPS = "the suite asks 'sdpa' for attention maps, which it does not make; VidCLIP says so instead of giving none"
LIMIT = "the processor's own limit of tokens decides, not one that the tokenizer was saved with for something else"
DEPTH = "the papers say how many layers it has; there is no setting for fewer"
FEATURES = "it reads features, not tokens: there are no embeddings to give or to replace"
MERGE = "AIM's adapters run attention a second time, which no single weight can hold"
FAILURES = {
    "AIMVideoProcessorTest.test_call_sample_frames": (
        "ValueError not raised",
        "the suite expects an error for more frames than the video has; TF-CoVR repeats it, as it has clips of 1 frame",
    ),
    "TFCoVRProcessorTest.test_init_arguments_not_in_processor_kwargs": (
        r"\{'number_words'\} is not false",
        "number_words is a setting that a call may change; the suite allows that to the parts of a processor only",
    ),
    **{
        f"{name}ProcessorTest.test_subprocessor_defaults_preserved_by_kwargs_1_videos": (r"\d+ != 167", LIMIT)
        for name in ("TFCoVR", "VidCLIP")
    },
    **{
        f"{name}Test.{test}": (message, reason)
        for name in ("XML", "ReLoCLNet")
        for test, message, reason in (
            ("test_model_get_set_embeddings", "reads features, not tokens", FEATURES),
            ("test_num_layers_is_small", r"assert \d <= 2", DEPTH),
        )
    },
    **{
        f"{name}Test.{test}": ("no attribute 'hidden_states'", STATES)
        for name in ("VidCLIPModel", "TFCoVRModel", "FactoredCoVR")
        for test in ("test_hidden_states_output", "test_retain_grad_hidden_states_attentions")
    },
    **{
        f"{name}Test.test_init_weights_can_init_buffers": (
            r"meta device\):\n(`(weight|bias)` in module `Linear` called from `BertPreTrainedModel`\n?){2}(?!`)",
            "the weights of BERT's pooler, which nothing reads, are kept as buffers; they start at random",
        )
        for name in ("TFCoVRModel", "FactoredCoVR")
    },
    **{
        f"{name}Test.test_can_init_all_missing_weights": (
            r"\{'`weight` in module `Linear` called from `CLIPPreTrainedModel`\\n'\}",
            "transformers uses CLIP's scale of first weights in its own classes only; in others it is 0.02",
        )
        for name in ("VidCLIPModel", "VidCLIPMatcher")
    },
    **{
        f"VidCLIPMatcherTest.test_{test}": (message, TOWERS)
        for test, message in {
            "can_capture_specific_layers_hidden_states": "unexpected keyword argument 'output_hidden_states'",
            "capture_outputs_decorator": "unexpected keyword argument 'output_attentions'",
            "hidden_states_output": "unexpected keyword argument 'output_hidden_states'",
            "model_outputs_equivalence": "unexpected keyword argument 'output_hidden_states'",
            "retain_grad_hidden_states_attentions": "no attribute 'hidden_states'",
        }.items()
    },
    "VidCLIPModelTest.test_capture_outputs_decorator": ("needs the attention 'eager'", MAPS),
    "VidCLIPModelTest.test_eager_matches_sdpa_inference_24_fp32_pad_left_output_attentions": (
        "needs the attention 'eager'",
        MAPS,
    ),
    **{
        f"VidCLIPModelTest.test_get_{kind}_features_{test}": (message, BARE)
        for kind in ("text", "video")
        for test, message in {
            "hidden_states": "unexpected keyword argument",
            "output_0": "must return a",
            "output_1": r"AssertionError: tensor\(",  # a tuple is wanted
            "output_2": "must return a",
        }.items()
    },
    "TestAIMAdapter.test[from_pretrained_config_construction]": (
        "assert",
        "what recognizes its base is added to a copy of an adapter's configuration: the caller's serves other bases",
    ),
    **{
        f"TestAIMAdapter.test[{name}]": ("cannot be merged", MERGE)
        for name in (
            "merge_layers",
            "merge_layers_fp16",
            "merge_layers_is_idempotent",
            "merge_layers_multi",
            "merge_layers_nan",
            "safe_merge",
        )
    },
}

# Reason that the suite gives for a skip -> why it is right for us. Each must occur.
SKIPS = {
    r"test is slow": "the slow tests, which RUN_SLOW asks for, need a GPU, too",
    r"No model with a differentiable loss": "a loss that reaches embeddings, which a model of features does not have",
    r"Model (does not output|(architecture )?does not support) (output_)?attentions": "its encoders give the maps",
    r"[Nn]ot a? ?composite|No subconfigs|does not support SDPA": "for models of models, or for models that are none",
    r"not configured to run training tests": "for models with a loss of their own; a matcher's takes groups of texts",
    r"language modeling head|`inputs_embeds`|test_resize_embeddings|sliding window|position embed": "for text models",
    r"grouped_mm|sparse experts|output_router_logits": "for mixtures of experts",
    r"TP plan|_keep_in_fp32_modules|onversions? found|base_model_class": "an option that our models do not use",
    r"capture_outputs|[Cc]annot capture hidden states": "it collects its states itself, and our own tests test them",
    r"dict size or list image_mean|No validation found for `preprocess`": "for the types of older video processors",
    r"chat template|_get_num_multimodal_tokens|doesn't support images with text": "for processors of chat models",
    r"(image_processor|feature_extractor) attribute not present": "for images and sounds; ours take videos and texts",
    r"'bias' argument|layers_to_transform|Test not applicable": "for an option of other adapters",
    r"Mixed adapter batches not supported": "one AIM adapter is active at a time",
}
# The same where the machine decides.
MACHINE_SKIPS = {
    r"requires (multiple )?accelerator|requires MPS": "needs a GPU",
    r"requires (Flash Attention|the kernels library|deepspeed|librosa|Torchcodec)": "needs a missing library",
}


class AtTheEnd:
    """A plugin that prints lines below pytest's summary."""

    def __init__(self, lines):
        self.lines = lines

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section("the libraries' suites on our classes")
        for line in self.lines:
            terminalreporter.write_line(line)


def outcomes_of(package, folder):
    """Every test of one library's suites on our classes, as `class.test`, with its outcome and message."""
    version = importlib.metadata.version(package)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    fetch += ["--no-build-isolation", f"{package}=={version}", "--dest", str(folder)]
    subprocess.run(fetch, check=True)
    with tarfile.open(next(folder.glob(f"{package}-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    root = next(folder.glob(f"{package}-*/"))
    for name, text in STUBS[package].items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).parent.joinpath("__init__.py").touch()
        (root / name).write_text(text)
    (root / "tests" / "__init__.py").touch()
    for name in SUITES[package] + MODULES:
        shutil.copy(Path(__file__).with_name(name), root / "tests")
    run = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q", "--tb=short", "--no-summary"]
    run += ["-W", "ignore", "-p", "no:cacheprovider", "--junitxml=results.xml"]
    run += [f"tests/{name}" for name in SUITES[package]]
    subprocess.run(run, cwd=root, check=False, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    outcomes = {}
    for case in ElementTree.parse(root / "results.xml").iter("testcase"):
        name = f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"
        found = ("passed", "")
        for kind in ("skipped", "error", "failure"):
            for problem in case.findall(kind):
                found = (kind, f"{problem.get('message')}\n{problem.text}")
        if outcomes.get(name, ("passed",))[0] in {"passed", "skipped"}:  # one for each part of a test
            outcomes[name] = found
    return outcomes


def table(results):
    """What happened, for people: counts by class, and every reason."""
    counts = {tester: Counter() for tester in TESTERS}
    failed, skipped = Counter(), Counter()
    for name, (outcome, message) in results.items():
        counts[name.partition(".")[0]][outcome] += 1
        if outcome == "skipped":
            skipped[reason_for_skip(message) or f"UNEXPLAINED: {name}"] += 1
        elif outcome != "passed":
            tester = name.partition(".")[0]
            expected = name in FAILURES and re.search(FAILURES[name][0], message)
            failed[tester, FAILURES[name][1] if expected else f"UNEXPECTED: {name}"] += 1
    yield f"{'suite':32}{'class':24}{'passed':>8}{'failed':>8}{'skipped':>9}"
    for tester, (suite, _) in TESTERS.items():
        found = counts[tester]
        failures = found["failure"] + found["error"]
        yield f"{suite:32}{tester:24}{found['passed']:8}{failures:8}{found['skipped']:9}"
    yield "failed, and why that is expected:"
    yield from (f"{count:5}  {tester}: {reason}" for (tester, reason), count in failed.items())
    yield "skipped, and why:"
    yield from (f"{count:5}  {reason}" for reason, count in skipped.most_common())


def reason_for_skip(message):
    """Why a skip is right, or None."""
    return next((why for said, why in (SKIPS | MACHINE_SKIPS).items() if re.search(said, message)), None)


@pytest.fixture(scope="module")
def results(tmp_path_factory, pytestconfig):
    """Every test of the suites with its outcome and message."""
    found = {}
    for package in SUITES:
        found |= outcomes_of(package, tmp_path_factory.mktemp(package))
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in SUITES)
    pytestconfig.pluginmanager.register(AtTheEnd([versions, *table(found)]))
    return found


def test_every_model_processor_and_adapter_of_ours_is_in_a_suite(results):
    kinds = (PreTrainedModel, ProcessorMixin, BaseVideoProcessor)
    ours = {name for name in hf_models.__all__ if isinstance(getattr(hf_models, name), type)}
    ours = {name for name in ours if issubclass(getattr(hf_models, name), kinds)} | {"AIMAdapterConfig"}
    assert {name for _, names in TESTERS.values() for name in names} == ours
    passed = {name.partition(".")[0] for name, (outcome, _) in results.items() if outcome == "passed"}
    assert passed == TESTERS.keys()


def test_every_failure_is_explained_and_every_explanation_needed(results):
    failures = {name: message for name, (outcome, message) in results.items() if outcome in {"failure", "error"}}
    assert failures.keys() == FAILURES.keys()
    for name, (message, _) in FAILURES.items():
        assert re.search(message, failures[name]), f"{name} fails in another way: {failures[name]}"


def test_every_skip_is_explained_and_every_explanation_needed(results):
    skips = {name: message for name, (outcome, message) in results.items() if outcome == "skipped"}
    assert not {name: message for name, message in skips.items() if reason_for_skip(message) is None}
    assert not [said for said in SKIPS if not any(re.search(said, message) for message in skips.values())]


@pytest.mark.parametrize(
    "tester", [name for name, (suite, _) in TESTERS.items() if suite == "ModelTesterMixin, ConfigTester"]
)
def test_eager_attention_and_sdpa_are_compared_in_all_types_and_a_wrong_one_is_noticed(results, tester):
    passed = {name for name, (outcome, _) in results.items() if outcome == "passed"}
    comparison = f"{tester}.test_eager_matches_sdpa_inference_"
    compared = {name.removeprefix(comparison)[3:] for name in passed if name.startswith(comparison)}
    wanted = {
        f"{dtype}_pad_{side}{mask}{kernels}"
        for dtype in ("fp16", "bf16", "fp32")
        for side in ("left", "right")
        for mask in ("", "_no_attn_mask")
        for kernels in ("", "_sdpa_kernels")
    }
    assert compared >= wanted
    assert f"{tester}.test_an_sdpa_that_is_wrong_in_any_attention_fails_the_comparison" in passed
