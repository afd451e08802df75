//! `keyway ctl`: an operator's requests to a running Keyway, by its admin API.

mod audit;
mod client;
mod fleet;
mod groups;
mod health;
mod members;
mod served;
mod show;
mod slots;
mod upgrade;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use client::{Answer, Client, Unreachable};
use keyway_tls::ClientTls;
use members::MembersOf;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit statuses that a script may tell apart. 2 means wrong usage, as in every command.
const REFUSED: u8 = 1;
const UNREACHABLE: u8 = 3;

/// What is asked, and of whom.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 done, 1 refused (or not ready), 2 wrong usage, 3 not reached.

Examples:
  keyway ctl servers                        every server, its state, why and since when
  keyway ctl eject sessions 127.0.0.1:7002  takes it out of use until it is restored
  keyway ctl config                         the settings that the process runs with
  keyway ctl --config keyway.toml health    for what watches a process: needs no token
  keyway ctl --zone 1 slow-log              of a control node: of all its members in zone 1
  keyway ctl --admin https://127.0.0.1:9380 --ca-file ca.pem --token-file token status
")]
pub struct Ctl {
    #[command(flatten)]
    whom: Whom,
    /// Print the reply as it came, in JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    members: MembersOf,
    #[command(subcommand)]
    what: What,
}

/// Where the admin listener is, and what it asks for.
#[derive(Debug, Args)]
pub struct Whom {
    /// The admin address: HOST:PORT, http://HOST:PORT or https://HOST:PORT; else the variable
    /// KEYWAY_ADMIN, else http://127.0.0.1:9380.
    #[arg(short, long, visible_alias = "address", global = true, value_name = "ADDRESS")]
    admin: Option<String>,
    /// In place of an address: the configuration file that the process on this machine runs with,
    /// whose `server.admin` is asked; `admin` of the file of a control node.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// A file with the token; else the variable KEYWAY_ADMIN_TOKEN has it.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFiles,
}

/// What an admin listener that speaks HTTPS is asked with.
#[derive(Debug, Args)]
pub struct TlsFiles {
    /// Certificates of the authorities that have issued that of the admin listener.
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Our certificate, for an admin listener that asks for one.
    #[arg(long, global = true, value_name = "FILE", requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// The private key of that certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "cert_file")]
    key_file: Option<PathBuf>,
}

/// The admin token that the variable KEYWAY_ADMIN_TOKEN has, if it is set.
///
/// # Errors
/// Returns an error if it cannot be sent.
pub fn token_of_environment() -> Result<Option<String>, String> {
    client::token(None)
}

/// Returns the admin address that the variable KEYWAY_ADMIN has, if it is set.
pub fn admin_of_environment() -> Option<String> {
    client::variable("KEYWAY_ADMIN")
}

