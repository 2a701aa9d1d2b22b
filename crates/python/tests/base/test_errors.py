"""Errors are exceptions with the text of the command line; Ctrl-C works."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

import quietmm


@pytest.mark.parametrize("call, words", [
    (lambda: quietmm.run("lru-file-mmap-raed"), ["run", "lru-file-mmap-raed"]),
    (lambda: quietmm.run(policy="linux+unmap=never"), ["run", "lru-file-mmap-read", "--policy", "linux+unmap=never"]),
    (lambda: quietmm.run(machine="nowhere.toml"), ["run", "lru-file-mmap-read", "--machine", "nowhere.toml"]),
    (lambda: quietmm.run(sets={"ipi_send": "2parsecs"}), ["run", "lru-file-mmap-read", "--set", "ipi_send=2parsecs"]),
    (lambda: quietmm.compare(cpus=5000), ["compare", "lru-file-mmap-read", "--cpus=5000"]),
    (lambda: quietmm.run(seed=-1), ["run", "lru-file-mmap-read", "--seed=-1"]),
    (lambda: quietmm.run("--help-me"), ["run", "--help-me"]),
    (lambda: quietmm.check("reclaim-unmpa"), ["check", "reclaim-unmpa"]),
    (lambda: quietmm.sweep({"cpus": "8..1"}), ["sweep", "--vary", "cpus=8..1"]),
    (lambda: quietmm.sweep({}), ["sweep"]),
    (lambda: quietmm.machine("uma-88"), ["list", "--machine", "uma-88"]),
    (lambda: quietmm.policy("linxu"), ["run", "lru-file-mmap-read", "--policy", "linxu"]),
    (lambda: quietmm.compare(policies="linux,quite"), ["compare", "--policies", "linux,quite"]),
    (lambda: quietmm.sweep({"seed": range(10**9)}), ["sweep", "--vary", f"seed=0..{10**9 - 1}:+1"]),
])
def test_what_cannot_be_raises_what_the_command_says(command, call, words):
    with pytest.raises(quietmm.InputError) as raised:
        call()
    assert str(raised.value) == command.complaint(*words)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, quietmm.QuietmmError)


def test_a_run_that_fails_raises_what_the_command_says(command):
    # No machine is so small.
    words = ["run", "lru-file-mmap-read", "--machine", "uma-8", "--set", "memory=1MiB"]
    with pytest.raises(quietmm.QuietmmError) as raised:
        quietmm.run(machine="uma-8", sets={"memory": "1MiB"})
    assert str(raised.value) == command.complaint(*words)


def test_a_machine_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(KeyError, match="unknown machine 'uma-88'; there are numa-4x12, uma-8"):
        quietmm.machines()["uma-88"]
    assert "uma-88" not in quietmm.machines()


@pytest.mark.parametrize("call, says", [
    (lambda: quietmm.compare(policies=[]), "no policies; one at least"),
    (lambda: quietmm.figure("elapsed"), "unknown figure 'elapsed'; did you mean elapsed_s"),
    (lambda: quietmm.figure("xyzzy"), "unknown figure 'xyzzy'; those of a run are in its metrics"),
])
def test_what_only_python_can_ask_wrongly_is_told(call, says):
    with pytest.raises(quietmm.InputError, match=says):
        call()


def test_an_error_survives_a_process_border():
    error = pickle.loads(pickle.dumps(quietmm.RunError("why", 3)))
    assert str(error) == "why"
    assert isinstance(pickle.loads(pickle.dumps(quietmm.InputError("why"))), quietmm.InputError)


def test_harm_with_a_rule_left_out_is_what_was_asked_for():
    result = quietmm.run("unmap-storm", machine="uma-8", scale=2048, broken="flush-before-unmap-returns")
    assert result.metrics["stale_accesses"] > 0 and result.run.stories


class Enough(Exception):
    pass


def test_what_a_listener_raises_ends_the_run_at_once():
    def tell(done, all):
        raise Enough

    began = time.process_time()
    with pytest.raises(Enough):
        quietmm.run(machine="uma-8", scale=1, progress=tell)
    assert time.process_time() - began < 20, "it ran to its end, which takes minutes of CPU time"


LONG = """
import quietmm, signal
# Whoever begins tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
tell = lambda done, all: print("runs", flush=True)
try:
    quietmm.%s
except KeyboardInterrupt:
    # The next call is not stopped by what stopped the last.
    print("stopped", quietmm.run("unmap-storm", machine="uma-8", scale=2048).metrics["elapsed_s"] > 0, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("call", [
    "run(machine='uma-8', scale=1, progress=tell)",
    "check(schedules=100_000_000, progress=tell)",
    "sweep({'seed': range(1000)}, machine='uma-8', scale=64, progress=tell)",
    "hunt(seeds=range(1000), schedules=1_000_000, progress=tell)",
])
def test_ctrl_c_ends_the_call_and_not_the_interpreter(call):
    child = subprocess.Popen([sys.executable, "-c", LONG % call], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "runs\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert (child.returncode, out.splitlines()[-1:], err) == (0, ["stopped True"], "")
