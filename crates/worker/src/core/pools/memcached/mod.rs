//! Clients of memcached: their bytes become requests, which the store or the
//! servers of a pool answer.

mod access;
mod admission;
mod ahead;
mod codec;
mod dispatch;
mod local;
mod pool;
mod redis;
mod returns;
mod routes;
mod state;
mod store;
mod warm;

pub(in crate::core) use access::was_let;

pub(in crate::core) use state::{State, writes};