impl TlsFiles {
    /// Returns whether an authority is named.
    pub fn has_authority(&self) -> bool {
        self.ca_file.is_some()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Returns what is wrong with them.
    pub fn load(&self) -> Result<ClientTls, String> {
        client::load_tls_of_authorities(self)
    }
}

#[derive(Debug, Subcommand)]
enum What {
    /// Version, uptime, workers and clients.
    Status,
    /// Whether the process serves, and does not drain. With --config it sends no token and accepts
    /// any certificate. If `server.admin` is "off", it says so, with status 0.
    Health,
    /// Whether every pool can serve, and why not.
    Ready,
    /// Every pool, and how many of its servers are in use.
    Pools,
    /// Every server: its state, why, and since when.
    Servers {
        /// Only those of this pool.
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
    },
    /// Clients, the oldest first.
    Connections {
        /// Only those of this pool.
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// How many are listed.
        #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = limit)]
        limit: u16,
    },
    /// Slow requests, the latest first, and where their time went.
    SlowLog {
        /// Only those of this pool.
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// How many are listed.
        #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = limit)]
        limit: u16,
    },
    /// The keys that are asked for most, and those with the largest values.
    HotKeys {
        /// Only those of this pool.
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// How many are listed of each pool, of each kind.
        #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = limit)]
        limit: u16,
    },
    /// Take a server out of use, whatever its health, until it is restored.
    Eject(ServerOf),
    /// End an ejection or quarantine of a server.
    Restore(ServerOf),
    /// Take no more clients, answer what is in flight, and end.
    Drain {
        /// Do not end, but wait for SIGTERM or another drain, and tell of itself meanwhile.
        #[arg(long)]
        wait: bool,
    },
    /// The settings that the process runs with, as a configuration file. Passwords and tokens are
    /// masked.
    Config,
    /// The least important messages that are logged; changes it if LEVEL is given.
    LogLevel {
        #[arg(value_enum)]
        level: Option<Level>,
    },
    /// Read again what may change while Keyway runs.
    Reload,
    /// Have another process take this one's place, with what is installed now: nobody who connects
    /// is refused, and embedded stores keep their data. Waits until it serves, or has failed and this one serves on.
    Upgrade,
    /// Of a control node: who leads, and every member with its version and state.
    Fleet,
    /// Have the control node that leads forget a member that is silent and has ended for good. Nothing waits
    /// for it any more, such as slots that move.
    Forget {
        /// Its id, as `keyway ctl fleet` shows it.
        member: String,
    },
    /// The addresses at which clients find a pool; a control node knows them.
    Proxies {
        /// Only those of this pool.
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
    },
    /// Of a control node: the documents that are kept, the latest first.
    Documents {
        /// Print the document of this revision, and nothing else.
        #[arg(long, value_name = "REVISION")]
        revision: Option<u64>,
    },
    /// Have the control node that leads store a document, and all members serve by it.
    ///
    /// The document is a file with [pool.NAME] tables. Prints what changes, and the version.
    Apply {
        /// The document.
        file: PathBuf,
        /// The revision that you have seen: refused if another one is current. 0 is the first.
        #[arg(long, value_name = "REVISION", required_unless_present = "dry_run")]
        base: Option<u64>,
        /// Print what would change and the current revision, and store nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        rollout: RolloutOf,
    },
    /// Of a control node: the differences between two documents, each a revision or a file. Without
    /// TO it is the latest one. Without both they are the latest two.
    Diff {
        #[arg(value_name = "FROM")]
        from: Option<fleet::Side>,
        #[arg(value_name = "TO")]
        to: Option<fleet::Side>,
    },
    /// Of a control node: the documents that are kept, the latest first, each with what it changed.
    History,
    /// Have the control node that leads store the document of an earlier revision again.
    Rollback {
        /// The revision.
        revision: u64,
        /// The revision that you have seen: refused if another one is current.
        #[arg(long, value_name = "REVISION", required_unless_present = "dry_run")]
        base: Option<u64>,
        /// Print what would change and the current revision, and store nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        rollout: RolloutOf,
    },
    /// Of a control node: the rollout that is going on, or what it is to do.
    Rollout {
        #[arg(value_enum, default_value = "status")]
        action: RolloutWord,
    },
    /// The groups of servers, each with its primary and replicas; a control node knows them.
    Groups,
    /// Have a replica of a group become the primary, without a failed request.
    Failover {
        /// The pool.
        pool: String,
        /// The replica; the one with most data without it.
        #[arg(long, value_name = "HOST:PORT")]
        to: Option<String>,
    },
    /// Slots that move between the groups of a pool while clients use them; a control node knows them.
    Slots(slots::SlotsOf),
    /// The audit log of a control plane, which has an entry for each change of the fleet.
    Audit(audit::AuditOf),
    /// Events over the fleet, as far as the control node that is asked knows them.
    Events(audit::EventsOf),
    /// End the script or function that runs on the embedded store of a pool.
    KillScript {
        /// The pool.
        pool: String,
    },
}

/// Most that is listed of clients, slow requests or keys.
const LIMIT_MAX: u16 = 1000;

/// Reads how many are listed.
fn limit(text: &str) -> Result<u16, String> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| format!("it is not a whole number from 1 to {LIMIT_MAX}"))
}

/// The way in which members get a document.
#[derive(Debug, Args)]
struct RolloutOf {
    /// Have a share of the members, such as 10%, serve by it first. It goes on to all, or back, by
    /// their errors and p99: see `keyway ctl rollout`.
    #[arg(long, value_name = "PERCENT", value_parser = fleet::share)]
    share: Option<u8>,
    /// How long these are watched, such as 90s, 5m or 1h; 2m without it.
    #[arg(long, value_name = "TIME", value_parser = fleet::watch, requires = "share")]
    watch: Option<std::time::Duration>,
}

