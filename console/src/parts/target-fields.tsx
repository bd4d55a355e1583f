/** The fields of a subscription's target: HTTP(S), MQTT or Kafka. */
import type { ComponentChildren } from "preact";
import type { SubscriptionDraft } from "../forms/subscription-draft";
import { EXAMPLES, MECHANISMS } from "../forms/target-draft";
import type { DraftForm } from "./draft-dialog";
import { SelectField } from "./fields";
import { SubscriptionText as Text } from "./subscription-text";

type Form = DraftForm<SubscriptionDraft>;

export function TargetFields({ form }: { form: Form }): ComponentChildren {
  const { target } = form.draft;
  return (
    <>
      <div class="field-row narrow-first">
        <SelectField
          label="By"
          value={target}
          options={[
            ["http", "HTTP(S)"],
            ["mqtt", "MQTT"],
            ["kafka", "Kafka"],
          ]}
          onChange={(to) => {
            // A URL of the other kind is none here.
            form.change({ target: to, url: form.draft.url.startsWith(to) ? form.draft.url : "" });
          }}
        />
        <Text form={form} field="url" label="URL" placeholder={EXAMPLES[target]} />
      </div>
      {target !== "http" && (
        <>
          <div class="field-row">
            <Text form={form} field="topic" label="Topic" placeholder={target === "mqtt" ? "alarms/rooms" : "rooms"} />
            {target === "mqtt" ? (
              <QualityOfService form={form} />
            ) : (
              <Text form={form} field="key" label="Key of the records" hint="Empty: none" />
            )}
          </div>
          <div class="field-row">
            <Text form={form} field="user" label="User" placeholder="none" />
            <Text form={form} field="password" label="Password" type="password" />
          </div>
        </>
      )}
      {target === "kafka" && <KafkaSecurity form={form} />}
    </>
  );
}

function QualityOfService({ form }: { form: Form }): ComponentChildren {
  return (
    <SelectField
      label="Quality of service"
      value={form.draft.qos}
      options={[
        ["0", "0: at most once"],
        ["1", "1: at least once"],
        ["2", "2: exactly once"],
      ]}
      onChange={(qos) => {
        form.change({ qos });
      }}
    />
  );
}

function KafkaSecurity({ form }: { form: Form }): ComponentChildren {
  const { user, mechanism, tls } = form.draft;
  return (
    <div class="field-row">
      <SelectField
        label="TLS"
        value={tls}
        error={form.fault("tls")}
        options={[
          ["no", "no"],
          ["yes", "yes"],
        ]}
        onChange={(to) => {
          form.change({ tls: to });
        }}
      />
      {user.trim() !== "" && (
        <SelectField
          label="Mechanism of the login"
          value={mechanism}
          error={form.fault("mechanism")}
          options={MECHANISMS.map((name) => [name, name] as const)}
          onChange={(to) => {
            form.change({ mechanism: to });
          }}
        />
      )}
    </div>
  );
}
