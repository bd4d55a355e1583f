/** A person changes, creates and deletes entities: in a real browser against a real server. */
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { accessibilityFaults, eventually, launchBrowser, openPage, withPage } from "./console";
import { Server } from "./server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
  server = await Server.start();
  browser = await launchBrowser();
});

afterAll(async () => {
  // Either may be missing if the other could not be started.
  await Promise.all([(browser as Browser | undefined)?.close(), (server as Server | undefined)?.stop()]);
});

const open = (page: Page, path: string): Promise<void> => openPage(page, server, path);

/** The answer to `GET path`, or its status if it is refused. */
async function told(path: string): Promise<unknown> {
  const answer = await fetch(server.url + path);
  return answer.ok ? answer.json() : answer.status;
}

const entity = (id: string): Promise<unknown> => told(`/v2/entities/${id}?options=keyValues`);

/** The ids in the rows of the table, from the top. */
const ids = (page: Page): Promise<string[]> =>
  page.getByRole("region", { name: "Entities" }).getByRole("rowheader").allTextContents();

describe("an entity in detail", () => {
  const ROOM = "room1";
  const path = `/entities?entity=${ROOM}&entity_type=Room`;

  beforeAll(async () => {
    await server.createEntity({
      id: ROOM,
      type: "Room",
      temperature: { type: "Number", value: 20, metadata: { unitCode: { type: "Text", value: "CEL" } } },
      name: { type: "Text", value: "kitchen" },
      occupied: { type: "Boolean", value: false },
      range: { type: "StructuredValue", value: { low: 1 } },
      location: { type: "geo:json", value: { type: "Point", coordinates: [-3.7, 40.4] } },
    });
  });

  /** The open form that changes an attribute. */
  async function edit(page: Page, attribute: string): Promise<Locator> {
    await page.getByRole("button", { name: `Edit ${attribute}` }).click();
    return page.getByRole("form", { name: `Change ${attribute}` });
  }

  it("has its values changed, each as its kind asks", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, path);
      const save = async (form: Locator): Promise<void> => {
        await form.getByRole("button", { name: "Save" }).click();
        await form.waitFor({ state: "detached" });
      };
      let form = await edit(page, "temperature");
      await form.getByRole("textbox", { name: "Value" }).fill("21.5");
      expect(await accessibilityFaults(page)).toEqual([]);
      await save(form);
      await page.getByRole("definition").getByText("21.5").waitFor();
      form = await edit(page, "name");
      await form.getByRole("textbox", { name: "Value" }).fill("living room");
      await form.getByRole("textbox", { name: "Type" }).fill("Label");
      await save(form);
      form = await edit(page, "occupied");
      await form.getByRole("combobox", { name: "Value" }).selectOption("true");
      await save(form);
      form = await edit(page, "range");
      await form.getByRole("textbox", { name: "Value" }).fill('{"low": 2, "high": [3, null]}');
      await save(form);
      form = await edit(page, "location");
      await form.getByRole("textbox", { name: "Latitude" }).fill("41");
      await form.getByRole("textbox", { name: "Longitude" }).fill("-3.5");
      await save(form);
      expect(await entity(ROOM)).toEqual({
        id: ROOM,
        type: "Room",
        temperature: 21.5,
        name: "living room",
        occupied: true,
        range: { low: 2, high: [3, null] },
        location: { type: "Point", coordinates: [-3.5, 41] },
      });
      expect(await told(`/v2/entities/${ROOM}?attrs=temperature,name`)).toMatchObject({
        temperature: { type: "Number", metadata: { unitCode: { value: "CEL" } } },
        name: { type: "Label" },
      });
    });
  });

  it("keeps its value when the text is wrong, and says why: what is no JSON here, what NGSI forbids the server", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, path);
      const before = await entity(ROOM);
      let form = await edit(page, "range");
      await form.getByRole("textbox", { name: "Value" }).fill("{low}");
      await form.getByRole("button", { name: "Save" }).click();
      await form.getByRole("alert").filter({ hasText: "This is not JSON" }).waitFor();
      // Escape leaves the form, and not the entity.
      await page.keyboard.press("Escape");
      await form.waitFor({ state: "detached" });
      form = await edit(page, "name");
      await form.getByRole("textbox", { name: "Value" }).fill("a<b");
      await form.getByRole("button", { name: "Save" }).click();
      await form.getByRole("alert").filter({ hasText: "TextUnrestricted" }).waitFor();
      expect(await form.getByRole("textbox", { name: "Value" }).getAttribute("aria-invalid")).toBe("true");
      expect(await accessibilityFaults(page)).toEqual([]);
      expect(await entity(ROOM)).toEqual(before);
      await form.getByRole("textbox", { name: "Type" }).fill("TextUnrestricted");
      await form.getByRole("button", { name: "Save" }).click();
      await form.waitFor({ state: "detached" });
      expect(await entity(ROOM)).toMatchObject({ name: "a<b" });
    });
  });

  it("gets another attribute, once, and loses it after a question", async () => {
    await withPage(browser, { width: 390, height: 844 }, async (page) => {
      await open(page, path);
      await page.getByRole("button", { name: "Add attribute" }).click();
      const form = page.getByRole("form", { name: "Add an attribute" });
      await form.getByRole("textbox", { name: "Name" }).fill("occupied");
      await form.getByRole("textbox", { name: "Value" }).fill("7");
      await form.getByRole("button", { name: "Add" }).click();
      await form.getByRole("alert").waitFor();
      expect(await form.getByRole("textbox", { name: "Name" }).getAttribute("aria-invalid")).toBe("true");
      await form.getByRole("textbox", { name: "Name" }).fill("seats");
      await form.getByRole("button", { name: "Add" }).click();
      await form.waitFor({ state: "detached" });
      expect(await entity(ROOM)).toMatchObject({ seats: 7, occupied: true });

      const change = await edit(page, "seats");
      await change.getByRole("button", { name: "Delete attribute" }).click();
      const question = page.getByRole("dialog", { name: "Delete seats?" });
      await question.getByRole("button", { name: "Cancel" }).click();
      expect(await entity(ROOM)).toMatchObject({ seats: 7 });
      await change.getByRole("button", { name: "Delete attribute" }).click();
      await question.getByRole("button", { name: "Delete attribute" }).click();
      await page.getByRole("button", { name: "Edit seats" }).waitFor({ state: "detached" });
      expect(await entity(ROOM)).not.toHaveProperty("seats");
    });
  });

  it("is deleted after a question, and gone from the list", async () => {
    await server.createEntity({ id: "doomed", type: "Room" });
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities?type=Room");
      await page.getByRole("button", { name: "doomed" }).click();
      const detail = page.getByRole("complementary", { name: "doomed" });
      await detail.getByRole("button", { name: "Delete entity" }).click();
      const question = page.getByRole("dialog", { name: "Delete doomed?" });
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await question.waitFor({ state: "detached" });
      expect(await entity("doomed")).toMatchObject({ id: "doomed" });
      await detail.getByRole("button", { name: "Delete entity" }).click();
      await question.getByRole("button", { name: "Delete entity" }).click();
      await detail.waitFor({ state: "detached" });
      expect(await entity("doomed")).toBe(404);
      await eventually(() => ids(page), [ROOM]);
    });
  });
});

