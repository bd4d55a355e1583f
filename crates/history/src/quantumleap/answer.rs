//! Renders rows in the shapes of QuantumLeap's routes.

use millstream_http::{AnswerMemory, Problem};
use millstream_types::date_time;

use super::request::{RowQuery, RowScope};
use super::rows::EntityRows;
use crate::query::EntityRef;
use crate::render::{push_member, push_text};

/// Renders the rows of entities, which are in the order of their types; they take `rows_bytes` of memory beside the text.
pub(crate) fn render(
    entities: &[(EntityRef, EntityRows)],
    rows_bytes: usize,
    query: &RowQuery,
    memory: &mut AnswerMemory,
) -> Result<String, Problem> {
    let RowScope { id, kind, attribute, is_value } = &query.scope;
    let mut answer = RowRenderer { out: String::from("{"), rows_bytes, query, memory };
    match (id, kind, attribute) {
        (Some(_), _, attribute) => {
            let [(entity, rows)] = entities else { return Ok("{}".to_owned()) };
            match attribute {
                Some(name) if *is_value => answer.push_rows(rows, Some(name)),
                Some(name) => {
                    answer.push_name("attrName", name);
                    answer.out.push(',');
                    answer.push_entity(entity, rows, Some(name));
                }
                None if *is_value => answer.push_rows(rows, None),
                None => answer.push_entity(entity, rows, None),
            }
        }
        (None, Some(kind), attribute) => {
            if !is_value {
                if let Some(name) = attribute {
                    answer.push_name("attrName", name);
                    answer.out.push(',');
                }
                answer.push_name("entityType", kind);
                answer.out.push(',');
            }
            answer.push_entities(if *is_value { "values" } else { "entities" }, entities, attribute.as_deref())?;
        }
        (None, None, Some(name)) => {
            if !is_value {
                answer.push_name("attrName", name);
                answer.out.push(',');
            }
            answer.push_types(if *is_value { "values" } else { "types" }, entities, name)?;
        }
        (None, None, None) => answer.push_attributes(if *is_value { "values" } else { "attrs" }, entities)?,
    }
    answer.out.push('}');
    answer.cover()?;
    Ok(answer.out)
}

/// Renders a list of entities with the time of their last row.
pub(crate) fn render_list(entities: &[(EntityRef, i64)], memory: &mut AnswerMemory) -> Result<String, Problem> {
    let mut out = String::from("[");
    for (number, (entity, ms)) in entities.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str("{\"entityId\":");
        push_text(&entity.id, &mut out);
        push_member("entityType", &mut out);
        push_text(&entity.kind, &mut out);
        out.push_str(&format!(",\"index\":\"{}\"}}", time(*ms)));
        memory.cover(out.capacity())?;
    }
    out.push(']');
    Ok(out)
}

/// Formats a time as QuantumLeap does: with the offset of UTC as a number.
fn time(ms: i64) -> String {
    format!("{:.3}+00:00", date_time(ms))
}

struct RowRenderer<'a> {
    out: String,
    rows_bytes: usize,
    query: &'a RowQuery,
    memory: &'a mut AnswerMemory,
}

