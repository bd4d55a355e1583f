/** Logging in with API tokens, and what each of them may see; in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, countEnded, drawn, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

const OPERATOR = "the-operators-token-0123456789";

let server: Server;
let browser: Browser;

beforeAll(async () => {
  server = await Server.start(OPERATOR);
  browser = await launchBrowser();
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

async function logIn(page: Page, secret: string): Promise<void> {
  await page.getByLabel("API token", { exact: true }).fill(secret);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
}

/** Opens a path and logs in with a token that the server takes. */
async function openAs(page: Page, secret: string, path: string): Promise<void> {
  await page.goto(server.url + path);
  await logIn(page, secret);
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

const refusal = (page: Page, text: string | RegExp) => page.getByRole("alert").filter({ hasText: text });

describe("the login page", () => {
  it.each(["light", "dark"] as const)("can be read and used by everybody, in %s colours", async (scheme) => {
    await withPage(browser, { scheme }, async (page) => {
      await page.goto(server.url);
      await page.getByRole("heading", { name: "Log in", level: 1 }).waitFor();
      await eventually(() => page.title(), "Log in · Millstream");
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByText("No token yet?").click();
      await page.getByText(`--server ${server.url}`).waitFor();
      await page.getByRole("button", { name: "Show the token" }).click();
      await logIn(page, "a wrong token");
      await refusal(page, "A token has no spaces").waitFor();
      await logIn(page, "a-wrong-token-0123456789");
      await refusal(page, "The API token is not known, was revoked or has expired").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });

  it("hides the token, shows it when asked, and fits a phone", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await page.goto(server.url);
      const field = page.getByLabel("API token", { exact: true });
      await field.fill(OPERATOR);
      expect(await field.getAttribute("type")).toBe("password");
      await page.getByRole("button", { name: "Show the token" }).click();
      expect([await field.getAttribute("type"), await field.inputValue()]).toEqual(["text", OPERATOR]);
      await page.getByText("No token yet?").click();
      expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBe(0);
    });
  });
});

