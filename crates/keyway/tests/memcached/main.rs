//! memcached: clients, servers, the store, and translation to Redis.
//!
//! `make test` runs each module as a program of its own.

mod memcached_clients;
mod memcached_findings;
mod memcached_oracle;
mod memcached_protocols;
mod memcached_redis;
mod memcached_servers;
mod memcached_store;
mod memcached_warm_up;
