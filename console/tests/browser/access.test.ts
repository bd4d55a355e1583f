/** The page of tenants and tokens, in a real browser against a real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, type Look, launchBrowser, withPage } from "./console";
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

/** Does something on the page of access, logged in as the operator. */
async function onAccess(look: Look, act: (page: Page) => Promise<void>): Promise<void> {
  await withPage(browser, look, async (page) => {
    await page.goto(`${server.url}/access`);
    await page.getByLabel("API token", { exact: true }).fill(OPERATOR);
    await page.getByRole("button", { name: "Log in", exact: true }).click();
    await page.getByRole("heading", { name: "Access", level: 1 }).waitFor();
    await act(page);
  });
}

const rowIn = (page: Page, list: "Tenants" | "Tokens", name: string) =>
  page.getByRole("region", { name: list }).getByRole("row").filter({ hasText: name });

describe("tenants", () => {
  it("are listed; one is made after the server has refused what cannot be", async () => {
    await onAccess({}, async (page) => {
      await rowIn(page, "Tenants", "default").getByText("Enabled").waitFor();
      await page.getByRole("button", { name: "Copy: Command" }).first().click();
      await page
        .getByRole("status")
        .filter({ hasText: /Copied|Press Ctrl\+C/ })
        .first()
        .waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);

      await page.getByRole("button", { name: "Create a tenant" }).click();
      const form = page.getByRole("dialog", { name: "Create a tenant" });
      await form.getByLabel("Id").fill("not a tenant");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "The tenant was not made" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByLabel("Id").fill("acme");
      await form.getByLabel("Most devices").fill("1000");
      await form.getByRole("button", { name: "Create" }).click();
      await rowIn(page, "Tenants", "acme").getByText("1,000 devices").waitFor();
      expect(await server.tenant("acme")).toMatchObject({ "registration-limits": { "max-devices": 1000 } });
    });
  });

  it("are disabled, enabled and deleted after a question", async () => {
    await server.makeTenant("old", { ext: { keep: "this" } });
    await onAccess({}, async (page) => {
      const old = rowIn(page, "Tenants", "old");
      await old.getByText("Enabled", { exact: true }).waitFor();
      await old.getByRole("button", { name: "Disable" }).click();
      const question = page.getByRole("dialog", { name: "Disable tenant old?" });
      await question.waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await question.getByRole("button", { name: "Disable" }).click();
      await old.getByText("Disabled", { exact: true }).waitFor();
      expect(await server.tenant("old")).toMatchObject({ enabled: false, ext: { keep: "this" } });
      await old.getByRole("button", { name: "Enable" }).click();
      await page.getByRole("dialog", { name: "Enable tenant old?" }).getByRole("button", { name: "Enable" }).click();
      await old.getByText("Enabled", { exact: true }).waitFor();
      await old.getByRole("button", { name: "Delete" }).click();
      const last = page.getByRole("dialog", { name: "Delete tenant old?" });
      await last.getByRole("button", { name: "Cancel" }).click();
      await old.getByRole("button", { name: "Delete" }).click();
      await last.getByText("It has no devices.").waitFor();
      const act = last.getByRole("button", { name: "Delete" });
      await last.getByRole("textbox").fill("ol");
      expect(await act.getAttribute("aria-disabled")).toBe("true");
      await last.getByRole("textbox").fill("old");
      expect(await accessibilityFaults(page)).toEqual([]);
      await act.click();
      await eventually(() => old.count(), 0);
    });
  });

  it("with devices say how many go, and they go", async () => {
    await server.makeTenant("farm", {});
    for (const id of ["barn", "field", "silo"]) await server.makeDevice("farm", id);
    await onAccess({}, async (page) => {
      await rowIn(page, "Tenants", "farm").getByRole("button", { name: "Delete" }).click();
      const question = page.getByRole("dialog", { name: "Delete tenant farm?" });
      await question.getByText("3 devices will be deleted.").waitFor();
      await question.getByRole("textbox").fill("farm");
      await question.getByRole("button", { name: "Delete" }).click();
      await eventually(() => rowIn(page, "Tenants", "farm").count(), 0);
    });
    // Another tenant of the same name begins without them.
    await server.makeTenant("farm", {});
    for (const id of ["barn", "field", "silo"]) expect(await server.hasDevice("farm", id)).toBe(false);
  });
});

