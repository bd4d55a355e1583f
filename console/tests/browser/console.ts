/** A real browser with one page of the console, which fails its test when the page reports an error. */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { extname, join } from "node:path";
import type { AxeResults } from "axe-core";
import { type Browser, type BrowserContext, chromium, type Page, type Request } from "playwright-core";
import { expect } from "vitest";
import { CALLBACK_PATH } from "../../src/api/oidc";
import { PAGES } from "../../src/route";
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

/** Counts the page's requests of a path that have ended, answered or not. */
export function countEnded(page: Page, path: string): () => number {
  let ended = 0;
  const count = (request: Request): void => {
    if (new URL(request.url()).pathname === path) ended += 1;
  };
  page.on("requestfinished", count).on("requestfailed", count);
  return () => ended;
}

/** Until the page has drawn what it has been answered. */
export async function drawn(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

export interface Look {
  width?: number;
  height?: number;
  scheme?: "light" | "dark";
  /** The origins that the console may ask beside its own. */
  asks?: readonly string[];
}

/**
 * Opens a page for `act` and closes it. Whatever the page throws fails the test, and so do requests to other servers and
 * what the content security policy refuses; failed requests do not, because some tests cause them.
 */
export async function withPage(browser: Browser, look: Look, act: (page: Page) => Promise<void>): Promise<void> {
  const context = await browser.newContext({
    viewport: { width: look.width ?? 1280, height: look.height ?? 800 },
    colorScheme: look.scheme ?? "light",
    // Halfway through an animation, colours and places are none that a person reads.
    reducedMotion: "reduce",
  });
  try {
    if (DIST !== undefined) await serveFrom(context, DIST);
    // What never comes ends with the test, and not before.
    context.setDefaultTimeout(100_000);
    const page = await context.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(error.message));
    page.on("console", (message) => {
      if (message.text().includes("Content Security Policy")) thrown.push(message.text());
    });
    const allowed = new Set(look.asks);
    let home: string | null = null;
    page.on("request", (request) => {
      const { origin, protocol } = new URL(request.url());
      // The first page that is opened is one of the console.
      home ??= origin;
      if (new URL(page.url()).origin !== home || request.isNavigationRequest() || protocol === "blob:") return;
      if (origin !== home && !allowed.has(origin)) thrown.push(`asked ${request.url()}`);
    });
    await act(page);
    if (thrown.length > 0) throw new Error(`the page threw: ${thrown.join("; ")}`);
  } finally {
    await context.close();
  }
}

/** A path at which there is no page. */
export const NO_PAGE = "/nonexist";

/** Where the console under test lies built; without it, the one in the server's binary is tested. */
const DIST = process.env.CONSOLE_DIST;

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
};

/** Answers the console's own files from `dist`, with the server's headers for pages, all else from the server. */
async function serveFrom(context: BrowserContext, dist: string): Promise<void> {
  const pages = new Set<string>([...Object.values(PAGES), CALLBACK_PATH, NO_PAGE]);
  const isFile = ({ pathname }: URL): boolean => pathname === "/icon.svg" || pathname.startsWith("/assets/");
  await context.route(
    (url) => pages.has(url.pathname) || isFile(url),
    async (route) => {
      const url = new URL(route.request().url());
      const name = isFile(url) ? url.pathname.slice(1) : "index.html";
      const contentType = MEDIA_TYPES[extname(name)] ?? "application/octet-stream";
      const body = await readFile(join(dist, name));
      // What says how long the server's own document is does not fit this one.
      const headers = isFile(url) ? {} : (await route.fetch()).headers();
      delete headers["content-length"];
      await route.fulfill({ status: 200, headers: { ...headers, "content-type": contentType }, body });
    },
  );
}

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds wrong with the page for people who cannot see or point: one line a rule, with the first place. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  // Not by a script tag, which the console's content security policy refuses.
  await page.evaluate(AXE);
  const results = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run: () => Promise<AxeResults> } }).axe.run(),
  );
  return results.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0]?.html ?? ""}`);
}
