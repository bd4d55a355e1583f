/** A real browser with one page of the console, which fails its test when the page reports an error. */
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
