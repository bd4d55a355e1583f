/** What a person does on the query page, done in a real browser against a real server. */
import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { type Device, KENNEDY, NEWARK, Server, STATIONS } from "./server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  for (const station of STATIONS) {
    await server.register(station);
    await server.measure(station, { origin: station.id, temp: 39.02, humid: 59.37 });
  }
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);

describe("the query page", () => {
  const run = async (page: Page, text: string): Promise<void> => {
    await page.getByLabel("Query", { exact: true }).fill(text);
    await page.getByRole("button", { name: "Run" }).click();
  };

  const queryIn = (page: Page): string | null => new URLSearchParams(new URL(page.url()).hash.slice(1)).get("q");

  it("shows rows as they arrive, draws them, and stops when told", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(page, "SELECT origin, temp FROM STREAM(600000, TIME) WHERE temp > 50");
      await page.getByText("Waiting for the first record").waitFor();
      await server.measure(NEWARK, { origin: "EWR", temp: 20 });
      await server.measure(NEWARK, { origin: "EWR", temp: 64.25 });
      await server.measure(KENNEDY, { origin: "JFK", temp: 51.5 });
      const rows = page.getByRole("region", { name: "Rows" });
      await rows.getByRole("cell", { name: "51.5" }).waitFor();
      await rows.getByRole("cell", { name: "64.25" }).waitFor();
      expect(await rows.getByRole("cell", { name: "20", exact: true }).count()).toBe(0);
      await page.getByRole("img", { name: /^temp by origin: EWR 64.3, JFK 51.5$/ }).waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByText("because it was stopped").waitFor();
    });
  });

  it("ends by itself when it has its rows, and shows its counts", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(page, "SELECT * FROM STREAM(600000, TIME) WHERE origin = 'EWR' LIMIT 2");
      await page.getByText("Waiting for the first record").waitFor();
      for (const temp of [1, 2]) await server.measure(NEWARK, { origin: "EWR", temp });
      await page.getByText("because it had all the rows it asked for").waitFor();
      await page.getByRole("region", { name: "About this answer" }).getByText(/^2 \(/).waitFor();
    });
  });

  it("queries the past, ends by itself and names the device of each row", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query?from=yesterday");
      await run(page, "SELECT $key AS device, temp FROM STREAM()");
      await page.getByText('"yesterday" is no place to begin').waitFor();
      await page.getByLabel("From").fill("earliest");
      await page.getByLabel("Until").fill("now");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("because it had seen everything up to its end").waitFor();
      const rows = page.getByRole("region", { name: "Rows" });
      await rows.getByRole("cell", { name: NEWARK.id, exact: true }).first().waitFor();
      expect(new URL(page.url()).search).toBe("?from=earliest&until=now");
    });
  });

  it("counts down to a result, and shows a single row as large figures", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(page, "SELECT COUNT(*) AS readings, MAX(temp) AS warmest FROM STREAM(4000, TIME) WHERE odd = TRUE");
      await page.getByText(/^The result comes in [1-4] s$/).waitFor();
      await server.measure(NEWARK, { temp: 1234.5, odd: true });
      await page.getByText("because its time was over").waitFor();
      const answer = page.getByRole("region", { name: "Answer" });
      const figures = (): Promise<string[]> => answer.locator("dl.figures > div").allInnerTexts();
      await eventually(figures, ["readings\n1", "warmest\n1,234.5"]);
      expect(await page.getByRole("region", { name: "Chart" }).count()).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("offers examples about the fields that are there", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      const examples = page.getByRole("region", { name: "Examples" });
      await examples.getByText("FREQ(temp, LINEAR, 10)").waitFor();
      await page.getByRole("button", { name: "Examples" }).click();
      await page.getByRole("button", { name: "Mean temp of each device" }).first().click();
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText(/^The result comes in [12] s$/).waitFor();
    });
    await withPage(browser, {}, async (page) => {
      await open(page, "/query?tenant=nobody");
      const examples = page.getByRole("region", { name: "Examples" });
      await examples.getByRole("button", { name: "How many arrive in two seconds" }).waitFor();
      expect(await examples.getByText("temp").count()).toBe(0);
    });
  });

  it("shows an error under the place it points at", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(page, "SELECT temp\nFORM STREAM(1000, TIME)");
      await page.getByRole("button", { name: "Line 2, column 1" }).click();
      const editor = page.getByLabel("Query", { exact: true });
      expect(await editor.getAttribute("aria-invalid")).toBe("true");
      const selected = await editor.evaluate((field: HTMLTextAreaElement) =>
        field.value.slice(field.selectionStart, field.selectionEnd),
      );
      expect(selected).toBe("FORM");
      await editor.fill("SELECT temp");
      await page.getByRole("button", { name: "Line 2, column 1" }).waitFor({ state: "detached" });
    });
  });

  it("keeps its text in the address, and runs an example by keyboard", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await page.getByRole("button", { name: "Some columns" }).click();
      const editor = page.getByLabel("Query", { exact: true });
      const text = await editor.inputValue();
      await eventually(() => Promise.resolve(queryIn(page)), text);
      await page.reload();
      expect(await editor.inputValue()).toBe(text);
      await editor.press("Control+Enter");
      await page.getByText("Waiting for the first record").waitFor();
      await page.getByRole("button", { name: "Stop" }).waitFor();
    });
  });

  it("shows the rows of each window, and draws a line for each group", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(
        page,
        "SELECT origin, COUNT(*) AS n, SUM(v) AS total FROM STREAM(600000, TIME) WHERE v > 0\n" +
          "GROUP BY origin ORDER BY total DESC WINDOWING TUMBLING(3, RECORD)",
      );
      await page.getByText("The result comes after 3 records that match").waitFor();
      const send = async (...values: [Device, number][]): Promise<void> => {
        for (const [station, v] of values) await server.measure(station, { origin: station.id, v });
      };
      // Stations are in partitions of their own: between two of them nothing says who is seen first.
      await send([NEWARK, 1], [NEWARK, 2], [KENNEDY, 40]);
      await page.getByText("Window 1, every 3 records, of 3 records").waitFor();
      await send([NEWARK, 5], [KENNEDY, 6], [KENNEDY, 7]);
      const body = page.getByRole("region", { name: "Rows" }).locator("tbody");
      const cells = (): Promise<string[]> => body.locator("td:nth-of-type(n+4)").allTextContents();
      await eventually(cells, ["JFK", "2", "13", "EWR", "1", "5"]);
      await page.getByText("Window 2, every 3 records, of 3 records").waitFor();
      await page.getByText("2, exact").waitFor();
      await page.getByRole("img", { name: "n by origin: EWR 1, JFK 2" }).waitFor();
      await page.getByRole("button", { name: "total" }).click();
      await page.getByRole("button", { name: "n", exact: true }).click();
      await page.getByRole("img", { name: "total by origin: EWR 5, JFK 13" }).waitFor();
      await page.getByRole("button", { name: "All windows" }).click();
      await eventually(cells, ["JFK", "2", "13", "EWR", "1", "5", "JFK", "1", "40", "EWR", "2", "3"]);
      await page.getByRole("combobox", { name: "Draw" }).selectOption("bars");
      const bars = page.getByRole("region", { name: "Bars of total" });
      await eventually(() => bars.getByRole("row").allTextContents(), ["JFK13", "EWR5"]);
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("says in words what is an estimate", async () => {
    const DIFFERENT = 40_000;
    await server.fill(
      "many",
      Array.from({ length: DIFFERENT }, (_, id) => ({ id })),
    );
    await withPage(browser, {}, async (page) => {
      await open(page, "/query?from=earliest&until=now");
      const facts = page.getByRole("region", { name: "About this answer" });
      await run(page, 'SELECT COUNT(DISTINCT id) AS n FROM "many"');
      await facts.getByText(/^COUNT\(DISTINCT id\) is an estimate: it lies between \d+ and \d+\.?$/).waitFor();
      await run(page, 'SELECT COUNT(DISTINCT id) AS n FROM "many" WHERE id < 100');
      await facts.getByText("100, exact").waitFor();
      expect(await facts.getByText("is an estimate").count()).toBe(0);
    });
  });

  it("downloads the rows as a file", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(page, "SELECT origin, w FROM STREAM(600000, TIME) WHERE w > 0 LIMIT 2");
      await page.getByText("Waiting for the first record").waitFor();
      for (const w of [1, 2]) await server.measure(NEWARK, { origin: "EWR", w });
      await page.getByText("because it had all the rows it asked for").waitFor();
      const downloaded = async (name: string): Promise<string> => {
        const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
        return readFile(await file.path(), "utf8");
      };
      expect(await downloaded("CSV")).toBe("origin,w\r\nEWR,1\r\nEWR,2\r\n");
      expect(JSON.parse(await downloaded("Download JSON"))).toEqual([
        { origin: "EWR", w: 1 },
        { origin: "EWR", w: 2 },
      ]);
    });
  });

  it("completes keywords, functions and fields by keyboard", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      const editor = page.getByLabel("Query", { exact: true });
      const options = page.getByRole("listbox", { name: "Completions" });
      await editor.fill("");
      await editor.pressSequentially("sel");
      await options.getByRole("option", { name: "SELECT" }).waitFor();
      await editor.press("Tab");
      await editor.pressSequentially(" CO");
      await options.getByRole("option", { name: "COUNT(" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await editor.press("ArrowDown");
      await editor.press("Escape");
      await eventually(() => options.count(), 0);
      await editor.pressSequentially("UNT(*) AS n F");
      await options.getByRole("option", { name: "FROM" }).waitFor();
      await editor.press("Enter");
      await editor.pressSequentially(" S");
      await options.getByRole("option", { name: "STREAM()" }).click();
      expect(await editor.inputValue()).toBe("SELECT COUNT(*) AS n FROM STREAM()");
      await editor.press("Control+Space");
      await options.getByRole("option", { name: "WHERE" }).waitFor();
      await editor.pressSequentially(" WHERE hum");
      await options.getByRole("option", { name: "humid DOUBLE" }).waitFor();
    });
  });

  it("underlines a mistake while one types, and a click corrects it", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      const editor = page.getByLabel("Query", { exact: true });
      await editor.fill("SELECT COUTN(*) FROM STREAM()");
      await page.getByRole("button", { name: "Line 1, column 8" }).waitFor();
      await page.getByRole("button", { name: "COUNT" }).click();
      expect(await editor.inputValue()).toBe("SELECT COUNT(*) FROM STREAM()");
      await page.getByRole("button", { name: "Line 1, column 8" }).waitFor({ state: "detached" });
    });
  });

  it("hints at a field that no record has, and still runs the query", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      const editor = page.getByLabel("Query", { exact: true });
      await editor.fill("SELECT origin,\n  humdi FROM STREAM(600000, TIME)");
      const place = page.getByRole("button", { name: "Line 2, column 3" });
      await place.waitFor();
      await page.getByText("no record of 'telemetry.default' that was looked at has humdi").waitFor();
      // It is a query, only perhaps not the one that was meant.
      expect(await editor.getAttribute("aria-invalid")).toBe("false");
      expect(await accessibilityFaults(page)).toEqual([]);
      await place.click();
      const selected = await editor.evaluate((field: HTMLTextAreaElement) =>
        field.value.slice(field.selectionStart, field.selectionEnd),
      );
      expect(selected).toBe("humdi");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("Waiting for the first record").waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByRole("button", { name: "humid", exact: true }).click();
      expect(await editor.inputValue()).toBe("SELECT origin,\n  humid FROM STREAM(600000, TIME)");
      await place.waitFor({ state: "detached" });
    });
  });

  it("tells a kept query that has ended from those that live, and forgets it when told", async () => {
    const query = "SELECT COUNT(*) AS kept FROM STREAM(300, TIME)";
    const client = new AbortController();
    await fetch(`${server.url}/api/queries`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ query, keep: true, deliver: "sse" }),
      signal: client.signal,
    });
    // Its client leaves before it ends.
    client.abort();
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      const ended = page.getByRole("region", { name: "Kept queries that have ended" });
      await ended.getByText(query).waitFor();
      await ended.getByRole("heading", { name: "1 kept query has ended" }).waitFor();
      expect(await page.getByRole("region", { name: "Other live queries" }).count()).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
      await ended.getByRole("button", { name: "Forget" }).click();
      await ended.waitFor({ state: "detached" });
    });
  });

  it("keeps a query under a name until it is deleted", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      const editor = page.getByLabel("Query", { exact: true });
      const saved = page.getByRole("group", { name: "Saved" });
      await editor.fill("SELECT 1 AS one FROM STREAM()");
      await page.getByRole("button", { name: "Saved" }).click();
      await saved.getByRole("textbox", { name: "Name" }).fill("Just one");
      await saved.getByRole("button", { name: "Save", exact: true }).click();
      await saved.getByRole("button", { name: "Just one", exact: true }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await eventually(() => saved.count(), 0);
      await editor.fill("SELECT 2 AS two FROM STREAM()");
      await page.reload();
      await page.getByRole("button", { name: "Saved" }).click();
      await saved.getByRole("button", { name: "Just one", exact: true }).click();
      expect(await editor.inputValue()).toBe("SELECT 1 AS one FROM STREAM()");
      await page.getByRole("button", { name: "Saved" }).click();
      await saved.getByRole("button", { name: "Delete Just one" }).click();
      await saved.getByText("Saved queries stay in this browser.").waitFor();
    });
  });

  it("is shared unchanged by its link", async () => {
    await withPage(browser, {}, async (page) => {
      await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await open(page, "/query?as=bar");
      await page.getByLabel("Query", { exact: true }).fill("SELECT 'a & b #' AS x FROM STREAM()");
      await page.getByRole("button", { name: "Copy link" }).click();
      await page.getByRole("status").filter({ hasText: "Link copied" }).waitFor();
      const link = await page.evaluate(() => navigator.clipboard.readText());
      await page.goto("about:blank");
      await page.goto(link);
      const editor = page.getByLabel("Query", { exact: true });
      expect(await editor.inputValue()).toBe("SELECT 'a & b #' AS x FROM STREAM()");
      expect(new URL(link).searchParams.get("as")).toBe("bar");
    });
  });

  it("keeps the newest rows only, and says so", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/query");
      await run(page, "SELECT n FROM STREAM(600000, TIME) WHERE n >= 0");
      await page.getByText("Waiting for the first record").waitFor();
      const COUNT = 2_100;
      const each = async (from: number): Promise<void> => {
        for (let n = from; n < COUNT; n += 8) await server.measure(KENNEDY, { n });
      };
      await Promise.all(Array.from({ length: 8 }, (_, from) => each(from)));
      await page.getByText("Showing the newest 2,000 of 2,100 rows; 100 older ones were let go.").waitFor();
      await page.getByRole("cell", { name: "2100", exact: true }).waitFor();
    });
  });
});
