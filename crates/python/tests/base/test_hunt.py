"""Hunts: what is broken is found, told once, by its shortest schedule, and plays again."""

import json

import pytest

import quietmm

SMALL = {"schedules": 10, "workloads": ["unmap-storm"], "policies": ["linux"], "scale": 4096, "seeds": range(1, 4)}
WHERE = ["unmap-write", "reclaim-unmap"]
MUTANT = "flush-before-unmap-returns"


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    return quietmm.hunt(WHERE, mutant=MUTANT, **SMALL, out=folder / "hunt.jsonl", save=folder / "found", jobs=1)


def test_a_rule_that_is_left_out_is_found_by_both_and_each_place_is_told_once(broken):
    assert not broken.ok and (broken.searches, broken.runs) == (11, 3)
    keys = [(one.invariant, one.place) for one in broken.findings]
    assert len(keys) == len(set(keys)) < sum(one.seen for one in broken.findings)
    checked = [one for one in broken.findings if one.file]
    assert any(one.invariant == "INV-1" for one in checked)
    # What the story of a run names; where it names nothing, what was counted.
    assert any(one.invariant == "INV-9" and one.command.startswith("quietmm run unmap-storm") for one in broken.findings)
    (counted,) = quietmm.hunt([], seeds=[1], workloads="revisit", policies="linux", scale=2048, mutant="flush-before-free").findings
    assert counted.invariant.startswith("stale_accesses") and counted.seen == 1
    for one in checked:
        again = quietmm.replay(one.file)
        assert again["as_saved"] and again["invariant"] == one.invariant
        lengths = [each["length"] for line in lines(broken) for each in line["findings"] if (each["invariant"], each["place"]) == (one.invariant, one.place)]
        assert one.length == min(lengths) and one.seen == len(lengths)


def lines(hunt):
    """What its file has."""
    return [json.loads(line) for line in hunt.path.read_text().splitlines()[1:]]


def test_nothing_is_found_where_nothing_is_broken():
    sound = quietmm.hunt(WHERE, **{**SMALL, "seeds": [1]})
    assert sound.ok and sound.findings == () and sound.searches == 5 and sound.schedules >= 2 * 2 * 10


def test_the_file_is_the_same_with_any_number_of_workers_and_after_a_stop(broken, tmp_path):
    out = tmp_path / "hunt.jsonl"
    whole = broken.path.read_bytes()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:4])[:-3])
    again = quietmm.hunt(WHERE, mutant=MUTANT, **SMALL, out=out, jobs=5)
    assert out.read_bytes() == whole
    assert [one.place for one in again.findings] == [one.place for one in broken.findings]
    with pytest.raises(quietmm.InputError, match="another hunt"):
        quietmm.hunt(WHERE, **SMALL, out=out)
    out.write_bytes(b"".join([*whole.splitlines(keepends=True)[:3], b"no line\n"]))
    with pytest.raises(quietmm.InputError, match="line 4 is not as it was written"):
        quietmm.hunt(WHERE, mutant=MUTANT, **SMALL, out=out)
    out.write_bytes(b"".join([*whole.splitlines(keepends=True)[:3], whole.splitlines(keepends=True)[2]]))
    with pytest.raises(quietmm.InputError, match="line 4 is of search 1, which was there before"):
        quietmm.hunt(WHERE, mutant=MUTANT, **SMALL, out=out)
    text = broken.path.read_text()
    assert text.count('"schedules":') == 8
    out.write_text(text.replace('"schedules":', '"schedules":1', 1))
    with pytest.raises(quietmm.InputError, match="line 2 is not as it was written"):
        quietmm.hunt(WHERE, mutant=MUTANT, **SMALL, out=out)
    out.write_text("mine\n")
    with pytest.raises(quietmm.InputError):
        quietmm.hunt(WHERE, **SMALL, out=out)
    assert out.read_text() == "mine\n"


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(quietmm.InputError, match="unknown scenario"):
        quietmm.hunt(["reclaim-unmpa"], **SMALL)
    with pytest.raises(quietmm.InputError, match="nothing to look at"):
        quietmm.hunt([], seeds=range(3), workloads=[])
    with pytest.raises(quietmm.InputError, match="one at least"):
        quietmm.hunt(WHERE, **SMALL, jobs=0)
    with pytest.raises(quietmm.InputError, match="nowhere/hunt.jsonl: No such file"):
        quietmm.hunt(WHERE, **SMALL, out=tmp_path / "nowhere" / "hunt.jsonl")


def test_names_may_be_given_as_the_command_takes_them():
    one = quietmm.hunt("unmap-write,reclaim-unmap", workloads="unmap-storm", policies="linux", seeds=[1], schedules=5, scale=4096)
    assert (one.searches, one.runs) == (5, 1)


def test_what_is_the_same_with_every_seed_is_gone_once():
    few = {"schedules": 5, "workloads": []}
    two, three = (quietmm.hunt(["unmap-write"], seeds=range(many), **few) for many in (2, 3))
    exhaustive = [one["schedules"] for one in lines(three) if "--way=exhaustive" in one["command"]]
    assert len(exhaustive) == 1 and three.searches == 4
    # Another seed adds the schedules of the two random ways, and no others.
    assert three.schedules - two.schedules == 2 * 5
    alone = quietmm.check("unmap-write", schedules=5, ways=["exhaustive"])
    assert alone.coverage[0].schedules == exhaustive[0] == quietmm.check("unmap-write", schedules=5, seed=9, ways="exhaustive").coverage[0].schedules
    whole = quietmm.check("unmap-write", schedules=5)
    assert whole.coverage[0].schedules == exhaustive[0] + 2 * 5
