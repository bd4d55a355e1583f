/** A real browser with one page of the console, which fails its test when the page reports an error. */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { extname, join } from "node:path";
import type { AxeResults } from "axe-core";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { expect } from "vitest";
import type { Server } from "./server";

export async function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}

/** Until `read` gives what is expected; a limit ends the wait of a test that would fail. */
export async function eventually<T>(read: () => Promise<T>, expected: T): Promise<void> {
  await expect.poll(read, { timeout: 100_000, interval: 100 }).toEqual(expected);
}

/** Opens a path of the console and waits until it shows that the server is there. */
export async function openPage(page: Page, server: Server, path: string): Promise<void> {
  await page.goto(server.url + path);
  await page.getByRole("status", { name: "Server: Live" }).waitFor();
}

export interface Look {
  width?: number;
  height?: number;
  scheme?: "light" | "dark";
}

/**
 * Opens a page for `act` and closes it. Whatever the page throws fails the test; failed requests do not, because some
 * tests cause them.
 */
export async function withPage(browser: Browser, look: Look, act: (page: Page) => Promise<void>): Promise<void> {
  const context = await browser.newContext({
    viewport: { width: look.width ?? 1280, height: look.height ?? 800 },
    colorScheme: look.scheme ?? "light",
  });
  try {
    if (DIST !== undefined) await serveFrom(context, DIST);
    // What never comes ends with the test, and not before.
    context.setDefaultTimeout(100_000);
    const page = await context.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(error.message));
    await act(page);
    if (thrown.length > 0) throw new Error(`the page threw: ${thrown.join("; ")}`);
  } finally {
    await context.close();
  }
}

/** Where the console under test lies built; without it, the one in the server's binary is tested. */
const DIST = process.env.CONSOLE_DIST;

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
};

/** Answers the console's own files from `dist`, all else from the server. */
async function serveFrom(context: BrowserContext, dist: string): Promise<void> {
  await context.route(
    /^[^?#]*:\d+\/(?:devices|entities|topics|query|jobs|store|icon\.svg|assets\/[^/]+)?(?:[?#]|$)/,
    async (route) => {
      const path = new URL(route.request().url()).pathname;
      const name = extname(path) === "" ? "index.html" : path.slice(1);
      const contentType = MEDIA_TYPES[extname(name)] ?? "application/octet-stream";
      await route.fulfill({ contentType, body: await readFile(join(dist, name)) });
    },
  );
}

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** What axe finds wrong with the page for people who cannot see or point: one line a rule, with the first place. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  await page.addScriptTag({ path: AXE });
  const results = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run: () => Promise<AxeResults> } }).axe.run(),
  );
  return results.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0]?.html ?? ""}`);
}