describe("tokens", () => {
  it("are made with limits and an end, and shown once; the secret is good", async () => {
    await onAccess({}, async (page) => {
      await page.getByText("No tokens have been made").waitFor();
      await page.getByRole("button", { name: "Create a token" }).click();
      const form = page.getByRole("dialog", { name: "Create a token" });
      await form.getByLabel("Name").fill("not a name");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "member 'name' cannot be taken" }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await form.getByLabel("Name").fill("shop");
      await form.getByLabel("Tenant", { exact: true }).fill("acme");
      await form.getByLabel("writer").check();
      await form.getByLabel("Only topics").fill("orders, invoices");
      await form.getByLabel("Only keys").fill("shop/img/");
      await form.getByRole("combobox", { name: "Ends" }).selectOption("in 90 days");
      await form.getByRole("button", { name: "Create" }).click();

      const made = page.getByRole("dialog", { name: "Token shop" });
      const secret = (await made.locator("code").first().textContent()) ?? "";
      expect(await accessibilityFaults(page)).toEqual([]);
      // A stray key does not take the secret away.
      await page.keyboard.press("Escape");
      await made.getByRole("button", { name: "Done" }).click();
      await made.waitFor({ state: "detached" });
      const row = rowIn(page, "Tokens", "shop");
      for (const text of ["acme", "reader, writer", "topics orders*, invoices*; keys shop/img/*", "in 89 d"]) {
        await row.getByText(text, { exact: true }).waitFor();
      }
      expect(await page.content()).not.toContain(secret);
      const login = await fetch(`${server.url}/api/login`, { headers: { Authorization: `Bearer ${secret}` } });
      expect(await login.json()).toMatchObject({ caller: { name: "shop", tenant: "acme" } });
    });
  });

  it("are revoked after a question, and refused from then on", async () => {
    const secret = await server.makeToken({ name: "gone", tenant: "*", roles: ["reader"] });
    await onAccess({ scheme: "dark" }, async (page) => {
      await rowIn(page, "Tokens", "gone").getByRole("button", { name: "Revoke" }).click();
      const question = page.getByRole("dialog", { name: "Revoke token gone?" });
      await question.waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await question.getByRole("button", { name: "Revoke" }).click();
      await eventually(() => rowIn(page, "Tokens", "gone").count(), 0);
      const headers = { Authorization: `Bearer ${secret}` };
      expect((await fetch(`${server.url}/stats`, { headers })).status).toBe(401);
    });
  });

  it("and tenants that are many come in pages, and fit a phone", async () => {
    for (let number = 10; number < 40; number += 1) {
      await server.makeTenant(`tenant-${number}`, {});
      await server.makeToken({ name: `app-${number}`, tenant: "*", roles: ["reader"] });
    }
    await onAccess({ width: 390, height: 844 }, async (page) => {
      const tokens = page.getByRole("region", { name: "Tokens" });
      await tokens.getByRole("button", { name: "Next" }).click();
      await rowIn(page, "Tokens", "app-39").waitFor();
      expect(new URL(page.url()).searchParams.get("tokens")).toBe("2");
      await tokens.getByRole("combobox", { name: "Name" }).fill("app-12");
      await rowIn(page, "Tokens", "app-12").waitFor();
      await eventually(() => tokens.locator("tbody tr").count(), 1);
      await page.getByRole("region", { name: "Tenants" }).getByRole("button", { name: "Next" }).click();
      await rowIn(page, "Tenants", "tenant-39").waitFor();
      expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  });
});
