/** The engine that keeps the log, on the overview: the built-in one, and Apache Kafka. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, launchBrowser, openPage, withPage } from "./console";
import { TestBroker } from "./kafka";
import { Server } from "./server";

/** A broker takes half a minute to start on a busy machine. */
const START_MS = 300_000;

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
});

afterAll(async () => {
  await (browser as Browser | undefined)?.close();
});

describe("the log on the overview", () => {
  it("is the built-in one, with its directory", async () => {
    const server = await Server.start();
    try {
      await server.createTopic("orders");
      await withPage(browser, {}, async (page) => {
        await openPage(page, server, "/");
        const log = page.getByRole("region", { name: "Log", exact: true });
        await log.getByText("built in").waitFor();
        await log.getByText(/\/millstream-console-.*\/log$/).waitFor();
        expect(await log.getByRole("table").count()).toBe(0);
        await page.getByRole("group", { name: "Sync p99" }).waitFor();
        await page.getByRole("button", { name: "orders" }).click();
        const partitions = page.getByRole("table", { name: "Partitions of orders" });
        await partitions.getByRole("columnheader", { name: "Segments" }).waitFor();
      });
    } finally {
      await server.stop();
    }
  });

  it(
    "is Apache Kafka, with its brokers and those that are silent",
    async () => {
      const broker = await TestBroker.start();
      const server = await Server.start("", broker.settings());
      try {
        await server.createTopic("orders");
        await withPage(browser, { width: 390 }, async (page) => {
          await openPage(page, server, "/");
          const log = page.getByRole("region", { name: "Log", exact: true });
          await log.getByText("Apache Kafka, 1 of 1 broker answers").waitFor();
          const row = log.getByRole("row", { name: new RegExp(broker.address) });
          await row.getByText("answers").waitFor();
          await page.getByRole("group", { name: "Replicated p99" }).waitFor();
          await page.getByRole("button", { name: "orders" }).click();
          const partitions = page.getByRole("table", { name: "Partitions of orders" });
          await partitions.getByRole("columnheader", { name: "Tail" }).waitFor();
          expect(await partitions.getByRole("columnheader", { name: "Segments" }).count()).toBe(0);
          expect(await accessibilityFaults(page)).toEqual([]);
          broker.pause();
          await row.getByText(/^silent for /).waitFor();
          await log.getByText("Apache Kafka, 0 of 1 broker answer").waitFor();
          broker.resume();
          await row.getByText("answers").waitFor();
        });
      } finally {
        await server.stop();
        broker.stop();
      }
    },
    START_MS,
  );
});
