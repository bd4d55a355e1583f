//! The store over a real socket: statistics, values as browsers see them, and Rift's routes.

mod documents;
mod headers;
mod rift;
mod statistics;
mod world;
