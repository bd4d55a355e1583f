/** A real browser with one page of the console, which fails its test when the page reports an error. */
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";

export async function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
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
    const page = await context.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(error.message));
    await act(page);
    if (thrown.length > 0) throw new Error(`the page threw: ${thrown.join("; ")}`);
  } finally {
    await context.close();
  }
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
