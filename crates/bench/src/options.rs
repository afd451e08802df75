//! The command line of `keyway-peer-bench`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyway_fleet::limits::MEMBERS_MAX;

use crate::error::Error;
use crate::fleet::INSIDE;
use crate::measure::Window;
use crate::plan::{ROWS, Selection};
use crate::systems::{Programs, words};

/// What `--help` prints before the list of rows.
const HELP: &str = "\
keyway-peer-bench: Keyway against its peers, in requests per CPU-second

Usage:
  keyway-peer-bench [OPTIONS]             run the comparison
  keyway-peer-bench callgrind [OPTIONS]   count instructions per request of Keyway
  keyway-peer-bench misses [OPTIONS]      misses of full caches with equal memory
  keyway-peer-bench tls [OPTIONS]         requests by TLS and without, handshakes
  keyway-peer-bench transactions [OPTIONS]
                                          transactions and pipelines without them
  keyway-peer-bench fanout [OPTIONS]      one channel with 1000 subscribers
  keyway-peer-bench reload [OPTIONS]      latency while a pool is replaced
  keyway-peer-bench persistence [OPTIONS] loading, saving and logs of the store
                                          and of redis-server
  keyway-peer-bench fleet [OPTIONS]       how fast a change of the control plane
                                          reaches many members

What runs:
  --keyway PATH          the keyway binary; default: beside this program
  --nutcracker PATH      twemproxy; default: found in PATH
  --redis-server PATH    the servers behind the proxies; default: found in PATH
  --predixy PATH         let predixy take part, with one worker
  --memcached PATH       let memcached take part in rows of strings on the store;
                         misses: default: found in PATH
  --peer NAME=HOST:PORT,PID
                         let any running Redis proxy take part (repeatable); it
                         gets the benchmark's keys written to its servers
  --io-uring             let Keyway take part a second time, by io_uring
  --floor                let a server take part that only answers: what the
                         kernel takes (only rows of strings and hashes on the
                         store)
  --self-check           run nutcracker and redis-server a second time in
                         Keyway's place: every ratio should come out near 1

How:
  --rows LIST            only these rows, groups of rows or parts, by comma
  --rounds N             interleaved rounds per row; default 5
  --seconds S            shortest measurement; default 1.5 (each goes on until
                         the system has used a CPU-second, up to four times S)
  --quick                2 rounds of 0.3 s: a first look, no evidence
  --nice N               run everything at this nice value (below 0: as root)
  --items N              persistence: items that are loaded; default 10000000
  --requests N           callgrind: requests of the shorter run; default 10000
  --members LIST         fleet: numbers of members, by comma; default 100,1000
  --changes N            fleet: changes for each of them; default 20
  --no-group             fleet: members without a group that they report about
  --loss PERCENT         fleet: lose packets of the bus, in a network namespace
                         (as root, with `unshare`, `ip` and `tc`)

Where it goes (always to standard output as well):
  --doc FILE             rewrite the marked region of this document; default:
                         docs/performance.md for a full run, else nothing
  --no-doc               write no document
  --json FILE            every single measurement

Ends with status 1 when a measurement failed; a missed target is no failure.
";

/// A proxy that was started elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPeer {
    /// The name in the tables.
    pub name: String,
    /// Its address.
    pub addr: SocketAddr,
    /// The process whose CPU time counts.
    pub pid: u32,
}

/// The task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The comparison.
    Compare,
    /// Instructions per request.
    Callgrind,
    /// Misses of full caches.
    Misses,
    /// The cost of TLS.
    Tls,
    /// The cost of transactions.
    Transactions,
    /// Deliveries of a channel.
    Fanout,
    /// Latency during reloads.
    Reload,
    /// Loading, saving and logs.
    Persistence,
    /// Changes of the control plane.
    Fleet,
    /// Print the help.
    Help,
}

