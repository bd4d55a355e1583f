import { describe, expect, it } from "vitest";
import { loadSaved, proposedName, SAVED_MAX, storeSaved, withSaved } from "./saved";

function storageWith(text: string | null): Pick<Storage, "getItem" | "setItem"> {
  let kept = text;
  return {
    getItem: () => kept,
    setItem: (_key, value) => {
      kept = value;
    },
  };
}

describe("saved queries", () => {
  it("are restored as they were saved", () => {
    const storage = storageWith(null);
    expect(loadSaved(storage)).toEqual([]);
    storeSaved(storage, [{ name: "a", text: "SELECT *" }]);
    expect(loadSaved(storage)).toEqual([{ name: "a", text: "SELECT *" }]);
  });

  it.each(["{", "{}", '[{"name": 1}]'])("are none if the stored text is %s", (text) => {
    expect(loadSaved(storageWith(text))).toEqual([]);
  });

  it("have one text for each name, the newest first, and are not endless", () => {
    const saved = withSaved(
      [
        { name: "a", text: "1" },
        { name: "b", text: "2" },
      ],
      { name: "b", text: "3" },
    );
    expect(saved).toEqual([
      { name: "b", text: "3" },
      { name: "a", text: "1" },
    ]);
    const full = Array.from({ length: SAVED_MAX }, (_, index) => ({ name: String(index), text: "" }));
    expect(withSaved(full, { name: "new", text: "" })).toHaveLength(SAVED_MAX);
  });

  it("are first named after their text", () => {
    expect(proposedName("SELECT *\n  FROM STREAM()")).toBe("SELECT * FROM STREAM()");
    expect(proposedName("SELECT ".repeat(20))).toHaveLength(40);
  });
});
