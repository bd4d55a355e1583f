//! The data model of NGSI: entities with their attributes and metadata, their names, values and JSON, and updates of them.
//!
//! Nothing here knows of a state, a log or a request. Not here: the owners of entities (`entities`), filters (`query`).

pub(crate) mod content;
pub(crate) mod datetime;
pub(crate) mod entity;
pub(crate) mod geometry;
pub(crate) mod json;
pub(crate) mod member;
pub(crate) mod names;
pub(crate) mod object_ids;
pub(crate) mod operator;
pub(crate) mod render;
pub(crate) mod request_body;
pub(crate) mod scalar;
pub(crate) mod syntax;
pub(crate) mod update;