/// The parsed command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The task.
    pub action: Action,
    /// The paths of the programs.
    pub programs: Programs,
    /// Proxies that are already running.
    pub peers: Vec<ExternalPeer>,
    /// Whether to run a peer twice instead of Keyway.
    pub self_check: bool,
    /// Whether to run Keyway with io_uring as well.
    pub io_uring: bool,
    /// Whether to run the server that only answers as well.
    pub floor: bool,
    /// The selected rows and parts.
    pub selection: Selection,
    /// Number of interleaved rounds for each row.
    pub rounds: usize,
    /// The shortest measurement, in seconds.
    pub seconds: f64,
    /// True if it is only a first look.
    pub quick: bool,
    /// The nice value for everything. `None`: unchanged.
    pub nice: Option<i32>,
    /// Number of items that are loaded and saved.
    pub items: u32,
    /// Number of requests of callgrind's shorter run.
    pub requests: u64,
    /// Numbers of members of a fleet.
    pub members: Vec<usize>,
    /// Number of changes for each of them.
    pub changes: u64,
    /// True if members have a group of servers, about which they report every second.
    pub has_group: bool,
    /// Share of the packets of the bus that get lost, in percent.
    pub loss: f64,
    /// True if this process is in the namespace where packets get lost.
    pub is_inside: bool,
    /// The requested document.
    pub doc: Option<PathBuf>,
    /// Whether to write no document.
    pub no_doc: bool,
    /// The path of the JSON.
    pub json: Option<PathBuf>,
}

/// The tasks by the first word of the command line.
const ACTIONS: [(&str, Action); 8] = [
    ("callgrind", Action::Callgrind),
    ("misses", Action::Misses),
    ("tls", Action::Tls),
    ("transactions", Action::Transactions),
    ("fanout", Action::Fanout),
    ("reload", Action::Reload),
    ("persistence", Action::Persistence),
    ("fleet", Action::Fleet),
];

impl Options {
    /// Reads the arguments after the program's name. `beside` is the directory of the program
    /// itself, and Keyway's default directory.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] with the invalid argument.
    pub fn parse(args: impl IntoIterator<Item = String>, beside: &Path) -> Result<Options, Error> {
        let mut options = Options::defaults(beside);
        let mut args = args.into_iter().peekable();
        let named = |word: &String| ACTIONS.iter().find(|(name, _)| name == word);
        if let Some((_, action)) = args.peek().and_then(named) {
            options.action = *action;
            args.next();
        }
        while let Some(flag) = args.next() {
            if !options.set_switch(&flag) {
                let mut value =
                    || args.next().ok_or_else(|| Error::Usage(format!("{flag} takes a value")));
                options.set_value(&flag, &mut value)?;
            }
        }
        Ok(options)
    }

    fn defaults(beside: &Path) -> Options {
        let own = std::env::current_exe().unwrap_or_default();
        Options {
            action: Action::Compare,
            programs: Programs {
                keyway: beside.join("keyway"),
                nutcracker: "nutcracker".into(),
                redis_server: "redis-server".into(),
                predixy: None,
                memcached: None,
                guard: words(&[
                    &own.display().to_string(),
                    "guarded",
                    &std::process::id().to_string(),
                ]),
                own,
            },
            peers: Vec::new(),
            self_check: false,
            io_uring: false,
            floor: false,
            selection: Selection::default(),
            rounds: 5,
            seconds: 1.5,
            quick: false,
            nice: None,
            items: 10_000_000,
            requests: 10_000,
            members: vec![100, 1000],
            changes: 20,
            has_group: true,
            loss: 0.0,
            is_inside: false,
            doc: None,
            no_doc: false,
            json: None,
        }
    }

    /// Sets an option without a value. Returns false if `flag` is no such option.
    fn set_switch(&mut self, flag: &str) -> bool {
        match flag {
            "--help" | "-h" | "help" => self.action = Action::Help,
            "--self-check" => self.self_check = true,
            "--io-uring" => self.io_uring = true,
            "--floor" => self.floor = true,
            "--no-doc" => self.no_doc = true,
            "--no-group" => self.has_group = false,
            INSIDE => self.is_inside = true,
            "--quick" => {
                self.quick = true;
                self.rounds = 2;
            }
            _ => return false,
        }
        true
    }

