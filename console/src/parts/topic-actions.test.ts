import { describe, expect, it } from "vitest";
import { headersOf, recordText, requestsOf } from "./topic-actions";
import { settingsOf } from "./topic-form";

function formOf(fields: Readonly<Record<string, string>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return form;
}

describe("a record that is typed", () => {
  it.each([
    [
      { key: "a", kind: "json", value: '{"n": 12345678901234567890}' },
      '{"key":"a","value":{"n": 12345678901234567890}}',
    ],
    [{ kind: "json", value: "1.50", partition: "2" }, '{"partition":2,"value":1.50}'],
    [{ kind: "json", value: " true " }, '{"value": true }'],
    [{ kind: "text", value: " a\n" }, '{"value_text":" a\\n"}'],
    [{ key: "a", kind: "none", value: "left" }, '{"key":"a","value":null}'],
    [{ kind: "text", value: "x", headers: "a: 1\n\nb:c:d" }, '{"headers":{"a":"1","b":"c:d"},"value_text":"x"}'],
  ])("%j is sent as it is", (fields, text) => {
    expect(recordText(formOf(fields as Record<string, string>))).toBe(text);
  });

  it("without value, with bad JSON or a bad header is sent back with the reason", () => {
    expect(() => recordText(formOf({ kind: "json", value: " " }))).toThrow("the value is empty; type JSON");
    expect(() => recordText(formOf({ kind: "json", value: "{" }))).toThrow("the value is no JSON");
    expect(() => headersOf("nothing")).toThrow("the header 'nothing' is no name and value; write name: value");
  });
});

describe("settings of a topic", () => {
  const config = {
    partitions: 4,
    storage: "disk",
    level: "synced",
    cleanup: "delete",
    writers: "anyone",
    retention: null,
    retention_bytes: 1 << 30,
    segment_bytes: 1,
    segment_age: "1d",
    compression: "none",
    record_max_bytes: 1 << 20,
  };
  const same = { partitions: "4", level: "synced", cleanup: "delete", compression: "none", record_max_bytes: "1 MiB" };

  it("are sent only where they differ, partitions apart", () => {
    expect(settingsOf(formOf({ ...same, retention: "none", retention_bytes: "1 GiB" }), config)).toEqual({});
    const changed = formOf({ ...same, partitions: "8", retention: "12h", retention_bytes: "none", level: "written" });
    const settings = settingsOf(changed, config);
    expect(settings).toEqual({ partitions: 8, retention: "12h", retention_bytes: null, level: "written" });
    expect(requestsOf(settings)).toEqual([
      { retention: "12h", retention_bytes: null, level: "written" },
      { partitions: 8 },
    ]);
    expect(requestsOf({})).toEqual([]);
  });

  it("that are no size go to the server as they were typed", () => {
    expect(settingsOf(formOf({ record_max_bytes: "large" }), null)).toEqual({ record_max_bytes: "large" });
  });
});
