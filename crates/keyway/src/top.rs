//! `keyway top`: a view of running processes.

use crate::admin_of::admin_of;
use crate::ctl::TlsFiles;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use keyway_control::MEMBERS_READ_MAX;
use keyway_top::{Credentials, Options, SORTS, TARGETS_MAX};
use signal_hook::consts::SIGTERM;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Watch running processes by what their admin listeners tell: pools, servers, requests by
/// second, latencies, connections, memory of stores, errors.
///
/// Type ? for what the keys do. A process that does not answer is asked again; its row tells why, and
/// since when it is gone if it was there before. Keys that are asked for most, and those with large values, are shown
/// by name. This view takes less than 1 % of a core, and reads less often if it would take more.
///
/// Status 1: with --once or --count, a process did not answer the last time it was asked.
/// Status 2: it could not begin.
#[derive(Debug, Args)]
pub struct Top {
    /// Configuration files of the processes, whose `server.admin` is asked, or `admin` of the file of a
    /// control node; without any, and
    /// without --address, the address in the variable KEYWAY_ADMIN, else 127.0.0.1:9380.
    files: Vec<PathBuf>,
    /// Admin listener of a process, as configured by `server.admin`; several with one --address each,
    /// https://HOST:PORT for those with `admin_tls`.
    #[arg(short, long = "address", visible_alias = "admin", value_name = "HOST:PORT")]
    addresses: Vec<String>,
    /// File whose first line is the token of the admin listeners; else the variable
    /// KEYWAY_ADMIN_TOKEN has it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFiles,
    /// Time between readings, from 200ms to 1h.
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = crate::bench::parse_time)]
    interval: Duration,
    /// Print everything once, of one interval, and end.
    #[arg(long, conflicts_with_all = ["batch", "count"])]
    once: bool,
    /// Print everything after each interval, until interrupted.
    #[arg(long)]
    batch: bool,
    /// With --batch: end after printing so often.
    #[arg(short = 'n', long, value_name = "COUNT", requires = "batch", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// What pools and servers are ordered by.
    #[arg(short, long, default_value = "name", value_parser = SORTS.to_vec())]
    sort: String,
    /// Show only what has this in a name.
    #[arg(short, long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    filter: String,
    /// The addresses are of control nodes that lead: watch the members of their fleets.
    #[arg(long)]
    fleet: bool,
    /// With --fleet: only the members of this zone.
    #[arg(long, value_name = "NUMBER", requires = "fleet")]
    zone: Option<u64>,
    /// Add up pools and servers of the same name in several processes.
    #[arg(short, long)]
    merge: bool,
    /// No colours; so does NO_COLOR in the environment.
    #[arg(long)]
    no_color: bool,
}

/// Runs the command that was typed.
pub fn top(arguments: &Top) -> Result<ExitCode> {
    let options = match options(arguments) {
        Ok(options) => options,
        Err(error) => {
            for line in crate::cli::escaped(&format!("{error:#}")).lines() {
                eprintln!("keyway: {line}");
            }
            return Ok(ExitCode::from(2));
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&stop)).context("cannot watch for signals")?;
    if arguments.once || arguments.batch {
        let count = if arguments.once { Some(1) } else { arguments.count };
        return match keyway_top::print(&options, count, &stop, &mut std::io::stdout().lock()) {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::FAILURE),
            // The reader has closed the output.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error.into()),
        };
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        eprintln!("keyway: this is no terminal; --once or --batch print without one");
        return Ok(ExitCode::from(2));
    }
    keyway_top::show(&options, &stop).context("the terminal refuses")?;
    Ok(ExitCode::SUCCESS)
}

