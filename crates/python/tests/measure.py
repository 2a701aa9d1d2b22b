#!/usr/bin/env python3
"""What docs/python.md says of throughput, memory and errors, measured again.

    scripts/python --measure throughput    points a second by workers, against one process
    scripts/python --measure spreading     the same with items that only wait, where workers are more than cores
    scripts/python --measure memory N      a study of N pieces on a cluster of two workers: memory as it goes on
    scripts/python --measure sensitivity [SEEDS [SCALE [NAMES]]]   each cost of the machine a quarter less and more, with error bars over seeds

Without arguments all of them, with 10,000 pieces. Each prints what the document has.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import quietmm
from quietmm import crew

SMALL = {"machine": "uma-8", "workload": "unmap-storm", "scale": 2048}


def cluster(workers):
    """A Ray cluster of one node with so many CPUs, to be shut down."""
    import ray

    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    return ray


def ours():
    """Processes that this one has begun, directly or not, and itself: the words of their /proc/PID/stat from the state on."""
    every = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                every[int(folder.name)] = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue

    def mine(pid):
        while pid in every and pid != os.getpid():
            pid = int(every[pid][1])
        return pid == os.getpid()

    return {pid: words for pid, words in every.items() if mine(pid)}


def cpu():
    """Seconds of CPU time of this process and of all that it has begun and that live."""
    return sum(sum(map(int, words[11:15])) for words in ours().values()) / os.sysconf("SC_CLK_TCK")


def timed(count, **how):
    """Points a second of a study, seconds of CPU time for each, and its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study.jsonl"
        began, before = time.monotonic(), cpu()
        quietmm.sweep({"policy": ["linux", "quiet"], "seed": f"1..{count // 2}"}, **SMALL, out=out, progress=False, **how)
        return count / (time.monotonic() - began), (cpu() - before) / count, out.read_bytes()