impl RolloutOf {
    fn storing(&self, base: Option<u64>, dry_run: bool) -> fleet::Storing {
        fleet::Storing { base, dry_run, share: self.share, watch: self.watch }
    }
}

/// What is asked of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RolloutWord {
    /// Print it, and change nothing.
    Status,
    /// Decide nothing until it is resumed.
    Pause,
    /// Watch anew.
    Resume,
    /// Go back now.
    Abort,
    /// Go on to all members now.
    Finish,
}

#[derive(Debug, Args)]
struct ServerOf {
    /// The pool.
    pool: String,
    /// The server: its name, or its address.
    server: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Sends the request, prints the answer, and returns the exit status.
pub fn run(ctl: &Ctl) -> Result<ExitCode> {
    if let (What::Health, Some(file)) = (&ctl.what, &ctl.whom.config) {
        return Ok(health::run(ctl, file));
    }
    let client = match Client::new(&ctl.whom) {
        Ok(client) => client,
        Err(what) => return Ok(fail(&what, 2)),
    };
    if matches!(ctl.what, What::Upgrade) && !ctl.members.is_given() {
        return Ok(upgrade::run(ctl, &client));
    }
    match &ctl.what {
        What::Audit(of) => return Ok(audit::audit(ctl, &client, of)),
        What::Events(of) => return Ok(audit::events(ctl, &client, of)),
        What::Slots(of) => return Ok(slots::run(ctl, &client, of)),
        _ => {}
    }
    let (method, path, body) = match &ctl.what {
        What::Apply { file, base, dry_run, rollout } => {
            match rollout.storing(*base, *dry_run).of_file(file) {
                Ok(body) => ("POST", "/v1/fleet/document".to_owned(), Some(body)),
                Err(what) => return Ok(fail(&what, 2)),
            }
        }
        what => request(what),
    };
    let reads_level = matches!(ctl.what, What::LogLevel { level: None });
    if reads_level && ctl.members.is_given() {
        return Ok(fail(members::ASK_EACH, 2));
    }
    let path = match ctl.members.is_given() {
        true => match ctl.members.path(&path) {
            Ok(path) => path,
            Err(what) => return Ok(fail(&what, 2)),
        },
        false => path,
    };
    let ask = |path: &str| client.ask(method, path, body.as_ref());
    let mut answer = ask(&path);
    if let Ok(refused) = &answer
        && refused.status == 404
        && let Some(instead) = members::instead(&path, &refused.body)
    {
        if matches!(ctl.what, What::Drain { .. }) {
            return Ok(fail(members::NAME_THEM, 2));
        }
        if reads_level {
            return Ok(fail(members::ASK_EACH, 2));
        }
        // A control node answers for its members.
        answer = ask(&instead);
    }
    match answer {
        Ok(answer) => match &ctl.what {
            What::Proxies { pool: Some(pool) } if members::lack_pool(&client, pool, &answer) => {
                Ok(fail(&format!("no member of the fleet has a pool {pool:?}"), REFUSED))
            }
            What::Apply { rollout, .. } | What::Rollback { rollout, .. }
                if rollout.share.is_none() && !ctl.json =>
            {
                let told = tell(ctl, &answer);
                let Some((lines, is_served)) = served::await_members(&client, &answer) else {
                    return Ok(told);
                };
                Ok(match print(&lines) {
                    Ok(()) if is_served => told,
                    Ok(()) => ExitCode::from(REFUSED),
                    Err(status) => status,
                })
            }
            _ => Ok(tell(ctl, &answer)),
        },
        Err(Unreachable(what)) => Ok(fail(&what, UNREACHABLE)),
    }
}

fn fail(what: &str, status: u8) -> ExitCode {
    for line in crate::cli::escaped(what).lines() {
        eprintln!("keyway ctl: {line}");
    }
    ExitCode::from(status)
}

fn request(what: &What) -> (&'static str, String, Option<Value>) {
    let get = |path: &str| ("GET", path.to_owned(), None);
    let post = |path: &str, body: Option<Value>| ("POST", path.to_owned(), body);
    let of = |ServerOf { pool, server }: &ServerOf| Some(json!({"pool": pool, "server": server}));
    match what {
        What::Status => get("/v1/status"),
        What::Health => get("/v1/health"),
        What::Ready => get("/v1/ready"),
        What::Pools => get("/v1/pools"),
        What::Servers { pool: None } => get("/v1/servers"),
        What::Servers { pool: Some(pool) } => get(&format!("/v1/servers?pool={}", encoded(pool))),
        What::Connections { pool, limit } => {
            get(&format!("/v1/connections?limit={limit}{}", only(pool.as_deref())))
        }
        What::SlowLog { pool, limit } => {
            get(&format!("/v1/slow-log?limit={limit}{}", only(pool.as_deref())))
        }
        What::HotKeys { pool, limit } => {
            get(&format!("/v1/hot-keys?limit={limit}{}", only(pool.as_deref())))
        }
        What::Eject(server) => post("/v1/servers/eject", of(server)),
        What::Restore(server) => post("/v1/servers/restore", of(server)),
        What::Drain { wait } => {
            post("/v1/drain", Some(json!({"then": if *wait { "wait" } else { "exit" }})))
        }
        What::Config => get("/v1/config"),
        What::LogLevel { level: None } => get("/v1/log-level"),
        What::LogLevel { level: Some(level) } => {
            let level = format!("{level:?}").to_lowercase();
            ("PUT", "/v1/log-level".to_owned(), Some(json!({"level": level})))
        }
        What::Fleet => get("/v1/fleet"),
        What::Forget { member } => post("/v1/fleet/forget", Some(json!({"member": member}))),
        What::Proxies { pool: None } => get("/v1/fleet/proxies"),
        What::Proxies { pool: Some(pool) } => {
            get(&format!("/v1/fleet/proxies?pool={}", encoded(pool)))
        }
        What::Documents { .. } | What::Diff { .. } | What::History => get("/v1/fleet/documents"),
        What::Rollback { revision, base, dry_run, rollout } => {
            let order = rollout.storing(*base, *dry_run).of_revision(*revision);
            post("/v1/fleet/document", Some(order))
        }
        What::Groups => get("/v1/fleet/groups"),
        What::Failover { pool, to } => {
            post("/v1/fleet/groups/failover", Some(json!({"pool": pool, "to": to})))
        }
        What::Rollout { action: RolloutWord::Status } => get("/v1/fleet/rollout"),
        What::Rollout { action } => {
            let action = format!("{action:?}").to_lowercase();
            post("/v1/fleet/rollout", Some(json!({"action": action})))
        }
        What::Apply { .. } => post("/v1/fleet/document", None),
        What::Audit(_) => get("/v1/fleet/audit"),
        What::Events(_) => get("/v1/fleet/events"),
        What::Slots(_) => get("/v1/fleet/slots"),
        What::Reload => post("/v1/reload", None),
        What::Upgrade => post("/v1/upgrade", None),
        What::KillScript { pool } => post("/v1/scripts/kill", Some(json!({"pool": pool}))),
    }
}

/// Returns the part of a query that selects one pool.
fn only(pool: Option<&str>) -> String {
    pool.map_or_else(String::new, |pool| format!("&pool={}", encoded(pool)))
}

/// Returns a value encoded for a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn tell(ctl: &Ctl, answer: &Answer) -> ExitCode {
    let is_done = (200..300).contains(&answer.status);
    // A draining process also answers the question.
    let is_health = matches!(ctl.what, What::Health) && answer.body["status"].is_string();
    let printed = if ctl.json {
        print(&answer.text)
    } else if is_done || is_health {
        match shown(&ctl.what, &answer.body) {
            Ok(text) => print(&text),
            Err(what) => Err(fail(&what, REFUSED)),
        }
    } else {
        let detail = answer.body["detail"].as_str();
        let words = answer.about_token.or(detail).unwrap_or_default();
        // The reasons follow, a line for each.
        let has_reasons = answer.body["errors"].is_array();
        let words = match ctl.what {
            What::Ready if has_reasons => "Keyway is not ready:",
            _ => words,
        };
        // People see them below, and have no field of that name.
        let words = match words.strip_suffix(" see errors") {
            Some(words) if has_reasons => words,
            _ => words,
        };
        let words = keyway_base::printable(words.as_bytes());
        eprintln!("keyway ctl: {words}");
        // Facts about servers follow the reasons, as on `/readyz`.
        for list in ["errors", "failing", "unknown"] {
            for line in answer.body[list].as_array().into_iter().flatten() {
                eprintln!("  {}", show::text(line));
            }
        }
        Ok(())
    };
    if let Err(status) = printed {
        return status;
    }
    for line in members::missing(&answer.body).iter().filter(|_| !ctl.json) {
        eprintln!("keyway ctl: {line}");
    }
    let has_failed = answer.body["failed"].as_u64().is_some_and(|failed| failed > 0);
    if is_done && !has_failed { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) }
}

