/** What a person does with the console, done in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, NO_PAGE, openPage, withPage } from "./console";
import { KENNEDY, NEWARK, Server, STATIONS } from "./server";

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

describe("the overview", () => {
  it("counts the messages of devices while one watches", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      const accepted = page.getByRole("group", { name: "Accepted", exact: true });
      const count = async (): Promise<number> => {
        const [, digits = ""] = /([\d,]+) messages?/.exec((await accepted.textContent()) ?? "") ?? [];
        return Number(digits.replaceAll(",", ""));
      };
      // The server takes a sample twice a second: what has just been sent may not be in the first one shown.
      await expect.poll(count, { timeout: 100_000, interval: 100 }).toBeGreaterThanOrEqual(STATIONS.length);
      const before = await count();
      await server.measure(NEWARK, { origin: "EWR", temp: 40 });
      await eventually(count, before + 1);
      await page.getByRole("img", { name: /^Records per second: accepted / }).waitFor();
      await page.getByRole("img", { name: /^Latency: accept p99 / }).waitFor();
    });
  });

  it("shows the minutes before it was opened", async () => {
    // The server keeps samples whether or not anybody watches.
    await eventually(async () => {
      const { history } = (await (await fetch(`${server.url}/stats?history_s=300`)).json()) as { history: unknown[] };
      return history.length > 5;
    }, true);
    await withPage(browser, {}, async (page) => {
      // All that the page shows is from its first answer.
      let asked = 0;
      await page.route("**/stats?*", (route) => ((asked += 1) === 1 ? route.continue() : route.abort()));
      await page.goto(server.url);
      await page.getByRole("img", { name: /^Records per second: .*; over ([5-9]|\d\d+) s/ }).waitFor();
    });
  });

  it("shows the resident memory of the server's process", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      const shown = page.getByText(/ · [\d.,]+ MiB resident$/);
      // The figure of the page is a second old at the most; memory may have come or gone since.
      const differs = async (): Promise<number> => {
        const [, shown_mib = ""] = / · ([\d.,]+) MiB resident$/.exec((await shown.textContent()) ?? "") ?? [];
        const metrics = await (await fetch(`${server.url}/metrics`)).text();
        const [, resident_bytes = ""] = /^process_resident_memory_bytes (\S+)$/m.exec(metrics) ?? [];
        const resident_mib = Number(resident_bytes) / 2 ** 20;
        return Math.abs(Number(shown_mib.replaceAll(",", "")) / resident_mib - 1);
      };
      await expect.poll(differs, { timeout: 100_000, interval: 100 }).toBeLessThan(0.1);
    });
  });

  it("opens a topic's partitions and still shows them after a reload", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      await page.getByRole("button", { name: "telemetry.default" }).click();
      const partitions = page.getByRole("table", { name: "Partitions of telemetry.default" });
      await partitions.waitFor();
      expect(page.url()).toContain("open=telemetry.default");
      await page.reload();
      await partitions.waitFor();
      const tails = await partitions.locator("tbody tr td:nth-of-type(3)").allTextContents();
      const records = tails.reduce((sum, tail) => sum + Number(tail.replaceAll(",", "")), 0);
      expect(records).toBeGreaterThanOrEqual(STATIONS.length);
      await page.getByText("No consumer group has read it.").waitFor();
    });
  });

  it("says that a tenant has no topics and that the server's figures are of all tenants", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/?tenant=nobody");
      await page.getByText("Tenant nobody has no topics").waitFor();
      await page.getByRole("heading", { name: "Server all tenants" }).waitFor();
    });
  });
});

describe("the entities page", () => {
  it("shows a device's new value without being asked", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await server.measure(KENNEDY, { origin: "JFK", temp: 71.6, humid: 40 });
      const row = page.getByRole("row").filter({ hasText: "JFK" });
      await row.getByRole("cell", { name: "71.6" }).waitFor();
      expect(await page.getByRole("row").filter({ hasText: "EWR" }).count()).toBe(1);
      await page.getByText(`of ${STATIONS.length} entities`).waitFor();
    });
  });

  it("marks the row under the pointer on the map, and the other way round", async () => {
    await withPage(browser, {}, async (page) => {
      // With Kennedy in the middle of the map.
      await open(page, `/entities?at=${KENNEDY.latitude},${KENNEDY.longitude},10`);
      const map = page.getByRole("application", { name: `Map of ${STATIONS.length} entities` });
      await map.waitFor();
      const row = page.getByRole("row").filter({ hasText: "JFK" });
      await page.mouse.move(5, 5);
      const before = await map.screenshot();
      await row.hover();
      await eventually(async () => (await map.screenshot()).equals(before), false);

      const hovered = page.locator("tr.hovered");
      await page.mouse.move(5, 5);
      await eventually(() => hovered.count(), 0);
      await map.hover();
      await eventually(() => hovered.count(), 1);
      expect(await hovered.textContent()).toContain("JFK");
      await map.click();
      await page.getByRole("complementary", { name: "JFK" }).waitFor();
    });
  });

  it("filters, says when nothing matches, and keeps the filter in the address", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("textbox", { name: "Id contains" }).fill("Device:EW");
      await page.getByText("1–1 of 1 entity").waitFor();
      expect(new URL(page.url()).searchParams.get("id")).toBe("Device:EW");
      await page.getByRole("textbox", { name: "Id contains" }).fill("Device:EW.");
      await page.getByText("No entity matches").waitFor();
      await page.reload();
      await page.getByText("No entity matches").waitFor();
    });
  });

  it("opens an entity from its row, keeps it up to date, and closes it with Escape", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("button", { name: "EWR" }).click();
      const detail = page.getByRole("complementary", { name: "EWR" });
      await detail.waitFor();
      await server.measure(NEWARK, { origin: "EWR", temp: -12.5 });
      await detail.getByText("-12.5").waitFor();
      await detail.getByText("40.69250, -74.16870").waitFor();
      await page.reload();
      await detail.getByText("-12.5").waitFor();
      await page.keyboard.press("Escape");
      await detail.waitFor({ state: "detached" });
      await page.goBack();
      await detail.waitFor();
    });
  });

  it("moves its map by keyboard and brings the view back after a reload", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      const map = page.getByRole("application", { name: /^Map of/ });
      await map.focus();
      await page.keyboard.press("-");
      await page.keyboard.press("ArrowRight");
      const view = (): string | null => new URL(page.url()).searchParams.get("at");
      await eventually(() => Promise.resolve(view() !== null), true);
      const chosen = view();
      await page.reload();
      await map.waitFor();
      expect(view()).toBe(chosen);
      await page.getByRole("button", { name: "Show all entities" }).click();
      await eventually(() => Promise.resolve(view()), null);
    });
  });
});

