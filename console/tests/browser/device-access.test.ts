/** Credentials of devices and commands to them; in a real browser against a real server with real devices. */
import { execFileSync } from "node:child_process";
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

describe("the credentials of a device", () => {
  /** A certificate as a device's maker would hand it over. */
  const certificate = (): string =>
    execFileSync("openssl", [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"],
      ...["-subj", "/O=Example/CN=thermometer", "-keyout", "/dev/null"],
    ]).toString();

  it("are added by type, switched off and removed; secrets are never shown", async () => {
    const meter = await device("meter").register();
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=meter");
      const card = page.getByRole("region", { name: "Credentials", exact: true });
      const item = (name: string) => card.getByRole("listitem", { name });
      await item("Password of meter").waitFor();
      const form = page.getByRole("dialog", { name: "Add a credential" });
      const add = async (fields: Readonly<Record<string, string>>): Promise<void> => {
        if (!(await form.isVisible())) await card.getByRole("button", { name: "Add a credential" }).click();
        const { Type: type, ...texts } = fields;
        if (type !== undefined) await form.getByLabel(/^Type/).selectOption(type);
        for (const [label, text] of Object.entries(texts)) await form.getByLabel(new RegExp(`^${label}`)).fill(text);
        await form.getByRole("button", { name: "Add", exact: true }).click();
      };

      await add({ Type: "hashed-password", "Auth-id": "meter", Password: "second-secret", Comment: "spare" });
      await form.waitFor({ state: "detached" });
      await item("Password of meter").getByText("spare").waitFor();
      expect(await new DeviceClient(server, "meter", "second-secret").send("telemetry", "{}")).toBe(202);
      expect(await meter.send("telemetry", "{}")).toBe(202);

      await add({ Type: "x509-cert", Certificate: "nonsense" });
      await form.getByRole("alert").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByLabel(/^Certificate/).fill(certificate());
      await form.getByRole("button", { name: "Add", exact: true }).click();
      await form.waitFor({ state: "detached" });
      await item("Certificate of CN=thermometer,O=Example").getByText("until").waitFor();
      await add({ Type: "x509-cert", "or its subject": "CN=other" });
      await item("Certificate of CN=other").waitFor();
      await add({ Type: "psk", Key: "aHVzaA==" });
      await item("Shared key of meter").waitFor();
      await add({ Type: "rpk", "Public key": certificate() });
      await item("Public key of meter").getByText("EC").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await item("Password of meter").getByRole("button", { name: "Disable" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Disable" }).click();
      await item("Password of meter").getByText("disabled").waitFor();
      expect(await meter.send("telemetry", "{}")).toBe(401);
      await item("Password of meter").getByRole("button", { name: "Enable" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Enable" }).click();
      await eventually(() => meter.send("telemetry", "{}"), 202);

      await item("Password of meter").getByRole("button", { name: "Remove" }).first().click();
      await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
      await eventually(() => meter.send("telemetry", "{}"), 401);
      expect(await new DeviceClient(server, "meter", "second-secret").send("telemetry", "{}")).toBe(202);
      await item("Certificate of CN=other").getByRole("button", { name: "Remove" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
      await item("Certificate of CN=other").waitFor({ state: "detached" });
      const text = await page.content();
      for (const secret of [PASSWORD, "second-secret", "aHVzaA=="]) expect(text).not.toContain(secret);
    });
  });
});

describe("a command", () => {
  const card = (page: Page) => page.getByRole("region", { name: "Command", exact: true });

  it("is answered by the device, or it is said why there is no answer", async () => {
    const robot = await device("robot").register();
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=robot");
      await card(page).getByLabel(/^Name/).fill("dance");
      await card(page)
        .getByLabel(/^Payload/)
        .fill('{"steps": 3}');
      await card(page).getByRole("button", { name: "Send" }).click();
      await card(page).getByRole("alert").filter({ hasText: "obody listens for commands of the device" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await card(page).getByLabel("Waits for the device, s").fill("60");
      await card(page).getByLabel("Until answered, s").fill("60");
      await card(page).getByRole("button", { name: "Send" }).click();
      const command = await robot.takeCommand();
      expect(command).toMatchObject({ name: "dance", payload: '{"steps": 3}' });
      await robot.answer(command, 200, "three steps");
      await card(page).getByText("Answered: 200").waitFor();
      await card(page).getByText("three steps").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await card(page).getByRole("button", { name: "Send" }).click();
      await robot.answer(await robot.takeCommand(), 503, "too tired");
      await card(page).getByText("The device refused: 503").waitFor();
      await card(page).getByText("too tired").waitFor();
    });
  });

  it("without an answer waits for its device, or is taken at once", async () => {
    const mower = await device("mower").register();
    await withPage(browser, {}, async (page) => {
      await open(page, "/devices?device=mower");
      await card(page).getByLabel(/^Name/).fill("stop");
      await card(page)
        .getByLabel(/^Answer/)
        .selectOption("none");
      await card(page).getByLabel("Waits for the device, s").fill("60");
      await card(page).getByRole("button", { name: "Send" }).click();
      await card(page).getByText("stop waits for the device").waitFor();
      const connection = mower.listen();
      await expect.poll(() => connection.heard, { timeout: 100_000 }).toContain("command///req//stop");
      await card(page).getByLabel(/^Name/).fill("go");
      await card(page).getByRole("button", { name: "Send" }).click();
      await card(page).getByText("The device has go").waitFor();
      await expect.poll(() => connection.heard, { timeout: 100_000 }).toContain("command///req//go");
      await connection.close();
    });
  });
});