/// Returns the answer for people.
///
/// # Errors
/// Returns what the answer lacks.
fn shown(what: &What, body: &Value) -> Result<String, String> {
    if members::is_of_several(body)
        && let Some(text) = shown_of_several(what, body)
    {
        return Ok(text);
    }
    Ok(match what {
        What::Status => show::fields(body),
        What::Health => show::text(&body["status"]) + "\n",
        What::Ready => show::ready(body),
        What::Pools => show::pools(body),
        What::Servers { .. } => show::servers(body),
        What::Connections { .. } => show::connections(body),
        What::SlowLog { .. } => show::slow_log(body),
        What::HotKeys { .. } => show::hot_keys(body),
        What::Eject(_) | What::Restore(_) | What::KillScript { .. } => {
            show::text(&body["message"]) + "\n"
        }
        What::Drain { wait: true } => "draining; it waits when it is done\n".to_owned(),
        What::Drain { wait: false } => "draining; it ends when it is done\n".to_owned(),
        What::Config => show::config(body),
        What::LogLevel { .. } => show::text(&body["level"]) + "\n",
        What::Fleet | What::Forget { .. } => fleet::fleet(body),
        What::Proxies { .. } => show::proxies(body),
        What::Documents { revision } => fleet::documents(body, *revision)?,
        What::Diff { from, to } => fleet::diff(body, from.as_ref(), to.as_ref())?,
        What::History => fleet::history(body),
        What::Apply { rollout, .. } | What::Rollback { rollout, .. } => {
            fleet::applied(body, rollout.share.is_some())
        }
        What::Rollout { .. } => fleet::rollout(body),
        What::Groups => groups::all(body),
        What::Failover { pool, .. } => groups::failed_over(body, pool),
        What::Audit(_) => audit::entries(body),
        What::Events(_) => audit::lines(body),
        What::Slots(of) => slots::shown(of, body),
        What::Reload => show::reloaded(body),
        What::Upgrade => upgrade::serves(body),
    })
}

