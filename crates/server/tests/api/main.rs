//! The OpenAPI documents of a running server: the reference page that is made from them, and a client that asks every
//! route at random and holds each answer to what is documented.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod page;
mod type_name;
