# SPDX-License-Identifier: Apache-2.0
"""The programs of doc/python.md and of the package's own text run as they stand, and so do the
examples."""

import io
import os
import re
import subprocess
import sys
import textwrap
import unittest
from contextlib import redirect_stdout

import verbena

TOP = os.path.join(os.path.dirname(__file__), "../../..")


def run(program):
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(program, "page", "exec"), {})
    return said.getvalue()


class Page(unittest.TestCase):
    def test_programs(self):
        with open(os.path.join(TOP, "doc/python.md"), encoding="utf-8") as file:
            programs = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        said = [run(program) for program in programs]
        self.assertEqual(
            said,
            [
                "lock 42 is ours; its fencing token is 1\n",
                "90 110\n",
                "['orders/7']\n",
                "[0, 1, 2]\n",
                "[('ERROR', 'fabric')]\n",
            ],
        )

    def test_own_text(self):
        program = textwrap.dedent(re.search(r"\n\n((    .*\n|\n)+)", verbena.__doc__).group(1))
        self.assertEqual(run(program), "lock 42 is ours; its fencing token is 1\n")


class Examples(unittest.TestCase):
    def example(self, name, *arguments):
        package = os.path.dirname(os.path.dirname(verbena.__file__))
        return subprocess.run(
            [sys.executable, os.path.join(TOP, "examples", name), *arguments],
            env={**os.environ, "PYTHONPATH": package},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def test_sessions(self):
        done = self.example("sessions.py")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, "^100 sessions of one thread waited at a time")

    def test_two_processes(self):
        done = self.example("bank.py", "wound-wait")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^wound-wait: .*\b[1-9]\d+ commits")

    def test_no_protocol(self):
        done = self.example("bank.py", "nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Invalid", done.stderr)
