/** A new job: written, checked, tested and submitted in the page; in a real browser against a real server. */
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, countEnded, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

/** A job that runs at once: it needs no topic. */
const IDLE = {
  version: 1,
  kind: "Job",
  id: "id-of-idle",
  name: "idle",
  sources: { ticks: { type: "generator", config: { record: { n: { sequence: true } }, rate: 1 } } },
  sinks: { nowhere: { type: "blackhole", inputs: ["ticks"] } },
};

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
  for (const topic of ["readings", "warm-readings"]) await server.createTopic(topic);
  await server.submitJob(IDLE);
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);
const editor = (page: Page): Locator => page.getByRole("textbox", { name: "Document" });

describe("the editor of a new job", () => {
  it("begins with an example, and keeps what was written until the tab is closed", async () => {
    await withPage(browser, { width: 400, height: 800, scheme: "dark" }, async (page) => {
      await open(page, "/jobs");
      await page.getByRole("button", { name: "New job" }).click();
      await page.getByRole("heading", { name: "New job", level: 1 }).waitFor();
      await eventually(async () => (await editor(page).inputValue()).startsWith("version: 1\nkind: Job\n"), true);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(overflow).toBe(0);
      expect(await accessibilityFaults(page)).toEqual([]);
      await editor(page).press("Control+End");
      await page.keyboard.type("# mine");
      await page.reload();
      await eventually(async () => (await editor(page).inputValue()).endsWith("# mine"), true);
      await page.getByRole("link", { name: "Jobs" }).first().click();
      await page.getByRole("heading", { name: "Jobs", level: 1 }).waitFor();
    });
  });

  it("indents by two with Tab, keeps the indentation on Enter, and takes it all back", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?new=job");
      await editor(page).fill("");
      await editor(page).focus();
      await page.keyboard.type("sources:");
      await page.keyboard.press("Enter");
      await page.keyboard.type("in: {}");
      await page.keyboard.press("Enter");
      await page.keyboard.type("# end");
      await eventually(() => editor(page).inputValue(), "sources:\n  in: {}\n  # end");
      await page.keyboard.press("ControlOrMeta+a");
      await page.keyboard.press("Tab");
      await eventually(() => editor(page).inputValue(), "  sources:\n    in: {}\n    # end");
      await page.keyboard.press("Shift+Tab");
      await eventually(() => editor(page).inputValue(), "sources:\n  in: {}\n  # end");
      await page.keyboard.press("ControlOrMeta+z");
      await eventually(() => editor(page).inputValue(), "  sources:\n    in: {}\n    # end");
      // Nobody who uses the keyboard alone is caught in the field.
      await page.keyboard.press("Escape");
      await page.keyboard.press("Tab");
      await eventually(() => editor(page).evaluate((field) => field === document.activeElement), false);
    });
  });

  it("begins with the document of a job, without its id", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?job=id-of-idle");
      await page.getByRole("button", { name: "Copy as new job" }).click();
      await page.getByRole("heading", { name: "New job", level: 1 }).waitFor();
      const expected = `version: 1
kind: Job
name: idle

sources:
  ticks:
    type: generator
    config: { record: { n: { sequence: true } }, rate: 1 }

sinks:
  nowhere: { type: blackhole, inputs: [ticks] }
`;
      await eventually(() => editor(page).inputValue(), expected);
      // The questions of the page leave the caret where it is.
      await editor(page).press("Control+End");
      await page.keyboard.type("# mine");
      const asked = countEnded(page, "/stats");
      await eventually(() => Promise.resolve(asked() >= 2), true);
      await page.keyboard.type(", too");
      expect(await editor(page).inputValue()).toBe(`${expected}# mine, too`);
      await page.goBack();
      await page.getByRole("heading", { name: "idle", level: 1 }).waitFor();
    });
  });
});

