use std::time::Duration;

use keyway_load::{Flow, Outcome, Plan, Until};
use keyway_scenario::ports::free_port;
use rustix::process::Signal;

use super::keyway;
use crate::clock;
use crate::error::Error;
use crate::load::{Dataset, Work, plan};
use crate::options::Options;
use crate::session::Session;

const RELOADS: usize = 20;
const EVERY: Duration = Duration::from_millis(1200);
/// How long is measured before the first reload.
const BEFORE: Duration = Duration::from_secs(4);
/// Names of one server. To a pool they are as many servers.
const HOSTS: [&str; 4] = ["127.0.0.1", "localhost", "LOCALHOST", "Localhost"];
const WEIGHTS: [&[u32]; 4] = [&[1, 1], &[1, 3], &[1, 1, 2], &[2]];

/// Compares the latency of requests while a pool is replaced again and again with the latency
/// before, and checks every value. Returns the text to print.
///
/// # Errors
/// Returns an error if servers do not start or answer.
pub fn measure_reload(options: &Options) -> Result<String, Error> {
    let session = Session::start(options.programs.clone())?;
    let port = free_port()?;
    let redis = session.backend_ports().first().copied().unwrap_or_default();
    let config = |weights: &[u32]| {
        let server = |(nth, (host, weight)): (usize, (&&str, &u32))| {
            format!("\"{host}:{redis}:{weight} s{nth}\"")
        };
        let servers: Vec<String> = HOSTS.iter().zip(weights).enumerate().map(server).collect();
        format!(
            "[server]\nadmin = \"off\"\nworkers = 2\ndrain_timeout = \"1s\"\n\n[[listener]]\n\
             bind = \"tcp://127.0.0.1:{port}\"\npool = \"main\"\n\n\
             [pool.main]\nkind = \"sharded\"\nservers = [{}]\n",
            servers.join(", ")
        )
    };
    let system = keyway(&session, port, &config(&[1]))?;
    let mut workload = Work::Mixed.on(Dataset::strings("reload:", 1000, 100));
    workload.is_verified = true;
    let plan = |length| Plan { warm_up: Duration::from_secs(1), ..plan(4, 4, Until::Time(length)) };
    let before = system.served.run(&workload, &plan(BEFORE), &mut |_| Flow::Continue)?;
    let (mut done, mut due) = (0, clock::now() + EVERY);
    let mut failure = None;
    // There is one more pause, for the warm-up.
    let whole = EVERY * (RELOADS as u32 + 1);
    let meanwhile = system.served.run(&workload, &plan(whole), &mut |progress| {
        if !progress.is_warming_up && done < RELOADS && clock::now() >= due {
            let text = config(WEIGHTS[done % WEIGHTS.len()]);
            match session.scratch().write(&format!("keyway-{port}.toml"), &text) {
                Ok(_) => system.process.iter().for_each(|process| process.signal(Signal::HUP)),
                Err(why) => failure = Some(why),
            }
            (done, due) = (done + 1, due + EVERY);
        }
        Flow::Continue
    })?;
    match failure {
        Some(why) => Err(why.into()),
        None => Ok(line("before", &before) + &line(&format!("while {done} reloads"), &meanwhile)),
    }
}

fn line(name: &str, outcome: &Outcome) -> String {
    let latency = &outcome.latency;
    let [p50, p99, p99_9] =
        [latency.p50_us, latency.p99_us, latency.p99_9_us].map(|us| us / 1000.0);
    let checked = outcome.verification.unwrap_or_default();
    let wrong = checked.wrong + checked.stale + outcome.failures();
    let requests = outcome.totals.requests;
    format!(
        "{name}: {requests} requests, p50 {p50:.2} p99 {p99:.2} p99.9 {p99_9:.2} ms; \
         {} values checked, wrong replies: {wrong}\n",
        checked.checked
    )
}
