//! The NGSI-v2 operations on entities: parses and checks requests, sends commands to the owners and renders the replies.
//!
//! `service.rs` holds the state that all handlers share. Errors that the request alone shows are refused here,
//! before an owner sees it.
//!
//! Not here: subscriptions (`subscriptions`), Orion's operator routes (`orion`).

pub(crate) mod batch;
pub(crate) mod batch_routes;
pub(crate) mod deprecations;
pub(crate) mod forwarding;
pub(crate) mod handler;
pub(crate) mod list;
pub(crate) mod matching;
pub(crate) mod nearest;
pub(crate) mod op_query;
pub(crate) mod op_update;
pub(crate) mod parameters;
pub(crate) mod plan;
pub(crate) mod registration_routes;
pub(crate) mod routes;
pub(crate) mod service;
pub(crate) mod type_routes;
pub(crate) mod value_routes;
