/** Jobs: the list, the graph, the records on an edge, and the ways to end one; in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

/** Readings in Fahrenheit become Celsius; warm ones go to one topic, those that are no numbers to another. */
function warm(name: string, topic: string): Record<string, unknown> {
  return {
    version: 1,
    kind: "Job",
    id: `id-of-${name}`,
    name,
    sources: { readings: { type: "stream", config: { topic } } },
    transforms: {
      known: { type: "filter", inputs: ["readings"], where: "temp IS NOT NULL" },
      celsius: { type: "map", inputs: ["known"], select: "*, (CAST(temp AS DOUBLE) - 32) / 1.8 AS celsius" },
    },
    sinks: {
      warm: { type: "stream", inputs: ["celsius"], config: { topic: "warm-readings" } },
      dead: { type: "stream", inputs: ["celsius"], config: { topic: "dead-readings" } },
    },
    routes: [
      { from: "celsius", on_error: true, to: ["dead"], select: "error.message AS error, input AS record", stop: true },
      { from: "celsius", when: "celsius > 20", to: ["warm"] },
    ],
  };
}

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  for (const topic of ["readings", "warm-readings", "dead-readings"]) await server.createTopic(topic);
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);

const send = (...temps: (number | string)[]): Promise<void> =>
  server.append(
    "readings",
    temps.map((temp) => ({ key: "d1", value: { temp } })),
  );

describe("the page of jobs", () => {
  it("without jobs says how to submit the first one", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Jobs" }).click();
      await page.getByText("There are no jobs yet").waitFor();
      await page.getByText("millstream job new > job.yaml").waitFor();
      await page.getByText("millstream job submit job.yaml").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("lists jobs with their state, and the reason why one waits", async () => {
    await server.submitJob(warm("warm", "readings"));
    await server.submitJob(warm("waiting", "nobody-made-this-topic"));
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs");
      const running = page.getByRole("row").filter({ hasText: "id-of-warm" });
      await running.getByText("Running").waitFor();
      const waiting = page.getByRole("row").filter({ hasText: "id-of-waiting" });
      await waiting.getByText("Waiting", { exact: true }).waitFor();
      await waiting.getByRole("cell", { name: /nobody-made-this-topic.*does not exist/ }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.getByRole("combobox", { name: "State" }).selectOption("running");
      await eventually(() => waiting.count(), 0);
      await page.getByRole("combobox", { name: "State" }).selectOption("");
      await page.getByRole("combobox", { name: "Name" }).fill("wait");
      await waiting.waitFor();
      await eventually(() => running.count(), 0);
      expect(new URL(page.url()).searchParams.get("name")).toBe("wait");
      await page.getByRole("combobox", { name: "Name" }).fill("nothing-like-it");
      await page.getByText("No job matches").waitFor();
    });
  });
});

describe("a job that ran whenever the server went down", () => {
  it("is paused and says why, and is resumed after a question", async () => {
    const own = await Server.start();
    try {
      for (const topic of ["readings", "warm-readings", "dead-readings"]) await own.createTopic(topic);
      await own.submitJob(warm("warm", "readings"));
      for (let death = 0; death < 3; death++) {
        await own.kill();
        await own.restart();
      }
      await withPage(browser, {}, async (page) => {
        await openPage(page, own, "/jobs?job=id-of-warm");
        await page.getByText("Paused", { exact: true }).waitFor();
        await page.getByText(/went down 3 times in a row/).waitFor();
        expect(await accessibilityFaults(page)).toEqual([]);
        await page.getByRole("button", { name: "Resume" }).click();
        await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
        await page.getByText("Running", { exact: true }).waitFor();
        await eventually(() => page.getByRole("button", { name: "Resume" }).count(), 0);
      });
    } finally {
      await own.stop();
    }
  });
});

