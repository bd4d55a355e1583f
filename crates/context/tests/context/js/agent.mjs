// An agent for devices that speak JSON or Ultralight 2.0 over HTTP, on FIWARE's library for IoT agents. All that it says to a
// context broker, the library says; here is only what its devices say.

import { createServer } from "node:http";
import { createRequire } from "node:module";

const library = createRequire(import.meta.url)("iotagent-node-lib");

/** The path of devices, and the resource of service groups. */
export const RESOURCE = "/iot/d";
const TENANT = { "Fiware-Service": "plant", "Fiware-ServicePath": "/hall" };

/** Calls a function of the library that ends with a callback. */
function call(to, ...given) {
  return new Promise((done, failed) => to(...given, (error, ...found) => (error ? failed(error) : done(found.at(-1)))));
}

async function bodyOf(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

/** Starts an HTTP server on loopback; `answer` returns the text of the answer. */
export async function serve(answer) {
  const server = createServer(async (request, response) => {
    try {
      response.end(await answer(new URL(request.url, "http://localhost"), await bodyOf(request)));
    } catch (error) {
      response.writeHead(500).end(`${error.name}: ${error.message}`);
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}`, end: () => server.close() };
}

/** A free port, for the library, which takes none by itself. */
async function freePort() {
  const { url, end } = await serve(() => "");
  end();
  return Number(new URL(url).port);
}

const FORMATS = {
  json: {
    measures: (text) => Object.entries(JSON.parse(text)),
    command: (_, name, value) => JSON.stringify({ [name]: value }),
    results: (text) => Object.entries(JSON.parse(text)),
  },
  ultralight: {
    measures: (text) => {
      const parts = text.split("|");
      return parts.flatMap((name, at) => (at % 2 === 0 ? [[name, Number(parts[at + 1])]] : []));
    },
    command: (device, name, value) => `${device}@${name}|${value}`,
    results: (text) => [[text.slice(text.indexOf("@") + 1, text.indexOf("|")), text.slice(text.indexOf("|") + 1)]],
  },
};

/** Sends a command to its device and takes the result, as FIWARE's agents do over HTTP. */
async function execute(format, device, { name, value }) {
  const answer = await fetch(device.endpoint, { method: "POST", body: format.command(device.id, name, value) });
  for (const [named, result] of format.results(await answer.text())) {
    await call(library.setCommandResult, device.name, RESOURCE, device.apikey ?? "", named, result, "OK", device);
  }
}

/** Starts the agent before a broker; returns the URLs for administrators and for devices. */
export async function startAgent(broker, formatName) {
  const format = FORMATS[formatName];
  const port = await freePort();
  const providerUrl = `http://127.0.0.1:${port}`;
  await call(library.activate, {
    logLevel: "FATAL",
    contextBroker: { url: broker, ngsiVersion: "v2" },
    server: { port, host: "127.0.0.1" },
    deviceRegistry: { type: "memory" },
    types: {},
    service: TENANT["Fiware-Service"],
    subservice: TENANT["Fiware-ServicePath"],
    providerUrl,
    defaultType: "Thing",
    defaultResource: RESOURCE,
  });
  const known = (id, type, service, path) => call(library.getDeviceByNameAndType, id, type, service, path);
  library.setDataUpdateHandler((id, type, service, path, attributes, done) => done(null));
  library.setCommandHandler((id, type, service, path, commands, done) => {
    known(id, type, service, path)
      .then((device) => commands.map((command) => execute(format, device, command)))
      .then(() => done(null), done);
  });
  // Commands of devices with `cmdMode: notification`: the library makes them attributes of the entity, at first null.
  library.setNotificationHandler((device, attributes, done) => {
    const commands = attributes.filter(({ type, value }) => type === "command" && value !== null);
    Promise.all(commands.map((command) => execute(format, device, command))).then(() => done(null), done);
  });
  library.setDataQueryHandler((id, type, service, path, names, done) => {
    known(id, type, service, path)
      .then(async (device) => {
        const found = { id, type };
        for (const { name, object_id: own, type: kind } of device.lazy.filter(({ name }) => names.includes(name))) {
          found[name] = { type: kind, value: Number(await (await fetch(`${device.endpoint}/${own}`)).text()) };
        }
        return found;
      })
      .then((found) => done(null, found), done);
  });
  const south = await serve(async ({ searchParams }, body) => {
    const device = await call(library.retrieveDevice, searchParams.get("i"), searchParams.get("k"));
    const values = format.measures(body).map(([name, value]) => ({ name, type: "Number", value }));
    await call(library.update, device.name, device.type, "", values, device);
    return "";
  });
  return {
    north: providerUrl,
    south: south.url,
    end: async () => {
      south.end();
      await call(library.deactivate);
    },
  };
}

/** Asks over HTTP; fails unless the status is `status`. */
export async function ask(status, method, url, body) {
  const headers = { ...TENANT, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  if (answer.status !== status) throw new Error(`${method} ${url}: ${answer.status} instead of ${status}: ${text}`);
  return text === "" ? null : JSON.parse(text);
}
