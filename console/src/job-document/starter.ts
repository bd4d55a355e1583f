/** The document with which a new job begins. */
export const STARTER = `version: 1
kind: Job
name: warm
doc: Keeps warm readings and converts them to degrees Celsius.

sources:
  readings: { type: stream, config: { topic: readings } }

transforms:
  known: { type: filter, inputs: [readings], where: "temp > 68" }
  celsius:
    type: map
    inputs: [known]
    select: "*, (temp - 32) / 1.8 AS celsius"

sinks:
  warm:
    type: stream
    inputs: [celsius]
    config: { topic: warm-readings }

tests:
  - name: warm readings are converted
    inject: { readings: [{ temp: 77 }, { temp: 50 }] }
    expect: { warm: [{ temp: 77, celsius: 25 }] }
`;
