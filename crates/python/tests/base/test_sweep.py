"""Sweeps: the file of the command, byte for byte, however its points are run; whoever is lost with a piece loses nothing."""

import json

import pytest

import quietmm
from quietmm import _quietmm, crew
from quietmm.sweeping import SweepJob, _grid

GRID = {"policy": ["linux", quietmm.policy("linux", free="sweep"), "quiet"], "seed": range(1, 4)}
WORDS = ("page-alloc", "--vary=policy=linux,linux+free=sweep,quiet", "--vary=seed=1..3", "--machine=uma-8", "--cpus=2", "--scale=2048")
FEW = {"workload": "page-alloc", "machine": "uma-8", "cpus": 2, "scale": 2048}


@pytest.fixture(scope="module")
def by_command(command, tmp_path_factory):
    """The file of the command."""
    out = tmp_path_factory.mktemp("command") / "study.jsonl"
    assert command("sweep", *WORDS, "--out", out, "--jobs", 1).returncode == 0
    return out


def test_a_sweep_is_the_commands_file_byte_for_byte(by_command, tmp_path):
    out = tmp_path / "study.jsonl"
    told = []
    study = quietmm.sweep(GRID, **FEW, out=out, csv=tmp_path / "a.csv", progress=lambda *far: told.append(far))
    assert out.read_bytes() == by_command.read_bytes()
    assert told[-1] == (9.0, 9.0) and (tmp_path / "a.csv").read_text().count("\n") == 10
    assert len(study) == 9 == len(list(study)) and study.axes["seed"] == [1, 2, 3]
    spread = study.spread("elapsed_s", "policy")
    assert list(spread) == [("linux",), ("linux+free=sweep",), ("quiet",)] and spread["quiet",].count == 3
    gain = study.gain("elapsed_s", "policy")
    means = {at[0]: one.mean for at, one in spread.items()}
    assert gain["quiet",].mean == pytest.approx(100 * (1 - means["quiet"] / means["linux"]), abs=0.5)
    assert quietmm.study(by_command).header == study.header
    for wrong in (lambda: study.spread("elapsed"), lambda: study.spread("elapsed_s", "cpus"), lambda: study.gain("elapsed_s", "machine")):
        with pytest.raises(quietmm.InputError, match="unknown figure|is not varied; axes are policy, seed"):
            wrong()
    other = quietmm.sweep({**GRID, "seed": "2..4"}, **FEW)
    assert other.path.read_bytes() != out.read_bytes(), "the comparison can fail"


def test_a_file_that_is_cut_is_gone_on_with(by_command, tmp_path):
    out = tmp_path / "study.jsonl"
    lines = by_command.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:7])[:-7])
    quietmm.sweep(GRID, **FEW, out=out)
    assert out.read_bytes() == by_command.read_bytes()
    with pytest.raises(quietmm.InputError, match="another sweep is in it"):
        quietmm.sweep({"seed": "1..3"}, **FEW, out=out)


def test_a_file_that_is_broken_is_told_by_its_line(by_command, tmp_path):
    lines, out = by_command.read_bytes().splitlines(keepends=True), tmp_path / "study.jsonl"
    said = "line 3 is not as it was written; take the line out, and its point is run again"
    out.write_bytes(b"".join([*lines[:2], lines[2][:40] + b"#" + lines[2][40:], *lines[3:]]))
    with pytest.raises(quietmm.InputError, match=said):
        list(quietmm.study(out))
    with pytest.raises(quietmm.InputError, match=said):
        quietmm.sweep(GRID, **FEW, out=out)
    for text, why in ((b"", "no file of a sweep"), (b"[]\n", "no file of a sweep"), (b"\xff\n", "no file of a sweep"), (b'{"sweep":1}\n', "damaged")):
        out.write_bytes(text)
        with pytest.raises(quietmm.InputError, match=why):
            quietmm.study(out)


