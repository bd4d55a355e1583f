/** Open alarms and the state of jobs; in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

const WATCH = {
  version: 1,
  kind: "Job",
  id: "id-of-watch",
  name: "watch",
  checkpoint: { interval: "100ms" },
  sources: { readings: { type: "stream", config: { topic: "readings" } } },
  transforms: {
    "too-warm": {
      type: "alarm",
      inputs: ["readings"],
      key_by: ["sensor"],
      config: { raise: "temp > 8", clear: "temp < 6", absent_after: "1d", severity: "'high'" },
    },
  },
  sinks: { alarms: { type: "stream", inputs: ["too-warm"], config: { topic: "alarms" } } },
};

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  for (const topic of ["readings", "alarms"]) await server.createTopic(topic);
  await server.submitJob(WATCH);
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);

const send = (sensor: string, temp: number): Promise<void> =>
  server.append("readings", [{ key: sensor, value: { sensor, temp } }]);

describe("open alarms", () => {
  it("are listed on the page of jobs once there are some, and lead to their job", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs");
      await page.getByRole("row").filter({ hasText: "id-of-watch" }).getByText("Running").waitFor();
      expect(await page.getByRole("region", { name: "Open alarms" }).count()).toBe(0);
      await send("s1", 12);
      await send("s2", 5);
      const alarm = page.getByRole("region", { name: "Open alarms by key" }).getByRole("row").filter({ hasText: "s1" });
      await alarm.getByText("raised").waitFor();
      await alarm.getByRole("cell", { name: "high" }).waitFor();
      await alarm.getByRole("cell", { name: '{"sensor":"s1","temp":12}' }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await alarm.getByRole("link", { name: "watch" }).click();
      await page.getByRole("heading", { name: "watch", level: 1 }).waitFor();
    });
  });

  it("stand on the page of their job with its checkpoint, keys and event time, and go once they end", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?job=id-of-watch");
      const alarms = page.getByRole("region", { name: "Open alarms by key" });
      await alarms.getByRole("row").filter({ hasText: "s1" }).getByText("raised").waitFor();
      const state = page.getByRole("region", { name: "State", exact: true });
      await state.getByText(/^checkpoint \d+/).waitFor();
      await state.getByRole("row", { name: /too-warm 2/ }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await send("s1", 4);
      await page.getByText("No alarm is open").waitFor();
      await eventually(() => page.getByText("raised").count(), 0);
    });
  });
});