    fn set_value(
        &mut self,
        flag: &str,
        value: &mut dyn FnMut() -> Result<String, Error>,
    ) -> Result<(), Error> {
        match flag {
            "--keyway" => self.programs.keyway = value()?.into(),
            "--nutcracker" => self.programs.nutcracker = value()?.into(),
            "--redis-server" => self.programs.redis_server = value()?.into(),
            "--predixy" => self.programs.predixy = Some(value()?.into()),
            "--memcached" => self.programs.memcached = Some(value()?.into()),
            "--peer" => self.peers.push(parse_peer(&value()?)?),
            "--rows" => {
                self.selection = Selection::parse(&value()?)
                    .map_err(|name| Error::Usage(format!("no row is called {name:?}")))?;
            }
            "--rounds" => self.rounds = number(flag, &value()?, 1)?,
            "--seconds" => self.seconds = number(flag, &value()?, 0.1)?,
            "--nice" => self.nice = Some(number(flag, &value()?, -20)?),
            "--items" => self.items = number(flag, &value()?, 1)?,
            "--requests" => self.requests = number(flag, &value()?, 100)?,
            "--members" => {
                let list = value()?;
                let all = list.split(',').map(|one| within(flag, one, 1..=MEMBERS_MAX));
                self.members = all.collect::<Result<_, _>>()?;
            }
            "--changes" => self.changes = number(flag, &value()?, 1)?,
            "--loss" => self.loss = within(flag, &value()?, 0.0..=50.0)?,
            "--doc" => self.doc = Some(value()?.into()),
            "--json" => self.json = Some(value()?.into()),
            _ => return Err(Error::Usage(format!("{flag:?} is no option"))),
        }
        Ok(())
    }

    /// Returns how long measurements take.
    pub fn window(&self) -> Window {
        match self.quick {
            true => Window::quick(),
            false => Window::full(Duration::from_secs_f64(self.seconds)),
        }
    }

    /// Returns the document to write, if any. A partial comparison replaces a full one only if that
    /// is requested.
    pub fn document(&self) -> Option<PathBuf> {
        let is_full = self.selection.is_all() && !self.quick && !self.self_check;
        match &self.doc {
            _ if self.no_doc => None,
            Some(path) => Some(path.clone()),
            None => is_full.then(|| "docs/performance.md".into()),
        }
    }

    /// Returns the command that does the same again, without the paths of this machine.
    pub fn command(&self) -> String {
        let mut parts = vec!["keyway-peer-bench".to_owned()];
        match self.action {
            Action::Callgrind => parts.push(format!("callgrind --requests {}", self.requests)),
            Action::Misses => parts.push("misses".into()),
            Action::Fleet => parts.push(self.fleet_words()),
            _ if self.quick => parts.push("--quick".into()),
            _ => parts.push(format!("--rounds {} --seconds {}", self.rounds, self.seconds)),
        }
        if !matches!(self.action, Action::Callgrind | Action::Misses | Action::Fleet) {
            if !self.selection.is_all() {
                parts.push(format!("--rows {}", self.selection.names()));
            }
            if self.programs.predixy.is_some() {
                parts.push("--predixy PATH".into());
            }
            if self.programs.memcached.is_some() {
                parts.push("--memcached PATH".into());
            }
            parts.extend(self.peers.iter().map(|peer| format!("--peer {}=...", peer.name)));
            for (is_set, flag) in [(self.io_uring, "--io-uring"), (self.floor, "--floor")] {
                if is_set {
                    parts.push(flag.into());
                }
            }
            if self.self_check {
                parts.push("--self-check".into());
            }
        }
        parts.extend(self.nice.map(|nice| format!("--nice {nice}")));
        parts.join(" ")
    }

    fn fleet_words(&self) -> String {
        let members: Vec<String> = self.members.iter().map(ToString::to_string).collect();
        let mut text = format!("fleet --members {}", members.join(","));
        match self.quick {
            true => text.push_str(" --quick"),
            false => text.push_str(&format!(" --changes {}", self.changes)),
        }
        if !self.has_group {
            text.push_str(" --no-group");
        }
        if self.loss > 0.0 {
            text.push_str(&format!(" --loss {}", self.loss));
        }
        text
    }
}