describe("the findings of a document", () => {
  it("come while one types, mark their lines, lead there, and offer the nearest name", async () => {
    await withPage(browser, { width: 400, height: 800 }, async (page) => {
      await open(page, "/jobs?new=job");
      const state = page.getByRole("status").filter({ hasText: /Valid|finding/ });
      await state.filter({ hasText: "Valid" }).waitFor();
      const example = await editor(page).inputValue();
      const line = example.split("\n").findIndex((text) => text.includes("type: map")) + 1;
      await editor(page).fill(example.replace("type: map", "type: mapp").replace("[celsius]", "[celsus]"));
      await state.filter({ hasText: "2 findings" }).waitFor();
      const findings = page.getByRole("region", { name: "Findings" });
      await findings.getByText("transforms.celsius.type").waitFor();
      await findings.getByText("There is no node 'celsus'; did you mean 'celsius'?").waitFor();
      await eventually(() => page.locator(".line.faulty").count(), 2);
      expect(await editor(page).getAttribute("aria-invalid")).toBe("true");
      expect(await accessibilityFaults(page)).toEqual([]);

      await findings.getByRole("button", { name: `Line ${line}`, exact: true }).click();
      const before = (await editor(page).inputValue()).indexOf("mapp");
      await eventually(() => editor(page).evaluate((field: HTMLTextAreaElement) => field.selectionStart), before);
      await findings.getByRole("button", { name: "Use map" }).click();
      await findings.getByRole("button", { name: "Use celsius" }).click();
      await state.filter({ hasText: "Valid" }).waitFor();
      expect(await editor(page).inputValue()).toBe(example);
      await eventually(() => findings.count(), 0);
      await editor(page).fill("a: [");
      await findings.getByText(/not YAML/).waitFor();
    });
  });
});

describe("the completion of a document", () => {
  it("offers keys, types, nodes and topics by keyboard", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs?new=job");
      const list = page.getByRole("listbox", { name: "Completions" });
      const option = (name: string): Locator => list.getByRole("option", { name });
      await editor(page).fill("version: 1\nkind: Job\nname: two\n");
      await editor(page).press("Control+End");
      await page.keyboard.type("so");
      await option("sources").waitFor();
      await page.keyboard.press("Enter");
      await page.keyboard.press("Enter");
      await page.keyboard.type("in:");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Control+Space");
      await option("type The connector or operator").waitFor();
      expect(await editor(page).getAttribute("aria-activedescendant")).toBe("completion-0");
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await eventually(() => list.count(), 0);
      await page.keyboard.type("ty");
      await page.keyboard.press("Tab");
      // The types follow by themselves.
      await option("stream Reads a topic of the log").waitFor();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowUp");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Enter");
      await page.keyboard.type("config: { to");
      await option("topic").waitFor();
      await page.keyboard.press("Tab");
      await option("warm-readings").waitFor();
      await option("telemetry").waitFor();
      await page.keyboard.type("rea");
      await page.keyboard.press("Enter");
      await page.keyboard.type(" }");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Shift+Tab");
      await page.keyboard.press("Shift+Tab");
      await page.keyboard.type("sinks:");
      await page.keyboard.press("Enter");
      await page.keyboard.type("out: { type: blackhole, inputs: [i");
      await option("in source").click();
      await page.keyboard.type("] }");
      const expected = [
        "version: 1",
        "kind: Job",
        "name: two",
        "sources:",
        "  in:",
        "    type: stream",
        "    config: { topic: readings }",
        "sinks:",
        "  out: { type: blackhole, inputs: [in] }",
      ];
      await eventually(() => editor(page).inputValue(), expected.join("\n"));
      await page.getByRole("status").filter({ hasText: "Valid" }).waitFor();
    });
  });
});

describe("the tests of a document", () => {
  it("are run by the server, with the differences of those that fail", async () => {
    await withPage(browser, { width: 400, height: 800 }, async (page) => {
      await open(page, "/jobs?new=job");
      const run = page.getByRole("button", { name: "Test", exact: true });
      const tests = page.getByRole("region", { name: "Tests" });
      await page.getByRole("status").filter({ hasText: "Valid" }).waitFor();
      await run.click();
      await tests.getByText("1 of 1 test passed").waitFor();
      await tests.getByText("Passed", { exact: true }).waitFor();

      const example = await editor(page).inputValue();
      await editor(page).fill(example.replace("celsius: 25", "celsius: 26"));
      await tests.getByText("before the last changes").waitFor();
      await eventually(() => run.getAttribute("aria-disabled"), "false");
      await run.click();
      await tests.getByText("0 of 1 test passed").waitFor();
      await tests.getByText(/celsius is 25(\.0)?, expected 26/).waitFor();
      await tests.getByText('{"temp":77,"celsius":26}', { exact: true }).waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await tests.getByRole("button", { name: /^Line / }).click();
      await eventually(() => editor(page).evaluate((field) => field === document.activeElement), true);

      await editor(page).fill(example.slice(0, example.indexOf("tests:")));
      await eventually(() => run.getAttribute("aria-disabled"), "false");
      await run.click();
      await page.getByText("The document has no tests").waitFor();
      await editor(page).fill("name: broken");
      await eventually(() => run.getAttribute("aria-disabled"), "true");
    });
  });
});

