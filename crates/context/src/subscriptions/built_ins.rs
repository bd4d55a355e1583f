//! Values in notifications that the server makes: attributes, metadata, the name of the tenant.

use millstream_types::TenantId;

use super::change::ChangeRecord;
use super::details::{AttributeAction, Detail};
use crate::model::entity::{Attribute, Entity, Metadata};

pub(crate) const ALTERATION_TYPE: &str = "alterationType";

/// The built-in attribute `name` in notifications.
pub(crate) fn built_in(change: &ChangeRecord<'_>, entity: &Entity, name: &str) -> Option<Attribute> {
    if name == ALTERATION_TYPE {
        let value = format!("\"{}\"", change.alteration.name()).into();
        return Some(Attribute::new(name.into(), "Text".into(), value, Default::default()));
    }
    entity.built_in(name)
}

/// The built-in metadata item `name` in notifications.
pub(crate) fn built_in_metadata(change: &ChangeRecord<'_>, attribute: &Attribute, name: &str) -> Option<Metadata> {
    let detail = || change.details.attrs.iter().find(|detail| *detail.0 == *attribute.name);
    match name {
        "previousValue" => match detail() {
            Some(Detail(_, AttributeAction::Append, ..)) => None,
            Some(Detail(_, _, _, Some((kind, value)))) => {
                Some(Metadata { name: name.into(), kind: (&**kind).into(), value: value.get().into() })
            }
            // An unchanged attribute had its current value before, whatever a patch does here.
            _ => {
                let Attribute { kind, value, .. } = change.entity()?.attribute(&attribute.name)?;
                Some(Metadata { name: name.into(), kind: kind.clone(), value: value.clone() })
            }
        },
        "actionType" => {
            let value = format!("\"{}\"", detail()?.1.name()).into();
            Some(Metadata { name: name.into(), kind: "Text".into(), value })
        }
        _ => attribute.built_in(name),
    }
}

/// The tenant for NGSI clients: the default one is empty.
pub(crate) fn service<'a>(change: &ChangeRecord<'a>) -> &'a str {
    if *change.tenant == TenantId::default() { "" } else { change.tenant.as_str() }
}
