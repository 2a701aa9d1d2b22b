"""Four Ray nodes on this machine: the file of one process, whoever dies meanwhile."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import ray
from ray.cluster_utils import Cluster

import quietmm

GRID = {"policy": ["linux", "quiet"], "seed": "1..60"}
FEW = {"workload": "unmap-storm", "machine": "uma-8", "scale": 512}
WORDS = ["unmap-storm", "--machine=uma-8", "--scale=512", "--vary=policy=linux,quiet", "--vary=seed=1..60"]


def begun():
    """A cluster of four nodes with a CPU each; the first does not die."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False, ray_client_server_port=port)
        cluster.mortal = [cluster.add_node(num_cpus=1) for _ in range(3)]
        cluster.wait_for_nodes()
    except BaseException:
        cluster.shutdown()
        raise
    cluster.client = f"ray://127.0.0.1:{port}"
    return cluster


@pytest.fixture
def four():
    try:
        cluster = begun()
    except Exception:
        # Ray gives a node half a minute to begin, however busy this machine is.
        cluster = begun()
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def lines(path):
    """How many results there are."""
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def workers():
    """Processes that run a piece of work now, and nothing of anybody else's."""
    shown = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    every = {int(pid): (int(parent), text) for pid, parent, text in (line.split(None, 2) for line in shown)}

    def ours(pid):
        while pid in every and pid != os.getpid():
            pid = every[pid][0]
        return pid == os.getpid()

    return [pid for pid, (_, text) in every.items() if text.startswith("ray::piece") and ours(pid)]


def test_a_worker_and_a_node_die_and_the_file_is_that_of_one_process(four, command, tmp_path):
    one, out = tmp_path / "one.jsonl", tmp_path / "cluster.jsonl"
    assert command("sweep", *WORDS, "--out", one).returncode == 0
    deaths, seen = [], []

    def kill():
        while lines(out) < 10:
            time.sleep(0.05)
        while not deaths and lines(out) < 110:
            for pid in workers()[:1]:
                os.kill(pid, signal.SIGKILL)
                deaths.append("worker")
            time.sleep(0.02)
        deaths.append(lines(out))
        while lines(out) < 30:
            time.sleep(0.05)
        # Not gracefully: its processes are killed.
        four.remove_node(four.mortal[-1], allow_graceful=False)
        deaths.append("node")
        deaths.append(lines(out))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    study = quietmm.sweep(GRID, **FEW, out=out, address=four.address, progress=lambda done, all: seen.append(done))
    killer.join(timeout=60)
    assert deaths[0] == "worker" and deaths[2] == "node" and deaths[3] < 120, f"in the middle: {deaths}"
    print(f"killed at {deaths}; {len(ray.nodes()) if ray.is_initialized() else 'all'} nodes")
    assert len(study) == lines(out) == 120 and seen[-1] == 120
    assert out.read_bytes() == one.read_bytes()


def test_an_interrupted_study_goes_on_on_the_cluster_and_without_it(four, command, tmp_path):
    one, out = tmp_path / "one.jsonl", tmp_path / "cluster.jsonl"
    assert command("sweep", *WORDS, "--out", one).returncode == 0

    class Enough(Exception):
        pass

    def tell(done, all):
        if done >= 20:
            raise Enough

    with pytest.raises(Enough):
        quietmm.sweep(GRID, **FEW, out=out, address=four.address, progress=tell)
    half = lines(out)
    assert 20 <= half < 120
    with pytest.raises(Enough):
        quietmm.sweep(GRID, **FEW, out=out, progress=lambda done, all: tell(done + 1, all))
    assert half < lines(out) < 120
    quietmm.sweep(GRID, **FEW, out=out, address=four.address)
    assert out.read_bytes() == one.read_bytes()


def test_a_hunt_on_the_cluster_is_that_of_one_process(four, tmp_path):
    few = {"seeds": range(1, 5), "schedules": 20, "workloads": ["unmap-storm"], "policies": ["linux"], "scale": 4096, "mutant": "flush-before-unmap-returns"}
    here = quietmm.hunt(["reclaim-unmap", "unmap-write"], **few, out=tmp_path / "one.jsonl", jobs=1)
    there = quietmm.hunt(["reclaim-unmap", "unmap-write"], **few, out=tmp_path / "two.jsonl", address=four.address)
    assert here.findings == there.findings and here.findings
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_what_a_point_raises_on_a_worker_is_raised_here(four, tmp_path):
    with pytest.raises(quietmm.InputError, match="unknown scenario"):
        quietmm.hunt(["reclaim-unmpa"], seeds=range(2), workloads=[], address=four.address)
    with pytest.raises(quietmm.RunError, match="1 of 2 points failed") as raised:
        quietmm.sweep({"threads": [4, 2000]}, "vmap-touch", machine="uma-8", scale=2048, address=four.address)
    assert json.loads(raised.value.result.path.read_text().splitlines()[2])["error"]


def test_a_cluster_far_away_comes_to_the_same_file(four, tmp_path):
    few = {"grid": {"policy": ["linux", "quiet"], "seed": "1..3"}, "workload": "page-alloc", "machine": "uma-8", "cpus": 2, "scale": 2048}
    here = quietmm.sweep(**few, out=tmp_path / "one.jsonl")
    there = quietmm.sweep(**few, out=tmp_path / "two.jsonl", address=four.client)
    assert here.path.read_bytes() == there.path.read_bytes()


def test_a_cluster_that_is_not_there_is_told():
    for address in ("nowhere", "ray://nowhere"):
        with pytest.raises(quietmm.InputError, match=f"no cluster at {address}"):
            quietmm.sweep({"seed": [1, 2]}, **FEW, address=address)


INTERRUPTED = """
import quietmm, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
tell = lambda done, all: done and print("runs", flush=True)
try:
    quietmm.sweep({"seed": "1..5000"}, "unmap-storm", machine="uma-8", scale=512, out=sys.argv[1], address="local", progress=tell)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def test_ctrl_c_ends_a_sweep_on_a_cluster_and_keeps_what_is_done(tmp_path):
    out = tmp_path / "study.jsonl"
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, out], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout.readline() == "runs\n"
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=600)[0]
    assert (child.returncode, said.splitlines()[-1:]) == (0, ["stopped"])
    assert 0 < lines(out) < 5000