describe("a login", () => {
  it("opens the page that was asked for, lasts over a reload, and ends with its tab or by hand", async () => {
    await withPage(browser, {}, async (page) => {
      const asked: string[] = [];
      page.on("request", (request) => asked.push(request.url()));
      await openAs(page, OPERATOR, "/jobs?state=failed");
      await page.getByRole("status", { name: "Server: Live" }).waitFor();
      await page.getByText("No job matches").waitFor();
      await page.reload();
      await page.getByText("No job matches").waitFor();

      const other = await page.context().newPage();
      await other.goto(server.url);
      await other.getByRole("heading", { name: "Log in" }).waitFor();

      await page.getByRole("button", { name: "operator" }).click();
      const account = page.getByRole("group", { name: "operator" });
      await account.getByText("reader, writer, admin").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await account.getByRole("button", { name: "Log out" }).click();
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      expect(await page.getByRole("alert").count()).toBe(0);
      await page.reload();
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      expect(asked.filter((url) => url.includes(OPERATOR))).toEqual([]);
    });
  });

  it("carries live queries, too", async () => {
    await server.fill("orders", [{ item: "bolt" }]);
    await withPage(browser, {}, async (page) => {
      await openAs(page, OPERATOR, "/query");
      await page.getByRole("textbox", { name: "Query" }).fill('SELECT item FROM "orders"');
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("Waiting for the first record").waitFor();
      await server.append("orders", [{ value: { item: "nut" } }]);
      await page.getByRole("region", { name: "Rows" }).getByRole("cell", { name: "nut" }).waitFor();
    });
  });

  it("that is revoked while one watches brings the login page back, with the reason", async () => {
    const secret = await server.makeToken({ name: "short", tenant: "*", roles: ["reader"] });
    await withPage(browser, {}, async (page) => {
      await openAs(page, secret, "/entities");
      await page.getByText("There are no entities yet").waitFor();
      // The first question for the reason has no answer, and the second one waits until the page asks a third time.
      let asked = 0;
      const ended = countEnded(page, "/api/login");
      await page.route("**/api/login", async (route) => {
        asked += 1;
        if (asked === 1) return route.abort();
        if (asked === 2) await eventually(() => Promise.resolve(asked > 2), true);
        await route.continue();
      });
      await server.revokeToken("short");
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      await eventually(() => Promise.resolve(asked > 2 && ended() === asked), true);
      await drawn(page);
      await refusal(page, "The API token is not known, was revoked or has expired").waitFor();
      await logIn(page, OPERATOR);
      await page.getByText("There are no entities yet").waitFor();
    });
  });

  it("is not taken back by an answer to what was asked before it", async () => {
    const secret = await server.makeToken({ name: "brief", tenant: "*", roles: ["reader"] });
    await withPage(browser, {}, async (page) => {
      await openAs(page, secret, "/entities");
      await page.getByText("There are no entities yet").waitFor();
      // The first question waits for the second, and the second one for the login.
      let [sent, asked, isIn] = [0, 0, false];
      const ended = countEnded(page, "/api/login");
      await page.route("**/api/login", async (route) => {
        sent += 1;
        if (route.request().headers().authorization !== undefined) return route.continue();
        asked += 1;
        if (asked === 1) await eventually(() => Promise.resolve(asked > 1), true);
        else if (asked === 2) await eventually(() => Promise.resolve(isIn), true);
        await route.continue();
      });
      await server.revokeToken("brief");
      await eventually(() => Promise.resolve(asked > 0), true);
      // Another page asks before the console knows that it needs a login, unless a second question is under way already.
      await page.evaluate(() => document.querySelector<HTMLAnchorElement>('nav a[href="/jobs"]')?.click());
      await page.getByRole("heading", { name: "Log in" }).waitFor();
      await logIn(page, OPERATOR);
      const pages = page.getByRole("navigation", { name: "Pages" });
      await pages.waitFor();
      isIn = true;
      await eventually(() => Promise.resolve(ended() === sent), true);
      await drawn(page);
      expect(await pages.count()).toBe(1);
    });
  });

  it("of one tenant sees that tenant, and says so where an address is of another", async () => {
    const secret = await server.makeToken({ name: "acme-reader", tenant: "acme", roles: ["reader"] });
    await withPage(browser, {}, async (page) => {
      await openAs(page, secret, "/");
      await page.getByRole("status", { name: "Server: Live" }).waitFor();
      await page.getByRole("heading", { name: "Topics tenant acme" }).waitFor();
      expect(await page.getByRole("combobox", { name: "Tenant" }).count()).toBe(0);
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Access" }).click();
      await page.getByText("Tenant acme is not in the registry").waitFor();
      await page.getByText("Admins see, make and revoke them").waitFor();
      expect(await page.getByRole("alert").count()).toBe(0);
      expect(await page.getByRole("button", { name: "Create a token" }).count()).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.goto(`${server.url}/entities?tenant=other`);
      await refusal(page, "This address is of tenant other").waitFor();
      await page.getByRole("link", { name: "Show this page of acme" }).click();
      await page.getByText("There are no entities yet").waitFor();
    });
  });

  it("that may only read sees no buttons that would be refused, and why", async () => {
    const secret = await server.makeToken({ name: "only-reader", tenant: "*", roles: ["reader"] });
    await server.createTopic("invoices");
    await server.makeDevice("default", "thermometer");
    await withPage(browser, {}, async (page) => {
      const refused: string[] = [];
      page.on("response", (answer) => {
        if (answer.status() === 403) refused.push(answer.url());
      });
      await openAs(page, secret, "/topics?topic=invoices");
      const rows = [
        ["/topics?topic=invoices", ["Append a record", "Change settings", "Delete topic"]],
        ["/topics", ["Create a topic"]],
        [
          "/devices?device=thermometer",
          ["Disable", "Delete device", "Change registration", "Add a credential", "Send"],
        ],
        ["/devices", ["Create a device"]],
        ["/entities", ["Create an entity"]],
        ["/entities?list=subscriptions", ["Create a subscription"]],
        ["/jobs", ["New job"]],
        ["/store", ["Create a bucket"]],
        ["/access", []],
      ] as const;
      for (const [path, buttons] of rows) {
        await page.goto(server.url + path);
        await page.getByRole("status", { name: "Server: Live" }).waitFor();
        for (const name of buttons) {
          const button = page.getByRole("button", { name, exact: true });
          await button.waitFor();
          expect([name, await button.getAttribute("aria-disabled")]).toEqual([name, "true"]);
          expect(await button.getAttribute("title")).toMatch(
            /^This takes the role (writer|admin); your login has reader$/,
          );
          await button.click({ force: true });
          expect(await page.getByRole("dialog").count()).toBe(0);
        }
        expect(await accessibilityFaults(page)).toEqual([]);
      }
      expect(refused).toEqual([]);
    });
  });

  it("that is limited to topics and keys is offered these, and nothing that would be refused", async () => {
    const roles = ["reader", "writer", "admin"];
    const limits = { topics: ["invo"], keys: ["shelf/img/", "cellar/"] };
    const secret = await server.makeToken({ name: "limited", tenant: "*", roles, ...limits });
    await server.createTopic("invoices");
    await server.createTopic("payments");
    for (const bucket of ["shelf", "cellar", "attic"]) await server.putBucket(bucket, {});
    for (const key of ["img/a", "text/a"]) await server.putValue("shelf", key, "something");
    await withPage(browser, {}, async (page) => {
      const refused: string[] = [];
      page.on("response", (answer) => {
        // The figures of the server are asked for on every page.
        if (answer.status() === 403 && !answer.url().includes("/stats?")) refused.push(answer.url());
      });
      await openAs(page, secret, "/");
      await page.getByText("This page takes a login without limits").waitFor();
      await page.getByText("Yours is good for topics invo…, keys shelf/img/… or cellar/…").waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      const pages = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
      expect(await pages.allInnerTexts()).toEqual(["Topics", "Store"]);
      await page.getByRole("button", { name: "limited" }).click();
      await page
        .getByRole("group", { name: "limited" })
        .getByText("topics invo…, keys shelf/img/… or cellar/…")
        .waitFor();

      await pages.filter({ hasText: "Topics" }).click();
      const topics = page.getByRole("region", { name: "Topics" });
      await topics.getByRole("link", { name: "invoices" }).waitFor();
      expect(await topics.getByRole("link").allInnerTexts()).toEqual(["invoices"]);
      await page.getByRole("button", { name: "Create a topic" }).click();
      const form = page.getByRole("dialog", { name: "Create a topic" });
      await form.getByLabel("Name").fill("payments-2");
      await form.getByRole("button", { name: "Create" }).click();
      await refusal(page, "Your login is good for topics that begin with invo").waitFor();
      await form.getByRole("button", { name: "Cancel" }).click();

      await pages.filter({ hasText: "Store" }).click();
      const buckets = page.getByRole("region", { name: "Buckets" });
      await buckets.getByRole("link", { name: "shelf/img/" }).click();
      const keys = page.getByRole("region", { name: "Keys" });
      await keys.getByRole("link", { name: "a", exact: true }).waitFor();
      expect(await keys.locator("tbody tr").count()).toBe(1);
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("navigation", { name: "Way back" }).getByRole("link", { name: "Store" }).click();
      expect(await buckets.getByRole("link").allInnerTexts()).toEqual(["shelf/img/", "cellar/"]);
      expect(await accessibilityFaults(page)).toEqual([]);
      await buckets.getByRole("link", { name: "cellar/" }).click();
      const remove = page.getByRole("button", { name: "Delete bucket" });
      await remove.waitFor();
      expect([await remove.getAttribute("aria-disabled"), await remove.getAttribute("title")]).toEqual([
        "true",
        "This takes a login without limits; yours is good for topics invo…, keys shelf/img/… or cellar/…",
      ]);
      expect(refused).toEqual([]);
    });
  });

  it("whose roles do not allow something is told why", async () => {
    const secret = await server.makeToken({ name: "only-writer", tenant: "*", roles: ["writer"] });
    await withPage(browser, {}, async (page) => {
      await openAs(page, secret, "/entities");
      await refusal(page, "Cannot show entities").filter({ hasText: "role 'reader'" }).waitFor();
    });
  });
});

