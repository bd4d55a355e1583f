/** The history of attributes: in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

const PUMP = "pump1";

let server: Server;
let browser: Browser;

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  await server.createEntity({
    id: PUMP,
    type: "Pump",
    pressure: { type: "Number", value: 2 },
    state: { type: "Text", value: "off" },
  });
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);

describe("the history of an attribute", () => {
  it("is a line of numbers that goes on while one looks, and can be opened again by its address", async () => {
    await withPage(browser, {}, async (page) => {
      await server.setValue(PUMP, "pressure", 3.5);
      await open(page, "/entities");
      await page.getByRole("button", { name: PUMP }).click();
      const detail = page.getByRole("complementary", { name: PUMP });
      await detail.getByRole("button", { name: "pressure", exact: true }).click();
      await detail.getByRole("img", { name: "Values: pressure 3.5" }).waitFor();
      await server.setValue(PUMP, "pressure", 4.25);
      await detail.getByRole("img", { name: "Values: pressure 4.25" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.reload();
      await detail.getByRole("img", { name: "Values: pressure 4.25" }).waitFor();
    });
  });

  it("of a long time is the mean, the least and the greatest of each period", async () => {
    await withPage(browser, {}, async (page) => {
      for (const pressure of [1, 9, 5]) await server.setValue(PUMP, "pressure", pressure);
      await open(page, `/entities?entity=${PUMP}&entity_type=Pump&history=pressure`);
      const history = page.getByRole("group", { name: "History of pressure" });
      await history.getByRole("combobox", { name: "History" }).selectOption("last 365 days");
      await history
        .getByRole("img", { name: /^Mean, least and greatest: mean [\d.]+, least 1, greatest 9$/ })
        .waitFor();
      expect(new URL(page.url()).searchParams.get("span")).toBe("year");
    });
  });

  it("of other values is a list of changes, the newest first", async () => {
    await withPage(browser, {}, async (page) => {
      for (const state of ["on", "fault"]) await server.setValue(PUMP, "state", state);
      await open(page, `/entities?entity=${PUMP}&entity_type=Pump`);
      const detail = page.getByRole("complementary", { name: PUMP });
      await detail.getByRole("button", { name: "state", exact: true }).click();
      const changes = detail.getByRole("list", { name: "Changes, newest first" }).getByRole("listitem");
      await eventually(() => changes.locator("span").allTextContents(), ["fault", "on", "off"]);
      expect(await accessibilityFaults(page)).toEqual([]);
      await detail.getByRole("button", { name: "state", exact: true }).click();
      await eventually(() => changes.count(), 0);
    });
  });
});
