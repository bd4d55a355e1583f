// A site with an IoT agent: its devices are provisioned, send measures, get commands and are read. Takes the address of the
// broker and the devices' format, json or ultralight. Ends with an error at the first answer that is not as it should be.

import assert from "node:assert/strict";
import { RESOURCE, ask, serve, startAgent } from "./agent.mjs";

const [broker, format] = process.argv.slice(2);
const KEY = "4jggokgpepnvsb2uv4s40d59ov";
const BY_NAME = { json: { measure: JSON.stringify, level: { level: 3 } }, ultralight: { level: "3" } };
BY_NAME.ultralight.measure = (measures) => Object.entries(measures).flat().join("|");
const { measure, level } = BY_NAME[format];

async function main() {
  const agent = await startAgent(broker, format);
  const got = [];
  let isRegistered = true;
  // A lamp: takes commands and answers with their result, and tells the charge of its battery.
  const lamp = await serve(async ({ pathname }, body) => {
    if (pathname === "/b") return "71";
    got.push(body);
    // The agent has told of the command before its result comes.
    if (isRegistered) await eventually("PENDING", async () => (await entity("urn:Lamp:1")).on_status === "PENDING");
    if (format === "ultralight") return body.replace(/\|.*/, "|done");
    return JSON.stringify(Object.fromEntries(Object.keys(JSON.parse(body)).map((name) => [name, "done"])));
  });

  const entity = (id, query = "") => ask(200, "GET", `${broker}/v2/entities/${id}?options=keyValues${query}`);
  const registrations = () => ask(200, "GET", `${broker}/v2/registrations`);
  const send = (device, measures) =>
    fetch(`${agent.south}${RESOURCE}?k=${KEY}&i=${device}`, { method: "POST", body: measure(measures) });
  /** Waits for what comes behind the answer. */
  async function eventually(what, holds) {
    for (let tries = 0; tries < 600; tries += 1) {
      if (await holds()) return;
      await new Promise((done) => setTimeout(done, 50));
    }
    throw new Error(`never: ${what}`);
  }

  // A service group, of which each device has a command, a lazy attribute and two active ones.
  const kind = {
    commands: [{ name: "on", type: "command" }],
    lazy: [{ object_id: "b", name: "battery", type: "Number" }],
    attributes: [
      { object_id: "t", name: "temperature", type: "Number" },
      { object_id: "l", name: "light", type: "Number" },
    ],
  };
  const group = { resource: RESOURCE, apikey: KEY, entity_type: "Lamp", ...kind };
  await ask(201, "POST", `${agent.north}/iot/services`, { services: [group] });
  // A device.
  const device = {
    device_id: "lamp1", apikey: KEY, entity_name: "urn:Lamp:1", entity_type: "Lamp", transport: "HTTP", endpoint: lamp.url,
    static_attributes: [{ name: "room", type: "Text", value: "hall" }], ...kind,
  };
  await ask(201, "POST", `${agent.north}/iot/devices`, { devices: [device] });
  const [made] = await registrations();
  assert.deepEqual(made, {
    id: made.id,
    dataProvided: { entities: [{ id: "urn:Lamp:1", type: "Lamp" }], attrs: ["battery", "on"] },
    provider: { http: { url: agent.north }, supportedForwardingMode: "all", legacyForwarding: false },
    status: "active",
  });

  // Measures arrive; the lazy attribute and the command are the agent's.
  assert.equal((await send("lamp1", { t: 21, l: 400 })).status, 200);
  const lampNow = await entity("urn:Lamp:1", "&type=Lamp");
  const { TimeInstant: _, ...shown } = lampNow;
  assert.deepEqual(shown, {
    id: "urn:Lamp:1", type: "Lamp", temperature: 21, light: 400, room: "hall", battery: 71,
  });
  assert.equal((await entity("urn:Lamp:1", "&type=Lamp&options=keyValues,skipForwarding")).battery, undefined);
  assert.equal((await ask(200, "GET", `${broker}/v2/entities/urn:Lamp:1/attrs/battery?type=Lamp`)).value, 71);
  const query = { entities: [{ idPattern: "Lamp", type: "Lamp" }], attrs: ["battery", "light"] };
  const asked = await ask(200, "POST", `${broker}/v2/op/query?options=keyValues`, query);
  assert.deepEqual(asked, [{ id: "urn:Lamp:1", type: "Lamp", light: 400, battery: 71 }]);

  // A command in each way that a client has; its status and its result come back.
  const command = { type: "command", value: level };
  const attrs = `${broker}/v2/entities/urn:Lamp:1/attrs`;
  for (const [method, url, body] of [
    ["PATCH", `${attrs}?type=Lamp`, { on: command }],
    ["PATCH", attrs, { on: command, light: { type: "Number", value: 401 } }],
    ["PUT", `${attrs}/on?type=Lamp`, command],
    ["POST", `${broker}/v2/op/update`,
      { actionType: "update", entities: [{ id: "urn:Lamp:1", type: "Lamp", on: command }] }],
  ]) {
    const before = got.length;
    await ask(204, method, url, body);
    await eventually("the result", async () => (await entity("urn:Lamp:1")).on_status === "OK");
    assert.equal((await entity("urn:Lamp:1")).on_info, "done", url);
    assert.deepEqual(got.slice(before), [format === "json" ? '{"on":{"level":3}}' : "lamp1@on|3"], url);
  }
  assert.equal((await entity("urn:Lamp:1", "&type=Lamp")).light, 401);

  // A device that nobody has provisioned, with a command by its group: its measures are kept.
  assert.equal((await send("lamp2", { t: 19 })).status, 200);
  assert.equal((await registrations()).length, 2);
  assert.equal((await entity("Lamp:lamp2", "&type=Lamp")).temperature, 19);

  // Changed, a device is registered anew; gone, it is not registered.
  const further = { commands: [...kind.commands, { name: "off", type: "command" }] };
  await ask(204, "PUT", `${agent.north}/iot/devices/lamp1`, further);
  const changed = (await registrations()).find(({ dataProvided }) => dataProvided.entities[0].id === "urn:Lamp:1");
  assert.deepEqual(changed.dataProvided.attrs, ["battery", "on", "off"]);
  assert.notEqual(changed.id, made.id);
  await ask(204, "DELETE", `${agent.north}/iot/devices/lamp1`);
  assert.equal((await registrations()).length, 1);
  await ask(422, "PATCH", `${attrs}?type=Lamp`, { on: command });

  // A device whose commands come by a notification.
  const notified = {
    ...device, device_id: "lamp3", entity_name: "urn:Lamp:3", cmdMode: "notification", lazy: [],
  };
  await ask(201, "POST", `${agent.north}/iot/devices`, { devices: [notified] });
  assert.equal((await registrations()).length, 1);
  const before = got.length;
  isRegistered = false;
  await ask(204, "PATCH", `${broker}/v2/entities/urn:Lamp:3/attrs`, { on: command });
  await eventually("the result", async () => (await entity("urn:Lamp:3")).on_info === "done");
  assert.deepEqual(got.slice(before), [format === "json" ? '{"on":{"level":3}}' : "lamp3@on|3"]);

  lamp.end();
  await agent.end();
  console.log(`all is as it should be with devices that speak ${format}`);
}

// The library takes errors that nobody catches for itself.
main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
