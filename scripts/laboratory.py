"""What scripts that repeat measurements have in common: which binary, what it printed as JSON, tables, sections."""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
BINARY = os.environ.get("QUIETMM", os.path.join(TARGET, "release", "quietmm"))
HARM = ("stale_accesses", "lost_writes", "wrong_contents")


def studies(*words):
    """What `quietmm WORDS --json` prints: an element for each workload."""
    done = subprocess.run([BINARY, *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"quietmm {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def all_runs(*words):
    """For each policy the metrics of its runs, in the order of their seeds. Nothing may be stale, lost or wrong."""
    found = {}
    for run in studies(*words)[0]["runs"]:
        harm = [name for name in HARM if run["metrics"].get(name)]
        if harm:
            sys.exit(f"quietmm {' '.join(words)}: {', '.join(harm)}")
        found.setdefault(run["policy"], []).append(run["metrics"])
    return found


def runs(*words):
    """For each policy the metrics of its first run."""
    return {policy: each[0] for policy, each in all_runs(*words).items()}


def head(*titles):
    """Begins a table. Titles with ':' in front are of columns of numbers."""
    print("\n| " + " | ".join(title.lstrip(":") for title in titles) + " |")
    print("|" + "|".join("--:" if title.startswith(":") else "---" for title in titles) + "|", flush=True)


def row(*cells):
    """A row of a table, as soon as it is there."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main(doc, sections, *arguments):
    """Runs the sections that were asked for, or all. `arguments` are more options, for all sections: name and help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(sections))
    for name, text in arguments:
        parser.add_argument(name, metavar="FILE", help=text)
    given = vars(parser.parse_args())
    wanted = given.pop("sections") or list(sections)
    unknown = [name for name in wanted if name not in sections]
    if unknown:
        parser.error(f"no section {unknown[0]}: {' '.join(sections)}")
    if not os.access(BINARY, os.X_OK):
        sys.exit(f"{BINARY} is missing: make build")
    for name in wanted:
        sections[name](*given.values())


def named(*functions):
    """Sections by the names of their functions."""
    return {function.__name__: function for function in functions}
