import { defineConfig } from "vitest/config";

// The server that the development pages talk to; the built console always talks to its own origin.
const server = process.env.MILLSTREAM_URL ?? "http://127.0.0.1:8000";

export default defineConfig({
  // Files are found beside the page, wherever a reverse proxy puts it.
  base: "./",
  build: {
    target: "es2022",
    // Every asset stays a file of its own: the server sends no `data:` addresses past a strict content policy.
    assetsInlineLimit: 0,
  },
  server: {
    proxy: Object.fromEntries(
      ["/stats", "/v1", "/v2", "/ngsi-ld", "/api", "/kv", "/buckets"].map((path) => [path, server]),
    ),
  },
  test: {
    include: ["src/**/*.test.ts"],
    reporters: ["default", "./tests/sum.ts"],
  },
});
