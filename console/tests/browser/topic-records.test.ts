/** Records of topics: read in both directions, found, shown in full and followed; in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, drawn, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);
const row = (page: Page, name: string) => page.getByRole("row").filter({ hasText: name });

/** The values of the rows, from the top. */
async function values(page: Page): Promise<string[]> {
  return page
    .getByRole("table", { name: /^Records of / })
    .locator("td.record-value")
    .allTextContents();
}

describe("the records of a topic", () => {
  const hour = (number: number): string => new Date(Date.UTC(2026, 0, 1, number)).toISOString();

  beforeAll(async () => {
    const call = { method: "PUT", headers: { "Content-Type": "application/json" } };
    await fetch(`${server.url}/api/streams/hours`, { ...call, body: '{"partitions": 3, "retention": null}' });
    const records = Array.from({ length: 90 }, (_, n) => ({
      key: `k-${n % 9}`,
      value: { hour: n, room: n % 30 === 7 ? "attic" : "hall" },
      timestamp: hour(n),
    }));
    await server.append("hours", records);
  });

  it("are shown from the newest on, page by page in both directions, each once", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=hours&limit=25");
      const hoursFrom = (first: number, count: number) =>
        Array.from({ length: count }, (_, n) => expect.stringContaining(`"hour":${first - n},`) as unknown);
      await page.getByText("25 records here").waitFor();
      expect(await values(page)).toEqual(hoursFrom(89, 25));
      expect(await accessibilityFaults(page)).toEqual([]);
      const older = page.getByRole("button", { name: "Older" });
      const newer = page.getByRole("button", { name: "Newer" });
      expect(await newer.isDisabled()).toBe(true);
      for (const first of [64, 39]) {
        await older.click();
        await row(page, `"hour":${first},`).waitFor();
        await eventually(() => values(page), hoursFrom(first, 25) as string[]);
      }
      await older.click();
      await page.getByText("15 records here").waitFor();
      expect(await values(page)).toEqual(hoursFrom(14, 15));
      expect(await older.isDisabled()).toBe(true);
      await newer.click();
      await eventually(() => values(page), hoursFrom(39, 25) as string[]);
      await page.reload();
      await eventually(() => values(page), hoursFrom(39, 25) as string[]);
      await page.goBack();
      await page.getByText("15 records here").waitFor();
      await page.getByRole("button", { name: "Newest" }).click();
      await eventually(() => values(page), hoursFrom(89, 25) as string[]);
    });
  });

  it("are found by offset, time, key, partition and text", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=hours&limit=25");
      await page.getByText("25 records here").waitFor();
      const show = page.getByRole("combobox", { name: "Show" });
      await show.selectOption("oldest");
      await row(page, '"hour":0,').waitFor();
      await show.selectOption("time");
      const local = await page.evaluate((iso) => {
        const date = new Date(iso);
        return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
      }, hour(50));
      await page.getByLabel("From this time").fill(local);
      await page.getByLabel("From this time").press("Enter");
      await row(page, '"hour":50,').waitFor();
      await eventually(async () => (await values(page)).length, 25);
      expect((await values(page)).at(-1)).toContain('"hour":50,');

      await page.getByRole("combobox", { name: "Partition" }).selectOption("1");
      await show.selectOption("offset");
      const offset = page.getByLabel("From this offset");
      await offset.fill("5");
      // What is typed stays although the page is drawn anew each second.
      for (let times = 0; times < 2; times += 1) await page.waitForResponse(/\/api\/streams/);
      await drawn(page);
      expect(await offset.inputValue()).toBe("5");
      await offset.press("Enter");
      await page.getByRole("link", { name: "Record 5 of partition 1" }).waitFor();
      await eventually(() => page.getByRole("link", { name: "Record 4 of partition 1" }).count(), 0);

      await page.getByRole("combobox", { name: "Partition" }).selectOption("");
      await show.selectOption("newest");
      await page.getByRole("combobox", { name: "Key" }).fill("k-5");
      await page.getByText("10 records here").waitFor();
      await page.getByRole("combobox", { name: "Contains" }).fill("attic");
      await page.getByText("No record is like that").waitFor();
      await page.getByRole("combobox", { name: "Key" }).fill("");
      await page.getByText("3 records here").waitFor();
      expect((await values(page)).map((value) => /\d+/.exec(value)?.[0])).toEqual(["67", "37", "7"]);
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("are shown in full: JSON as it was written, bytes in hexadecimal with their length, headers", async () => {
    await server.createTopic("kinds");
    await server.append("kinds", [
      { key: "json", value_text: '{"id":12345678901234567890,"price":1.50}', headers: { source: "shop" } },
      { key: "bytes", value_base64: Buffer.from([0, 1, 2, 0xff, 0x41]).toString("base64") },
      { key: "none", value: null },
      { key: "text", value_text: "<b>Zwölf Bolzen</b>" },
    ]);
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/topics?topic=kinds");
      const drawer = page.getByRole("complementary");
      const show = async (offset: number): Promise<void> => {
        await page.getByRole("link", { name: `Record ${offset} of partition 0` }).click();
        await page.getByRole("complementary", { name: `Offset ${offset}` }).waitFor();
      };
      await show(0);
      await drawer.getByText('"id": 12345678901234567890').waitFor();
      await drawer.getByText('"price": 1.50').waitFor();
      await drawer.getByText("shop").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await show(1);
      await drawer.getByText("bytes, 5 B").waitFor();
      await drawer.getByText("00 01 02 ff 41").waitFor();
      await row(page, "bytes").getByText("00 01 02 ff 41").waitFor();
      await show(2);
      await drawer.getByText("There is none.").waitFor();
      await show(3);
      await drawer.getByText("<b>Zwölf Bolzen</b>").waitFor();
      await page.keyboard.press("Escape");
      await drawer.waitFor({ state: "detached" });
      await open(page, "/topics?topic=kinds&record=0:99");
      await drawer.getByRole("alert").filter({ hasText: "partition 0 ends at 4" }).waitFor();
    });
  });

  it("are followed as they come, and a pause counts what passes", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=kinds");
      await page.getByRole("button", { name: "Follow" }).click();
      await page.getByText("Waiting for the next record").waitFor();
      await server.append("kinds", [{ key: "live", value: "here" }]);
      await row(page, '"here"').waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("button", { name: "Pause" }).click();
      await server.append("kinds", [{ key: "live", value: "unseen" }]);
      await page.getByText("1 record passed by meanwhile").waitFor();
      expect(await row(page, '"unseen"').count()).toBe(0);
      await page.getByRole("button", { name: "Follow" }).click();
      await row(page, '"unseen"').waitFor();
    });
  });
});
