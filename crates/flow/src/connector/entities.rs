//! The sink `entities`: updates an entity by each record, through the topic `context_update.<tenant>`.
//!
//! It makes a record `{"id", "type", attributes…}` with the entity's id as its key, and hands it to the sink `stream`.
//! The owner of the entity applies it later, once.

use serde_json::Value;

use super::stream::StreamSink;
use super::{ConnectorContext, Preparation, Sink, Started, Written, refused};
use crate::Error;
use crate::batch::Batch;
use crate::document::{Key, KeyType, NodeType, Role};
use crate::object::{self, Members};
use crate::template::Template;
use millstream_types::{TopicKind, TopicName, service_path};

pub(super) const SINK: NodeType = NodeType {
    name: "entities",
    role: Role::Sink,
    summary: "Updates an entity by each record, through the topic `context_update.<tenant>`; attributes that it lacks are appended.",
    keys: &[
        Key {
            name: "id",
            value: KeyType::Template,
            is_required: true,
            default: None,
            doc: "The entity's id: a text with `{field}` in it, such as `urn:ngsi-ld:Station:{station}`.",
        },
        Key {
            name: "type",
            value: KeyType::Template,
            is_required: true,
            default: None,
            doc: "The entity's type: a text, which may have `{field}` in it.",
        },
        Key {
            name: "attrs",
            value: KeyType::Texts,
            is_required: false,
            default: None,
            doc: "The fields that become attributes; all that `id` and `type` do not name if left out. Fields that a record lacks are passed over.",
        },
        Key {
            name: "format",
            value: KeyType::OneOf(&FORMATS),
            is_required: false,
            default: Some("keyValues"),
            doc: "`keyValues`: a field is the attribute's value; `normalized`: it is an object with `value`, `type` and `metadata`.",
        },
        Key {
            name: "service_path",
            value: KeyType::Checked(check_service_path),
            is_required: false,
            default: Some("/"),
            doc: "The service path of the entities.",
        },
    ],
    can_end: false,
    keeps_state: false,
};

const FORMATS: [&str; 2] = ["keyValues", "normalized"];
/// Members of an entity that are no attributes.
const RESERVED: [&str; 2] = ["id", "type"];

pub(crate) fn check_service_path(value: &Value) -> Result<(), String> {
    let text = value.as_str().ok_or("write a text such as /plant/hall1")?;
    service_path(text).map(drop).map_err(|error| error.to_string())
}

struct Entities {
    node: String,
    shape: EntityShape,
    /// The entities of the batch that is being written.
    made: Option<Batch>,
    stream: StreamSink,
}

/// The rule by which a record becomes an entity.
struct EntityShape {
    id: Template,
    kind: Template,
    /// All fields that `id` and `type` do not name, if `None`.
    attrs: Option<Vec<String>>,
}

pub(super) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    let config = &context.node.config;
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let path = service_path(text("service_path"))
        .map_err(|error| Error::plan(&context.node.name, "config.service_path", error.to_string()))?;
    let attrs = config.get("attrs").and_then(Value::as_array);
    let attrs = attrs.map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    let headers = vec![("format", text("format").to_owned()), ("fiware-servicepath", path)];
    let topic = TopicName::reserved(TopicKind::ContextUpdate, context.tenant);
    Ok(Box::new(Entities {
        node: context.node.name.clone(),
        shape: EntityShape { id: Template::read_text(text("id")), kind: Template::read_text(text("type")), attrs },
        made: None,
        stream: StreamSink::of_own_topic(context, topic, Template::read("id"), headers)?,
    }))
}

