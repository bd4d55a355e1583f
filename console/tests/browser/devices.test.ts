/** Devices: found, registered and heard; in a real browser against a real server with real devices. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { DeviceClient } from "./device-client";
import { Server } from "./server";

const PASSWORD = "hush-hush-42";

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
const device = (id: string): DeviceClient => new DeviceClient(server, id, PASSWORD);
const row = (page: Page, name: string) => page.getByRole("row").filter({ hasText: name });
const messages = (page: Page) => page.getByRole("region", { name: "Messages", exact: true });

async function overflow(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}

async function confirmed(page: Page, button: string): Promise<void> {
  await page.getByRole("button", { name: button, exact: true }).first().click();
  const question = page.getByRole("dialog");
  await question.waitFor();
  await question.getByRole("button", { name: button, exact: true }).click();
  await question.waitFor({ state: "detached" });
}

describe("a tenant without devices", () => {
  it("says how to begin; one is created after the server has refused what cannot be", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Devices" }).click();
      await page.getByText("Tenant default has no devices yet").waitFor();
      await page.getByText("mosquitto_pub").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.getByRole("button", { name: "Create a device" }).click();
      const form = page.getByRole("dialog", { name: "Create a device" });
      await form.getByLabel(/^Id/).fill("no blanks");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "no blanks" }).waitFor();
      await form.getByLabel(/^Id/).fill("first");
      await form.getByLabel(/^Extensions/).fill("[1]");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "Ext is no JSON object" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByLabel(/^Extensions/).fill('{"hall": "east"}');
      await form.getByLabel(/^Password/).fill(PASSWORD);
      await form.getByRole("button", { name: "Create" }).click();

      await page.getByRole("heading", { name: "first", level: 1 }).waitFor();
      await page.getByText("No message of this device yet").waitFor();
      await page.getByText("-u first@default:PASSWORD").waitFor();
      await page.getByRole("group", { name: "Last seen" }).getByText("never").waitFor();
      await page.getByLabel("Extensions as JSON").getByText('"hall": "east"').waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });
});

describe("a device", () => {
  it("shows what it sends over HTTP and MQTT as it comes, and when it was last seen", async () => {
    const sensor = await device("sensor").register();
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=sensor");
      await messages(page).getByText("No message of this device yet").waitFor();
      expect(await sensor.send("telemetry", '{"temp": 21.5}')).toBe(202);
      await row(page, '{"temp": 21.5}').getByRole("cell", { name: "telemetry" }).waitFor();
      await sensor.publish("event", "door open");
      await row(page, "door open").getByRole("cell", { name: "event" }).waitFor();
      await eventually(() => page.getByRole("group", { name: "Last seen" }).getByText("never").count(), 0);
      expect(await accessibilityFaults(page)).toEqual([]);

      await device("sensor").send("telemetry", '{"temp": 22}');
      await row(page, '{"temp": 22}').getByRole("link").click();
      await page.getByRole("complementary").getByText('"temp": 22').waitFor();
      await page.getByRole("heading", { name: "telemetry.default", level: 1 }).waitFor();

      // Who comes later sees the last messages, too.
      await open(page, "/devices?device=sensor");
      await row(page, "door open").waitFor();
      await messages(page).getByRole("button", { name: "Pause" }).click();
      await sensor.send("telemetry", '{"temp": 23}');
      await messages(page).getByText("1 record passed by meanwhile").waitFor();
      expect(await row(page, '{"temp": 23}').count()).toBe(0);
    });
  });

  it("is connected while its MQTT connection is open", async () => {
    const listener = await device("listener").register();
    const connection = listener.listen();
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=listener");
      const tile = page.getByRole("group", { name: "MQTT" });
      await tile.getByText("connected", { exact: true }).waitFor();
      await open(page, "/devices?state=connected");
      await row(page, "listener").getByText("connected").waitFor();
      await connection.close();
      await open(page, "/devices?device=listener");
      await tile.getByText("offline").waitFor();
    });
  });

  it("whose measurements become no entity is named with the reason, on its page and above the list", async () => {
    const plain = await device("plain").register();
    await plain.send("telemetry", "21.5 degrees", "text/plain");
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=plain");
      await page.getByRole("alert").filter({ hasText: "payload is no JSON object" }).waitFor();
      await page.getByRole("group", { name: "Mapping errors" }).getByText("1", { exact: true }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await open(page, "/devices");
      const warning = page.getByRole("alert").filter({ hasText: "1 device sends measurements that become no entity" });
      await warning.getByRole("link", { name: "plain" }).waitFor();
      await row(page, "plain").getByText("no entity").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("is disabled and enabled, changed and deleted, each after a question or by a form", async () => {
    const lamp = await device("lamp").register({ via: ["first"] });
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=lamp");
      await page.getByRole("group", { name: "MQTT" }).getByText("behind first").waitFor();
      await page.getByRole("button", { name: "Disable", exact: true }).first().click();
      await page.getByRole("dialog", { name: "Disable lamp?" }).getByRole("button", { name: "Cancel" }).click();
      await confirmed(page, "Disable");
      await page.getByText("disabled", { exact: true }).first().waitFor();
      await eventually(() => lamp.send("telemetry", "{}"), 404);
      await open(page, "/devices?state=disabled");
      await row(page, "lamp").getByText("disabled").waitFor();
      await open(page, "/devices?device=lamp");
      await confirmed(page, "Enable");
      await eventually(() => lamp.send("telemetry", "{}"), 202);

      await page.getByRole("button", { name: "Change registration" }).click();
      const form = page.getByRole("dialog", { name: "Change registration" });
      await form.getByLabel(/^Extensions/).fill('{"context": {"attributes": {"celsius": "(f - 32"}}}');
      await form.getByRole("button", { name: "Change" }).click();
      await form.getByRole("alert").filter({ hasText: "attributes.celsius" }).waitFor();
      await form.getByLabel(/^Extensions/).fill('{"context": {"type": "Lamp"}}');
      await form.getByLabel(/^Gateways/).fill("first, second");
      await form.getByRole("button", { name: "Change" }).click();
      await form.waitFor({ state: "detached" });
      await page.getByLabel("Extensions as JSON").getByText('"type": "Lamp"').waitFor();
      await page.getByRole("definition").filter({ hasText: "first, second" }).waitFor();

      await confirmed(page, "Delete device");
      await page.getByRole("heading", { name: "Devices", level: 1 }).waitFor();
      await row(page, "first").waitFor();
      await eventually(() => row(page, "lamp").count(), 0);
      await open(page, "/devices?device=lamp");
      await page.getByRole("alert").filter({ hasText: "lamp" }).waitFor();
    });
  });
});

describe("the devices of a tenant", () => {
  it("are found by id, kind and page", async () => {
    for (let number = 10; number < 40; number += 1) await device(`node-${number}`).register({ via: ["node-10"] });
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?limit=25");
      const search = page.getByRole("combobox", { name: "Id", exact: true });
      await search.fill("node-");
      await page.getByText("1–25 of 30 devices").waitFor();
      await page.getByRole("button", { name: "Next" }).click();
      await page.getByText("26–30 of 30 devices").waitFor();
      await page.getByRole("combobox", { name: "Order" }).selectOption("created");
      await row(page, "node-39").waitFor();
      await search.fill("node-1?");
      await page.getByText("1–10 of 10 devices").waitFor();
      await page.getByRole("combobox", { name: "Kind" }).selectOption("gateways");
      await page.getByText("1–1 of 1 device", { exact: true }).waitFor();
      await search.fill("nobody");
      await page.getByText("No device is like that").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("of another tenant that is not there are no blank page", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?tenant=nobody");
      await page.getByRole("alert").filter({ hasText: "nobody" }).waitFor();
    });
  });

  it.each(["light", "dark"] as const)(
    "can be read and used without seeing or pointing, in %s colours",
    async (scheme) => {
      await withPage(browser, { scheme }, async (page) => {
        for (const path of ["/devices", "/devices?device=sensor", "/devices?device=plain"]) {
          await open(page, path);
          await page.getByRole("heading", { level: 1 }).waitFor();
          if (path.includes("device=")) await page.getByRole("heading", { name: "Registration" }).waitFor();
          expect([path, await accessibilityFaults(page)]).toEqual([path, []]);
        }
      });
    },
  );

  it("fit a phone", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      for (const path of ["/devices", "/devices?device=sensor"]) {
        await open(page, path);
        await page.getByRole("heading", { level: 1 }).waitFor();
        if (path.includes("device=")) await page.getByRole("heading", { name: "Registration" }).waitFor();
        expect([path, await overflow(page)]).toEqual([path, 0]);
        expect([path, await accessibilityFaults(page)]).toEqual([path, []]);
      }
      await open(page, "/devices");
      await page.getByRole("button", { name: "Create a device" }).click();
      await page.getByRole("dialog", { name: "Create a device" }).waitFor();
      expect(await overflow(page)).toBe(0);
    });
  });
});
