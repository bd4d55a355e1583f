/** Logging in with an OpenID Connect provider, in a real browser with a real provider. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, withPage } from "./console";
import { TestProvider } from "./provider";
import { Server } from "./server";

let provider: TestProvider;
let server: Server;
let browser: Browser;

beforeAll(async () => {
  provider = await TestProvider.start();
  server = await Server.start("", provider.settings());
  browser = await launchBrowser();
});

afterAll(async () => {
  // Any may be missing if another could not be started.
  (provider as TestProvider | undefined)?.stop();
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

/** Goes to the provider and, as a person, says who one is. */
async function logInAs(page: Page, name: string, path: string): Promise<void> {
  await page.goto(server.url + path);
  await page.getByRole("button", { name: `Log in with ${new URL(provider.issuer).host}` }).click();
  await page.waitForURL(`${provider.issuer}/**`, { waitUntil: "commit" });
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

/** What the tab keeps of the login. */
async function kept(page: Page): Promise<{ grant: { bearer: string; expires_ms: number } }> {
  const text = await page.evaluate(() => sessionStorage.getItem("millstream.login"));
  return JSON.parse(text ?? "null") as { grant: { bearer: string; expires_ms: number } };
}

const asks = (): string[] => [provider.issuer];

it("shows the page that was asked for, as whom the provider says, and takes the code out of the address", async () => {
  await withPage(browser, { asks: asks() }, async (page) => {
    await page.goto(server.url);
    await page.getByText("or with an API token").waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await logInAs(page, "alice", "/jobs?state=failed");
    await page.getByText("No job matches").waitFor();
    expect(page.url()).toBe(`${server.url}/jobs?state=failed`);
    await page.getByRole("button", { name: "alice" }).click();
    await page.getByRole("group", { name: "alice" }).getByText("reader, writer, admin").waitFor();
    await page.reload();
    await page.getByText("No job matches").waitFor();
    await page.getByRole("button", { name: "alice" }).click();
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByRole("heading", { name: "Log in" }).waitFor();
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
  });
});

it("keeps a person to the tenant of the provider's claim", async () => {
  await withPage(browser, { asks: asks() }, async (page) => {
    await logInAs(page, "bob", "/");
    await page.getByRole("heading", { name: "Topics tenant acme" }).waitFor();
    await page.getByRole("status", { name: "Server: Live" }).waitFor();
  });
});

it("is renewed before it ends", async () => {
  await withPage(browser, { asks: asks() }, async (page) => {
    await logInAs(page, "alice", "/");
    await page.getByRole("status", { name: "Server: Live" }).waitFor();
    const { grant } = await kept(page);
    await page.evaluate((ends) => {
      const login = JSON.parse(sessionStorage.getItem("millstream.login") ?? "") as { grant: { expires_ms: number } };
      login.grant.expires_ms = ends;
      sessionStorage.setItem("millstream.login", JSON.stringify(login));
    }, Date.now());
    await eventually(async () => (await kept(page)).grant.bearer === grant.bearer, false);
    expect((await kept(page)).grant.expires_ms).toBeGreaterThan(Date.now());
    await page.getByRole("status", { name: "Server: Live" }).waitFor();
  });
});

it("that is broken off, or belongs to nobody, is told on the login page", async () => {
  await withPage(browser, { asks: asks() }, async (page) => {
    await page.goto(server.url);
    await page.getByRole("button", { name: /^Log in with / }).click();
    await page.waitForURL(`${provider.issuer}/**`, { waitUntil: "commit" });
    await page.getByRole("link", { name: /cancel/i }).click();
    await page.getByRole("alert").filter({ hasText: "(access_denied)" }).waitFor();
    expect(page.url()).toBe(`${server.url}/login`);

    await page.goto(`${server.url}/login?code=stolen&state=of-somebody-else`);
    await page.getByRole("alert").filter({ hasText: "This page has not begun a login" }).waitFor();
    expect(page.url()).toBe(`${server.url}/login`);
  });
});
