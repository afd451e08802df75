//! Compares the crate with a real redis-server 7: each reads what the other writes, and each can be
//! the other's replica.

mod data;
mod files;
mod primary;
mod replica;
