/** The store: buckets, their keys, and values of every kind; in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

/** A red square of 2 × 2 pixels. */
const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==",
  "base64",
);

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

describe("the buckets of a tenant", () => {
  it("are none at first; one is made after the server has refused what cannot be", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Store" }).click();
      await page.getByText("There are no buckets yet").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.getByRole("button", { name: "Create a bucket" }).click();
      const form = page.getByRole("dialog", { name: "Create a bucket" });
      await form.getByLabel("Name").fill("_own");
      await form.getByLabel("Most keys").fill("10");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "does not begin with '_'" }).waitFor();
      await form.getByLabel("Time to live").fill("soon");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "'soon'" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await form.getByLabel("Name").fill("made");
      await form.getByLabel("Time to live").fill("30m");
      await form.getByLabel("A write survives").selectOption("written");
      await form.getByRole("button", { name: "Create" }).click();
      await page.getByRole("heading", { name: "made", level: 1 }).waitFor();
      await page.getByText("There are no keys yet").waitFor();
      expect(await server.bucket("made")).toMatchObject({
        settings: { kind: "durable", partitions: 4, ack: "written", ttl_ms: 1_800_000, max_keys: 10 },
      });
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("are rows with their figures, and one that is there is not made again", async () => {
    await server.putBucket("made", { ack: "written", ttl_ms: 1_800_000, max_keys: 10 });
    await server.putValue("made", "a", "12345");
    await server.putBucket("hot", { kind: "cache", max_bytes: 1_048_576, policy: "allkeys-lfu" });
    await withPage(browser, {}, async (page) => {
      await open(page, "/store");
      const made = row(page, "made");
      await made.getByText("10 % of 10 keys").waitFor();
      await made.getByRole("cell", { name: "written" }).waitFor();
      await made.getByRole("cell", { name: "6 B" }).waitFor();
      await row(page, "hot").getByText("0 % of 1 MiB").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.getByRole("button", { name: "Create a bucket" }).click();
      const form = page.getByRole("dialog", { name: "Create a bucket" });
      await form.getByLabel("Name").fill("made");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "There is a bucket 'made' already" }).waitFor();
      await page.keyboard.press("Escape");
      await form.waitFor({ state: "detached" });
      expect(await server.bucket("made")).toMatchObject({ settings: { max_keys: 10 } });

      await page.getByRole("link", { name: "hot" }).click();
      await page.getByText("The keys of a cache are not listed").waitFor();
      await page.getByText("allkeys-lfu").waitFor();
    });
  });

  it("may be deleted after a question", async () => {
    await server.putBucket("old", {});
    await withPage(browser, {}, async (page) => {
      await open(page, "/store?bucket=old");
      await page.getByRole("button", { name: "Delete bucket" }).click();
      const question = page.getByRole("dialog", { name: "Delete old?" });
      await question.getByRole("button", { name: "Cancel" }).click();
      await question.waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Delete bucket" }).click();
      await question.getByRole("button", { name: "Delete bucket" }).click();
      await page.getByRole("heading", { name: "Store", level: 1 }).waitFor();
      await row(page, "made").waitFor();
      await eventually(() => row(page, "old").count(), 0);
    });
  });

  it("that are not there are no blank page", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/store?bucket=nobody-made-this");
      await page.getByRole("alert").filter({ hasText: "'PUT /buckets/nobody-made-this'" }).first().waitFor();
    });
  });
});

