import { describe, expect, it } from "vitest";
import { bytesToFetch, hexRows, IMAGE_MAX_BYTES, prettyJson, type Preview, previewOf, TEXT_MAX_BYTES } from "./preview";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const PNG = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a];

describe("a value", () => {
  it.each<[string, Uint8Array, boolean, string | null, Preview["kind"]]>([
    ["nothing", utf8(""), true, "image/png", "empty"],
    ["an object", utf8(' {"a":1}'), true, null, "json"],
    ["an object that was cut", utf8('{"a":1'), false, "application/json", "text"],
    ["an object that is none", utf8("{a}"), true, "application/json", "text"],
    ["a number", utf8("12"), true, "application/json", "text"],
    ["text", utf8("zwölf\tBolzen\r\n"), true, "application/octet-stream", "text"],
    ["text that was cut in a character", utf8("zwö").subarray(0, 3), false, null, "text"],
    ["text that ends in half a character", utf8("zwö").subarray(0, 3), true, null, "hex"],
    ["text with a zero byte", utf8("a\0b"), true, "text/plain", "hex"],
    ["bytes", Uint8Array.of(0xff, 0xfe), true, null, "hex"],
    ["an image by its type", utf8("<svg/>"), true, "image/svg+xml; charset=utf-8", "image"],
    ["an image by its bytes", Uint8Array.from(PNG), true, "application/octet-stream", "image"],
    ["an image that was cut", Uint8Array.from(PNG), false, "image/png", "hex"],
    ["a page, which is not run", utf8("<script>1</script>"), true, "text/html", "text"],
  ])("that is %s", (_, bytes, whole, contentType, kind) => {
    expect(previewOf(bytes, whole, contentType).kind).toBe(kind);
  });

  it("is fetched whole only if it is an image that is shown", () => {
    expect(bytesToFetch("image/png", IMAGE_MAX_BYTES)).toBe(IMAGE_MAX_BYTES);
    expect(bytesToFetch("image/png", IMAGE_MAX_BYTES + 1)).toBe(TEXT_MAX_BYTES);
    expect(bytesToFetch("text/plain", 1)).toBe(TEXT_MAX_BYTES);
  });
});

describe("JSON", () => {
  it.each([
    [
      '{"b":12345678901234567890,"a":[1.50,{}, [ ]]}',
      '{\n  "b": 12345678901234567890,\n  "a": [\n    1.50,\n    {},\n    []\n  ]\n}',
    ],
    ['["a\\"{,","\\u00e4"]', '[\n  "a\\"{,",\n  "\\u00e4"\n]'],
    ["[1,]", null],
  ])("%s keeps its numbers and its order", (text, expected) => {
    expect(prettyJson(text)).toBe(expected);
  });
});

describe("a dump", () => {
  it("has sixteen bytes a row and shows text beside them", () => {
    const rows = hexRows(Uint8Array.from([...Array(16).keys(), 0x41, 0xff]));
    expect(rows.map(({ offset }) => offset)).toEqual(["000000", "000010"]);
    expect(rows[1]).toEqual({ offset: "000010", hex: "41 ff", text: "A." });
  });
});
