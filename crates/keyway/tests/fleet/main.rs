//! A fleet of real processes: two control nodes, three proxies over redis-servers, and a
//! coordinator.
//!
//! A load whose every reply is checked goes through each proxy meanwhile. Whatever happens to
//! control, no request fails.

#![allow(clippy::disallowed_methods, reason = "how long a take-over takes is what is tested")]

mod description;
mod documents;
mod example;
mod groups;
mod inside;
mod members;
mod operators;
mod registry;
mod rollouts;
mod scenario;
mod slots;
mod stage;
mod storm;
mod users;
