"""What needs other packages: frames, pictures, bars, the notebook."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import nbclient
import nbformat
import pytest

import quietmm

matplotlib.use("Agg")
NOTEBOOK = Path(__file__).parents[4] / "examples" / "python" / "published.ipynb"


@pytest.fixture(scope="module")
def comparison():
    return quietmm.compare("unmap-storm", ["linux", "quiet"], machine="uma-8", scale=2048, runs=2)


@pytest.fixture(scope="module")
def study():
    return quietmm.sweep({"cpus": "1..8", "policy": ["linux", "quiet"], "seed": [1, 2]}, "unmap-storm", machine="uma-8", scale=2048)


def test_frames_have_every_figure_of_every_run(comparison, study):
    for result in (comparison, study):
        rows = result.rows()
        pandas, polars = result.to_pandas(), result.to_polars()
        assert len(rows) == len(pandas) == polars.height
        assert list(pandas.columns) == polars.columns
        # A figure that a run does not have is missing, not zero.
        assert pandas["elapsed_s"].tolist() == polars["elapsed_s"].to_list() == [row["elapsed_s"] for row in rows]
    means = study.to_pandas().groupby(["cpus", "policy"])["elapsed_s"].mean()
    for at, spread in study.spread("elapsed_s", "cpus", "policy").items():
        assert means[at] == pytest.approx(spread.mean)


def test_pictures_have_units_and_error_bars(comparison, study):
    bars = comparison.plot("elapsed_s")
    assert bars.get_xlabel() == "elapsed, s" and len(bars.patches) == 2
    curves = study.plot("elapsed_s")
    assert (curves.get_xlabel(), curves.get_ylabel()) == ("cpus", "elapsed, s")
    lines = {one.get_label(): one.lines[0].get_xdata().tolist() for one in curves.containers}
    assert lines == {"linux": [1, 2, 4, 8], "quiet": [1, 2, 4, 8]}
    assert study.plot("ipis_received", x="cpus", by="policy", ax=bars) is bars


def test_a_bar_is_drawn_where_somebody_looks_and_nowhere_else():
    code = "import quietmm; quietmm.run('unmap-storm', machine='uma-8', scale=256, progress=%s)"
    drawn, silent = (subprocess.run([sys.executable, "-c", code % how], capture_output=True, text=True, check=True) for how in (True, None))
    assert "of 1 runs" in drawn.stderr and (silent.stderr, silent.stdout) == ("", "")


def test_the_notebook_runs_and_has_the_commands_figures(command):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    os.environ["QUIETMM_SCALE"], os.environ["QUIETMM_SEEDS"] = "2048", "2"
    # In another place: it needs nothing of the repository.
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": "/"}}).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    there = command.json("compare", "lru-file-mmap-read", "--policies", "linux+unmap=per-page,linux,quiet", "--scale", 2048, "--runs", 2)[0]
    before, after = (one["metrics"]["elapsed_s"]["mean"] for one in there["summary"][:2])
    assert f"gain of linux: {100 * (1 - after / before):.2f} %" in said
