/** Jobs that replace others or go on from their state, and what is kept of it; in a real browser against a real server. */
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

const FIRST = "id-of-counts";

/** Counts the records of each key. */
const COUNTS = {
  version: 1,
  kind: "Job",
  id: FIRST,
  name: "counts",
  checkpoint: { interval: "100ms" },
  sources: { readings: { type: "stream", config: { topic: "readings" } } },
  transforms: {
    counts: { type: "map", inputs: ["readings"], key_by: ["$key"], select: "n, RUNNING_COUNT(n) AS count" },
  },
  sinks: { out: { type: "stream", inputs: ["counts"], config: { topic: "counted" } } },
};

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  for (const topic of ["readings", "counted"]) await server.createTopic(topic);
  await server.submitJob(COUNTS);
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);
const editor = (page: Page): Locator => page.getByRole("textbox", { name: "Document" });
const submit = (page: Page): Locator => page.getByRole("button", { name: "Submit" });
const state = (page: Page): Locator => page.getByRole("region", { name: "State", exact: true });
const idOf = (page: Page): string => new URL(page.url()).searchParams.get("job") ?? "";

const send = (...keys: string[]): Promise<void> =>
  server.append(
    "readings",
    keys.map((key, n) => ({ key, value: { n } })),
  );

/** Changes the document in the editor. */
async function rewrite(page: Page, from: string, to: string): Promise<void> {
  await eventually(async () => (await editor(page).inputValue()).includes(from), true);
  await editor(page).fill((await editor(page).inputValue()).replace(from, to));
  await eventually(() => submit(page).getAttribute("aria-disabled"), "false");
}

describe("the state of a job", () => {
  it("is its last checkpoints, and the keys of its nodes with the sizes of their values", async () => {
    await send("d1", "d2", "d2");
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, `/jobs?job=${FIRST}`);
      await state(page)
        .getByRole("row", { name: /counts 2/ })
        .waitFor();
      const checkpoints = page.getByRole("region", { name: "Checkpoints", exact: true });
      const before = await checkpoints.getByRole("rowheader").first().textContent();
      expect(Number(before)).toBeGreaterThan(0);
      await send("d1");
      await eventually(async () => (await checkpoints.getByRole("rowheader").first().textContent()) !== before, true);

      await state(page).getByRole("button", { name: "Keys of counts" }).click();
      const keys = page.getByRole("region", { name: "Keys of counts" });
      await keys
        .getByRole("status")
        .filter({ hasText: /^2 keys as of epoch \d+/ })
        .waitFor();
      await keys.getByRole("row", { name: /^d1 \d+ B$/ }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await keys.getByRole("textbox", { name: "Key" }).fill("d2");
      await keys
        .getByRole("status")
        .filter({ hasText: /^1 key as of/ })
        .waitFor();
      expect(new URL(page.url()).searchParams.get("key")).toBe("d2");
      await page.reload();
      await keys.getByRole("row", { name: /^d2/ }).waitFor();
      await keys.getByRole("textbox", { name: "Key" }).fill("d3");
      await keys.getByText("No such key has state").waitFor();
      await send("d3");
      await eventually(async () => {
        await keys.getByRole("button", { name: "Read again" }).click();
        return keys.getByRole("row", { name: /^d3/ }).count();
      }, 1);
      await keys.getByRole("button", { name: "Close the keys" }).click();
      await keys.waitFor({ state: "detached" });
    });
  });
});