describe("a job", () => {
  it("is a graph whose nodes have live figures, with sources left and sinks right", async () => {
    await withPage(browser, { width: 1480, height: 1000 }, async (page) => {
      await open(page, "/jobs");
      await page.getByRole("link", { name: "warm", exact: true }).click();
      await page.getByRole("heading", { name: "warm", level: 1 }).waitFor();
      const node = (name: string) => page.getByRole("group", { name });
      const errors = page.getByRole("group", { name: "Errors", exact: true });
      await send(77, "hot", 50);
      await node("transform celsius").getByText("1 error").waitFor();
      await node("transform celsius").getByText("1 unrouted").waitFor();
      await errors.getByText("1 error at all nodes").waitFor();
      const read = page.getByRole("group", { name: "Read", exact: true });
      await read.getByText("3 records by all sources").waitFor();
      await node("source readings").getByText("lag").waitFor();

      const lefts = await Promise.all(
        ["source readings", "transform known", "transform celsius", "sink warm"].map(
          async (name) => (await node(name).boundingBox())?.x ?? 0,
        ),
      );
      expect(lefts).toEqual(lefts.toSorted((a, b) => a - b));
      const sinks = await Promise.all(
        ["sink warm", "sink dead"].map(async (name) => (await node(name).boundingBox())?.x ?? 0),
      );
      expect(sinks[0]).toBe(sinks[1]);
      // The graph stays where it is while its figures change.
      const before = await node("sink warm").boundingBox();
      await send(78);
      await read.getByText("4 records by all sources").waitFor();
      expect(await node("sink warm").boundingBox()).toEqual(before);
    });
  });

  it("shows the records on an edge as they pass, and holds them still", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/jobs?job=id-of-warm");
      await page.getByRole("button", { name: "Records from celsius to warm" }).click();
      const tap = page.getByRole("region", { name: "Records from celsius to warm" });
      await tap.getByText("Waiting for the first record on this edge").waitFor();
      await send(95, 14);
      await tap.getByRole("cell", { name: "35", exact: true }).waitFor();
      await tap.getByRole("columnheader", { name: "$key" }).waitFor();
      expect(await tap.getByRole("cell", { name: "-10", exact: true }).count()).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);

      await tap.getByRole("button", { name: "Pause" }).click();
      await send(86);
      await tap.getByText("1 record passed by meanwhile").waitFor();
      expect(await tap.getByRole("cell", { name: "30", exact: true }).count()).toBe(0);
      await tap.getByRole("button", { name: "Resume" }).click();
      await send(104);
      await tap.getByRole("cell", { name: "40", exact: true }).waitFor();

      await page.reload();
      await tap.getByText("Waiting for the first record on this edge").waitFor();
      await tap.getByRole("button", { name: "Close the tap" }).click();
      await tap.waitFor({ state: "detached" });
      expect(new URL(page.url()).searchParams.get("edge")).toBeNull();
      await page.getByRole("button", { name: "Errors from celsius to dead" }).click();
      const dead = page.getByRole("region", { name: "Records from celsius to dead" });
      await dead.getByText("Waiting for the first record on this edge").waitFor();
      await send("cold");
      await dead.getByRole("cell", { name: '{"temp":"cold"}', exact: true }).waitFor();
    });
  });

  it("has its document and says that no errors were kept", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await open(page, "/jobs?job=id-of-warm");
      const document = page.getByRole("region", { name: "Document" });
      await document.getByText('"where": "temp IS NOT NULL"').waitFor();
      await page.getByText("No errors", { exact: true }).waitFor();
      const overflow = await page.evaluate(() => globalThis.document.documentElement.scrollWidth - window.innerWidth);
      expect(overflow).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("that waits says for what, at its node, and is killed after a question", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?job=id-of-waiting");
      await page.getByRole("alert").filter({ hasText: "nobody-made-this-topic" }).waitFor();
      await page.getByRole("group", { name: "source readings" }).getByText("does not exist").waitFor();
      await page.getByRole("button", { name: "Kill" }).click();
      const question = page.getByRole("dialog", { name: "Kill waiting?" });
      await question.waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await question.waitFor({ state: "detached" });
      await page.getByRole("status").filter({ hasText: "Waiting" }).waitFor();
      await page.getByRole("button", { name: "Kill" }).click();
      await question.getByRole("button", { name: "Kill" }).click();
      await page.getByRole("status").filter({ hasText: "Killed" }).waitFor();
      await eventually(() => page.getByRole("button", { name: "Stop" }).count(), 0);
    });
  });

  it("is stopped after a question, ends its tap, and keeps its graph", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?job=id-of-warm&edge=celsius,warm");
      await page.getByText("Waiting for the first record on this edge").waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      const question = page.getByRole("dialog", { name: "Stop warm?" });
      await question.getByRole("button", { name: "Stop" }).click();
      await page.getByText("Stopped", { exact: true }).waitFor();
      await page.getByText("The job is stopped").waitFor();
      await page.getByRole("group", { name: "sink warm" }).waitFor();
      await eventually(() => page.getByRole("button", { name: "Records from celsius to warm" }).count(), 0);
    });
  });

  it("that does not exist is no blank page", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?job=no-such-job");
      await page.getByRole("alert").filter({ hasText: "no-such-job" }).waitFor();
    });
  });
});