/// Returns the answer of several members for people, where it has another form than that of one.
fn shown_of_several(what: &What, body: &Value) -> Option<String> {
    match what {
        What::Status => Some(members::status(body)),
        What::Config => Some(members::configs(body)),
        _ if body["failed"].is_u64() => Some(members::changed(body)),
        _ => None,
    }
}

/// Prints to standard output. A reader that closed it is not an error; a full disk is.
///
/// # Errors
/// Returns the exit status, after standard error has reported that the output cannot be written.
fn print(text: &str) -> Result<(), ExitCode> {
    match crate::cli::print(text.as_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => Err(fail(&format!("{error:#}"), REFUSED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_limit_is_told_the_bounds() {
        assert_eq!((limit("1"), limit("1000")), (Ok(1), Ok(1000)));
        for wrong in ["0", "1001", "70000", "-1", "x", "", "1.5"] {
            let told = limit(wrong).expect_err("it is out of bounds");
            assert_eq!(told, "it is not a whole number from 1 to 1000", "{wrong}");
        }
    }

    #[test]
    fn names_go_into_a_query_as_they_are() {
        assert_eq!(encoded("a-Z_0.~"), "a-Z_0.~");
        assert_eq!(encoded("10.0.0.1:6379 é&=+"), "10.0.0.1%3A6379%20%C3%A9%26%3D%2B");
    }
}
