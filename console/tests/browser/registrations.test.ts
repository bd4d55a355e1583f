/** A person sees which context providers are registered and how they answer: a real browser, server and provider. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

/** A provider that answers what a test says. */
let answers = 200;
const provider = createServer((request, response) => {
  request.resume().on("end", () => {
    const entity = { id: "lamp1", type: "Lamp", battery: { type: "Number", value: 71, metadata: {} } };
    response.writeHead(answers, { "Content-Type": "application/json" }).end(JSON.stringify([entity]));
  });
});

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve));
});

afterAll(async () => {
  provider.closeAllConnections();
  provider.close();
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

async function register(description: string, entity: string, attrs: string[], mode: string): Promise<void> {
  const url = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const body = {
    description,
    dataProvided: { entities: [{ id: entity, type: "Lamp" }], attrs },
    provider: { http: { url }, supportedForwardingMode: mode },
  };
  const made = await fetch(`${server.url}/v2/registrations`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  expect(made.status).toBe(201);
}

const read = (entity: string): Promise<Response> => fetch(`${server.url}/v2/entities/${entity}?type=Lamp`);

describe("the list of registrations", () => {
  it("says that there are none, and shows a command that makes one", async () => {
    await withPage(browser, {}, async (page) => {
      await openPage(page, server, "/entities");
      await page.getByRole("navigation", { name: "Lists" }).getByRole("link", { name: "Registrations" }).click();
      await page.getByText("There are no registrations yet").waitFor();
      await page.getByRole("group", { name: "Command" }).getByText(`curl ${server.url}/v2/registrations`).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("shows what each provider has and how it last answered", async () => {
    await register("Agent", "lamp1", ["battery", "on"], "all");
    await register("", "lamp2", [], "none");
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await openPage(page, server, "/entities?list=registrations");
      const row = page.getByRole("row").filter({ hasText: "Agent" });
      await row.getByText("Quiet").waitFor();
      await row.getByRole("cell", { name: "battery, on of lamp1 (Lamp)" }).waitFor();
      await row.getByRole("cell", { name: "queries, updates" }).waitFor();
      const other = page.getByRole("row").filter({ hasText: "all of lamp2 (Lamp)" });
      await other.getByText("Off").waitFor();
      await other.getByRole("cell", { name: "nothing" }).waitFor();

      expect((await read("lamp1")).status).toBe(200);
      await row.getByText("Answering").waitFor();
      await row.getByText("200").waitFor();
      answers = 500;
      expect((await read("lamp1")).status).toBe(404);
      await row.getByText("Failing").waitFor();
      await row.getByText("the provider answered 500").waitFor();
      answers = 200;
      await read("lamp1");
      await row.getByText("Answering").waitFor();
      await row.getByRole("cell", { name: "3", exact: true }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("fits a small screen", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await openPage(page, server, "/entities?list=registrations");
      await page.getByRole("row").filter({ hasText: "Agent" }).waitFor();
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(overflow).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });
});