impl EntityShape {
    /// Appends the entity of a record; the error tells why there is none.
    fn write(&self, record: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), (&'static str, String)> {
        let record = record.filter(|record| object::is_object(record)).ok_or_else(|| {
            ("invalid_json", "the payload is not a JSON object; an entity is made of the fields of one".to_owned())
        })?;
        out.push(b'{');
        for (member, template) in RESERVED.into_iter().zip([&self.id, &self.kind]) {
            let text = template.render(record).filter(|text| !text.is_empty()).ok_or_else(|| {
                let fields: Vec<&str> = template.fields().collect();
                let message = format!(
                    "the entity's {member} is made of {}, which the record lacks; drop such records by 'where'",
                    fields.join(", ")
                );
                ("missing_field", message)
            })?;
            object::begin_member(member, out);
            object::write_text(out, &text);
        }
        for (quoted, value) in Members::of(record) {
            let Ok(name) = serde_json::from_slice::<String>(quoted) else { continue };
            if self.is_attribute(&name) {
                object::begin_member(&name, out);
                out.extend_from_slice(value);
            }
        }
        out.push(b'}');
        Ok(())
    }

    fn is_attribute(&self, field: &str) -> bool {
        let is_chosen = match &self.attrs {
            Some(attrs) => attrs.iter().any(|attr| attr == field),
            None => !self.id.fields().chain(self.kind.fields()).any(|used| used == field),
        };
        is_chosen && !RESERVED.contains(&field)
    }
}

impl Entities {
    fn make(&self, batch: &Batch) -> Result<Batch, Error> {
        let mut writer = batch.rewrite();
        for row in 0..batch.len() {
            let written = writer.push(row, |out| self.shape.write(batch.payload(row), out));
            written.map_err(|(code, message)| refused(&self.node, batch, row, code, message))?;
        }
        Ok(writer.finish())
    }
}

impl Sink for Entities {
    fn start(&mut self) -> Result<Started, Error> {
        self.stream.start()
    }

    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        let made = match self.made.take() {
            Some(made) => made,
            None => self.make(batch)?,
        };
        let written = self.stream.write(&made)?;
        if matches!(written, Written::NotYet(_)) {
            self.made = Some(made);
        }
        Ok(written)
    }

    fn prepare(&mut self) -> Result<Preparation, Error> {
        self.stream.prepare()
    }

    fn check(&mut self) -> Result<(), Error> {
        self.stream.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(id: &str, kind: &str, attrs: Option<&[&str]>) -> EntityShape {
        let attrs = attrs.map(|attrs| attrs.iter().map(|attr| (*attr).to_owned()).collect());
        EntityShape { id: Template::read_text(id), kind: Template::read_text(kind), attrs }
    }

    #[test]
    fn an_entity_has_its_id_its_type_and_the_chosen_fields() {
        let record = br#"{"station": "a\"1", "kind": "Buoy", "id": 7, "temp": 21.5, "at": {"value": [1, 2]}}"#;
        for (shape, expected) in [
            (
                shape("urn:{station}", "Station", None),
                r#"{"id":"urn:a\"1","type":"Station","kind":"Buoy","temp":21.5,"at":{"value": [1, 2]}}"#,
            ),
            (shape("{id}", "{kind}", Some(&["temp", "absent", "id"])), r#"{"id":"7","type":"Buoy","temp":21.5}"#),
        ] {
            let mut out = Vec::new();
            shape.write(Some(record), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn a_record_that_makes_no_entity_says_why() {
        let shape = shape("urn:{station}", "Station", None);
        for (record, code, word) in [
            (Some(&br#"{"temp": 1}"#[..]), "missing_field", "station"),
            (Some(br#"{"station": null}"#), "missing_field", "station"),
            (Some(b"[1]"), "invalid_json", "object"),
            (None, "invalid_json", "object"),
        ] {
            let (found, message) = shape.write(record, &mut Vec::new()).unwrap_err();
            assert!(found == code && message.contains(word), "{found}: {message}");
        }
    }

    #[test]
    fn a_service_path_is_checked_with_the_document() {
        assert!(check_service_path(&"/plant/hall1".into()).is_ok());
        for refused in [Value::from("no slash"), Value::from(7)] {
            assert!(check_service_path(&refused).is_err(), "{refused}");
        }
    }
}