def throughput(count="300"):
    """Points a second."""
    count = int(count)
    print(f"{count} points of {SMALL}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n")
    print("| who | workers | points a second | of one process | ms of CPU time a point |\n|---|--:|--:|--:|--:|")
    timed(count // 10, jobs=1)
    one, each, whole = timed(count, jobs=1)

    def row(who, workers, rate, cost, got):
        assert got == whole, "another file"
        print(f"| {who} | {workers} | {rate:.1f} | {rate / one:.2f} | {1000 * cost:.0f} |", flush=True)

    row("threads", 1, one, each, whole)
    for jobs in (2,):
        row("threads", jobs, *timed(count, jobs=jobs))
    for workers in (1, 2, 4):
        ray = cluster(workers)
        # Workers begin, and import.
        timed(8 * workers, address="auto")
        row("Ray", workers, *timed(count, address="auto"))
        ray.shutdown()


class Wait:
    """Items that only wait, so that it is not cores that are measured."""

    def __init__(self, seconds):
        self.seconds = seconds

    def run(self, items, tell=None):
        """Waits."""
        for _ in items:
            time.sleep(self.seconds)
        return [f"{item}\n" for item in items]


def spreading(seconds="0.1"):
    """How much of the workers' time is work, with any number of them: items that wait."""
    seconds = float(seconds)
    print(f"Items of {seconds} s each that only wait, 100 for each worker\n\n| workers | items a second | of what there could be |\n|--:|--:|--:|")
    for workers in (1, 4, 16):
        ray = cluster(workers)
        count, lines = 100 * workers, []
        crew.spread(Wait(seconds), range(2 * workers), crew.crew_at("auto", None), lines.extend)
        lines.clear()
        began = time.monotonic()
        crew.spread(Wait(seconds), range(count), crew.crew_at("auto", None), lines.extend)
        rate = count / (time.monotonic() - began)
        assert sorted(map(int, lines)) == list(range(count))
        print(f"| {workers} | {rate:.1f} | {rate * seconds / workers:.2f} |", flush=True)
        ray.shutdown()


def resident(pid="self"):
    """MiB of a process that no other has."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / 2**20


def workers():
    """MiB of each Ray worker of ours."""
    found = []
    for pid in ours():
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                found.append(resident(pid))
        except OSError:
            continue
    return found


def memory(count="10000"):
    """Memory over many pieces of one point each."""
    count = int(count)
    # Each point is a piece: it is pieces that are counted here.
    crew.MOST = 1
    ray = cluster(2)
    print(f"{count} pieces on 2 workers\n")
    print("| pieces done | this process, MiB | largest worker, MiB | pieces a second |\n|--:|--:|--:|--:|")
    # As the first rows come everything has been loaded.
    marks = [count * nth // 5 for nth in range(1, 6)]
    began, last = time.monotonic(), [0, 0.0]

    def tell(done, all):
        while marks and done >= marks[0]:
            now = time.monotonic() - began
            rate = (done - last[0]) / (now - last[1])
            last[:] = [done, now]
            print(f"| {marks.pop(0)} | {resident():.0f} | {max(workers(), default=0):.0f} | {rate:.0f} |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        grid = {"policy": ["linux", "quiet"], "seed": f"1..{count // 2}"}
        # A point of some milliseconds.
        study = quietmm.sweep(grid, "page-alloc", machine="uma-8", scale=2048, cpus=2, out=Path(folder) / "s.jsonl", address="auto", progress=tell)
        assert sum(1 for _ in study) == count
    ray.shutdown()
    assert not marks, marks


def sensitivity(seeds="5", scale="512", names=""):
    """The gain of batching, with each cost (or those of `names`) a quarter less and more: points added, and the standard error of these over seeds."""
    seeds, names = int(seeds), names.split(",") if names else []
    machine = quietmm.machines()["numa-4x12"]
    policies = ["linux+unmap=per-page", "linux"]
    base = {"policy": policies, "seed": f"1..{seeds}"}

    def gains(study):
        runs = {(one.at["policy"], one.at["seed"]): one.metrics["elapsed_s"] for one in study}
        return [100 * (1 - runs[policies[1], seed] / runs[policies[0], seed]) for seed in range(1, seeds + 1)]

    usual = gains(quietmm.sweep(base, machine="numa-4x12", scale=int(scale), progress=False))
    spread = quietmm.Spread.of(usual)
    print(f"Elapsed gain as shipped: {spread.mean:.2f} ± {spread.error:.2f} %, {seeds} seeds, scale {scale}. Points added to it, and their standard error:\n")
    rows = []
    for cost in machine.constants:
        section, key = cost.key.split(".", 1)
        if section != "cost" or (names and key not in names):
            continue
        # What is counted changes by whole ones.
        whole = cost.unit in ("percent", "pages", "Hz", "cycles", "commands")
        cells = []
        for factor in (0.75, 1.25):
            changed = float(cost.value) * factor
            if whole:
                changed = min(round(changed), 100) if cost.unit == "percent" else round(changed)
            text = f"{changed:.3f}".rstrip("0").rstrip(".") if not whole else str(changed)
            try:
                found = gains(quietmm.sweep(base, machine=machine.but(**{key: text + cost.unit}), scale=int(scale), progress=False))
            except quietmm.QuietmmError as why:
                print(f"{key} = {text}{cost.unit}: {why}", file=sys.stderr)
                continue
            # Seed by seed: what chance does to both is not in it.
            cells.append((text, quietmm.Spread.of([new - old for new, old in zip(found, usual)])))
        if len(cells) == 2:
            rows.append((max(abs(one.mean) for _, one in cells), key, cost, cells))
            print(key, json.dumps([[text, one.mean, one.error] for text, one in cells]), file=sys.stderr, flush=True)
    print("| constant | value | -25 % | +25 % |\n|---|---|---|---|")
    for _, key, cost, cells in sorted(rows, key=lambda row: -row[0]):
        shown = [f"{text}: {one.mean:+.2f} ± {one.error:.2f}" for text, one in cells]
        print(f"| `{key}` | {cost.value} {cost.unit} | {shown[0]} | {shown[1]} |")


WHAT = {"throughput": throughput, "spreading": spreading, "memory": memory, "sensitivity": sensitivity}

if __name__ == "__main__":
    if sys.argv[1:]:
        if sys.argv[1] not in WHAT:
            sys.exit(__doc__)
        WHAT[sys.argv[1]](*sys.argv[2:])
    else:
        for what in WHAT.values():
            what()
            print()
