/** The frame of the console at the widths of common screens, logged in for all tenants. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PAGES } from "../../src/route";
import { accessibilityFaults, launchBrowser, withPage } from "./console";
import { Server } from "./server";

const OPERATOR = "the-operators-token-0123456789";

let server: Server;
let browser: Browser;

beforeAll(async () => {
  server = await Server.start(OPERATOR);
  await server.makeTenant("acme", {});
  browser = await launchBrowser();
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

async function logIn(page: Page): Promise<void> {
  await page.goto(`${server.url}/`);
  await page.getByLabel("API token", { exact: true }).fill(OPERATOR);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await page.getByRole("status", { name: "Server: Live" }).waitFor();
}

describe("the links to the pages", () => {
  it.each([1440, 1366, 1024, 820, 390])("are all within reach at %d px", async (width) => {
    await withPage(browser, { width, height: 844 }, async (page) => {
      await logIn(page);
      const pages = page.getByRole("navigation", { name: "Pages" });
      const more = pages.getByRole("button", { name: "More" });
      if ((await more.count()) > 0) await more.click();
      const links = await pages.getByRole("link").all();
      expect(links.length).toBe(Object.keys(PAGES).length);
      for (const link of links) {
        const box = await link.boundingBox();
        expect(box).not.toBeNull();
        expect(box?.x).toBeGreaterThanOrEqual(0);
        expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(width);
        // What covers a link would take the pointer away from it.
        await link.click({ trial: true });
      }
      expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
      await pages.getByRole("link", { name: "Access" }).click();
      await page.getByRole("heading", { name: "Access", level: 1 }).waitFor();
    });
  });
});

describe("the commands that pages offer", () => {
  it.each([PAGES.store, PAGES.topics, PAGES.devices, PAGES.entities, PAGES.jobs])(
    "go to this server and tenant on %s",
    async (path) => {
      await withPage(browser, {}, async (page) => {
        await logIn(page);
        await page.goto(`${server.url}${path}?tenant=acme`);
        const text = await page.getByRole("group", { name: "Command" }).first().locator("code").innerText();
        const asking = text.split("\n").filter((line) => /millstream (?!job new)/.test(line));
        expect(asking.length).toBeGreaterThan(0);
        for (const line of asking) expect(line).toContain(` --server ${server.url} --tenant acme`);
      });
    },
  );
});
