"""A Ray cluster of three nodes that is already running, one of which is lost in the middle; needs the extra `ray`."""

import os
import shutil
import signal
import tempfile
from dataclasses import replace

import pytest

from subtle.footage import engines as indexing_engines
from subtle.footage import index, reading
from subtle.footage.updating import Indexer
from tests.subtle.test_engines import config, contents, footage  # noqa: F401 fixtures

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def nodes(monkeypatch):
    """The head, which has no core for an actor, and two nodes of one core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    temporary = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the names of sockets must be short
    monkeypatch.setenv("RAY_TMPDIR", temporary)
    limits = {"object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **limits})
    try:
        workers = [cluster.add_node(num_cpus=1, **limits) for _ in range(2)]
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster, workers
    finally:
        cluster.shutdown()
        shutil.rmtree(temporary, ignore_errors=True)


def test_a_node_is_lost_in_the_middle_and_the_rows_are_the_same(nodes, config, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(reading, "FILES_PER_GROUP", 1)
    monkeypatch.setattr(indexing_engines, "SECONDS_PER_COMMIT", 0.0)
    cluster, workers = nodes
    lost = []
    commit = Indexer.commit

    def lose_a_node_then_commit(self, files, rows):
        if not lost:
            lost.append(workers[0])
            cluster.remove_node(workers[0], allow_graceful=False)
        commit(self, files, rows)

    monkeypatch.setattr(Indexer, "commit", lose_a_node_then_commit)
    handler = signal.getsignal(signal.SIGTERM)
    counts = index.run(replace(config, output=str(tmp_path / "ray"), engine="ray", cpus_per_actor=1))
    signal.signal(signal.SIGTERM, handler)
    assert lost
    assert "RAY_ADDRESS" in os.environ
    monkeypatch.setattr(Indexer, "commit", commit)
    assert index.run(config) == counts
    assert contents(tmp_path / "ray") == contents(config.output)
