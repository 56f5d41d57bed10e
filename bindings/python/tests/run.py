# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder, or those that are named, and says in TAP what came of each.

    run.py [NAME...]    where NAME is test_lock, test_lock.Locks, ...

$VERBENA_LIBRARY is the library, $VERBENA_CC the C compiler with which the headers are read.
"""

import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))


class Tap(unittest.TestResult):
    def say(self, good, test, more=""):
        print(f"{'ok' if good else 'not ok'} {self.testsRun} - {test.id().split('.', 1)[1]}{more}")
        sys.stdout.flush()

    def addSuccess(self, test):
        self.say(True, test)

    def addSkip(self, test, reason):
        self.say(True, test, f" # SKIP {reason}")

    def addError(self, test, error):
        super().addError(test, error)
        self.fail(test, self.errors[-1][1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.fail(test, self.failures[-1][1])

    def fail(self, test, why):
        self.say(False, test)
        print("".join(f"# {line}\n" for line in why.splitlines()), end="")


def main(names):
    # Who forgets to close something has not tested that it closes.
    warnings.simplefilter("error")
    # The library's threads know of forks; Python from 3.12 on cannot know that.
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    loader = unittest.TestLoader()
    if names:
        suite = loader.loadTestsFromNames(names)
    else:
        suite = loader.discover(os.path.dirname(__file__))
    print(f"1..{suite.countTestCases()}")
    result = suite.run(Tap())
    return not result.wasSuccessful() or result.testsRun == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