/// Returns the help, with the existing rows.
pub fn help() -> String {
    let mut text = format!("{HELP}\nRows:\n");
    for row in ROWS {
        let side = if row.id.starts_with("store") { "store: " } else { "" };
        text.push_str(&format!("  {:<18} {side}{}\n", row.id, row.title));
    }
    text.push_str("Parts:\n  memory             resident memory of fresh processes\n");
    text.push_str("  syscalls           system calls per request, by strace\n");
    text.push_str("  items              resident memory per item, at 1 and 5 million\n");
    text
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    flag: &str,
    text: &str,
    at_least: T,
) -> Result<T, Error> {
    match text.parse::<T>() {
        Ok(number) if number >= at_least => Ok(number),
        _ => Err(Error::Usage(format!("{flag} takes a number from {at_least}, not {text:?}"))),
    }
}

fn within<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    flag: &str,
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, Error> {
    match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let (least, most) = range.into_inner();
            Err(Error::Usage(format!("{flag} takes numbers from {least} to {most}, not {text:?}")))
        }
    }
}

fn parse_peer(text: &str) -> Result<ExternalPeer, Error> {
    let parse = || {
        let (name, rest) = text.split_once('=')?;
        let (addr, pid) = rest.rsplit_once(',')?;
        let addr = std::net::ToSocketAddrs::to_socket_addrs(addr).ok()?.next()?;
        let pid = pid.parse().ok()?;
        (!name.is_empty()).then(|| ExternalPeer { name: name.to_owned(), addr, pid })
    };
    parse().ok_or_else(|| Error::Usage(format!("--peer takes NAME=HOST:PORT,PID, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Error> {
        Options::parse(line.split_whitespace().map(str::to_owned), Path::new("/opt/build"))
    }

    #[test]
    fn without_arguments_the_full_comparison_goes_into_the_document() {
        let options = parse("").unwrap();
        assert_eq!(options.action, Action::Compare);
        assert_eq!(options.programs.keyway, Path::new("/opt/build/keyway"));
        assert_eq!(options.document(), Some("docs/performance.md".into()));
        assert_eq!(options.command(), "keyway-peer-bench --rounds 5 --seconds 1.5");
    }

    #[test]
    fn a_partial_run_replaces_no_full_one_by_itself() {
        for line in ["--quick", "--rows depth1", "--self-check", "--no-doc --doc x.md"] {
            assert_eq!(parse(line).unwrap().document(), None, "{line}");
        }
        assert_eq!(parse("--quick --doc x.md").unwrap().document(), Some("x.md".into()));
    }

    #[test]
    fn the_command_names_no_path() {
        let options = parse("--keyway /secret/keyway --predixy /secret/p --nice -5").unwrap();
        assert!(!options.command().contains("secret"));
        assert!(options.command().ends_with("--predixy PATH --nice -5"));
    }

    #[test]
    fn a_peer_is_a_name_an_address_and_a_process() {
        let options = parse("--peer mine=127.0.0.1:7000,42").unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], 7000));
        assert_eq!(options.peers, [ExternalPeer { name: "mine".into(), addr, pid: 42 }]);
        assert!(parse("--peer mine=127.0.0.1:7000").is_err());
        assert!(parse("--peer =127.0.0.1:7000,1").is_err());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("--rowz x", "--rowz"),
            ("--rows nothing", "nothing"),
            ("--rounds 0", "--rounds"),
            ("--rounds", "--rounds"),
            ("--seconds NaN", "--seconds"),
            ("fleet --members 10,0", "--members"),
            ("fleet --members 10,5000", "4096"),
            ("fleet --loss 51", "--loss"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn the_command_of_a_fleet_has_its_own_options() {
        let options = parse("fleet --members 7,9 --loss 5 --rounds 3").unwrap();
        assert_eq!((options.action, &options.members[..]), (Action::Fleet, &[7, 9][..]));
        let command = options.command();
        assert_eq!(command, "keyway-peer-bench fleet --members 7,9 --changes 20 --loss 5");
    }

    #[test]
    fn the_help_lists_every_row() {
        let help = help();
        assert!(ROWS.iter().all(|row| help.contains(row.id)));
    }
}
