//! Measures what a feature of Keyway costs, compared with the same work without it. These are
//! separate programs, because no row of the comparison has such work.

mod fanout;
mod persistence;
mod reload;
mod tls;
mod transactions;

pub use fanout::measure_fanout;
pub use persistence::measure_persistence;
pub use reload::measure_reload;
pub use tls::measure_tls;
pub use transactions::measure_transactions;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use keyway_load::{Protocol, cpu_time};
use keyway_report::statistics::Spread;

use crate::error::Error;
use crate::load::Served;
use crate::plan::Side;
use crate::session::Session;
use crate::systems::{Part, System, start, words};

/// Starts Keyway with a configuration that listens on `port`.
fn keyway(session: &Session, port: u16, config: &str) -> Result<System, Error> {
    let file = session.scratch().write(&format!("keyway-{port}.toml"), config)?;
    let program = session.programs.keyway.display().to_string();
    let line = words(&[&program, "serve", &file.display().to_string()]);
    let process = start(session.scratch(), "keyway", &line, port)?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let served = Served { addr, protocol: Protocol::Resp2, pid: process.pid(), tls: None };
    let (name, part, side) = ("keyway".into(), Part::Subject, Side::Proxy);
    Ok(System { name, part, side, served, process: Some(process) })
}

/// Returns the processor time that all of these have used so far.
fn cpu_of(pids: &[u32]) -> Duration {
    pids.iter().filter_map(|pid| cpu_time(*pid)).sum()
}

/// Formats the median, minimum and maximum of values.
fn shown(values: &[f64], digits: usize) -> String {
    match Spread::of(values.iter().copied()) {
        Some(Spread { median, min, max }) => {
            format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
        }
        None => "-".into(),
    }
}
