import { describe, expect, it } from "vitest";
import { decodeRegistration } from "../api/registrations";
import { forwardState, providedText } from "./forwards";

const NOW = Date.parse("2026-03-01T12:00:00Z");

function registration(given: Record<string, unknown> = {}, forwards: Record<string, unknown> = {}) {
  const document = {
    id: "0123456789abcdef01234567",
    dataProvided: {
      entities: [
        { id: "r1", type: "Room" },
        { idPattern: ".*", type: "Lamp" },
      ],
      attrs: ["on", "battery"],
    },
    provider: { http: { url: "http://agent:4041" }, supportedForwardingMode: "all", legacyForwarding: false },
    status: "active",
    forwardingInformation: { timesSent: 0, ...forwards },
    ...given,
  };
  return decodeRegistration(document, "$");
}

describe("a registration", () => {
  it("tells what its provider has", () => {
    expect(providedText(registration())).toBe("on, battery of r1 (Room); Lamp");
    const all = registration({ dataProvided: { entities: [{ idPattern: ".*" }], attrs: [] } });
    expect(providedText(all)).toBe("all of any type");
  });

  it("says how its provider answers", () => {
    const [early, late] = ["2026-03-01T11:00:00.000Z", "2026-03-01T11:30:00.000Z"];
    const word = (given: Record<string, unknown>, forwards: Record<string, unknown> = {}) => {
      const { tone, word, detail } = forwardState(registration(given, forwards), NOW);
      return [tone, word, detail];
    };
    expect(word({})).toEqual(["quiet", "Quiet", "nothing has been asked since the server started"]);
    expect(word({ expires: early })).toEqual(["quiet", "Expired", ""]);
    expect(word({ expires: "2050-01-01T00:00:00.000Z" })[1]).toBe("Quiet");
    const off = { provider: { http: { url: "http://agent:4041" }, supportedForwardingMode: "none" } };
    expect(word(off)).toEqual(["quiet", "Off", "nothing is forwarded"]);
    const success = { timesSent: 2, lastForwarding: late, lastSuccess: late, lastSuccessCode: 200 };
    expect(word({}, success)).toEqual(["good", "Answering", ""]);
    expect(word({}, { ...success, lastFailure: early, lastFailureReason: "timeout" })[1]).toBe("Answering");
    const failure = { ...success, lastSuccess: early, lastFailure: late, lastFailureReason: "timeout" };
    expect(word({}, failure)).toEqual(["error", "Failing", "timeout"]);
    expect(word({}, { timesSent: 1, lastFailure: late, lastFailureReason: "gone" })[1]).toBe("Failing");
  });
});