describe("the keys of a bucket", () => {
  beforeAll(async () => {
    await server.putBucket("shop", { partitions: 2 });
    for (let number = 10; number < 40; number += 1) await server.putValue("shop", `parts/${number}`, `part ${number}`);
    await server.putValue("shop", "readme", "Zwölf Bolzen", { "Content-Type": "text/plain; charset=utf-8" });
    await server.putValue("shop", "users/ann", '{"name":"Ann","id":12345678901234567890}', {
      "Content-Type": "application/json",
      "X-Tags": "vip,eu",
      "X-Meta-Owner": Buffer.from("Jürgen").toString("latin1"),
    });
    await server.putValue("shop", "users/odd%3F%25 %FF", "odd");
    await server.putValue("shop", "photo", PNG, { "Content-Type": "image/png" });
    await server.putValue("shop", "page", "<script>document.title = 'run'</script>", { "Content-Type": "text/html" });
    await server.putValue("shop", "raw", Buffer.from([0, 1, 2, 0xff, 0x41]));
    await server.putValue("shop", "large", "x".repeat(300 << 10), { "Content-Type": "text/plain" });
    await server.putValue("shop", "short-lived?ttl=1h", "token");
  });

  it("are shown by folder, by prefix and by page", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/store?bucket=shop&limit=25");
      await row(page, "photo").waitFor();
      expect(await page.getByRole("link", { name: "parts/10" }).count()).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("link", { name: "parts/", exact: true }).click();
      await page.getByRole("link", { name: "10", exact: true }).waitFor();
      await page.getByText("25 lines here, and more").waitFor();
      await page.getByRole("button", { name: "Next" }).click();
      await page.getByRole("link", { name: "39", exact: true }).waitFor();
      await page.getByText("5 lines here", { exact: true }).waitFor();
      expect(await page.getByRole("button", { name: "Next" }).isDisabled()).toBe(true);
      await page.getByRole("button", { name: "First" }).click();
      await page.getByRole("link", { name: "10", exact: true }).waitFor();
      await page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "shop" }).click();
      await row(page, "photo").waitFor();

      const prefix = page.getByRole("combobox", { name: "Prefix" });
      await prefix.fill("parts/3");
      await page.getByText("10 lines here", { exact: true }).waitFor();
      await prefix.fill("no-such");
      await page.getByText("No key begins with this").waitFor();
      await prefix.fill("");
      await row(page, "photo").waitFor();
      await page.getByRole("button", { name: "Folders" }).click();
      await page.getByRole("link", { name: "parts/10" }).waitFor();
      expect(new URL(page.url()).searchParams.get("view")).toBe("all");
    });
  });

  it("have values that are shown as what they are", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/store?bucket=shop");
      const drawer = (name: string) => page.getByRole("complementary", { name });
      const show = async (name: string): Promise<void> => {
        await page.getByRole("link", { name, exact: true }).click();
        await drawer(name).getByRole("region", { name: "Value" }).waitFor();
      };
      await show("readme");
      await drawer("readme").getByText("Zwölf Bolzen").waitFor();
      await drawer("readme").getByText("never").waitFor();
      await show("photo");
      await drawer("photo").getByText("2 × 2 pixels").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await show("raw");
      await drawer("raw").getByText("00 01 02 ff 41").waitFor();
      await show("large");
      await drawer("large").getByText("The first 256 KiB of 300 KiB.").waitFor();
      await show("page");
      await drawer("page").getByText("<script>document.title").waitFor();
      expect(await page.title()).toBe("Store · Millstream");
      await show("short-lived");
      await drawer("short-lived")
        .getByText(/, in (?:1 h|5\d min)/)
        .waitFor();

      await page.getByRole("link", { name: "users/", exact: true }).click();
      await show("ann");
    });
  });

  it("have a value with all that is stored beside it, and its changes", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/store?bucket=shop&prefix=users%252F&key=users%252Fann");
      const drawer = page.getByRole("complementary", { name: "users/ann" });
      await drawer.getByText('"id": 12345678901234567890').waitFor();
      await drawer.getByText("vip, eu").waitFor();
      await drawer.getByText("Jürgen").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await server.putValue("shop", "users/ann", '{"name":"Anna"}');
      await drawer.getByText('"name": "Anna"').waitFor();
      await page.keyboard.press("Escape");
      await drawer.waitFor({ state: "detached" });
    });
  });

  it("that are no text or have odd characters are reached, too", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/store?bucket=shop&prefix=users%252F");
      await page.getByRole("link", { name: /odd/ }).click();
      await page.getByRole("region", { name: "Value" }).getByText("odd", { exact: true }).waitFor();
    });
  });

  it("are deleted after a question, unless somebody has changed them meanwhile", async () => {
    await server.putValue("shop", "doomed", "one");
    await withPage(browser, {}, async (page) => {
      await open(page, "/store?bucket=shop&key=doomed");
      const drawer = page.getByRole("complementary", { name: "doomed" });
      await drawer.getByRole("region", { name: "Value" }).getByText("one").waitFor();
      await drawer.getByRole("button", { name: "Delete key" }).click();
      const question = page.getByRole("dialog", { name: "Delete doomed?" });
      await question.waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await question.waitFor({ state: "detached" });

      await page.route("**/kv/shop/doomed", async (route) => {
        if (route.request().method() === "DELETE") await server.putValue("shop", "doomed", "two");
        await route.continue();
      });
      await drawer.getByRole("button", { name: "Delete key" }).click();
      await question.getByRole("button", { name: "Delete key" }).click();
      await question.getByRole("alert").filter({ hasText: "If-Match does not hold" }).waitFor();
      await page.unroute("**/kv/shop/doomed");
      await question.getByRole("button", { name: "Cancel" }).click();
      await drawer.getByRole("region", { name: "Value" }).getByText("two").waitFor();
      await drawer.getByRole("button", { name: "Delete key" }).click();
      await question.getByRole("button", { name: "Delete key" }).click();
      await drawer.waitFor({ state: "detached" });
      await row(page, "photo").waitFor();
      await eventually(() => row(page, "doomed").count(), 0);
    });
  });

  it("fit a phone", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      for (const path of ["/store", "/store?bucket=shop", "/store?bucket=shop&key=raw", "/store?bucket=hot"]) {
        await open(page, path);
        await page.getByRole("heading", { level: 1 }).waitFor();
        if (path.includes("key=")) await page.getByRole("region", { name: "Value" }).waitFor();
        expect([path, await overflow(page)]).toEqual([path, 0]);
        expect(await accessibilityFaults(page)).toEqual([]);
      }
      await open(page, "/store");
      await page.getByRole("button", { name: "Create a bucket" }).click();
      await page.getByRole("dialog", { name: "Create a bucket" }).waitFor();
      expect(await overflow(page)).toBe(0);
    });
  });
});
