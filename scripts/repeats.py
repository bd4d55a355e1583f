"""Failed tests run once more, alone: those that pass are flaky, and the run stays green.

Load makes tests fail that are right, and a test that fails alone is wrong. `scripts/test` allows two flaky tests a run.
"""

# More than these say that something is broken; the run is red whatever a repeat says.
REPEATS_MAX = 10


def once_more(failed, run_alone):
    """Calls `run_alone(name)` for each failed test; it returns whether the test passes now. Returns (flaky, failed)."""
    flaky, still = [], list(failed[REPEATS_MAX:])
    for name in failed[:REPEATS_MAX]:
        (flaky if run_alone(name) else still).append(name)
    return flaky, still


def report(passed, failed, flaky, skipped):
    """Prints the names of flaky and failed tests, then the sum in the form that `scripts/test` reads."""
    for name in flaky:
        print(f"flaky: {name}")
    for name in failed:
        print(f"FAILED: {name}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped", flush=True)
