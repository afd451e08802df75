//! Servers behind pools: their faults, health, times and placement, and routes between pools.
//!
//! `make test` runs each module as a program of its own.

mod faults;
mod health;
mod hedging;
mod hot_keys;
mod latencies;
mod locate;
mod placement;
mod pool_options;
mod routes_bounds;
mod routes_memcached;
mod routes_oracle;
mod routes_order;
mod routes_redis;
mod server_errors;
mod servers_that_leave;
mod shm_servers;
mod timeouts;
mod tls_servers;
