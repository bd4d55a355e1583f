/** The last line of a run, in the form that a script can add up: `N passed, N failed, N skipped`. */
import type { Reporter, TestModule } from "vitest/node";

export default class Sum implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const count = { passed: 0, failed: 0, skipped: 0 };
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const state = test.result().state;
        if (state === "pending") continue;
        count[state] += 1;
      }
      // A file that could not even be collected has no tests to count, and must not look like success.
      if (module.errors().length > 0) count.failed += 1;
    }
    process.stdout.write(`\n${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped\n`);
  }
}
