import { describe, expect, it } from "vitest";
import { hitRatio, percent, quotaOf } from "../parts/buckets-view";
import { bucketOf } from "../parts/create-bucket";
import { decodeBucket, decodeKeys, keyPath, keyText } from "./store";

const BUCKET = {
  name: "shop",
  topic: "kv.shop.default",
  settings: { kind: "durable", partitions: 1, ack: "written", max_keys: 1_000, max_bytes: 100, policy: "allkeys-lru" },
  keys: 4,
  bytes: 40,
  cache: { hits: 3, misses: 1, values: 6, bytes: 777, max_bytes: 16_777_216 },
};

describe("a bucket", () => {
  it("has the limit that is nearest and the share of reads from memory", () => {
    const bucket = decodeBucket(BUCKET, "answer");
    expect(quotaOf(bucket)).toEqual({ share: 0.4, limit: "100 B" });
    expect(hitRatio(bucket)).toBe("75 %");
    const fresh = { ...bucket, cache: { ...bucket.cache, hits: 0, misses: 0 } };
    expect(hitRatio(fresh)).toBeNull();
    expect(quotaOf({ ...bucket, settings: { ...bucket.settings, max_keys: null, max_bytes: null } })).toBeNull();
  });

  it("that is a cache has no topic", () => {
    expect(decodeBucket({ ...BUCKET, topic: undefined }, "answer").topic).toBeNull();
  });

  it.each([
    [0, "0 %"],
    [0.001, "< 1 %"],
    [0.999, "99 %"],
    [1, "100 %"],
  ])("uses %d of a limit: %s", (share, expected) => {
    expect(percent(share)).toBe(expected);
  });
});

describe("a listing", () => {
  const KEY = '"version":7,"length":3,"written":"2026-01-01T00:00:00.000Z"';

  it("has keys and folders, text or not, and the place of the next page", () => {
    const page = decodeKeys(
      `{"prefix":"a b/"}\n{"key":"ü",${KEY},"tags":["vip"]}\n{"key_base64":"/0E=",${KEY}}\n` +
        '{"next":"/kv/b?start=x%2Fy%FF&prefix=x&limit=3"}\n',
    );
    expect(page.next).toBe("x%2Fy%FF");
    expect(page.lines.map((line) => (line.kind === "key" ? line.key : line.prefix))).toEqual([
      "a%20b%2F",
      "%C3%BC",
      "%FFA",
    ]);
    expect(page.lines[1]).toMatchObject({ kind: "key", version: 7, length: 3, expires: null, tags: ["vip"] });
    expect(decodeKeys('{"next":null}\n').next).toBeNull();
  });

  it.each(["", `{"key":"a",${KEY}}\n`, '{"keys":1}\n{"next":null}\n', '{"key":"a"\n{"next":null}\n'])(
    "that was cut or is none (%j) is an error",
    (text) => {
      expect(() => decodeKeys(text)).toThrow("the server's answer");
    },
  );
});

describe("the path of a key", () => {
  it.each([
    ["a%2Fb", "/kv/my%20b/a%2Fb", "a/b"],
    ["_bulk", "/kv/my%20b/%5Fbulk", "_bulk"],
    ["%ff", "/kv/my%20b/%ff", "%ff"],
  ])("%s", (key, path, text) => {
    expect(keyPath("my b", key)).toBe(path);
    expect(keyText(key)).toBe(text);
  });
});

describe("the form of a bucket", () => {
  it("leaves out what was not filled in", () => {
    const fields = { name: "things", kind: "durable", partitions: "1", ack: "written", ttl_ms: "30m", max_bytes: "" };
    expect(bucketOf(new Map(Object.entries({ ...fields, max_keys: "1000" })))).toEqual({
      name: "things",
      settings: { kind: "durable", partitions: 1, ack: "written", ttl_ms: 1_800_000, max_keys: 1_000 },
    });
  });

  it("names what it cannot read", () => {
    expect(() => bucketOf(new Map([["ttl_ms", "soon"]]))).toThrow(`'soon' in "time to live" is not a number with ms`);
  });
});