impl RowRenderer<'_> {
    /// Has the budget cover the rows and the text so far.
    fn cover(&mut self) -> Result<(), Problem> {
        self.memory.cover(self.rows_bytes + self.out.capacity())
    }

    fn push_name(&mut self, member: &str, name: &str) {
        push_text(member, &mut self.out);
        self.out.push(':');
        push_text(name, &mut self.out);
    }

    /// Appends one entity with its type.
    fn push_entity(&mut self, entity: &EntityRef, rows: &EntityRows, attribute: Option<&str>) {
        self.push_name("entityId", &entity.id);
        self.out.push(',');
        self.push_name("entityType", &entity.kind);
        self.out.push(',');
        self.push_rows(rows, attribute);
    }

    /// Appends the index of an entity, and the values of one attribute, or those of all.
    fn push_rows(&mut self, rows: &EntityRows, attribute: Option<&str>) {
        self.push_index(rows);
        let Some(name) = attribute else {
            self.out.push_str(",\"attributes\":[");
            for (number, name) in rows.attributes().enumerate() {
                if number > 0 {
                    self.out.push(',');
                }
                self.out.push('{');
                self.push_name("attrName", name);
                self.push_values(rows, name);
                self.out.push('}');
            }
            self.out.push(']');
            return;
        };
        self.push_values(rows, name);
    }

    fn push_index(&mut self, rows: &EntityRows) {
        self.out.push_str("\"index\":[");
        if self.query.method.is_none() || self.query.has_periods {
            for (number, ms) in rows.times().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                self.out.push_str(&format!("{comma}\"{}\"", time(ms)));
            }
        } else if self.query.scope.id.is_none() {
            for (number, given) in self.query.given_times.iter().enumerate() {
                if number > 0 {
                    self.out.push(',');
                }
                push_text(given, &mut self.out);
            }
        }
        self.out.push(']');
    }

    fn push_values(&mut self, rows: &EntityRows, attribute: &str) {
        self.out.push_str(",\"values\":[");
        for (number, value) in rows.values(attribute).into_iter().flatten().enumerate() {
            if number > 0 {
                self.out.push(',');
            }
            self.out.push_str(value.unwrap_or("null"));
        }
        self.out.push(']');
    }

    /// Appends entities without their type.
    fn push_entities(
        &mut self,
        member: &str,
        entities: &[(EntityRef, EntityRows)],
        attribute: Option<&str>,
    ) -> Result<(), Problem> {
        push_text(member, &mut self.out);
        self.out.push_str(":[");
        for (number, (entity, rows)) in entities.iter().enumerate() {
            self.out.push_str(if number > 0 { ",{" } else { "{" });
            self.push_name("entityId", &entity.id);
            self.out.push(',');
            self.push_rows(rows, attribute);
            self.out.push('}');
            self.cover()?;
        }
        self.out.push(']');
        Ok(())
    }

    /// Appends the entities that have an attribute, by type.
    fn push_types(
        &mut self,
        member: &str,
        entities: &[(EntityRef, EntityRows)],
        attribute: &str,
    ) -> Result<(), Problem> {
        push_text(member, &mut self.out);
        self.out.push_str(":[");
        let mut is_first = true;
        for of_kind in entities.chunk_by(|(one, _), (next, _)| one.kind == next.kind) {
            let mut members = of_kind.iter().filter(|(_, rows)| rows.has(attribute)).peekable();
            if members.peek().is_none() {
                continue;
            }
            self.out.push_str(if std::mem::replace(&mut is_first, false) { "{" } else { ",{" });
            self.push_name("entityType", &of_kind[0].0.kind);
            self.out.push_str(",\"entities\":[");
            for (number, (entity, rows)) in members.enumerate() {
                self.out.push_str(if number > 0 { ",{" } else { "{" });
                self.push_name("entityId", &entity.id);
                self.out.push(',');
                self.push_rows(rows, Some(attribute));
                self.out.push('}');
                self.cover()?;
            }
            self.out.push_str("]}");
        }
        self.out.push(']');
        Ok(())
    }

    /// Appends all attributes, each with the entities that have it.
    fn push_attributes(&mut self, member: &str, entities: &[(EntityRef, EntityRows)]) -> Result<(), Problem> {
        let names: std::collections::BTreeSet<&str> = entities.iter().flat_map(|(_, rows)| rows.attributes()).collect();
        push_text(member, &mut self.out);
        self.out.push_str(":[");
        for (number, name) in names.into_iter().enumerate() {
            self.out.push_str(if number > 0 { ",{" } else { "{" });
            self.push_name("attrName", name);
            self.out.push(',');
            self.push_types("types", entities, name)?;
            self.out.push('}');
        }
        self.out.push(']');
        Ok(())
    }
}
