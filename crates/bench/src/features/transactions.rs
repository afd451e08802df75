use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use keyway_scenario::ports::free_port;

use super::{cpu_of, keyway, shown};
use crate::error::Error;
use crate::interrupt;
use crate::options::Options;
use crate::session::Session;
use crate::systems::keyway_proxy;

const CLIENTS: usize = 20;
const BATCHES: usize = 800;
/// A proxy that answers nothing for this long counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The reply to the SETs of a batch.
const PIPELINED: &[u8] = b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n";

/// Compares the processor time of a proxy for a transaction of five SETs with that for five
/// pipelined SETs. Returns the text to print.
///
/// # Errors
/// Returns an error if servers do not start or answer.
pub fn measure_transactions(options: &Options) -> Result<String, Error> {
    let session = Session::start(options.programs.clone())?;
    let port = free_port()?;
    let proxy = keyway_proxy(port, free_port()?, session.backend_ports());
    let system = keyway(&session, port, &format!("{proxy}hash_tag = \"{{}}\"\n"))?;
    let failed = || Error::io("transactions");
    let connect = |_| {
        let client = TcpStream::connect(system.served.addr)?;
        client.set_read_timeout(Some(SILENCE_MAX)).map(|()| client)
    };
    let clients: Result<Vec<TcpStream>, _> = (0..CLIENTS).map(connect).collect();
    let mut clients = clients.map_err(failed())?;
    let [mut plain, mut whole, mut ratios] = [const { Vec::new() }; 3];
    let queued = format!("+OK\r\n{}*5\r\n", "+QUEUED\r\n".repeat(5));
    let executed = [queued.as_bytes(), PIPELINED].concat();
    for _ in 0..options.rounds {
        let mut each = |prefix: &str, suffix: &str, reply: &[u8]| {
            let batch = |client| format!("{prefix}{}{suffix}", sets(client)).into_bytes();
            let batches: Vec<Vec<u8>> = (0..CLIENTS).map(batch).collect();
            let (before, mut heard) = (cpu_of(&[system.served.pid]), vec![0; reply.len()]);
            for _ in 0..BATCHES {
                interrupt::check()?;
                for (client, batch) in clients.iter_mut().zip(&batches) {
                    client.write_all(batch).map_err(failed())?;
                }
                for client in &mut clients {
                    client.read_exact(&mut heard).map_err(failed())?;
                    if heard != reply {
                        let heard = String::from_utf8_lossy(&heard).into_owned();
                        return Err(Error::Answers(heard));
                    }
                }
            }
            let used = cpu_of(&[system.served.pid]).saturating_sub(before);
            Ok(used.as_secs_f64() * 1e6 / (BATCHES * CLIENTS) as f64)
        };
        plain.push(each("", "", PIPELINED)?);
        whole.push(each("MULTI\r\n", "EXEC\r\n", &executed)?);
        ratios.extend(whole.last().zip(plain.last()).map(|(whole, plain)| whole / plain));
    }
    Ok(format!(
        "five pipelined SETs {} us, the same in a transaction {} us; ratio {}\n",
        shown(&plain, 2),
        shown(&whole, 2),
        shown(&ratios, 2)
    ))
}

/// Returns five SETs of one server.
fn sets(client: usize) -> String {
    let set = |nth| {
        let (key, value) = (format!("{{t{client}}}k{nth}"), "x".repeat(64));
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$64\r\n{value}\r\n", key.len())
    };
    (0..5).map(set).collect()
}