fn options(arguments: &Top) -> Result<Options> {
    let mut targets = Vec::new();
    for file in &arguments.files {
        targets.push(target_of(file)?);
    }
    for address in &arguments.addresses {
        targets.push(bare(address)?);
    }
    if targets.is_empty() {
        targets.push(match crate::ctl::admin_of_environment() {
            Some(address) => bare(&address).map_err(|_| {
                anyhow!("KEYWAY_ADMIN={address}: write HOST:PORT, as 127.0.0.1:9380")
            })?,
            None => "127.0.0.1:9380".to_owned(),
        });
    }
    let mut known = std::collections::BTreeSet::new();
    targets.retain(|target| known.insert(target.clone()));
    if !(Duration::from_millis(200)..=Duration::from_secs(3600)).contains(&arguments.interval) {
        bail!("--interval takes from 200ms to 1h");
    }
    let wants_tls = targets.iter().any(|target| target.starts_with(SECURED));
    let tls = match wants_tls || arguments.tls.has_authority() {
        true => Some(arguments.tls.load().map_err(|what| anyhow!("{what}"))?),
        false => None,
    };
    let token = match arguments.token_file.as_deref() {
        Some(file) => Some(token_in(file)?),
        None => crate::ctl::token_of_environment().map_err(|what| anyhow!("{what}"))?,
    };
    let credentials = Credentials { token, tls };
    if arguments.fleet {
        targets = members(&targets, arguments.zone, &credentials)?;
    }
    let (most, advice) = match arguments.fleet {
        true => (MEMBERS_READ_MAX, "; name a zone with --zone"),
        false => (TARGETS_MAX, ""),
    };
    if targets.len() > most {
        let count = targets.len();
        bail!("{count} processes are too many to watch at once: {most} at most{advice}");
    }
    let sort = SORTS.iter().position(|sort| *sort == arguments.sort).unwrap_or(0);
    Ok(Options {
        targets,
        credentials,
        interval: arguments.interval,
        sort,
        filter: arguments.filter.clone(),
        is_merged: arguments.merge,
        is_plain: arguments.no_color || std::env::var_os("NO_COLOR").is_some(),
    })
}

/// Returns the members of control nodes.
fn members(targets: &[String], zone: Option<u64>, shown: &Credentials) -> Result<Vec<String>> {
    let of = |target: &String| {
        keyway_top::members(target, zone, shown).map_err(|why| anyhow!("{target}: {why}"))
    };
    let found = targets.iter().map(of).collect::<Result<Vec<_>>>()?;
    Ok(found.concat())
}

fn token_in(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("--token-file {}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    // A token with other characters could start another header.
    if token.is_empty() || token.chars().any(|c| !c.is_ascii_graphic() && c != ' ') {
        bail!("--token-file {}: its first line is no token", file.display());
    }
    Ok(token.to_owned())
}

/// The scheme of an admin listener with TLS.
const SECURED: &str = "https://";

/// Returns `HOST:PORT` of an address that may be written as in the configuration or in a browser.
fn bare(address: &str) -> Result<String> {
    let without =
        ["http://", "tcp://", SECURED].iter().find_map(|scheme| address.strip_prefix(scheme));
    let rest = without.unwrap_or(address);
    let bare = rest.split('/').next().unwrap_or(rest);
    let scheme = if address.starts_with(SECURED) { SECURED } else { "" };
    match bare.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(format!("{scheme}{bare}"))
        }
        _ => bail!("--address {address}: write HOST:PORT, as 127.0.0.1:9380"),
    }
}

/// Returns the admin address of the process that runs with this file.
fn target_of(file: &Path) -> Result<String> {
    let name = file.to_string_lossy();
    if !file.exists() && bare(&name).is_ok() {
        bail!(
            "there is no file {name}; to watch the process at that address, write --address {name}"
        );
    }
    let admin = admin_of(file)?.with_context(|| {
        let place = file.display();
        format!("{place}: there is no admin listener, so nothing can be asked; set server.admin")
    })?;
    Ok(admin.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_place_of_a_file_is_told_how_to_be_written() {
        let error = target_of(Path::new("127.0.0.1:9380")).unwrap_err().to_string();
        assert!(error.ends_with("write --address 127.0.0.1:9380"), "{error}");
        let error = target_of(Path::new("missing.toml")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot be read"), "{error:#}");
    }

    #[test]
    fn addresses_may_be_written_as_elsewhere() {
        for (written, meant) in [
            ("127.0.0.1:9380", "127.0.0.1:9380"),
            ("http://cache-1:9380/metrics", "cache-1:9380"),
            ("tcp://[::1]:9380", "[::1]:9380"),
            ("https://cache-1:9380/", "https://cache-1:9380"),
        ] {
            assert_eq!(bare(written).unwrap(), meant);
        }
        for wrong in ["", "host", ":9380", "host:", "host:port", "host:70000", "keyway.toml"] {
            assert!(bare(wrong).is_err(), "{wrong}");
        }
    }
}
