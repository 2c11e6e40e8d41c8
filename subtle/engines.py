"""Where the work of a verb runs: in this process, or in the actor pool of Ray Data on one machine or many.

With Ray, the pieces of work are rows of a dataset. Each actor holds one object of a plain class
`__call__(work) -> pyarrow.Table`, the driver takes the tables as they are done and writes them: it alone writes. A lost
actor's work is done again by another, and a driver that starts again plans what is not yet written.
"""

import importlib
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from subtle.run.shared_config import ActorConfig

MAX_TRIES = 3
SECONDS_TO_CONNECT = 10.0
BLOCKS_AT_ONCE = 10_000
"""Pieces of work of one dataset. Each is a block of its own, so that a lost actor loses no more than what it does, and
costs the driver about a millisecond; the next dataset has new actors, as many as the cluster then has room for."""
OUTCOME_COLUMNS = ("number", "error", "table")
OBJECT_STORE_BYTES = 512 << 20  # of a cluster on this machine alone; what is larger goes to its disk


@dataclass(frozen=True)
class Actors:
    """How many there are, and what Ray reserves for each."""

    number: int
    cpus: float
    gpus: float


@contextmanager
def running(config: ActorConfig, *, device: str = "auto", num_decoders: int = 0) -> Iterator[None]:
    """Have Ray ready where the configuration asks for it; around everything that opens files or starts threads.

    Args:
        config: As given.
        device: Of the model.
        num_decoders: Processes that each actor starts.

    Raises:
        ImportError: Ray is not installed.
        OSError: There is no cluster at RAY_ADDRESS.
        ValueError: There are several processes, or the address is a client's.
    """
    if config.engine == "local":
        yield
        return
    ray = import_ray()
    if ray.is_initialized():  # by a caller
        yield
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("--engine ray starts its own processes: run it without accelerate launch")
    connect_to_ray(ray, config, device, num_decoders)
    try:
        yield
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Ray, with its statistics off unless they were asked for.

    Raises:
        ImportError: It is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # of this process and a cluster that it starts
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ImportError("--engine ray needs Ray: pip install 'subtle-video[ray]'") from error
    return ray


def run_on_ray(
    factory: str,
    arguments: Mapping[str, Any],
    works: Sequence[Mapping[str, Any]],
    config: ActorConfig,
    *,
    device: str = "auto",
    num_decoders: int = 0,
) -> Iterator[tuple[int, pa.Table]]:
    """Do pieces of work in actors, inside `running`.

    Args:
        factory: The class, as `module:Class`, of a module that the workers can import. It is called with `arguments`,
            and its objects with a piece of work; they return a table.
        arguments: As JSON has them.
        works: As JSON has them; each is done once.
        config: Says how many actors there are and what each takes.
        device: Of the model.
        num_decoders: Processes that each actor starts.

    Yields:
        The number of a piece of work and its table, as they are done.

    Raises:
        ValueError: A worker refused the work, as where its model is another.
        OSError: A worker could not read or write, or all of them were lost; or pieces of work ended their worker again
            and again, which is said after all others were done.
    """
    if not works:
        return
    ray = import_ray()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    # Beside the driver, as it would take the whole run with it where its machine is lost.
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    limits = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    tries = ray.remote(tries_class()).options(**limits).remote()
    rows = [{"number": number, "work": json.dumps(work)} for number, work in enumerate(works)]
    missing = set(range(len(rows)))
    lost: dict[int, str] = {}
    for first in range(0, len(rows), BLOCKS_AT_ONCE):
        some = rows[first : first + BLOCKS_AT_ONCE]
        actors = actors_of(config, ray.cluster_resources(), device, num_decoders)
        report_room(ray, actors)
        begun = min(actors.number, len(some))
        dataset = ray.data.from_items(some, override_num_blocks=len(some)).map_batches(
            worker_class(),
            fn_constructor_kwargs={"factory": factory, "arguments": dict(arguments), "tries": tries},
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=begun)
            if config.num_actors
            else ray.data.ActorPoolStrategy(min_size=1, initial_size=begun, max_size=len(some)),  # as machines join
            num_cpus=actors.cpus,
            num_gpus=actors.gpus or None,
        )
        for block in blocks_of(ray, dataset):
            for number, error, table in zip(*(block[name].to_pylist() for name in OUTCOME_COLUMNS), strict=True):
                if number not in missing:  # done twice, where the machine that held a result was lost
                    continue
                missing.remove(number)
                if error is None:
                    yield number, pa.ipc.open_stream(table).read_all()
                elif (described := json.loads(error))["kind"] == "lost":
                    lost[number] = described["message"]
                else:
                    raise_again(described)
    if lost or missing:
        raise OSError(
            f"{len(lost) + len(missing):,} of {len(works):,} pieces of work are not done, all others are: "
            f"{next(iter(lost.values()), 'Ray lost them')}; run again to try them again"
        )