describe("everywhere", () => {
  it("says that the server does not answer, and recovers when it is back", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("button", { name: "EWR" }).waitFor();
      await server.kill();
      await page.getByRole("status", { name: "Server: Stalled" }).waitFor();
      await page.getByRole("alert").filter({ hasText: "The server does not answer" }).waitFor();
      await page.getByRole("button", { name: "EWR" }).waitFor();
      await server.restart();
      await page.getByRole("status", { name: "Server: Live" }).waitFor();
      await eventually(() => page.getByRole("alert").count(), 0);
    });
  });

  it("follows the system's colours, or the user's choice from then on", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/");
      const ground = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const dark = await ground();
      await page.getByRole("combobox", { name: "Colours" }).selectOption("Light");
      await eventually(async () => (await ground()) === dark, false);
      const light = await ground();
      await page.reload();
      expect(await ground()).toBe(light);
    });
  });

  it.each(["light", "dark"] as const)(
    "can be read and used without seeing or pointing, in %s colours",
    async (scheme) => {
      await withPage(browser, { scheme }, async (page) => {
        for (const path of ["/?open=telemetry.default", "/entities?entity=urn:ngsi-ld:Device:EWR", "/query"]) {
          await open(page, path);
          if (path.startsWith("/entities")) await page.getByRole("complementary", { name: "EWR" }).waitFor();
          expect(await accessibilityFaults(page)).toEqual([]);
        }
      });
    },
  );

  it("fits a phone without scrolling sideways", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      for (const path of ["/", "/devices", "/entities", "/topics", "/query", "/jobs", "/store"]) {
        await open(page, path);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        expect([path, overflow]).toEqual([path, 0]);
      }
    });
  });

  it("goes from page to page and back", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/");
      const pages = page.getByRole("navigation", { name: "Pages" });
      await pages.getByRole("link", { name: "Entities" }).click();
      await page.getByRole("heading", { name: "Entities", level: 1 }).waitFor();
      await pages.getByRole("link", { name: "Query" }).click();
      await page.getByRole("heading", { name: "Query", level: 1 }).waitFor();
      await page.goBack();
      await page.getByRole("heading", { name: "Entities", level: 1 }).waitFor();
      await eventually(() => page.title(), "Entities · Millstream");
    });
  });

  it("shows the fault in a tenant's name and sends no further requests", async () => {
    await withPage(browser, {}, async (page) => {
      const asked: number[] = [];
      page.on("response", (answer) => {
        if (new URL(answer.url()).pathname === "/stats") asked.push(answer.status());
      });
      await page.clock.install();
      await page.goto(`${server.url}/?tenant=${encodeURIComponent("no such name!")}`);
      await page.getByRole("status", { name: "Server: Refused" }).waitFor();
      await page.getByRole("alert").filter({ hasText: "no such name!" }).waitFor();
      // Longer than the server is left alone between two questions.
      await page.clock.fastForward(60_000);
      const tenant = page.getByRole("combobox", { name: "Tenant" });
      await tenant.fill("default");
      await tenant.press("Enter");
      await page.getByRole("status", { name: "Server: Live" }).waitFor();
      expect(asked.filter((status) => status === 400)).toHaveLength(1);
    });
  });

  it("says that a page does not exist", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, `${NO_PAGE}?tenant=default`);
      const said = page.getByRole("alert").filter({ hasText: "There is no such page" });
      await said.getByText(NO_PAGE, { exact: true }).waitFor();
      await page.getByRole("heading", { name: "Not found", level: 1 }).waitFor();
      await eventually(() => page.title(), "Not found · Millstream");
      expect(await accessibilityFaults(page)).toEqual([]);
      await said.getByRole("link", { name: "Go to the overview" }).click();
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
      expect(new URL(page.url()).searchParams.get("tenant")).toBe("default");
    });
  });

  it("shows another tenant's data and nothing of this one's", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("button", { name: "EWR" }).waitFor();
      const tenant = page.getByRole("combobox", { name: "Tenant" });
      await tenant.fill("nobody");
      await tenant.press("Enter");
      await page.getByText("There are no entities yet").waitFor();
      expect(await page.getByRole("button", { name: "EWR" }).count()).toBe(0);
      expect(new URL(page.url()).searchParams.get("tenant")).toBe("nobody");
    });
  });
});
