"""The gate's own rules: what is repeated, what is flaky, what is red."""
import contextlib
import importlib.machinery
import importlib.util
import io
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPTS = Path(__file__).resolve().parent.parent

# Behaves like a test program of three tests: `right` passes, `flaky` fails in its first run, `wrong` fails always.
PROGRAM = r'''#!/usr/bin/env python3
import os, sys
from pathlib import Path
here, ways = Path(__file__).parent, WAYS
exact = sys.argv[sys.argv.index("--exact") + 1] if "--exact" in sys.argv else None
skipped = [sys.argv[at + 1] for at, word in enumerate(sys.argv) if word == "--skip"]
chosen = [name for name in ways if exact in (None, name) and not any(part in name for part in skipped)]
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\n")
failed = []
for name in chosen:
    marker = here / f"ran-{name}"
    if ways[name] == "crash" and not marker.exists():
        marker.touch()
        os.abort()
    if ways[name] == "wrong" or (ways[name] == "flaky" and not marker.exists()):
        failed.append(name)
    marker.touch()
if failed:
    print("\nfailures:\n\n---- stdout ----\nit is so\n\n\nfailures:\n" + "".join(f"    {name}\n" for name in failed))
print(f"test result: x. {len(chosen) - len(failed)} passed; {len(failed)} failed; 0 ignored; 0 measured; 0 filtered out")
sys.exit(101 if failed else 0)
'''