describe("a running job", () => {
  it("is replaced by a new one of its name, which goes on from its state", async () => {
    await withPage(browser, { width: 400, height: 800 }, async (page) => {
      await open(page, `/jobs?job=${FIRST}`);
      await page.getByRole("button", { name: "Copy as new job" }).click();
      const choice = page.getByRole("checkbox", { name: "Replace the running job counts" });
      await choice.waitFor();
      expect(await choice.isChecked()).toBe(false);
      // Under another name there is nothing to replace.
      await rewrite(page, "name: counts", "name: others");
      await eventually(() => choice.count(), 0);
      await rewrite(page, "name: others", "name: counts");
      await choice.check();

      // The server refuses what cannot go on from the running job, with the place of each fault.
      const written = await editor(page).inputValue();
      await editor(page).fill(written.replace("  counts:\n", "  sums:\n").replace("[counts]", "[sums]"));
      await eventually(() => submit(page).getAttribute("aria-disabled"), "false");
      await submit(page).click();
      const refusal = page.getByRole("alert").filter({ hasText: "The job was not submitted" });
      await refusal.getByText("The running job goes on.").waitFor();
      const findings = page.getByRole("region", { name: "Findings" });
      await findings.getByText("transforms.sums").waitFor();
      await findings.getByText(/has no map with state called 'sums'/).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(overflow).toBe(0);

      await editor(page).fill((await editor(page).inputValue()).replaceAll("sums", "counts"));
      await rewrite(page, "AS count", "AS total");
      await refusal.waitFor({ state: "detached" });
      await submit(page).click();
      await page.getByRole("heading", { name: "counts", level: 1 }).waitFor();
      await page.getByText("Running", { exact: true }).waitFor();
      expect(idOf(page)).not.toBe(FIRST);
      const lineage = page.getByRole("list", { name: "Jobs before and after" });
      await lineage.getByText(/^goes on from id-of-counts \(epoch \d+\)$/).waitFor();
      await send("d4");
      await state(page)
        .getByRole("row", { name: /counts 4/ })
        .waitFor();

      const second = idOf(page);
      await lineage.getByRole("link", { name: FIRST }).click();
      await page.getByText("Stopped", { exact: true }).waitFor();
      await lineage.getByText(`replaced by ${second}`).waitFor();
      await lineage.getByRole("link", { name: second }).click();
      await page.getByText("Running", { exact: true }).waitFor();
    });
  });
});

describe("a job that has ended with state", () => {
  it("is edited and resumed, and says which job goes on from it", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/jobs");
      await page.getByRole("row").filter({ hasText: "Running" }).getByRole("link", { name: "counts" }).click();
      await page.getByText("Running", { exact: true }).waitFor();
      const resume = page.getByRole("button", { name: "Edit and resume" });
      expect(await resume.count()).toBe(0);
      const ended = idOf(page);
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
      await resume.waitFor();
      await page.getByRole("region", { name: "Checkpoints", exact: true }).getByText("the last one is kept").waitFor();
      await state(page).getByRole("button", { name: "Keys of counts" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await resume.click();
      await page.getByRole("heading", { name: "New job", level: 1 }).waitFor();
      await rewrite(page, "name: counts", "name: counts-again");
      // Ids that begin with a digit stand in quotation marks.
      const lines = (await editor(page).inputValue()).replaceAll('"', "").split("\n");
      expect(lines.slice(2, 4)).toEqual(["name: counts-again", `resume_from: ${ended}`]);
      expect(await page.getByRole("checkbox").count()).toBe(0);
      await submit(page).click();
      await page.getByText("Running", { exact: true }).waitFor();
      const lineage = page.getByRole("list", { name: "Jobs before and after" });
      await lineage.getByText(/^goes on from counts .* \(epoch \d+\)$/).waitFor();
      await send("d5");
      await state(page)
        .getByRole("row", { name: /counts 5/ })
        .waitFor();
      const again = idOf(page);
      await lineage.getByRole("link", { name: ended }).click();
      await lineage.getByText(`resumed by counts-again ${again}`).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      // A job that has resumed another is replaced as others are.
      await lineage.getByRole("link", { name: again }).click();
      await page.getByRole("button", { name: "Copy as new job" }).click();
      await page.getByRole("checkbox", { name: "Replace the running job counts-again" }).check();
      await rewrite(page, "AS total", "AS sum");
      expect(await editor(page).inputValue()).not.toContain("resume_from");
      await submit(page).click();
      await page.getByText("Running", { exact: true }).waitFor();
      await lineage.getByText(`goes on from ${again}`).waitFor();
    });
  });
});
