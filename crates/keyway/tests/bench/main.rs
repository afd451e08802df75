//! The bench and the bus.
//!
//! `make test` runs each module as a program of its own.

mod bench_load;
mod bench_report;
mod bench_run;
mod bus;
mod bus_bench;
mod bus_connects;
mod bus_cut;
mod redis_benchmark;
