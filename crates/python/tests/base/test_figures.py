"""The same figures as the command's, to the last bit."""

import doctest
import json
import subprocess
import sys
import threading
import time

import pytest

import quietmm

SMALL = {"machine": "uma-8", "scale": 2048}
FLAGS = ["--machine", "uma-8", "--scale", "2048"]


def test_compare_is_the_command_to_the_last_bit(command):
    there = command.json("compare", "lru-file-mmap-read", *FLAGS, "--cpus", 4, "--policies", "linux+unmap=per-page,linux,quiet", "--runs", 2)
    here = quietmm.compare(**SMALL, cpus=4, runs=2, jobs=1)
    assert here.json == there[0]
    assert here.policies == ("linux+unmap=per-page", "linux", "quiet")
    assert [run.metrics for run in here.runs] == [run["metrics"] for run in there[0]["runs"]]
    other = quietmm.run(policy=here.policies[0], **SMALL, cpus=4, seed=3)
    assert other.metrics != here.runs[0].metrics, "another seed comes to other figures: the comparison can fail"
    # What the command sums up is summed up alike.
    for summary in there[0]["summary"]:
        spread = here["elapsed_s"][summary["policy"]]
        assert spread.mean == pytest.approx(summary["metrics"]["elapsed_s"]["mean"], rel=1e-12)
        assert spread.stddev == pytest.approx(summary["metrics"]["elapsed_s"]["stddev"], rel=1e-9)


def test_a_run_has_what_the_command_has_and_repeats_by_its_command_line(command):
    here = quietmm.run("unmap-storm", quietmm.policy("linux", free="sweep"), **SMALL, sets={"ipi_send": "2us"}, cpus=4, profile=True)
    words = here.command.split()[1:]
    assert "--set" in words and "linux+free=sweep" in words
    assert here.json == command.json(*words, "--profile")[0]
    assert here.run["elapsed_s"] == here.metrics["elapsed_s"] > 0
    assert here.run.latency["unmap"]["all"]["p99"] > 0
    assert quietmm.figure("elapsed_s").unit == "s"


def test_machines_and_policies_are_objects_with_their_sources(command):
    listed = command.json("list")
    assert list(quietmm.machines()) == [one["name"] for one in listed["machines"]]
    assert list(quietmm.workloads()) == [one["name"] for one in listed["workloads"]]
    assert list(quietmm.policies()) == [one["name"] for one in listed["policies"]["bundles"]]
    assert list(quietmm.mechanisms()) == [one["name"] for one in listed["policies"]["mechanisms"]]
    machine = quietmm.machines()["numa-4x12"]
    assert (machine.cpus, machine["ipi_send"].unit) == (48, "ns") and machine["ipi_send"].source
    assert [vars(one) for one in machine.constants] == command.json("list", "--machine", "numa-4x12")["constants"]
    changed = quietmm.machines()["uma-8"].but(ipi_send="5us")
    slow, usual = (quietmm.run("unmap-storm", machine=one, scale=2048)["elapsed_s"]["linux"] for one in (changed, "uma-8"))
    assert slow.mean > usual.mean
    assert quietmm.policy("linux").but(unmap="per-page").name == "linux+unmap=per-page"


def test_a_check_is_the_commands(command, tmp_path):
    words = ["check", "reclaim-unmap", "--schedules", 50]
    assert quietmm.check("reclaim-unmap", schedules=50).json == command.json(*words)
    other = quietmm.check("unmap-lazy", schedules=20, architecture="riscv-sv48")
    assert other.ok and other.coverage[0].architecture == "riscv-sv48"
    found = quietmm.check("reclaim-unmap", schedules=50, mutant="flush-before-free", save=tmp_path)
    assert found.json == command.json(*words, "--mutant", "flush-before-free", "--save", tmp_path)
    assert found.ok and found.violations[0].invariant == "INV-1"
    assert quietmm.replay(found.violations[0].file)["as_saved"]


def test_whoever_waits_lets_others_run_and_hears_how_far_it_is():
    turns, over = [0], threading.Event()

    def count():
        while not over.is_set():
            turns[0] += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    try:
        # Again if a busy host has had time for one of the two only.
        for _ in range(20):
            before, told = turns[0], []
            quietmm.compare(machine="uma-8", scale=1024, jobs=1, progress=lambda done, all: told.append((done, all)))
            gone_on = turns[0] - before
            assert told == sorted(told) and told[-1] == (3.0, 3.0)
            if gone_on > 100 and len(told) > 3:
                break
    finally:
        over.set()
        other.join()
    assert gone_on > 100, "the interpreter's lock was kept"
    assert len(told) > 3


def test_two_calls_side_by_side_do_not_hear_each_other():
    results = {}

    def call(seed):
        results[seed] = quietmm.run("unmap-storm", **SMALL, seed=seed).run

    threads = [threading.Thread(target=call, args=(seed,)) for seed in (1, 2, 3)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert results == {seed: quietmm.run("unmap-storm", **SMALL, seed=seed).run for seed in (1, 2, 3)}


def test_importing_costs_no_other_package_and_prints_nothing():
    code = "import sys, quietmm; print(json.dumps(sorted({'pandas', 'polars', 'matplotlib', 'ray', 'tqdm'} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", "import json; " + code], capture_output=True, text=True, check=True)
    assert (json.loads(done.stdout), done.stderr) == ([], "")


def test_the_example_in_the_documentation_does_what_it_says():
    assert doctest.testmod(quietmm)[:] == (0, 2)