def connect_to_ray(ray: Any, config: ActorConfig, device: str, num_decoders: int) -> None:
    """Connect to the cluster at RAY_ADDRESS; without one start it on this machine, for as long as this process lives.

    Raises:
        OSError: There is none.
        ValueError: The address is a client's.
    """
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what fails comes back as a result
    address = os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        if address.startswith("ray://"):
            raise ValueError(
                "RAY_ADDRESS is an address for clients (ray://), which Ray Data does not support; run this on a "
                "machine of the cluster with RAY_ADDRESS=auto, or by `ray job submit`"
            )
        try:
            if address != "auto":  # Ray itself tries for minutes
                host, _, port = address.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_CONNECT).close()
            ray.init(address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise OSError(
                f"there is no Ray cluster at RAY_ADDRESS={address} ({' '.join(str(error).split())[:200]}); start one "
                "with `ray start --head`, or unset the variable to use this machine alone"
            ) from error
        return
    import torch

    from hf_datasets.video.pool import available_cores

    cores = available_cores()
    actors = actors_of(config, {"CPU": cores, "GPU": torch.cuda.device_count()}, device, num_decoders)
    ray.init(
        "local",
        num_cpus=max(cores, round(actors.number * actors.cpus + 0.5)),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        **quiet,
    )


def actors_of(config: ActorConfig, resources: Mapping[str, float], device: str, num_decoders: int) -> Actors:
    """As many actors as the cluster has room for, unless a number is given.

    Args:
        config: As given.
        resources: `CPU` and `GPU` of the whole cluster.
        device: Of the model.
        num_decoders: Processes that each actor starts.

    Raises:
        ValueError: A GPU is asked for and there is none.

    >>> from subtle.run.shared_config import ActorConfig
    >>> actors_of(ActorConfig(), {"CPU": 16, "GPU": 2}, "auto", num_decoders=4)
    Actors(number=2, cpus=5, gpus=1)
    >>> actors_of(ActorConfig(), {"CPU": 16}, "auto", num_decoders=3)
    Actors(number=4, cpus=4, gpus=0)
    """
    there = resources.get("GPU", 0)
    if device == "cuda" and not there:
        raise ValueError("--device cuda: the Ray cluster has no GPU; start its nodes with --num-gpus, or use another")
    cpus = config.cpus_per_actor or 1 + num_decoders
    gpus = 0 if device == "cpu" or not there else config.gpus_per_actor or 1
    room = there / gpus if gpus else resources.get("CPU", 1) / cpus
    return Actors(config.num_actors or max(1, int(room)), cpus, gpus)


def tries_class() -> type:
    """The class of the actor that counts how often each piece of work was begun; it travels as code, too.

    Work that ends every worker, such as by using up the memory, must not be tried for ever.
    """

    class Tries:
        def __init__(self) -> None:
            self.number: dict[int, int] = {}

        def begin(self, number: int) -> int:
            self.number[number] = self.number.get(number, 0) + 1
            return self.number[number]

    return Tries


def worker_class() -> type:
    """The class that Ray runs in its actors. It travels as code, so that it can find the recipes on another machine."""
    most = MAX_TRIES

    class Worker:
        def __init__(self, factory: str, arguments: dict[str, Any], tries: Any) -> None:
            self.factory, self.arguments, self.tries = factory, arguments, tries
            self.own: Any = None

        def load(self) -> Any:
            import importlib

            module, _, name = self.factory.partition(":")
            return getattr(importlib.import_module(module), name)(**self.arguments)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            import json
            import socket
            import traceback

            import numpy as np
            import pyarrow as pa
            import ray

            (number,) = batch["number"].tolist()
            error, sink = None, pa.BufferOutputStream()
            try:
                if ray.get(self.tries.begin.remote(number)) > most:
                    message = f"the worker that did it ended {most} times, such as for lack of memory"
                    error = {"kind": "lost", "message": message}
                else:
                    self.own = self.own or self.load()
                    table = self.own(json.loads(batch["work"][0]))
                    with pa.ipc.new_stream(sink, table.schema) as stream:
                        stream.write_table(table)
            except (Exception, SystemExit) as raised:
                kinds = ("OSError", "ImportError", "ValueError", "SystemExit")
                names = [kind.__name__ for kind in type(raised).__mro__]
                kind = next((name for name in names if name in kinds), "bug")
                where = "" if kind != "bug" else traceback.format_exc()
                error = {"kind": kind, "message": str(raised), "host": socket.gethostname(), "traceback": where}
            return {
                "number": np.array([number]),
                "error": np.array([json.dumps(error) if error else None], dtype=object),
                "table": np.array([sink.getvalue().to_pybytes()], dtype=object),
            }

    return Worker


def raise_again(error: Mapping[str, str]) -> None:
    """Raise a worker's error here.

    Raises:
        OSError: It is one, or a missing library.
        ValueError: It is one.
        RuntimeError: It is a bug; with its traceback.
    """
    message = f"{error['message']} (a worker on {error['host']})"
    if error["kind"] in {"OSError", "ImportError"}:
        raise OSError(message)
    if error["kind"] == "bug":
        raise RuntimeError(f"{message}\n{error['traceback']}")
    raise ValueError(message)


def blocks_of(ray: Any, dataset: Any) -> Iterator[pa.Table]:
    """The blocks of a dataset as they are done.

    Raises:
        OSError: The cluster was lost.
    """
    try:
        yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[:400]
        raise OSError(f"Ray gave up: {why}; what is done is kept, run again to go on") from error


def report_room(ray: Any, actors: Actors) -> None:
    """Say that Ray waits, where no machine has room for an actor: one may yet join."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= actors.cpus and node.get("GPU", 0) >= actors.gpus for node in nodes):
        sys.stderr.write(
            f"no machine of the Ray cluster has {actors.cpus:g} CPUs and {actors.gpus:g} GPUs for an actor; waiting "
            "for one to join (or use less: --cpus_per_actor, --gpus_per_actor)\n"
        )
