/** Keys as rows, in the order of their bytes, with the ways to the first and the next page. */
import type { ComponentChildren } from "preact";
import { type EncodedKey, type KeyLine, type KeysPage, keyText, type Line } from "../api/store";
import { ago, bytes, counted } from "../format";
import { LIMITS } from "../pages/entities-place";
import { type StoreMover, storeParams, type StorePlace } from "../pages/store-place";
import { follow, href } from "../route";

/** As it stands in an encoded key. */
const SLASH = "%2F";

export function KeyTable({ lines, place }: { lines: readonly Line[]; place: StorePlace }): ComponentChildren {
  const now = Date.now();
  const expire = lines.some((line) => line.kind === "key" && line.expires !== null);
  return (
    <div class="scroll">
      <table class="keys">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col" class="number">
              Size
            </th>
            <th scope="col">Written</th>
            {expire && <th scope="col">Expires</th>}
            <th scope="col">Type</th>
            <th scope="col" class="number">
              Version
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) =>
            line.kind === "prefix" ? (
              <tr key={`/${line.prefix}`} class="folder">
                <th scope="row" colSpan={expire ? 6 : 5}>
                  <a
                    href={href("store", storeParams({ ...place, prefix: line.prefix, start: "", key: null }))}
                    onClick={follow}
                  >
                    {behind(line.prefix, place)}
                  </a>
                </th>
              </tr>
            ) : (
              <KeyRow key={line.key} line={line} place={place} expire={expire} now={now} />
            ),
          )}
        </tbody>
      </table>
    </div>
  );
}

function KeyRow(props: { line: KeyLine; place: StorePlace; expire: boolean; now: number }): ComponentChildren {
  const { line, place, expire, now } = props;
  return (
    <tr aria-current={line.key === place.key ? "true" : undefined}>
      <th scope="row">
        <a
          href={href("store", storeParams({ ...place, key: line.key }))}
          onClick={follow}
          title={keyText(line.key)}
          class="key"
        >
          {behind(line.key, place)}
        </a>
        {line.tags.map((tag) => (
          <span key={tag} class="tag">
            {tag}
          </span>
        ))}
      </th>
      <td class="number">{bytes(line.length)}</td>
      <td title={line.written}>{ago(Date.parse(line.written), now)}</td>
      {expire && (
        <td title={line.expires ?? undefined}>
          {line.expires === null ? <span class="quiet">never</span> : ago(Date.parse(line.expires), now)}
        </td>
      )}
      <td class="cut" title={line.content_type ?? undefined}>
        {line.content_type ?? <span class="quiet">–</span>}
      </td>
      <td class="number">{line.version}</td>
    </tr>
  );
}

/** The part of a key that its folder does not tell. */
function behind(key: EncodedKey, { prefix, view }: StorePlace): string {
  const slash = prefix.toUpperCase().lastIndexOf(SLASH);
  const folder = view === "all" || slash < 0 ? "" : prefix.slice(0, slash + SLASH.length);
  return keyText(key.startsWith(folder) ? key.slice(folder.length) : key);
}

export function KeyPaging(props: { page: KeysPage; place: StorePlace; onMove: StoreMover }): ComponentChildren {
  const { page, place, onMove } = props;
  const more = page.next === null ? "" : ", and more";
  return (
    <div class="paging">
      <span role="status">
        {counted(page.lines.length, "line")} here{more}
      </span>
      <label>
        <span>Per page</span>
        <select
          value={place.limit}
          onChange={(event) => {
            onMove({ limit: Number(event.currentTarget.value) }, "step");
          }}
        >
          {LIMITS.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      </label>
      <div class="paging-steps">
        <button
          type="button"
          disabled={place.start === ""}
          onClick={() => {
            onMove({ start: "" }, "step");
          }}
        >
          First
        </button>
        <button
          type="button"
          disabled={page.next === null}
          onClick={() => {
            if (page.next !== null) onMove({ start: page.next }, "step");
          }}
        >
          Next
        </button>
      </div>
    </div>
  );
}
