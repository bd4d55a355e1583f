/** Topics: created, filled, changed and deleted; in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { KENNEDY, Server } from "./server";

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

async function overflow(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}

async function info(topic: string): Promise<{ config: Record<string, unknown> }> {
  return (await (await fetch(`${server.url}/api/streams/${topic}/info`)).json()) as { config: Record<string, unknown> };
}

describe("the topics of a tenant", () => {
  it("are none at first; one is created after the server has refused what cannot be", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Topics" }).click();
      await page.getByText("There are no topics of your own yet").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.getByRole("button", { name: "Create a topic" }).click();
      const form = page.getByRole("dialog", { name: "Create a topic" });
      await form.getByLabel(/^Name/).fill("telemetry.other");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "is of tenant 'other'" }).waitFor();
      await form.getByLabel(/^Name/).fill("orders");
      await form.getByLabel(/^Partitions/).fill("2");
      await form.getByLabel(/^Kept for/).fill("a while");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "retention" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByLabel(/^Kept for/).fill("12h");
      await form.getByLabel(/^A record survives/).selectOption("written");
      await form.getByRole("button", { name: "Create" }).click();
      await page.getByRole("heading", { name: "orders", level: 1 }).waitFor();
      await page.getByText("There are no records here").waitFor();
      await page.getByText("millstream topic append orders").waitFor();
      expect((await info("orders")).config).toMatchObject({ partitions: 2, retention: "12h", level: "written" });
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("are rows with their figures, those of Millstream too, and one that is there is not created again", async () => {
    await server.append("orders", [{ key: "o-1", value: { item: "bolt" } }]);
    await server.register(KENNEDY);
    await server.measure(KENNEDY, { temp: 39 });
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics");
      await row(page, "orders").getByRole("cell", { name: "12h" }).waitFor();
      await row(page, "telemetry.default").getByText("telemetry", { exact: true }).waitFor();
      await eventually(() => row(page, "orders").locator("td").nth(1).textContent(), "1");
      await server.append(
        "orders",
        Array.from({ length: 500 }, (_, n) => ({ value: n })),
      );
      await row(page, "orders").getByText("/s").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("combobox", { name: "Name" }).fill("telem");
      await eventually(() => row(page, "orders").count(), 0);
      await page.getByRole("combobox", { name: "Name" }).fill("nothing");
      await page.getByText("has this in its name").waitFor();

      await page.getByRole("button", { name: "Create a topic" }).click();
      const form = page.getByRole("dialog", { name: "Create a topic" });
      await form.getByLabel(/^Name/).fill("orders");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "There is a topic 'orders' already" }).waitFor();
    });
  });

  it("that are not there are no blank page", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=nobody-made-this");
      await page.getByRole("alert").filter({ hasText: "topic 'nobody-made-this' does not exist" }).first().waitFor();
    });
  });
});

describe("a topic", () => {
  it("takes a record that is typed, after what is wrong with it was said", async () => {
    await server.createTopic("typed");
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=typed");
      await page.getByText("There are no records here").waitFor();
      await page.getByRole("button", { name: "Append a record" }).click();
      const form = page.getByRole("dialog", { name: "Append a record" });
      await form.getByRole("textbox", { name: "Key", exact: true }).fill("k");
      await form.getByRole("textbox", { name: "Value" }).fill('{"n": ');
      await form.getByRole("button", { name: "Append", exact: true }).click();
      await form.getByRole("alert").filter({ hasText: "The value is no JSON" }).waitFor();
      await form.getByRole("textbox", { name: "Value" }).fill('{"n": 12345678901234567890}');
      await form.getByLabel(/^Headers/).fill("source: console");
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByRole("button", { name: "Append", exact: true }).click();
      await form.waitFor({ state: "detached" });
      const drawer = page.getByRole("complementary", { name: "Offset 0" });
      await drawer.getByText('"n": 12345678901234567890').waitFor();
      await drawer.getByText("console", { exact: true }).waitFor();
      await page.getByText("1 record here").waitFor();
    });
  });

  it("is changed where it can be, and the server says where it cannot", async () => {
    await server.createTopic("grows");
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=grows");
      const form = page.getByRole("dialog", { name: "Change settings" });
      await page.getByRole("button", { name: "Change settings" }).click();
      await form.getByLabel(/^Largest record/).fill("huge");
      await form.getByRole("button", { name: "Change", exact: true }).click();
      await form.getByRole("alert").filter({ hasText: "record_max_bytes" }).waitFor();
      await form.getByLabel(/^Largest record/).fill("2 MiB");
      await form.getByLabel(/^Partitions/).fill("3");
      await form.getByLabel(/^Kept for/).fill("none");
      await form.getByLabel(/^Compression/).selectOption("lz4");
      await form.getByRole("button", { name: "Change", exact: true }).click();
      await form.waitFor({ state: "detached" });
      await page.getByRole("group", { name: "Records" }).getByText("in 3 partitions").waitFor();
      expect((await info("grows")).config).toMatchObject({
        ...{ partitions: 3, retention: null, compression: "lz4", record_max_bytes: 2 << 20 },
      });
      await page.getByRole("button", { name: "Change settings" }).click();
      await form.getByLabel(/^Old records go/).selectOption("compact");
      await form.getByRole("button", { name: "Change", exact: true }).click();
      await form.waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Change settings" }).click();
      await form.getByText("cannot change").waitFor();
    });
  });

  it("is deleted only by who types its name", async () => {
    await server.createTopic("doomed");
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=doomed");
      await page.getByRole("button", { name: "Delete topic" }).click();
      const question = page.getByRole("dialog", { name: "Delete doomed?" });
      await question.getByLabel("Type the topic's name to confirm").fill("doome");
      await question.getByRole("button", { name: "Delete topic" }).click();
      await question.getByRole("alert").filter({ hasText: "Type 'doomed' to delete it" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await question.getByLabel("Type the topic's name to confirm").fill("doomed");
      await question.getByRole("button", { name: "Delete topic" }).click();
      await page.getByRole("heading", { name: "Topics", level: 1 }).waitFor();
      await row(page, "grows").waitFor();
      await eventually(() => row(page, "doomed").count(), 0);
    });
  });

  it("of Millstream's own is read, and not deleted", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/topics?topic=telemetry.default");
      await row(page, "JFK").first().waitFor();
      expect(await page.getByRole("button", { name: "Delete topic" }).count()).toBe(0);
    });
  });
});

describe("the pages of topics", () => {
  it.each(["light", "dark"] as const)(
    "can be read and used without seeing or pointing, in %s colours",
    async (scheme) => {
      await withPage(browser, { scheme }, async (page) => {
        for (const path of [
          "/topics",
          "/topics?topic=orders",
          "/topics?topic=typed&record=0:0",
          "/topics?topic=typed&mode=tail",
        ]) {
          await open(page, path);
          await page.getByRole("heading", { level: 1 }).waitFor();
          if (path.includes("topic=")) await page.getByRole("heading", { name: "Partitions" }).waitFor();
          expect([path, await accessibilityFaults(page)]).toEqual([path, []]);
        }
      });
    },
  );

  it("fit a phone", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      for (const path of ["/topics", "/topics?topic=orders", "/topics?topic=typed&record=0:0"]) {
        await open(page, path);
        await page.getByRole("heading", { level: 1 }).waitFor();
        if (path.includes("topic=")) await page.getByRole("heading", { name: "Partitions" }).waitFor();
        expect([path, await overflow(page)]).toEqual([path, 0]);
        expect([path, await accessibilityFaults(page)]).toEqual([path, []]);
      }
      await open(page, "/topics");
      await page.getByRole("button", { name: "Create a topic" }).click();
      await page.getByRole("dialog", { name: "Create a topic" }).waitFor();
      expect(await overflow(page)).toBe(0);
    });
  });
});
