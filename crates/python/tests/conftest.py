"""The command that the package must agree with: $QUIETMM, of the same build."""

import json
import os
import subprocess

import pytest


class Command:
    """The command `quietmm`."""

    def __init__(self, path):
        self.path = path

    def __call__(self, *words):
        return subprocess.run([self.path, *map(str, words)], capture_output=True, text=True, check=False)

    def json(self, *words):
        """What it prints as JSON."""
        done = self(*words, "--json")
        assert done.stderr == "" and done.stdout, done.stderr
        return json.loads(done.stdout)

    def complaint(self, *words):
        """What it says on standard error, without its name."""
        done = self(*words)
        assert done.returncode != 0
        return "\n".join(line.removeprefix("quietmm: ") for line in done.stderr.splitlines())


@pytest.fixture(scope="session")
def command():
    return Command(os.environ["QUIETMM"])
