//! From the results of a benchmark to what a human reads: tables for terminals, Markdown and
//! CSV, one page of HTML with plots, and a comparison of two runs that says no more than its
//! rounds support.
//!
//! It measures nothing, opens no socket and reads no clock: a [`Run`] is what a load generator
//! found, and all else is computed from it. Read first: [`Run`] (what a result is), [`Table`]
//! (what is printed) and [`statistics`] (when two figures differ).
#![forbid(unsafe_code)]

mod cell;
mod compare;
mod csv_out;
mod digest;
mod histogram;
mod html;
mod layouts;
mod number;
mod plot;
mod read;
mod result;
mod table;

pub mod region;
pub mod statistics;

pub use cell::{Figures, Metric};
pub use compare::{Change, Comparison, Settings, Skipped, Verdict, compare};
pub use csv_out::csv;
pub use digest::digest;
pub use histogram::Histogram;
pub use html::html;
pub use layouts::{markdown, tables, terminal};
pub use plot::DrawError;
pub use read::{FILE_LEN_MAX, ReadError, check, read, read_bytes, read_slice, write};
pub use result::{
    Cell, Connects, FORMAT, Item, Machine, Measured, Process, Role, Round, Run, Scalar, Second,
    System, VERSION, Verified,
};
pub use table::{Align, Column, Row, Table, Value};
