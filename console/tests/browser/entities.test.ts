/** What an entity was, and who is told when it changes: in a real browser against a real server. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

const PUMP = "pump1";

let server: Server;
let browser: Browser;
let heard = 0;
const receiver = createServer((request, response) => {
  heard += 1;
  request.resume().on("end", () => response.end());
});

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  await server.createEntity({
    id: PUMP,
    type: "Pump",
    pressure: { type: "Number", value: 2 },
    state: { type: "Text", value: "off" },
  });
});

afterAll(async () => {
  receiver.closeAllConnections();
  receiver.close();
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
      await detail.getByRole("button", { name: "pressure" }).click();
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
      await detail.getByRole("button", { name: "state" }).click();
      const changes = detail.getByRole("list", { name: "Changes, newest first" }).getByRole("listitem");
      await eventually(() => changes.locator("span").allTextContents(), ["fault", "on", "off"]);
      expect(await accessibilityFaults(page)).toEqual([]);
      await detail.getByRole("button", { name: "state" }).click();
      await eventually(() => changes.count(), 0);
    });
  });
});

describe("the list of subscriptions", () => {
  it("says that there are none", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("navigation", { name: "Lists" }).getByRole("link", { name: "Subscriptions" }).click();
      await page.getByText("There are no subscriptions yet").waitFor();
    });
  });

  it("shows the state of delivery, pauses and resumes", async () => {
    const { port } = receiver.address() as AddressInfo;
    await server.subscribe("To the receiver", "Pump", `http://127.0.0.1:${port}/told`, "memory");
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/entities?list=subscriptions");
      const row = page.getByRole("row").filter({ hasText: "To the receiver" });
      await row.getByText("Quiet").waitFor();
      await server.setValue(PUMP, "pressure", 11);
      await row.getByText("Delivering").waitFor();
      await row.getByRole("cell", { name: "Pump on every change" }).waitFor();
      expect(heard).toBe(1);

      await row.getByRole("button", { name: "To the receiver" }).click();
      const detail = page.getByRole("complementary", { name: "To the receiver" });
      await detail.getByText("1 notification, the last").waitFor();
      await detail.getByText("status 200").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await detail.getByRole("button", { name: "Pause" }).click();
      await detail.getByText("Paused").waitFor();
      await server.setValue(PUMP, "pressure", 12);
      await detail.getByRole("button", { name: "Resume" }).click();
      await detail.getByText("Delivering").waitFor();
      await server.setValue(PUMP, "pressure", 13);
      await detail.getByText("2 notifications, the last").waitFor();
      await page.keyboard.press("Escape");
      await detail.waitFor({ state: "detached" });
    });
  });

  it("shows why a receiver is not reached and how many notifications wait for it", async () => {
    // Nobody listens there: a port that has just been given up.
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
    const { port } = gone.address() as AddressInfo;
    await new Promise((resolve) => gone.close(resolve));
    await server.subscribe("To nobody", "Pump", `http://127.0.0.1:${port}/`, "durable");
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await server.setValue(PUMP, "pressure", 21);
      await open(page, "/entities?list=subscriptions");
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(overflow).toBe(0);
      await page.getByRole("row").filter({ hasText: "To nobody" }).getByText("Failing").waitFor();
      await page.getByRole("button", { name: "To nobody" }).click();
      const detail = page.getByRole("complementary", { name: "To nobody" });
      await detail.getByRole("definition").filter({ hasText: "no connection" }).waitFor();
      await detail.getByText(/^1 notification, [\d.]+ (?:B|KiB); 0 dropped$/).waitFor();
      await page.reload();
      await detail.getByRole("definition").filter({ hasText: "no connection" }).waitFor();
    });
  });
});