describe("a server without tokens", () => {
  it("asks nobody for a login until the first token is made, and the console goes on with that", async () => {
    const open = await Server.start();
    try {
      await withPage(browser, {}, async (page) => {
        await openPage(page, open, "/access");
        await page.getByText("Nobody needs a login yet").waitFor();
        await page.getByText("No tokens have been made").waitFor();
        expect(await accessibilityFaults(page)).toEqual([]);
        await page.getByRole("button", { name: "Create a token" }).click();
        const form = page.getByRole("dialog", { name: "Create a token" });
        await form.getByLabel("Name").fill("first");
        expect(await accessibilityFaults(page)).toEqual([]);
        await form.getByRole("button", { name: "Create" }).click();
        const made = page.getByRole("dialog", { name: "Token first" });
        const secret = await made.locator("code").first().textContent();
        expect(secret).toMatch(/^mst_/);
        // The console asks with it from now on.
        await page.getByRole("status", { name: "Server: Live" }).waitFor();
        await eventually(() => page.getByText("Nobody needs a login yet").count(), 0);
        await made.getByRole("button", { name: "Done" }).click();
        await page.getByRole("button", { name: "first", exact: true }).waitFor();
        await page.getByRole("row").filter({ hasText: "first" }).getByText("reader, writer, admin").waitFor();
      });
      await withPage(browser, {}, async (page) => {
        await page.goto(open.url);
        await page.getByRole("heading", { name: "Log in" }).waitFor();
      });
    } finally {
      await open.stop();
    }
  });
});