def script(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


class Repeats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.run_tests = script("run-tests")
        # The run that this is a part of may want other tests.
        self.run_tests.CHOICE = []

    def program(self, name, **ways):
        folder = self.folder / name
        folder.mkdir()
        path = folder / name
        path.write_text(PROGRAM.replace("WAYS", repr(ways)))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return self.run_tests.Program(name, str(path), str(folder))

    def outcome(self, *programs):
        """Returns whether the run is green, and the lines that it ends with."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            green = self.run_tests.Suite().run(list(programs))
        return green, printed.getvalue().splitlines()

    def test_a_test_that_passes_alone_is_flaky_and_the_run_is_green(self):
        program = self.program("some", right="right", shaky="flaky")
        green, lines = self.outcome(program)
        self.assertTrue(green)
        self.assertEqual(lines[-2:], ["flaky: some: some::shaky", "2 passed, 0 failed, 0 skipped"])
        calls = (Path(program.folder) / "calls").read_text().splitlines()
        self.assertEqual(calls, ["", "--exact shaky"], "only the failed test runs again")

    def test_a_test_that_fails_again_is_red(self):
        green, lines = self.outcome(self.program("some", right="right", bad="wrong", shaky="flaky"))
        self.assertFalse(green)
        self.assertEqual(
            lines[-3:], ["flaky: some: some::shaky", "FAILED: some: some::bad", "2 passed, 1 failed, 0 skipped"])

    def test_a_program_that_dies_runs_again_as_a_whole(self):
        green, lines = self.outcome(self.program("some", right="right", dies="crash"))
        self.assertTrue(green)
        self.assertEqual(lines[-2:], ["flaky: some: some", "2 passed, 0 failed, 0 skipped"])

    def test_a_program_that_hangs_is_ended_and_is_red(self):
        program = self.program("some", right="right")
        Path(program.path).write_text("#!/bin/sh\nsleep 60\n")
        self.run_tests.PROGRAM_LIMIT_S = 0.2
        green, lines = self.outcome(program)
        self.assertFalse(green)
        self.assertEqual(lines[-2:], ["FAILED: some: some", "0 passed, 1 failed, 0 skipped"])

    def test_tests_that_need_the_machine_run_last_and_once(self):
        self.run_tests.ALONE = {"some": ["herd"]}
        program = self.program("some", right="right", herd="right")
        # The program takes a filter as the real harness does.
        text = Path(program.path).read_text().replace("exact in (None, name)", "(sys.argv[1] == '--skip' or sys.argv[1] in name)")
        Path(program.path).write_text(text)
        green, lines = self.outcome(program)
        self.assertTrue(green)
        self.assertEqual(lines[-1], "2 passed, 0 failed, 0 skipped")
        calls = (Path(program.folder) / "calls").read_text().splitlines()
        self.assertEqual(calls, ["--skip herd", "herd --test-threads=1"])

    def test_suites_of_planes_run_on_kafka_too_where_all_is_wanted(self):
        self.run_tests.CHOICE = ["--include-ignored"]
        self.run_tests.ON_KAFKA = {"some": ["memory"]}
        some, other = self.program("some", right="right"), self.program("other", right="right")
        text = Path(some.path).read_text().replace("import ", "import os; print(os.environ.get('MILLSTREAM_TEST_ENGINE'))\nimport ", 1)
        Path(some.path).write_text(text)
        green, lines = self.outcome(some, other)
        self.assertTrue(green)
        self.assertEqual(lines[-1], "3 passed, 0 failed, 0 skipped")
        self.assertEqual([line for line in lines if line in ("None", "kafka")], ["None", "kafka"])
        calls = (Path(some.folder) / "calls").read_text().splitlines()
        self.assertEqual(calls, ["--include-ignored", "--test-threads=4 --skip memory"])

    def test_a_part_of_a_name_that_no_test_has_is_red(self):
        self.run_tests.ALONE = {"some": ["gone"]}
        program = self.program("some")
        green, lines = self.outcome(program)
        self.assertFalse(green)
        self.assertIn("FAILED: some: some: no test has 'gone' in its name", lines)

    def test_no_more_than_ten_tests_are_repeated(self):
        ways = {f"t{number}": "flaky" for number in range(12)}
        green, lines = self.outcome(self.program("some", **ways))
        self.assertFalse(green)
        self.assertEqual(lines[-1], "10 passed, 2 failed, 0 skipped")


class Browser(unittest.TestCase):
    def test_results_of_vitest_are_summed_with_what_repeats_each_failure(self):
        browser = script("test-browser")
        file = lambda name, status, *tests: {  # noqa: E731
            "name": str(browser.CONSOLE / name), "status": status,
            "assertionResults": [{"fullName": text, "status": each} for text, each in tests]}
        passed, skipped, failed = browser.summed(1, [
            file("a.test.ts", "failed", ("a login (again)", "failed"), ("a page", "passed")),
            file("b.test.ts", "failed", ("never begun", "skipped")),
            file("c.test.ts", "passed", ("a page", "passed"))])
        self.assertEqual((passed, skipped), (2, 1))
        self.assertEqual(failed, {
            "a.test.ts > a login (again)": ["a.test.ts", "-t", r"^a\ login\ \(again\)$"], "b.test.ts": ["b.test.ts"]})
        self.assertEqual(browser.summed(1, [])[2], {"the browser tests as a whole": []})


class Sums(unittest.TestCase):
    def gate(self, *suites):
        """Runs the gate's functions over suites that print what is given; returns its output and whether it is green."""
        text = (SCRIPTS / "test").read_text()
        head, _, rest = text.partition("# -- the suites --\n")
        foot = rest.partition("# -- the sum --\n")[2]
        body = "".join(f"suite s{at} sh -c 'printf \"{printed}\"; exit {status}'\n" for at, (printed, status) in enumerate(suites))
        ended = subprocess.run(
            ["bash", "-c", head + body + foot, str(SCRIPTS / "test")], env={"CARGO_TARGET_DIR": "/nonexistent", "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=False)
        return ended.stdout, ended.returncode == 0

    def test_a_suites_own_sum_outranks_those_of_its_programs(self):
        output, green = self.gate(("test result: F. 3 passed; 1 failed; 0 ignored\\n4 passed, 0 failed, 0 skipped\\n", 0))
        self.assertTrue(green, output)
        self.assertEqual(output.splitlines()[-1], "4 passed, 0 failed, 0 skipped")

    def test_two_flaky_tests_are_named_and_green_and_three_are_red(self):
        two = "flaky: one\\nflaky: two\\n2 passed, 0 failed, 0 skipped\\n"
        output, green = self.gate((two, 0))
        self.assertTrue(green, output)
        self.assertEqual(output.splitlines()[-3:], ["flaky: one", "flaky: two", "2 passed, 0 failed, 0 skipped"])
        output, green = self.gate((two, 0), ("flaky: three\\n1 passed, 0 failed, 0 skipped\\n", 0))
        self.assertFalse(green)
        self.assertEqual(output.splitlines()[-1], "3 passed, 1 failed, 0 skipped")

    def test_a_suite_that_fails_without_a_sum_counts_as_one_failure(self):
        output, green = self.gate(("", 7))
        self.assertFalse(green)
        self.assertEqual(output.splitlines()[-1], "0 passed, 1 failed, 0 skipped")

    def test_files_that_were_green_are_unchanged_until_one_of_them_is_not_or_all_is_wanted(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        head = (SCRIPTS / "test").read_text().partition("# -- the suites --\n")[0].replace('cd "$(dirname "$0")/.."', "")
        ask = "unchanged a && echo same || echo other"
        steps = f"""git init -q . && mkdir a && echo 1 >a/one; {ask}
            digest a >"$CARGO_TARGET_DIR/green"; {ask}
            MILLSTREAM_TEST_ALL=1; {ask}; MILLSTREAM_TEST_ALL=
            echo 2 >a/two; {ask}; rm a/two; {ask}; echo 2 >a/one; {ask}"""
        ended = subprocess.run(
            ["bash", "-c", head + steps], cwd=folder.name, env={"CARGO_TARGET_DIR": folder.name, "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True)
        self.assertEqual(ended.stdout.split(), ["other", "same", "other", "other", "same", "other"], ended.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed, 0 skipped")
    sys.exit(not result.wasSuccessful() or result.testsRun == 0)
