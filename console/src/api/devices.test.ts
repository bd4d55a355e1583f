import { describe, expect, it } from "vitest";
import { payloadOf } from "./commands";
import { decodeDevice, type DeviceSearch, searchParams } from "./devices";

const SEARCH: DeviceSearch = { text: "", kind: "", state: "", order: "id", page: 1, limit: 50 };

describe("a search for devices", () => {
  it.each([
    [{}, { pageSize: "50", pageOffset: "0" }],
    [
      { page: 3, limit: 25 },
      { pageSize: "25", pageOffset: "50" },
    ],
    [{ text: "lamp" }, { filterJson: '{"field":"/id","value":"*lamp*"}' }],
    [{ text: "lamp-?" }, { filterJson: '{"field":"/id","value":"lamp-?"}' }],
    [{ kind: "gateways" }, { isGateway: "true" }],
    [{ kind: "others" }, { isGateway: "false" }],
    [{ state: "connected" }, { filterJson: '{"field":"/status/connected","value":true}' }],
    [{ state: "disabled" }, { filterJson: '{"field":"/enabled","value":false}' }],
    [{ order: "seen" }, { sortJson: '{"field":"/status/last-seen","direction":"desc"}' }],
  ] as const)("for %j asks the registry so", (wanted, params) => {
    expect(Object.fromEntries(new URLSearchParams(searchParams({ ...SEARCH, ...wanted })))).toMatchObject(params);
  });
});

describe("a device", () => {
  it("keeps its whole document beside what is shown", () => {
    const document = {
      enabled: false,
      authorities: ["auto-provisioning-enabled"],
      status: { created: "2026-01-01T00:00:00Z", updated: "2026-01-02T00:00:00Z", connected: true },
    };
    const device = decodeDevice("d", document, "answer");
    expect(device).toMatchObject({
      id: "d",
      enabled: false,
      via: [],
      ext: {},
      status: { connected: true, last_seen: null },
    });
    expect(device.document).toEqual(document);
  });
});

describe("the payload of an answer", () => {
  it.each([
    [[], { kind: "none" }],
    [[0x7b, 0x7d], { kind: "json", text: "{}" }],
    [[0x6f, 0x6e], { kind: "text", text: "on" }],
    [[0xff], { kind: "bytes", bytes: Uint8Array.of(0xff) }],
  ])("of %j is shown as what it is", (bytes, payload) => {
    expect(payloadOf(Uint8Array.from(bytes))).toEqual(payload);
  });
});
