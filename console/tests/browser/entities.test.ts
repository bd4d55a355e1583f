/** A person finds entities, and what became none: in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { NEWARK, Server } from "./server";

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

/** The ids in the rows of the table, from the top. */
const ids = (page: Page): Promise<string[]> =>
  page.getByRole("region", { name: "Entities" }).getByRole("rowheader").allTextContents();

describe("the map", () => {
  const place = (longitude: number, latitude: number) => ({
    type: "geo:json",
    value: { type: "Point", coordinates: [longitude, latitude] },
  });

  it("is not there before something has a place, and has the places of all pages then", async () => {
    const server = await Server.start();
    try {
      const LONG = `station-${"x".repeat(60)}-by-its-end`;
      await server.createEntity({ id: LONG, type: "Station" });
      for (let index = 0; index < 30; index += 1) await server.createEntity({ id: `s${index}`, type: "Station" });
      await withPage(browser, {}, async (page) => {
        await openPage(page, server, "/entities?limit=25");
        await page.getByText("1–25 of 31 entities").waitFor();
        const map = page.getByRole("application", { name: /^Map of/ });
        expect(await map.count()).toBe(0);
        expect(await page.getByRole("button", { name: "Hide map" }).count()).toBe(0);
        // The end of the id is what tells it from others.
        const long = page.getByRole("row").filter({ hasText: "by-its-end" });
        await long.getByTitle(LONG, { exact: true }).first().waitFor();
        expect(await long.getByRole("rowheader").textContent()).toMatch(/^station-x+…x+-by-its-end$/);

        await server.createEntity({ id: "boat", type: "Boat", at: place(8.5, 53.9) });
        await server.createEntity({ id: "buoy", type: "Boat", at: { type: "geo:point", value: "54.1, 7.9" } });
        // Both are on the second page.
        await page.reload();
        await page.getByText("1–25 of 33 entities").waitFor();
        await page.getByRole("application", { name: "Map of 2 entities" }).waitFor();
        await page.getByRole("combobox", { name: "Type" }).selectOption("Station (31)");
        await page.getByText("1–25 of 31 entities").waitFor();
        await eventually(() => map.count(), 0);
      });
      await withPage(browser, {}, async (page) => {
        await openPage(page, server, "/entities?limit=25&id=boat");
        // Alone, it stands in the middle of the map.
        await page.getByRole("application", { name: "Map of 1 entity" }).click();
        await page.getByRole("complementary", { name: "boat" }).getByText("53.90000, 8.50000").waitFor();
      });
    } finally {
      await server.stop();
    }
  });
});

describe("the list of entities", () => {
  const COUNT = 30;
  const number = (index: number): string => String(index).padStart(2, "0");

  beforeAll(async () => {
    for (let index = 0; index < COUNT; index += 1) {
      // Every second one has the same level.
      const level = { type: "Number", value: index % 2 === 0 ? 100 : index };
      await server.createEntity({ id: `tank.${number(index)}`, type: "Tank", level });
    }
    await server.createEntity({ id: "tankX07", type: "Pipe", level: { type: "Text", value: "high" } });
  });

  it("is narrowed by a part of the id, whose characters stand for themselves, and by a type", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByText(`of ${COUNT + 1} entities`).waitFor();
      const part = page.getByRole("textbox", { name: "Id contains" });
      await part.fill("k.07");
      await eventually(() => ids(page), ["tank.07"]);
      await part.fill("07");
      await eventually(() => ids(page), ["tank.07", "tankX07"]);
      await page.getByRole("combobox", { name: "Type" }).selectOption("Pipe (1)");
      await eventually(() => ids(page), ["tankX07"]);
      expect(new URL(page.url()).searchParams.get("type")).toBe("Pipe");
      await part.fill("[");
      await page.getByText("No entity matches").waitFor();
      await page.getByRole("button", { name: "show all", exact: true }).click();
      await page.getByText(`of ${COUNT + 1} entities`).waitFor();
    });
  });

  it("takes a condition, and shows beside its box why the server refuses one", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/entities");
      const box = page.getByRole("textbox", { name: "Condition" });
      await box.fill("level>");
      await page.getByRole("alert").filter({ hasText: "nothing stands right of '>'" }).waitFor();
      expect(await box.getAttribute("aria-invalid")).toBe("true");
      expect(await accessibilityFaults(page)).toEqual([]);
      await box.fill("level>26;level<100");
      await eventually(() => ids(page), ["tank.27", "tank.29"]);
      expect(await page.getByRole("alert").count()).toBe(0);
      await page.reload();
      await eventually(() => ids(page), ["tank.27", "tank.29"]);
    });
  });

  it("is sorted by the server over all pages, which neither overlap nor leave gaps", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?type=Tank&limit=25");
      const head = page.getByRole("columnheader", { name: "level" });
      await head.getByRole("button").click();
      await eventually(async () => (await ids(page)).at(0), "tank.01");
      expect(await head.getAttribute("aria-sort")).toBe("ascending");
      const even = Array.from({ length: COUNT / 2 }, (_, index) => `tank.${number(2 * index)}`);
      const odd = even.map((_, index) => `tank.${number(2 * index + 1)}`);
      const up = [...odd, ...even];
      await eventually(() => ids(page), up.slice(0, 25));
      await page.getByRole("button", { name: "Next" }).click();
      await eventually(() => ids(page), up.slice(25));
      // Equal ones stand in the order of their creation both ways.
      await head.getByRole("button").click();
      await eventually(() => ids(page), [...even, ...odd.reverse()].slice(0, 25));
      expect(await head.getAttribute("aria-sort")).toBe("descending");
      await page.getByText(`1–25 of ${COUNT} entities`).waitFor();
      await page.reload();
      await eventually(async () => (await ids(page)).at(0), "tank.00");
      await head.getByRole("button").click();
      await eventually(async () => (await ids(page)).slice(0, 2), ["tank.00", "tank.01"]);
      expect(new URL(page.url()).searchParams.get("order")).toBeNull();
      expect(await page.getByRole("columnheader", { name: "Measured" }).getByRole("button").count()).toBe(0);
    });
  });

  it("leads from a page beyond the last one back to it", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?type=Tank&limit=25&page=9");
      await page.getByRole("button", { name: "Go to the last page" }).click();
      await page.getByText(`26–${COUNT} of ${COUNT} entities`).waitFor();
    });
  });

  it("says what to do while it is empty, with a command that makes the first entity", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?tenant=nobody");
      await page.getByText("There are no entities yet").waitFor();
      const command = page.getByRole("group", { name: "Command" });
      await command.getByText(`--server ${server.url} --tenant nobody`).first().waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });
});

describe("measurements that become no entity", () => {
  it("are counted, with the reason and the remedy for each device", async () => {
    await server.register(NEWARK);
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await server.sendText(NEWARK, "no JSON");
      const notice = page.getByRole("group").filter({ hasText: "became no entity" });
      await notice.getByText("1 measurement of 1 device became no entity").click();
      await notice
        .getByRole("listitem")
        .filter({ hasText: "EWR" })
        .getByText("The payload is no JSON object")
        .waitFor();
      await notice.getByText("let the device send one").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await server.sendText(NEWARK, "[1]");
      await notice.getByText("2 measurements of 1 device").waitFor();
    });
  });
});