describe("the graph of a document", () => {
  it("is drawn while one writes, with sources left and sinks right", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/jobs?new=job");
      const node = (name: string): Locator => page.getByRole("group", { name });
      await node("sink warm").waitFor();
      const lefts = await Promise.all(
        ["source readings", "transform known", "transform celsius", "sink warm"].map(
          async (name) => (await node(name).boundingBox())?.x ?? 0,
        ),
      );
      expect(lefts).toEqual(lefts.toSorted((a, b) => a - b));
      await eventually(() => page.locator(".edge").count(), 3);
      expect(await accessibilityFaults(page)).toEqual([]);
      // A graph of four layers has room beside the text.
      const graph = page.getByRole("region", { name: "Graph of the job" });
      expect(await graph.evaluate((region) => region.scrollWidth - region.clientWidth)).toBe(0);
      const example = await editor(page).inputValue();
      await editor(page).fill(example.replace("[celsius]", "[celsius, known, gone"));
      await eventually(() => page.locator(".edge").count(), 4);
    });
  });
});

describe("a new job", () => {
  it("is submitted once it is valid, and runs", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/jobs");
      await page.getByRole("button", { name: "New job" }).click();
      const submit = page.getByRole("button", { name: "Submit" });
      await editor(page).fill("version: 1\nkind: Job\n");
      await page.getByRole("status").filter({ hasText: "finding" }).waitFor();
      expect(await submit.getAttribute("aria-disabled")).toBe("true");
      await editor(page).fill(`version: 1
kind: Job
name: written-here
sources:
  ticks: { type: generator, config: { record: { n: { sequence: true } }, rate: 1 } }
sinks:
  nowhere: { type: blackhole, inputs: [ticks] }
`);
      await eventually(() => submit.getAttribute("aria-disabled"), "false");
      await submit.click();
      await page.getByRole("heading", { name: "written-here", level: 1 }).waitFor();
      await page.getByText("Running", { exact: true }).waitFor();
      // The way back leads to the list, and the next job begins with the example again.
      await page.goBack();
      await page.getByRole("link", { name: "written-here" }).waitFor();
      await page.getByRole("button", { name: "New job" }).click();
      await eventually(async () => (await editor(page).inputValue()).includes("name: warm\n"), true);
    });
  });

  it("that is refused says why in the server's words, and leads to the job that has its name", async () => {
    await withPage(browser, { width: 400, height: 800, scheme: "dark" }, async (page) => {
      await open(page, "/jobs?job=id-of-idle");
      await page.getByRole("button", { name: "Copy as new job" }).click();
      const submit = page.getByRole("button", { name: "Submit" });
      await eventually(() => submit.getAttribute("aria-disabled"), "false");
      await submit.click();
      const refusal = page.getByRole("alert").filter({ hasText: "The job was not submitted" });
      await refusal
        .getByText(
          /called 'idle' is still running; stop it first, submit this one with replace, or give it another name/,
        )
        .waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
      await refusal.getByRole("link", { name: "Go to the running job" }).click();
      await page.getByRole("heading", { name: "idle", level: 1 }).waitFor();
    });
  });

  it("of somebody who may only read is written and checked, and neither tested nor submitted", async () => {
    const own = await Server.start("a-token-of-an-operator");
    try {
      const token = await own.makeToken({ name: "reader", tenant: "default", roles: ["reader"] });
      await withPage(browser, {}, async (page) => {
        await page.goto(`${own.url}/jobs?new=job`);
        await page.getByLabel("API token").fill(token);
        await page.getByRole("button", { name: "Log in" }).click();
        await page.getByRole("status").filter({ hasText: "Valid" }).waitFor();
        for (const name of ["Test", "Submit"]) {
          const button = page.getByRole("button", { name, exact: true });
          expect([name, await button.getAttribute("aria-disabled")]).toEqual([name, "true"]);
          expect(await button.getAttribute("title")).toBe("This takes the role writer; your login has reader");
        }
      });
    } finally {
      await own.stop();
    }
  });

  it("over the limit of jobs is refused with that limit", async () => {
    const own = await Server.start("", "[flow]\njobs_max = 1\n");
    try {
      await own.submitJob(IDLE);
      await withPage(browser, {}, async (page) => {
        await openPage(page, own, "/jobs?new=job");
        const submit = page.getByRole("button", { name: "Submit" });
        await eventually(() => submit.getAttribute("aria-disabled"), "false");
        await submit.click();
        await page.getByRole("alert").filter({ hasText: "flow.jobs_max" }).waitFor();
      });
    } finally {
      await own.stop();
    }
  });
});
