/** Which records of a topic are on the screen: from where on, of which partition, key and text. */
import type { ComponentChildren } from "preact";
import type { TopicsMover, TopicsPlace } from "../pages/topics-place";
import { DraftInput } from "./draft-input";

/** Pause in typing after which a filter is applied. */
const SETTLE_MS = 400;
/** Partitions that are offered one by one. */
const CHOICES_MAX = 1_000;

export function RecordFilters(props: {
  place: TopicsPlace;
  partitions: number;
  onMove: TopicsMover;
}): ComponentChildren {
  const { place, partitions, onMove } = props;
  const start = { side: "from", record: "" } as const;
  return (
    <form
      class="key-filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
      }}
    >
      {place.mode === "pages" && <Start place={place} onMove={onMove} />}
      {partitions > 1 && (
        <label class="filter">
          <span>Partition</span>
          <select
            value={place.partition}
            onChange={(event) => {
              onMove({ ...start, partition: event.currentTarget.value, at: inAny(place.at) }, "step");
            }}
          >
            <option value="">all</option>
            {Array.from({ length: Math.min(partitions, CHOICES_MAX) }, (_, number) => (
              <option key={number} value={String(number)}>
                {number}
              </option>
            ))}
          </select>
        </label>
      )}
      <label class="filter">
        <span>Key</span>
        <DraftInput
          value={place.key}
          placeholder="any, or sensor-*"
          list="record-keys"
          settle_ms={SETTLE_MS}
          onCommit={(key) => {
            onMove({ ...start, key, at: inAny(place.at) }, "amend");
          }}
        />
        <datalist id="record-keys" />
      </label>
      <label class="filter" title="Searched in the stored values of all records, not of this page only">
        <span>Contains</span>
        <DraftInput
          value={place.text}
          placeholder="any text"
          list="record-texts"
          settle_ms={SETTLE_MS}
          onCommit={(text) => {
            onMove({ ...start, text, at: inAny(place.at) }, "amend");
          }}
        />
        <datalist id="record-texts" />
      </label>
      <span class="spring" />
      <button
        type="button"
        aria-pressed={place.mode === "tail"}
        title="Show records as they come"
        onClick={() => {
          onMove({ mode: place.mode === "tail" ? "pages" : "tail", at: "", side: "from" }, "step");
        }}
      >
        Follow
      </button>
    </form>
  );
}

/** A place that means something in other partitions and for other filters; a page in the middle does not. */
function inAny(at: string): string {
  return at.includes(":") && !at.includes("T") ? "" : at;
}

type StartKind = "newest" | "oldest" | "time" | "offset";

function startOf({ at }: TopicsPlace): StartKind {
  if (at === "" || at === "oldest") return at === "" ? "newest" : "oldest";
  if (at.includes("T")) return "time";
  return "offset";
}

function Start({ place, onMove }: { place: TopicsPlace; onMove: TopicsMover }): ComponentChildren {
  const kind = startOf(place);
  const to = (at: string): void => {
    onMove({ at, side: "from", record: "" }, "step");
  };
  return (
    <>
      <label class="filter">
        <span>Show</span>
        <select
          // A page in the middle has no name in this list.
          value={/^\d+:/.test(place.at) ? "page" : kind}
          onChange={(event) => {
            const chosen = event.currentTarget.value;
            if (chosen === "newest") to("");
            if (chosen === "oldest") to("oldest");
            if (chosen === "time") to(new Date(Date.now() - 3_600_000).toISOString());
            if (chosen === "offset") to("0");
          }}
        >
          {/^\d+:/.test(place.at) && <option value="page">another page</option>}
          <option value="newest">newest</option>
          <option value="oldest">oldest</option>
          <option value="time">from a time</option>
          <option value="offset">from an offset</option>
        </select>
      </label>
      {kind === "time" && (
        <DraftInput
          type="datetime-local"
          label="From this time"
          value={localTime(place.at)}
          onCommit={(time) => {
            const at_ms = new Date(time).getTime();
            if (!Number.isNaN(at_ms)) to(new Date(at_ms).toISOString());
          }}
        />
      )}
      {kind === "offset" && !place.at.includes(":") && (
        <DraftInput
          type="number"
          label="From this offset"
          class="offset-input"
          value={place.at}
          onCommit={(offset) => {
            if (/^\d+$/.test(offset)) to(offset);
          }}
        />
      )}
    </>
  );
}

/** An ISO time as the field for local times has it. */
function localTime(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
