//! A real redis-server 7 beside the crate: it reads what the crate writes, and
//! the crate reads what it writes; either is the other's replica.

mod data;
mod files;
mod primary;
mod replica;
