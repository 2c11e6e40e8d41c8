"""What importing the package costs, in a process of its own."""

import subprocess
import sys

CODE = """
import sys
import hf_datasets
print(sorted({"datasets", "torch", "pandas", "pyarrow", "polars"} & set(sys.modules)))
import datasets.inspect, datasets.load
from hf_datasets import prepare
print(datasets.load.dataset_module_factory("tfcovr").module_path)
print(datasets.inspect.dataset_module_factory is datasets.load.dataset_module_factory)
"""


def test_importing_the_package_imports_nothing_heavy_and_registers_when_datasets_is_imported():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[]", "hf_datasets.tfcovr.builder", "True"]
