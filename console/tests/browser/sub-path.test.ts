/** The console below a path of a reverse proxy, which takes the path away before it asks the server. */
import { once } from "node:events";
import { createServer, request, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, withPage } from "./console";
import { NEWARK, Server } from "./server";

const PREFIX = "/tools/millstream";

let server: Server;
let proxy: HttpServer;
let browser: Browser;
/** Paths that were asked outside the prefix. */
const astray: string[] = [];

beforeAll(async () => {
  server = await Server.start();
  await server.register(NEWARK);
  proxy = createServer((incoming, outgoing) => {
    const path = incoming.url ?? "";
    if (!path.startsWith(`${PREFIX}/`)) {
      astray.push(path);
      outgoing.writeHead(404).end();
      return;
    }
    const target = new URL(path.slice(PREFIX.length), server.url);
    const asked = request(target, { method: incoming.method, headers: incoming.headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    asked.on("error", () => outgoing.destroy());
    outgoing.on("close", () => asked.destroy());
    incoming.pipe(asked);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  browser = await launchBrowser();
});

afterAll(async () => {
  // Each may be missing if one before it could not be started.
  await (browser as Browser | undefined)?.close();
  (proxy as HttpServer | undefined)?.closeAllConnections();
  (proxy as HttpServer | undefined)?.close();
  await (server as Server | undefined)?.stop();
});

describe("below a path", () => {
  it("pages, links, files and requests stay below it", async () => {
    const root = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${PREFIX}`;
    await withPage(browser, {}, async (page) => {
      await page.goto(`${root}/`);
      await page.getByRole("status", { name: "Server: Live" }).waitFor();
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Devices" }).click();
      await page.getByRole("link", { name: NEWARK.id, exact: true }).first().click();
      expect(new URL(page.url()).pathname).toBe(`${PREFIX}/devices`);
      // The address opens the same page again.
      await page.reload();
      await page.getByRole("heading", { name: NEWARK.id }).first().waitFor();
      await page.goto(`${root}/query`);
      await page.getByRole("status", { name: "Server: Live" }).waitFor();
      expect(astray).toEqual([]);
    });
  });

  it("an unknown path of any depth shows the page that says so", async () => {
    const root = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${PREFIX}`;
    await withPage(browser, {}, async (page) => {
      for (const path of ["/no", "/no/", "/a/b/c", "/a/b/c/?x=/y"]) {
        await page.goto(root + path);
        await page.getByRole("heading", { name: "Not found", level: 1 }).waitFor();
        await page.getByRole("link", { name: "Go to the overview" }).click();
        await page.getByRole("status", { name: "Server: Live" }).waitFor();
        expect(new URL(page.url()).pathname).toBe(`${PREFIX}/`);
      }
      expect(astray).toEqual([]);
    });
  });
});
