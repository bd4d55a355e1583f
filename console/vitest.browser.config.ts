import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/browser/**/*.test.ts"],
    reporters: ["default", "./tests/sum.ts"],
    // One browser and one server at a time: the machine that runs this is small.
    fileParallelism: false,
    // Only what would fail waits as long: every wait is for a condition.
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