describe("a new entity", () => {
  it("is created field by field, and what the server refuses is said at its field", async () => {
    await withPage(browser, { scheme: "dark" }, async (page) => {
      await open(page, "/entities");
      await page.getByRole("button", { name: "Create an entity" }).click();
      const form = page.getByRole("dialog", { name: "Create an entity" });
      const id = form.getByRole("textbox", { name: "Id" });
      await id.fill("hall 1");
      await form.getByRole("combobox", { name: "Type" }).first().fill("Hall");
      await form.getByRole("textbox", { name: "Name" }).fill("seats");
      await form.getByRole("textbox", { name: "Value" }).fill("120");
      await form.getByRole("button", { name: "Add an attribute" }).click();
      const second = form.getByRole("group", { name: "Attribute 2" });
      await second.getByRole("combobox", { name: "Kind" }).selectOption("Place");
      await second.getByRole("textbox", { name: "Latitude" }).fill("40.5");
      await second.getByRole("textbox", { name: "Longitude" }).fill("-3.25");
      await second.getByRole("textbox", { name: "Name" }).fill("location");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "'hall 1' is no identifier" }).waitFor();
      expect(await id.getAttribute("aria-invalid")).toBe("true");
      expect(await accessibilityFaults(page)).toEqual([]);
      await id.fill("room1");
      await form.getByRole("combobox", { name: "Type" }).first().fill("Room");
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "exists already" }).waitFor();
      expect(await id.getAttribute("aria-invalid")).toBe("true");
      await id.fill("hall1");
      await form.getByRole("combobox", { name: "Type" }).first().fill("Hall");
      await form.getByRole("button", { name: "Create" }).click();
      await page.getByRole("complementary", { name: "hall1" }).waitFor();
      expect(await entity("hall1")).toEqual({
        id: "hall1",
        type: "Hall",
        seats: 120,
        location: { type: "Point", coordinates: [-3.25, 40.5] },
      });
    });
  });

  it("is created from JSON that somebody pastes", async () => {
    await withPage(browser, {}, async (page) => {
      await open(page, "/entities");
      await page.getByRole("button", { name: "Create an entity" }).click();
      const form = page.getByRole("dialog", { name: "Create an entity" });
      await form.getByRole("button", { name: "JSON" }).click();
      const text = form.getByRole("textbox", { name: "Entity as JSON" });
      await text.fill('{"id": "pasted", "state": "a=b"');
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "This is not JSON" }).waitFor();
      await text.fill('{"id": "pasted", "state": "a=b"}');
      await form.getByRole("button", { name: "Create" }).click();
      await form.getByRole("alert").filter({ hasText: "attribute 'state' contains 'a=b'" }).waitFor();
      await text.fill('{"id": "pasted", "state": "on", "level": {"value": 3, "type": "Level"}}');
      await form.getByRole("button", { name: "Create" }).click();
      await page.getByRole("complementary", { name: "pasted" }).waitFor();
      expect(await told("/v2/entities/pasted")).toEqual({
        id: "pasted",
        type: "Thing",
        state: { type: "Text", value: "on", metadata: {} },
        level: { type: "Level", value: 3, metadata: {} },
      });
    });
  });
});

it.each(["light", "dark"] as const)(
  "every form can be used without seeing or pointing, in %s colours",
  async (scheme) => {
    await server.createEntity({ id: `form.${scheme}`, type: "Form", a: { type: "Text", value: "b" } });
    await withPage(browser, { scheme }, async (page) => {
      await open(page, `/entities?entity=form.${scheme}&entity_type=Form`);
      await page.getByRole("button", { name: "Edit a" }).click();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("button", { name: "Add attribute" }).click();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("button", { name: "Create an entity" }).click();
      expect(await accessibilityFaults(page)).toEqual([]);
      await page.getByRole("button", { name: "JSON" }).click();
      expect(await accessibilityFaults(page)).toEqual([]);
    });
  },
);
