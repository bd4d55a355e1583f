//! The built-in log, spoken to Kafka clients.
//!
//! Not here: what a topic keeps and how durable it is (`log`).
