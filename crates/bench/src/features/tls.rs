use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use keyway_load::{Flow, Plan, Until, resident_bytes};
use keyway_scenario::ports::free_port;
use keyway_scenario::process::ask;
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};

use super::{cpu_of, keyway, shown};
use crate::error::Error;
use crate::interrupt;
use crate::load::{Dataset, Served, Work, plan};
use crate::options::Options;
use crate::session::Session;
use crate::systems::{installed, words};

/// Keys with their names in openssl.
const KEYS: [(&str, &str); 2] =
    [("ecdsa", "ec -pkeyopt ec_paramgen_curve:prime256v1"), ("rsa", "rsa:2048")];
const PATIENCE: Duration = Duration::from_secs(30);
const AT_REST: usize = 500;

/// Compares the processor time of a store for requests with TLS and without, and measures the cost
/// of handshakes and the memory of connections. Returns the text to print.
///
/// # Errors
/// Returns an error if openssl is missing, or if the store does not start or answer.
pub fn measure_tls(options: &Options) -> Result<String, Error> {
    let session = Session::start(options.programs.clone())?;
    let directory = session.scratch().directory().display();
    let ports = [free_port()?, free_port()?, free_port()?];
    let mut config = "[server]\nadmin = \"off\"\nworkers = 1\n".to_owned();
    for (nth, port) in ports.into_iter().enumerate() {
        config += &format!("[[listener]]\nbind = \"tcp://127.0.0.1:{port}\"\npool = \"main\"\n");
        if let Some((name, kind)) = nth.checked_sub(1).and_then(|nth| KEYS.get(nth)) {
            let [cert, key] = ["pem", "key"].map(|end| format!("{directory}/{name}.{end}"));
            issue(kind, &cert, &key)?;
            config += &format!("tls = {{ cert_file = \"{cert}\", key_file = \"{key}\" }}\n");
        }
    }
    config += "[pool.main]\nkind = \"store\"\nmemory_max = \"256MiB\"\n";
    let system = keyway(&session, ports[0], &config)?;
    let at = |port: u16, tls| {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Served { addr, tls, ..system.served.clone() }
    };
    let secured = |port| Ok::<Served, Error>(at(port, Some(tls()?)));
    let [plain, ecdsa, _] = ports;
    system.served.fill(Dataset::ITEMS)?;
    let mut out = String::new();
    for depth in [16, 1] {
        let [mut bare, mut by_tls, mut ratios] = [const { Vec::new() }; 3];
        for _ in 0..options.rounds {
            bare.push(rate(&at(plain, None), depth, options)?);
            by_tls.push(rate(&secured(ecdsa)?, depth, options)?);
            ratios.extend(by_tls.last().zip(bare.last()).map(|(tls, bare)| tls / bare));
        }
        let [bare, by_tls] = [shown(&bare, 0), shown(&by_tls, 0)];
        out += &format!(
            "depth {depth}: plain {bare}, TLS {by_tls} thousand requests per CPU-second; \
             TLS / plain {}\n",
            shown(&ratios, 2)
        );
    }
    for ((name, _), port) in KEYS.iter().zip(&ports[1..]) {
        let before = cpu_of(&[system.served.pid]);
        let line = format!("s_time -new -time 2 -connect 127.0.0.1:{port}");
        let said = openssl(&line)?;
        let count = said.split(" connections in").next().and_then(|head| {
            head.rsplit(char::is_whitespace).next()?.parse::<u32>().ok().filter(|&count| count > 0)
        });
        let count = count.ok_or_else(|| Error::parse("a number of connections", &said))?;
        let used = cpu_of(&[system.served.pid]).saturating_sub(before).as_secs_f64();
        let each = used * 1e6 / f64::from(count);
        out += &format!("handshake, {name}: {each:.0} us of processor time\n");
    }
    let before = resident_bytes(system.served.pid).unwrap_or_default();
    let outcome = secured(ecdsa)?.load_all(
        &Work::Get.on(Dataset::ITEMS),
        &plan(AT_REST, 1, Until::Requests(AT_REST as u64)),
    )?;
    let after = outcome.processes.first().map_or(0, |usage| usage.resident_bytes);
    let each = after.saturating_sub(before) / AT_REST as u64;
    Ok(out + &format!("at rest: {each} bytes for each connection by TLS\n"))
}

fn issue(kind: &str, cert: &str, key: &str) -> Result<(), Error> {
    let line = format!(
        "req -x509 -nodes -days 300 -subj /CN=measure -addext subjectAltName=IP:127.0.0.1 \
         -newkey {kind} -keyout {key} -out {cert}"
    );
    openssl(&line).map(drop)
}

/// Runs openssl and returns its output.
fn openssl(line: &str) -> Result<String, Error> {
    let line = words(&line.split(' ').collect::<Vec<_>>());
    let answer = ask(&installed("openssl".as_ref())?, &line, PATIENCE, interrupt::flag())?;
    match answer.is_success {
        true => Ok(answer.text),
        false => Err(Error::parse("what openssl was asked for", &answer.text)),
    }
}

fn tls() -> Result<ClientTls, Error> {
    let settings = ClientSettings {
        trust: Trust::Anybody,
        server_name: None,
        identity: None,
        min_version: MinVersion::default(),
    };
    let loaded = ClientTls::load(&settings, &|_| Err("there is no file".into()));
    Ok(loaded.map_err(|_| Error::parse("TLS settings", ""))?.tls)
}

/// Returns thousands of GETs per CPU-second.
fn rate(served: &Served, depth: usize, options: &Options) -> Result<f64, Error> {
    let window = options.window();
    let until = Until::Time(window.at_least);
    let plan = Plan { warm_up: window.warm_up, ..plan(50, depth, until) };
    let outcome = served.load(&Work::Get.on(Dataset::ITEMS), &plan, &mut |_| Flow::Continue)?;
    Ok(outcome.requests_per_cpu_second.unwrap_or_default() / 1000.0)
}