def digits(line):
    """The line, with one of its digits another: each in turn, but for some of many."""
    places = [nth for nth, byte in enumerate(line) if chr(byte).isdigit()]
    for nth in places[:: max(1, len(places) // 40)]:
        yield line[:nth] + bytes([ord("0") + (line[nth] - ord("0") + 1) % 10]) + line[nth + 1 :]


def test_a_digit_that_is_changed_is_noticed_by_whoever_reads(by_command, tmp_path):
    head, *lines = by_command.read_bytes().splitlines(keepends=True)
    out = tmp_path / "study.jsonl"
    out.write_bytes(head + lines[4])
    assert [one.point for one in quietmm.study(out)] == [4], "as it is it can be read"
    for changed in digits(lines[4]):
        out.write_bytes(head + changed)
        with pytest.raises(quietmm.InputError, match="line 2 is"):
            list(quietmm.study(out))
    for changed in digits(head):
        out.write_bytes(changed + lines[4])
        with pytest.raises(quietmm.InputError, match="it is of form 2|its first line is damaged"):
            quietmm.study(out)
    # A line that is whole, and in another file.
    other = quietmm.sweep({"seed": range(1, 6)}, **FEW)
    out.write_bytes(other.path.read_bytes().splitlines(keepends=True)[0] + lines[4])
    with pytest.raises(quietmm.InputError, match="line 2 is of point 4, which is at seed=5"):
        list(quietmm.study(out))


def test_a_shard_has_the_points_of_its_part(by_command):
    shards = [quietmm.sweep(GRID, **FEW, shard=f"{nth}/2") for nth in (1, 2)]
    assert sorted(map(len, shards)) == [4, 5]
    points = [[one.point for one in shard] for shard in shards]
    assert [len(part) for part in points] == [len(shard) for shard in shards]
    assert sorted(points[0] + points[1]) == list(range(len(quietmm.study(by_command))))


def test_points_that_fail_are_told_at_the_end_and_the_study_is_there():
    with pytest.raises(quietmm.RunError, match="1 of 2 points failed") as raised:
        quietmm.sweep({"threads": [4, 2000]}, "vmap-touch", machine="uma-8", scale=2048)
    good, bad = raised.value.result
    assert good.metrics and "2000" in bad.error


class Mortals(crew.Threads):
    """Of their pieces some are lost: those for which `dies` says so, by how many were handed out before."""

    def __init__(self, dies, size=2):
        super().__init__(size)
        self.dies, self.begun, self.most, self.lost, self.under_way = dies, 0, 0, set(), 0

    def begin(self, job, items):
        one = super().begin(job, items)
        if self.dies(self.begun, list(items)):
            self.lost.add(one)
        self.begun += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return one

    def result(self, piece):
        self.under_way -= 1
        if piece in self.lost:
            raise crew.Lost("its machine went")
        return super().result(piece)


def spread(out, crew_):
    """What a cluster does, by this crew."""
    file = _quietmm.Sweep([*WORDS, f"--out={out}"], True)
    try:
        crew.spread(SweepJob(WORDS, _grid(WORDS).header), file.missing(), crew_, file.take)
        return file.conclude()
    finally:
        file.close()


@pytest.mark.parametrize("size", [1, 5])
def test_pieces_that_are_lost_are_run_again_and_the_file_is_the_same(by_command, tmp_path, size):
    out = tmp_path / "study.jsonl"
    mortals = Mortals(lambda nth, items: nth % 3 == 1, size)
    assert spread(out, mortals)[0] == 0
    assert out.read_bytes() == by_command.read_bytes()
    assert mortals.lost and mortals.most <= crew.AHEAD * size, "a bounded number is under way"


def test_a_point_that_kills_whoever_runs_it_is_named_and_the_others_are_kept(by_command, tmp_path):
    out = tmp_path / "study.jsonl"
    with pytest.raises(quietmm.RunError, match="item 5 was lost 5 times"):
        spread(out, Mortals(lambda nth, items: 5 in items))
    assert out.read_text().count("\n") > 3
    assert spread(out, Mortals(lambda nth, items: False))[0] == 0, "nobody holds the file"
    assert out.read_bytes() == by_command.read_bytes()


def test_threads_are_not_asked_of_a_cluster():
    with pytest.raises(quietmm.InputError, match="jobs=3 is for this machine"):
        quietmm.sweep(GRID, **FEW, address="auto", jobs=3)


def test_a_worker_of_another_build_is_refused():
    header = json.loads(_grid(WORDS).header)
    job = SweepJob(WORDS, json.dumps({**header, "revision": "of last week"}))
    with pytest.raises(quietmm.InputError, match="the same build.*of last week"):
        job.run([0])


def test_a_line_that_is_not_as_it_was_written_is_not_taken(tmp_path):
    file = _quietmm.Sweep([*WORDS, f"--out={tmp_path / 'study.jsonl'}"], True)
    line = SweepJob(WORDS, file.header).run([3])[0]
    with pytest.raises(_quietmm.Failed):
        file.take([line.replace("elapsed", "elapsde", 1)])
    assert (file.take([line, line]), file.counts) == (1, (9, 1))
