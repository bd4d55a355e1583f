/** Which engine keeps the log, and how it is: a directory, or the brokers of Apache Kafka with what is wrong there. */
import type { ComponentChildren } from "preact";
import type { Broker, LogEngine, LogTrouble } from "../api/stats";
import { counted, duration } from "../format";
import { Notice, sentence } from "./notice";
import { Name } from "./value";

export function LogEngineCard({ engine }: { engine: LogEngine }): ComponentChildren {
  return (
    <section class="card" aria-labelledby="log-engine">
      <h2 id="log-engine">Log</h2>
      {engine.name === "embedded" ? (
        <dl class="fact-list">
          <div>
            <dt>Engine</dt>
            <dd>built in</dd>
          </div>
          {engine.dir !== null && (
            <div>
              <dt>Directory</dt>
              <dd>
                <code>{engine.dir}</code>
              </dd>
            </div>
          )}
        </dl>
      ) : (
        <Cluster brokers={engine.brokers} troubles={engine.troubles} warnings={engine.warnings} />
      )}
    </section>
  );
}

function Cluster(props: { brokers: Broker[]; troubles: LogTrouble[]; warnings: string[] }): ComponentChildren {
  const { brokers, troubles, warnings } = props;
  const answering = brokers.filter(({ silent_s }) => silent_s === null).length;
  return (
    <>
      <dl class="fact-list">
        <div>
          <dt>Engine</dt>
          <dd>
            {`Apache Kafka, ${answering} of ${counted(brokers.length, "broker")} ${answering === 1 ? "answers" : "answer"}`}
          </dd>
        </div>
      </dl>
      {warnings.map((warning) => (
        <Notice key={warning} tone="warning" title={sentence(warning)} />
      ))}
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of brokers">
        <table aria-label="Brokers of the log">
          <thead>
            <tr>
              <th scope="col">Broker</th>
              <th scope="col">State</th>
              <th scope="col">Address</th>
            </tr>
          </thead>
          <tbody>
            {brokers.map(({ id, address, silent_s }) => (
              <tr key={id}>
                <th scope="row">{id}</th>
                <td>
                  {silent_s === null ? (
                    <span class="state good">answers</span>
                  ) : (
                    <span class="state error">silent for {duration(silent_s)}</span>
                  )}
                </td>
                <td>{address ?? "not known yet"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {troubles.length > 0 && <Troubles troubles={troubles} />}
    </>
  );
}

function Troubles({ troubles }: { troubles: LogTrouble[] }): ComponentChildren {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of partitions with troubles">
      <table class="troubles" aria-label="Partitions with troubles">
        <thead>
          <tr>
            <th scope="col">Topic</th>
            <th scope="col" class="number">
              Partition
            </th>
            <th scope="col">Trouble</th>
          </tr>
        </thead>
        <tbody>
          {troubles.map(({ topic, partition, why }) => (
            <tr key={`${topic ?? ""} ${partition ?? ""} ${why}`}>
              <th scope="row">{topic === null ? "–" : <Name text={topic} />}</th>
              <td class="number">{partition ?? "–"}</td>
              <td class="trouble">{why}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
