use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{cpu_of, shown};
use crate::error::Error;
use crate::interrupt;
use crate::options::Options;
use crate::session::Session;
use crate::systems::Kind;

const SUBSCRIBERS: usize = 1000;
const MESSAGES: usize = 320;
/// A system that sends nothing for this long counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Number of PUBLISH commands at a time.
const DEPTHS: [usize; 2] = [1, 16];

/// Counts the deliveries of one channel with many subscribers for each CPU-second of the whole
/// path. Returns the text to print.
///
/// # Errors
/// Returns an error if servers do not start or answer.
pub fn measure_fanout(options: &Options) -> Result<String, Error> {
    let mut session = Session::start(options.programs.clone())?;
    for kind in [Kind::Redis, Kind::KeywayStore, Kind::Keyway] {
        session.add(kind)?;
    }
    let mut out = String::new();
    for depth in DEPTHS {
        let mut figures = vec![Vec::new(); session.systems.len()];
        for _ in 0..options.rounds {
            for (system, figures) in session.systems.iter().zip(&mut figures) {
                let mut pids = vec![system.served.pid];
                if system.name == Kind::Keyway.name() {
                    pids.extend(session.backend_pids());
                }
                figures.push(deliver(system.served.addr, &pids, depth)?);
            }
        }
        for (system, figures) in session.systems.iter().zip(&figures) {
            let (name, figures) = (&system.name, shown(figures, 0));
            out +=
                &format!("depth {depth}, {name}: {figures} thousand deliveries per CPU-second\n");
        }
    }
    for absent in &session.absent {
        out += &format!("{} is left out: {}\n", absent.name, absent.why);
    }
    Ok(out)
}

/// Returns thousands of deliveries per CPU-second.
fn deliver(addr: SocketAddr, pids: &[u32], depth: usize) -> Result<f64, Error> {
    let failed = || Error::io("publishing");
    let connect = || {
        let client = TcpStream::connect(addr)?;
        client.set_read_timeout(Some(SILENCE_MAX))?;
        client.set_nodelay(true).map(|()| client)
    };
    let mut subscribers = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let mut client = connect().map_err(failed())?;
        client.write_all(b"SUBSCRIBE news\r\n").map_err(failed())?;
        expect(&mut client, b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")?;
        subscribers.push(client);
    }
    let payload = "x".repeat(64);
    let command = |name: &str| {
        format!("*3\r\n${}\r\n{name}\r\n$4\r\nnews\r\n$64\r\n{payload}\r\n", name.len())
    };
    let publish = format!("PUBLISH news {payload}\r\n").repeat(depth);
    let message = command("message").repeat(depth);
    let mut publisher = connect().map_err(failed())?;
    let before = cpu_of(pids);
    for _ in 0..MESSAGES / depth {
        interrupt::check()?;
        publisher.write_all(publish.as_bytes()).map_err(failed())?;
        for client in &mut subscribers {
            expect(client, message.as_bytes())?;
        }
        hear_counts(&mut publisher, depth)?;
    }
    let used = cpu_of(pids).saturating_sub(before).as_secs_f64();
    Ok((MESSAGES * SUBSCRIBERS) as f64 / used / 1000.0)
}

/// Reads this many replies to PUBLISH. A pool counts the subscribers of its servers, which are its
/// own links.
fn hear_counts(publisher: &mut TcpStream, depth: usize) -> Result<(), Error> {
    let (mut replies, mut heard) = (0, [0; 1024]);
    while replies < depth {
        let len = publisher.read(&mut heard).map_err(Error::io("publishing"))?;
        if len == 0 || heard[0] == b'-' {
            let heard = String::from_utf8_lossy(&heard[..len]).into_owned();
            return Err(Error::Answers(heard));
        }
        replies += heard[..len].iter().filter(|&&byte| byte == b'\n').count();
    }
    Ok(())
}

fn expect(client: &mut TcpStream, wanted: &[u8]) -> Result<(), Error> {
    let mut heard = vec![0; wanted.len()];
    client.read_exact(&mut heard).map_err(Error::io("publishing"))?;
    if heard == wanted {
        return Ok(());
    }
    Err(Error::Answers(String::from_utf8_lossy(&heard).into_owned()))
}
