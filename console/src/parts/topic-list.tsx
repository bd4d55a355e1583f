/** The topics of a tenant as rows, and the way to make one. */
import type { ComponentChildren } from "preact";
import { useCallback, useContext, useState } from "preact/hooks";
import { createTopic, fetchTopicList, type TopicSummary } from "../api/topics";
import { bytes, counted, short, whole } from "../format";
import { CallerContext } from "../live/caller";
import { useRates } from "../live/rates";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import { NO_TOPIC, type TopicsMover, topicsParams, type TopicsPlace } from "../pages/topics-place";
import { follow, href } from "../route";
import { FirstSteps } from "./command";
import { DraftInput } from "./draft-input";
import { Field, FormDialog, textOf } from "./form-dialog";
import { Notice, RemoteNotice } from "./notice";
import { settingsOf, TopicFields } from "./topic-form";
import { Name } from "./value";

const PERIOD_MS = 2_000;
/** Pause in typing after which the search is applied. */
const SETTLE_MS = 300;
const NONE: readonly TopicSummary[] = [];

export function TopicList({ place, onMove }: { place: TopicsPlace; onMove: TopicsMover }): ComponentChildren {
  const { tenant, search } = place;
  const beginnings = useContext(CallerContext)?.limits?.topics ?? null;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchTopicList(tenant).then((topics) => ({ topics, told })), [tenant, told]),
    PERIOD_MS,
  );
  const topics = latest(remote)?.topics ?? null;
  const rates = useRates(topics ?? NONE);
  const shown = (topics ?? []).filter(({ name }) => name.includes(search));
  const create = async (form: FormData): Promise<void> => {
    const name = textOf(form, "name");
    if (beginnings?.every((beginning) => !name.startsWith(beginning)) === true) {
      throw new Error(`your login is good for topics that begin with ${beginnings.join(" or ")}`);
    }
    // The same request to a topic that is there would be answered as if it had been made.
    if (topics?.some((topic) => topic.name === name)) {
      throw new Error(`there is a topic '${name}' already; choose another name`);
    }
    await createTopic(tenant, name, settingsOf(form, null));
    setTold((before) => before + 1);
    onMove({ ...NO_TOPIC, topic: name }, "step");
  };
  return (
    <>
      <div class="page-head">
        <h1>Topics</h1>
        {topics !== null && topics.length > 0 && <span class="facts">{sumOf(topics)}</span>}
        <span class="spring" />
        <FormDialog
          role="admin"
          label="Create a topic"
          tone="primary"
          submit="Create"
          refusal="The topic was not created"
          act={create}
        >
          <Field
            label="Name"
            hint={`a-z A-Z 0-9 . _ -${beginnings === null ? "" : `; begins with ${beginnings.join(" or ")}`}`}
          >
            <input name="name" required spellcheck={false} autocomplete="off" autocapitalize="off" />
          </Field>
          <TopicFields config={null} kind="user" />
        </FormDialog>
      </div>
      <RemoteNotice remote={remote} what="topics" />
      {topics?.every(({ kind }) => kind !== "user") && (
        <section class="card" aria-label="First topic">
          <NoTopics tenant={tenant} />
        </section>
      )}
      {topics !== null && topics.length > 0 && (
        <section class="card cut-corners" aria-label="Topics">
          <form
            class="key-filters"
            role="search"
            onSubmit={(event) => {
              event.preventDefault();
            }}
          >
            <label class="filter">
              <span>Name</span>
              <DraftInput
                value={search}
                placeholder="all topics"
                list="topic-names"
                settle_ms={SETTLE_MS}
                onCommit={(text) => {
                  onMove({ search: text }, "amend");
                }}
              />
              <datalist id="topic-names" />
            </label>
          </form>
          {shown.length === 0 ? (
            <Notice tone="quiet" title={`None of ${counted(topics.length, "topic")} has this in its name`} />
          ) : (
            <TopicTable topics={shown} rates={rates} place={place} />
          )}
        </section>
      )}
    </>
  );
}

function TopicTable(props: {
  topics: readonly TopicSummary[];
  rates: ReadonlyMap<string, number>;
  place: TopicsPlace;
}): ComponentChildren {
  const { topics, rates, place } = props;
  return (
    <div class="scroll">
      <table class="topic-list">
        <thead>
          <tr>
            <th scope="col">Topic</th>
            <th scope="col" class="number">
              Partitions
            </th>
            <th scope="col" class="number" title="Offsets from the first one kept to the stable one">
              Records
            </th>
            <th scope="col" class="number">
              Size
            </th>
            <th scope="col" class="number" title="Records a second, of the last two seconds">
              Rate
            </th>
            <th scope="col">Kept</th>
            <th scope="col" title="What a record survives once it is acknowledged">
              Level
            </th>
          </tr>
        </thead>
        <tbody>
          {topics.map((topic) => (
            <tr key={topic.name}>
              <th scope="row">
                <a href={href("topics", topicsParams({ ...place, ...NO_TOPIC, topic: topic.name }))} onClick={follow}>
                  <Name text={topic.name} />
                </a>
                {topic.kind !== "user" && <span class="tag">{topic.kind.replace("_", " ")}</span>}
              </th>
              <td class="number">{topic.config.partitions}</td>
              <td class="number">{whole(recordsOf(topic))}</td>
              <td class="number">{bytes(topic.bytes)}</td>
              <td class="number">{rateText(rates.get(topic.name))}</td>
              <td>{keptText(topic)}</td>
              <td>{topic.config.level}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function sumOf(topics: readonly TopicSummary[]): string {
  const size = topics.reduce((sum, topic) => sum + topic.bytes, 0);
  return `${counted(topics.length, "topic")} · ${bytes(size)}`;
}

export function recordsOf({ partitions }: TopicSummary): number {
  return partitions.reduce((sum, { first, stable }) => sum + Math.max(0, stable - first), 0);
}

export function rateText(rate: number | undefined): ComponentChildren {
  return rate === undefined || rate === 0 ? <span class="absent">–</span> : `${short(rate)}/s`;
}

/** `7d`, `7d or 1 GiB`, `the last of each key`, `for ever`. */
export function keptText({ config }: TopicSummary): string {
  const { cleanup, retention, retention_bytes, storage } = config;
  if (storage === "memory") return "in memory";
  const bounds = [retention, retention_bytes === null ? null : `${bytes(retention_bytes)} a partition`];
  const given = bounds.filter((bound) => bound !== null).join(" or ");
  if (cleanup === "compact") return "the last of each key";
  if (cleanup === "compact,delete") return `the last of each key${given === "" ? "" : `, ${given}`}`;
  return given === "" ? "for ever" : given;
}

function NoTopics({ tenant }: { tenant: string }): ComponentChildren {
  const flags = commandFlags(tenant);
  return (
    <FirstSteps
      title="There are no topics of your own yet"
      command={
        `millstream topic create orders --partitions 4${flags}\n` +
        `echo '{"key": "o-1", "value": {"item": "bolt"}}' | millstream topic append orders${flags}`
      }
    >
      The first message of a device creates this tenant's telemetry and event topics. A topic of your own is created
      here, from a terminal or by a Kafka client.
    </FirstSteps>
  );
}
