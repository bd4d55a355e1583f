// The registration calls of NGSI.js, a client library of FIWARE. Takes the address of the server. Ends with an error at the
// first answer that is not as it should be.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const NGSI = createRequire(import.meta.url)("ngsijs");
const { v2 } = new NGSI.Connection(process.argv[2]);

const scope = { service: "plant", servicepath: "/hall" };
const registration = () => ({
  description: "Weather of a store",
  dataProvided: { entities: [{ id: "urn:ngsi-ld:Store:001", type: "Store" }], attrs: ["relativeHumidity"] },
  provider: { http: { url: "http://127.0.0.1:1/weather" }, supportedForwardingMode: "all", legacyForwarding: false },
  status: "active",
});

const made = await v2.createRegistration(registration(), { ...scope, correlator: "mine" });
const { id } = made.registration;
assert.match(id, /^[0-9a-f]{24}$/);
assert.equal(made.correlator, "mine");
assert.equal(made.location, `/v2/registrations/${id}`);
assert.deepEqual((await v2.getRegistration({ id, ...scope })).registration, { id, ...registration() });
const second = (await v2.createRegistration(registration(), scope)).registration.id;
const page = await v2.listRegistrations({ ...scope, count: true, limit: 1, offset: 1 });
assert.deepEqual([page.count, page.results.map((one) => one.id)], [2, [second]]);
const elsewhere = { service: "plant", servicepath: "/yard" };
assert.deepEqual((await v2.listRegistrations(elsewhere)).results, []);
for (const wrong of [{ id, ...elsewhere }, { id: "5f3e1b7c9d8a4e2f6b1c0a9d", ...scope }]) {
  await assert.rejects(v2.getRegistration(wrong), NGSI.NotFoundError);
  await assert.rejects(v2.deleteRegistration(wrong), NGSI.NotFoundError);
}
await assert.rejects(v2.createRegistration({ description: "nothing" }, scope), NGSI.BadRequestError);
await v2.deleteRegistration({ id, ...scope });
await assert.rejects(v2.getRegistration({ id, ...scope }), NGSI.NotFoundError);
assert.equal((await v2.listRegistrations({ ...scope, count: true })).count, 1);
console.log("all is as it should be");
