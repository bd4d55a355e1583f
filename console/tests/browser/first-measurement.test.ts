/** The way of one measurement, from a device that nobody knew to all that the console shows of it. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launchBrowser, withPage } from "./console";
import { type Device, Server } from "./server";

const LA_GUARDIA: Device = { id: "LGA", name: "La Guardia", longitude: -73.87261, latitude: 40.77725 };

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

it("shows a new device in the table and on the map, its rows in a live query, and a rate", async () => {
  await withPage(browser, {}, async (page) => {
    const pages = page.getByRole("navigation", { name: "Pages" });
    await page.goto(`${server.url}/entities`);
    await page.getByText("There are no entities yet").waitFor();

    await server.register(LA_GUARDIA);
    await server.measure(LA_GUARDIA, { origin: "LGA", time: "2013-07-18T18:00:00Z", temp: 98.06 });
    const row = page.getByRole("row").filter({ hasText: "La Guardia" });
    await row.getByRole("cell", { name: "98.06" }).waitFor();
    const map = page.getByRole("application", { name: "Map of 1 entity" });
    // Alone, it stands in the middle of the map.
    await map.click();
    await page.getByRole("complementary", { name: "LGA" }).getByText("40.77725, -73.87261").waitFor();

    await pages.getByRole("link", { name: "Query" }).click();
    await page.getByRole("button", { name: "Where temp is above 98" }).click();
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByText("Waiting for the first record").waitFor();
    await server.measure(LA_GUARDIA, { origin: "LGA", time: "2013-07-19T07:00:00Z", temp: 79.5 });
    await server.measure(LA_GUARDIA, { origin: "LGA", time: "2013-07-19T18:00:00Z", temp: 100.04 });
    const rows = page.getByRole("region", { name: "Rows" });
    await rows.getByRole("cell", { name: "100.04" }).waitFor();
    await rows.getByRole("cell", { name: LA_GUARDIA.id, exact: true }).waitFor();
    expect(await rows.getByRole("cell", { name: "79.5" }).count()).toBe(0);

    await pages.getByRole("link", { name: "Overview" }).click();
    const accepted = page.getByRole("group", { name: "Accepted", exact: true });
    const rate = async (): Promise<number> => {
      // A rate is of the last seconds: the device goes on while one looks.
      await server.measure(LA_GUARDIA, { origin: "LGA", temp: 70 });
      return Number.parseFloat((await accepted.locator(".tile-value").textContent()) ?? "");
    };
    await expect.poll(rate, { timeout: 100_000, interval: 100 }).toBeGreaterThan(0);
  });
});
