/** A person has receivers told of changes, and sees what becomes of it: a real browser, server and receiver. */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

const PUMP = "pump1";

let server: Server;
let browser: Browser;

/** A receiver that answers what a test says, and keeps what it takes. */
let answers = 200;
const taken: { path: string; body: unknown }[] = [];
const receiver = createServer((request, response) => {
  void bodyOf(request).then((body) => {
    if (answers === 200) taken.push({ path: request.url ?? "", body: JSON.parse(body) as unknown });
    response.writeHead(answers).end();
  });
});

async function bodyOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

const url = (path: string): string => `http://127.0.0.1:${(receiver.address() as AddressInfo).port}${path}`;

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const [pressure, state] = [{ value: 2 }, { value: "off" }];
  await server.createEntity({ id: PUMP, type: "Pump", pressure, state });
});

afterAll(async () => {
  receiver.closeAllConnections();
  receiver.close();
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);

/** The text beside a name in the detail of a subscription. */
const fact = (detail: Locator, name: string): Locator =>
  detail
    .locator("dl > div")
    .filter({ has: detail.page().getByText(name, { exact: true }) })
    .getByRole("definition");

/** The only subscription with this description. */
async function stored(description: string): Promise<Record<string, unknown>> {
  const all = (await (await fetch(`${server.url}/v2/subscriptions`)).json()) as Record<string, unknown>[];
  const found = all.filter((one) => one.description === description);
  expect(found).toHaveLength(1);
  return found[0] ?? {};
}

describe("the list of subscriptions", () => {
  it("says that there are none, and shows a command that makes one", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("navigation", { name: "Lists" }).getByRole("link", { name: "Subscriptions" }).click();
      await page.getByText("There are no subscriptions yet").waitFor();
      await page.getByRole("group", { name: "Command" }).getByText(`curl ${server.url}/v2/subscriptions`).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("shows the state of delivery, pauses and resumes", async () => {
    await server.subscribe("To the receiver", "Pump", url("/told"), "memory");
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/entities?list=subscriptions");
      const row = page.getByRole("row").filter({ hasText: "To the receiver" });
      await row.getByText("Quiet").waitFor();
      await server.setValue(PUMP, "pressure", 11);
      await row.getByText("Delivering").waitFor();
      await row.getByRole("cell", { name: "Pump on every change" }).waitFor();
      expect(taken.filter(({ path }) => path === "/told")).toHaveLength(1);

      await row.getByRole("button", { name: "To the receiver" }).click();
      const detail = page.getByRole("complementary", { name: "To the receiver" });
      await detail.getByText("1 notification, the last").waitFor();
      await detail.getByText("status 200").waitFor();
      await eventually(() => fact(detail, "Delivered").textContent(), "1");
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
      await fact(detail, "Waiting").getByText("1 notification, ").waitFor();
      await eventually(() => fact(detail, "Delivered").textContent(), "0");
      await page.reload();
      await detail.getByRole("definition").filter({ hasText: "no connection" }).waitFor();
    });
  });
});

describe("a subscription", () => {
  it("is created by a form; the server's refusal stands at its field", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: "Create a subscription" }).click();
      const form = page.getByRole("dialog", { name: "Create a subscription" });
      await form.getByRole("textbox", { name: "Description" }).fill("Hot pumps");
      await form.getByRole("combobox", { name: "Of type" }).fill("Pump");
      await form.getByRole("textbox", { name: "When these attributes change" }).fill("pressure");
      await form.getByRole("textbox", { name: "If (q)" }).fill("pressure>");
      await form.getByRole("textbox", { name: "Attributes to send" }).fill("pressure");
      await form.getByRole("combobox", { name: "Format" }).selectOption("keyValues");
      await form.getByRole("combobox", { name: "What waits" }).selectOption("on disk: goes on after a restart");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "Write where notifications go" }).waitFor();
      const address = form.getByRole("textbox", { name: "URL" });
      await address.fill("ftp://pumps");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "nothing stands right of '>'" }).waitFor();
      expect(await form.getByRole("textbox", { name: "If (q)" }).getAttribute("aria-invalid")).toBe("true");
      await form.getByRole("textbox", { name: "If (q)" }).fill("pressure>100");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "'ftp://pumps': it must be http://host" }).waitFor();
      expect(await address.getAttribute("aria-invalid")).toBe("true");
      expect(await accessibilityFaults(page)).toEqual([]);
      await address.fill(url("/hot"));
      await form.getByRole("button", { name: "Create" }).click();

      const detail = page.getByRole("complementary", { name: "Hot pumps" });
      await detail.getByText("Pump when pressure changes, if pressure>100").waitFor();
      await detail.getByText("Quiet").waitFor();
      for (const pressure of [50, 101]) await server.setValue(PUMP, "pressure", pressure);
      await eventually(() => fact(detail, "Delivered").textContent(), "1");
      const hot = taken.filter(({ path }) => path === "/hot");
      expect(hot).toMatchObject([{ body: { data: [{ id: PUMP, type: "Pump", pressure: 101 }] } }]);
    });
  });

  it("tells what waits while its receiver refuses, and that it was delivered once it accepts", async () => {
    answers = 503;
    await server.subscribe("To one that refuses", "Pump", url("/refusing"), "durable");
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: "To one that refuses" }).click();
      const detail = page.getByRole("complementary", { name: "To one that refuses" });
      await server.setValue(PUMP, "state", "on");
      await detail.getByText("Failing").waitFor();
      await fact(detail, "Waiting").getByText("1 notification,").waitFor();
      await fact(detail, "Last failure").getByText("503").waitFor();
      expect(await fact(detail, "Delivered").textContent()).toBe("0");
      expect(await fact(detail, "Last success").textContent()).toBe("none yet");
      expect(await accessibilityFaults(page)).toEqual([]);
      answers = 200;
      await eventually(() => fact(detail, "Delivered").textContent(), "1");
      await fact(detail, "Waiting").getByText("none", { exact: true }).waitFor();
      await fact(detail, "Last success").getByText("status 200").waitFor();
      await detail.getByText("Delivering").waitFor();
      expect(await fact(detail, "Given up").textContent()).toBe("0");
    });
  });

  it("is changed by a form, and keeps what the form does not show", async () => {
    const subject = {
      entities: [{ id: PUMP, type: "Pump" }],
      condition: { attrs: [], expression: { q: "pressure>100", mq: "pressure.unit" }, notifyOnMetadataChange: false },
    };
    const notification = { httpCustom: { url: url("/custom"), headers: { "x-a": "b" } }, onlyChangedAttrs: true };
    const made = await fetch(`${server.url}/v2/subscriptions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ description: "Before", subject, notification, throttling: 5 }),
    });
    expect(made.status).toBe(201);
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: "Before" }).click();
      await page.getByRole("complementary", { name: "Before" }).getByRole("button", { name: "Edit" }).click();
      const form = page.getByRole("dialog", { name: "Change the subscription" });
      await form.getByRole("textbox", { name: "Description" }).fill("After");
      await form.getByRole("textbox", { name: "If (q)" }).fill("");
      await form.getByRole("textbox", { name: "URL" }).fill(url("/other"));
      await form.getByRole("textbox", { name: "At most one every" }).fill("");
      await form.getByLabel("Expires").fill("2050-04-05T14:00:00");
      await form.getByRole("button", { name: "Save" }).click();
      await page.getByRole("complementary", { name: "After" }).waitFor();
      const after = await stored("After");
      expect(after).toMatchObject({
        subject: { ...subject, condition: { ...subject.condition, expression: { mq: "pressure.unit" } } },
        notification: { httpCustom: { url: url("/other"), headers: { "x-a": "b" } }, onlyChangedAttrs: true },
        expires: new Date("2050-04-05T14:00:00").toISOString(),
      });
      expect(after).not.toHaveProperty("throttling");
      expect(after).not.toHaveProperty("subject.condition.expression.q");
    });
  });

  it("to an MQTT broker is created with a login that is never shown again", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: "Create a subscription" }).click();
      const form = page.getByRole("dialog", { name: "Create a subscription" });
      await form.getByRole("textbox", { name: "Description" }).fill("By MQTT");
      await form.getByRole("combobox", { name: "By", exact: true }).selectOption("MQTT");
      await form.getByRole("textbox", { name: "URL" }).fill("mqtt://127.0.0.1:1");
      await form.getByRole("textbox", { name: "Topic" }).fill("pumps/#");
      await form.getByRole("combobox", { name: "Quality of service" }).selectOption("1: at least once");
      await form.getByRole("textbox", { name: "User" }).fill("anna");
      await form.getByLabel("Password").fill("hunter2");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "no + and no #" }).waitFor();
      expect(await form.getByRole("textbox", { name: "Topic" }).getAttribute("aria-invalid")).toBe("true");
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByRole("textbox", { name: "Topic" }).fill("pumps");
      await form.getByRole("button", { name: "Create" }).click();
      const detail = page.getByRole("complementary", { name: "By MQTT" });
      await detail.getByText("mqtt://127.0.0.1:1 pumps").waitFor();
      expect(await stored("By MQTT")).toMatchObject({
        notification: { mqtt: { topic: "pumps", qos: 1, user: "anna" } },
      });
      await detail.getByRole("button", { name: "Edit" }).click();
      const change = page.getByRole("dialog", { name: "Change the subscription" });
      await change.getByRole("textbox", { name: "Topic" }).fill("pumps/all");
      await change.getByRole("button", { name: "Save" }).click();
      await change.getByRole("alert").filter({ hasText: "which the server does not show" }).waitFor();
      await change.getByLabel("Password").fill("hunter2");
      await change.getByRole("button", { name: "Save" }).click();
      await detail.getByText("mqtt://127.0.0.1:1 pumps/all").waitFor();
      await detail.getByText("As JSON").click();
      expect(await detail.textContent()).not.toContain("hunter2");
    });
  });

  it("to a topic of Kafka is created with a key and a condition in JEXL", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: "Create a subscription" }).click();
      const form = page.getByRole("dialog", { name: "Create a subscription" });
      await form.getByRole("textbox", { name: "Description" }).fill("To Kafka");
      await form.getByRole("combobox", { name: "Of type" }).fill("Pump");
      await form.getByRole("textbox", { name: "Condition in JEXL" }).fill("pressure > 1000");
      await form.getByRole("combobox", { name: "By", exact: true }).selectOption("Kafka");
      await form.getByRole("textbox", { name: "URL" }).fill("kafka://127.0.0.1:1");
      await form.getByRole("textbox", { name: "Topic" }).fill("pump rooms");
      await form.getByRole("textbox", { name: "Key of the records" }).fill("building-7");
      await form.getByRole("textbox", { name: "User" }).fill("anna");
      await form.getByRole("combobox", { name: "Mechanism" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByRole("textbox", { name: "User" }).fill("");
      await form.getByRole("combobox", { name: "Mechanism" }).waitFor({ state: "detached" });
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "'pump rooms' is no topic of Kafka" }).waitFor();
      expect(await form.getByRole("textbox", { name: "Topic" }).getAttribute("aria-invalid")).toBe("true");
      await form.getByRole("textbox", { name: "Topic" }).fill("rooms");
      await form.getByRole("button", { name: "Create" }).click();

      const detail = page.getByRole("complementary", { name: "To Kafka" });
      expect(await fact(detail, "About").textContent()).toBe("Pump on every change, if jexl pressure > 1000");
      await fact(detail, "Tells").getByText("kafka://127.0.0.1:1 rooms").waitFor();
      const { subject, notification } = await stored("To Kafka");
      expect(subject).toHaveProperty("condition.jexlExpression", "pressure > 1000");
      expect(notification).toHaveProperty("kafka", { url: "kafka://127.0.0.1:1", topic: "rooms", key: "building-7" });
      for (const pressure of [999, 1001]) await server.setValue(PUMP, "pressure", pressure);
      await fact(detail, "Last failure").getByText("Kafka tells no reason").waitFor();
      await fact(detail, "Made").getByText("1 notification,").waitFor();
      const row = page.getByRole("row").filter({ hasText: "To Kafka" });
      await row.getByRole("cell", { name: "kafka://127.0.0.1:1 rooms" }).waitFor();
      await row.getByText("Failing").waitFor();
    });
  });

  it("is deleted after a question, and hears no more", async () => {
    await server.subscribe("To be deleted", "Pump", url("/deleted"), "memory");
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: "To be deleted" }).click();
      const detail = page.getByRole("complementary", { name: "To be deleted" });
      await detail.getByRole("button", { name: "Delete subscription" }).click();
      const question = page.getByRole("dialog", { name: "Delete this subscription?" });
      expect(await accessibilityFaults(page)).toEqual([]);
      await question.getByRole("button", { name: "Cancel" }).click();
      await stored("To be deleted");
      await detail.getByRole("button", { name: "Delete subscription" }).click();
      await question.getByRole("button", { name: "Delete subscription" }).click();
      await detail.waitFor({ state: "detached" });
      await eventually(() => page.getByRole("button", { name: "To be deleted" }).count(), 0);
      // Another subscription hears of this change, so this one would have, too.
      await server.setValue(PUMP, "pressure", 500);
      const told = (): boolean =>
        taken.some(({ path, body }) => path === "/told" && JSON.stringify(body).includes("500"));
      await eventually(() => Promise.resolve(told()), true);
      expect(taken.filter(({ path }) => path === "/deleted")).toHaveLength(0);
    });
  });
});

it.each(["light", "dark"] as const)(
  "every form can be used without seeing or pointing, in %s colours",
  async (scheme) => {
    await server.subscribe(`In ${scheme}`, "Nothing", url("/"), "durable");
    await withPage(browser, { scheme }, async (page) => {
      await open(page, "/entities?list=subscriptions");
      await page.getByRole("button", { name: `In ${scheme}` }).click();
      const detail = page.getByRole("complementary", { name: `In ${scheme}` });
      await detail.getByText("Made", { exact: true }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await detail.getByRole("button", { name: "Edit" }).click();
      for (const target of ["MQTT", "Kafka"]) {
        await page.getByRole("combobox", { name: "By", exact: true }).selectOption(target);
        expect(await accessibilityFaults(page)).toEqual([]);
      }
    });
  },
);
