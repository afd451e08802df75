//! The command line of `keyway`.

use crate::driver::Wanted;
use crate::import_codis::{self, Source};
use crate::locate::{Question, locate};
use crate::memory;
use crate::serve::Started;
use crate::upgrade::TakeOver;
use anyhow::{Context, Result};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use keyway_config::{Config, ConfigError, ControlNodeConfig, counted};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A proxy for your Redis and memcached servers, and a cache itself where there are none.
///
/// Without a configuration file, `keyway serve` answers Redis clients on
/// 127.0.0.1:6380 from its embedded store. With one, it is a proxy over the
/// pools of servers the file names.
#[derive(Debug, Parser)]
#[command(name = "keyway", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  keyway serve                                      the embedded store on 127.0.0.1:6380
  keyway serve keyway.toml                          the listeners and pools of a file
  keyway check keyway.toml                          is the file right, and what does it mean?
  keyway ctl servers                                which servers are in use, and why not?
  keyway locate keyway.toml user:42                 which server has this key?
  keyway bench load 127.0.0.1:6379                  how much does it take, how fast, at what cost?
  keyway top keyway.toml                            what does it do now?
  keyway import twemproxy nutcracker.yml > keyway.toml
  keyway import predixy predixy.conf > keyway.toml
  keyway import overlord clusters.toml > keyway.toml
  keyway import codis PRODUCT --zookeeper 127.0.0.1:2181 > keyway.toml
")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve clients until SIGTERM or SIGINT; then answer what is in flight and end.
    Serve(Serve),
    /// Check a configuration file, print it with every default filled in, and end.
    Check(Check),
    /// Tell which server of each pool a key goes to while all servers are in use.
    Locate(Locate),
    /// Run a control node: one of any number leads, and gives proxies their pools.
    Control {
        /// Its file: see docs/control.md.
        file: PathBuf,
    },
    /// Ask and control a running Keyway by its admin API: servers, clients, eject, drain and more.
    Ctl(crate::ctl::Ctl),
    /// Join the bus as a node, ask its nodes, or measure its channels.
    #[command(subcommand)]
    Bus(crate::bus::Bus),
    /// Put servers under load, Keyway or others, and compare the results.
    #[command(subcommand)]
    Bench(crate::bench::Bench),
    /// Watch running processes: their pools, servers, rates, latencies, connections, memory, errors.
    Top(crate::top::Top),
    /// Translate another proxy's configuration; prints a Keyway file.
    Import(Import),
    /// Read a password from the terminal, or the first line of standard input, and print its
    /// hash for password_hashes of a [[user]].
    HashPassword(HashPassword),
    /// Write manual pages and shell completions, as packages hold them.
    #[command(subcommand)]
    Generate(crate::generate::Generate),
}

#[derive(Debug, Args)]
pub struct HashPassword {
    /// Hash it so that it takes long to try passwords (Argon2id): for passwords that people think up.
    #[arg(long)]
    slow: bool,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file; without one, the embedded store on 127.0.0.1:6380.
    file: Option<PathBuf>,
    /// How log lines look; overrides `log.format` of the file.
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// How workers talk to the kernel; overrides `io` of the file.
    #[arg(long, value_enum, env = "KEYWAY_IO")]
    io: Option<Wanted>,
    /// Bind the embedded store here instead of 127.0.0.1:6380 (only without a file). Where another
    /// process has the admin address 127.0.0.1:9380, it serves without one.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "file")]
    bind: Option<String>,
    /// Write the process's id there while it serves; after an upgrade, the next one's. A file that
    /// is there and holds anything but a process id is refused.
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Args)]
struct Check {
    /// Configuration file, of `keyway serve`, `keyway control` or `keyway bus node`.
    file: PathBuf,
    /// Print errors and warnings, and nothing else.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Args)]
struct Locate {
    /// Configuration file; password files it names are not read.
    file: PathBuf,
    /// Keys; - stands for standard input, one key per line.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Only this pool.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// One JSON object per line instead of pool, key, server and name with tabs between.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Import {
    /// Whose configuration it is.
    #[arg(value_enum)]
    from: Foreign,
    /// Its file; for Codis the name of the product.
    file: PathBuf,
    /// For Codis: the folder that its coordinator of files writes to, with codis3 in it.
    #[arg(long, value_name = "FOLDER", group = "coordinator")]
    files: Option<PathBuf>,
    /// For Codis: addresses of ZooKeeper, with commas between.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', group = "coordinator")]
    zookeeper: Vec<String>,
    /// For Codis: addresses of etcd, with commas between.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', group = "coordinator")]
    etcd: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Foreign {
    /// nutcracker.yml
    Twemproxy,
    /// predixy.conf, with the files that it includes
    Predixy,
    /// A file of clusters, as for overlord's option -cluster
    Overlord,
    /// A product of Codis 3, from its coordinator
    Codis,
}

/// Parses the command line. A mistake or a request for help ends the process.
pub fn typed() -> Cli {
    let error = match Cli::try_parse() {
        Ok(cli) => return cli,
        Err(error) => error,
    };
    if error.kind() == ErrorKind::ValueValidation {
        eprint!("{}", in_plain_words(&error.render().to_string()));
        std::process::exit(error.exit_code());
    }
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => flag,
        _ => error.exit(),
    };
    let is_serve = std::env::args_os().nth(1).is_some_and(|word| word == "serve");
    let is_port = ["--port", "-p", "--host", "--listen"].contains(&unknown.as_str());
    if !is_serve || !is_port {
        error.exit();
    }
    eprintln!(
        "error: keyway serve has no {unknown}; without a file, --bind 127.0.0.1:PORT sets the address; \
         with one, `bind` of its [[listener]] does\n\nFor more information, try '--help'."
    );
    std::process::exit(error.exit_code())
}

/// Replaces what Rust's library says of a number that cannot be parsed.
fn in_plain_words(error: &str) -> String {
    let words = [
        ("invalid digit found in string", "it is not a whole number of 0 or more"),
        ("cannot parse integer from empty string", "it is empty"),
        ("number too large to fit in target type", "it is too large"),
    ];
    words.iter().fold(error.to_owned(), |error, (library, plain)| error.replace(library, plain))
}

/// Returns a message in which control characters, which a file name may have, are escaped. Its own
/// line ends stay.
pub fn escaped(message: &str) -> String {
    let lines = message.split('\n').map(|line| keyway_base::printable(line.as_bytes()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Runs the command that was typed.
pub fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Serve(arguments) => serve(&arguments),
        Command::Check(arguments) => check(&arguments),
        Command::Locate(arguments) => located(arguments),
        Command::Control { file } => crate::control_node::run(&file),
        Command::Ctl(ctl) => crate::ctl::run(&ctl),
        Command::Bus(bus) => crate::bus::run(bus),
        Command::Bench(bench) => crate::bench::run(bench),
        Command::Top(arguments) => crate::top::top(&arguments),
        Command::Generate(wanted) => crate::generate::generate(&wanted),
        Command::HashPassword(how) => crate::hash_password::run(how.slow),
        Command::Import(arguments) => import(arguments),
    }
}

fn serve(arguments: &Serve) -> Result<ExitCode> {
    let mut before = TakeOver::from_environment()?;
    let config = match &arguments.file {
        Some(file) => crate::member::load(file)
            .map(|(config, joining)| (with_memory_warnings(config, file), joining)),
        None => default_config(arguments.bind.as_deref()).map(|config| (config, None)),
    };
    let (config, joining) = match config {
        Ok(config) => config,
        Err(errors) => {
            before.refuse(errors.iter().map(ToString::to_string).collect());
            if let Some(file) = &arguments.file {
                tell_of_other_command(file, "serve");
            }
            return Ok(report(&errors, "not started"));
        }
    };
    let started = Started {
        format: arguments.log_format,
        io: arguments.io.map(Into::into),
        file: arguments.file.as_deref(),
        pid_file: arguments.pid_file.as_deref(),
        may_lack_admin: arguments.bind.is_some(),
        joining,
    };
    let served = crate::serve::serve(config, &started, &mut before);
    if let Err(error) = &served {
        before.refuse(vec![format!("{error:#}")]);
    }
    served
}

/// Reads a file, and checks it against the memory of this machine.
fn load(file: &Path) -> Result<Config, Vec<ConfigError>> {
    Ok(with_memory_warnings(Config::load(file)?, file))
}

fn with_memory_warnings(mut config: Config, file: &Path) -> Config {
    let path = file.display().to_string();
    config.warnings.extend(memory::warnings(&config, &path, memory::available()));
    config
}

fn default_config(bind: Option<&str>) -> Result<Config, Vec<ConfigError>> {
    match bind {
        Some(bind) => Config::default_store_at(bind).map_err(|error| vec![error]),
        None => Ok(Config::default_store()),
    }
}

/// Tells which command takes a file, if it is not this one.
pub fn tell_of_other_command(file: &Path, command: &str) {
    if let Some(told) = other_command(file, command) {
        eprintln!("keyway: {}", escaped(&told));
    }
}

fn other_command(file: &Path, command: &str) -> Option<String> {
    let (what, its) = if ControlNodeConfig::is_one(file) {
        ("a control node", "control")
    } else if Config::is_one(file) {
        ("a process that serves", "serve")
    } else if keyway_config::BusConfig::is_one(file) {
        ("a node of the bus", "bus node")
    } else {
        return None;
    };
    let file = file.display();
    (its != command).then(|| {
        format!(
            "{file} is the file of {what}, and `keyway {command}` does not take it; run `keyway \
             {its} {file}`"
        )
    })
}

fn check(Check { file, quiet }: &Check) -> Result<ExitCode> {
    if ControlNodeConfig::is_one(file) {
        let config = ControlNodeConfig::load(file).ok();
        let path = file.display().to_string();
        for warning in config.iter().flat_map(|it| crate::directories::of_control(it, &path)) {
            eprintln!("warning: {warning}");
        }
        return crate::control_node::check(file, *quiet);
    }
    if keyway_config::BusConfig::is_one(file) {
        return crate::bus::check(file, *quiet);
    }
    match load(file) {
        Ok(mut config) => {
            let path = file.display().to_string();
            config.warnings.extend(crate::directories::warnings(&config, &path));
            for warning in &config.warnings {
                eprintln!("warning: {warning}");
            }
            if *quiet {
                return Ok(ExitCode::SUCCESS);
            }
            print(keyway_config::describe(&config).as_bytes())?;
            let warnings = counted(config.warnings.len(), "warning");
            eprintln!("{}: no errors, {warnings}", escaped(&file.display().to_string()));
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => Ok(report(&errors, "not valid")),
    }
}

fn located(arguments: Locate) -> Result<ExitCode> {
    let path = arguments.file.display().to_string();
    let config = match Config::load_without_passwords(&arguments.file) {
        Ok(config) => config,
        Err(errors) => return Ok(report(&errors, "nothing located")),
    };
    let keys: Vec<Vec<u8>> = arguments.keys.into_iter().map(OsString::into_vec).collect();
    let pool = arguments.pool.as_deref();
    locate(&config, &Question { path: &path, pool, keys: &keys, is_json: arguments.json })?;
    Ok(ExitCode::SUCCESS)
}

fn import(arguments: Import) -> Result<ExitCode> {
    let Import { from, file, files, zookeeper, etcd } = arguments;
    let is_of_codis = files.is_some() || !zookeeper.is_empty() || !etcd.is_empty();
    if from != Foreign::Codis && is_of_codis {
        eprintln!("keyway: --files, --zookeeper and --etcd belong to `keyway import codis`");
        return Ok(ExitCode::from(2));
    }
    let imported = match from {
        Foreign::Twemproxy => keyway_config::import::twemproxy_file(&file),
        Foreign::Predixy => keyway_config::import::predixy_file(&file),
        Foreign::Overlord => keyway_config::import::overlord_file(&file),
        Foreign::Codis => {
            let source = match (files, zookeeper.is_empty(), etcd.is_empty()) {
                (Some(folder), ..) => Source::Files(folder),
                (None, false, _) => Source::ZooKeeper(zookeeper),
                (None, true, false) => Source::Etcd(etcd),
                (None, true, true) => {
                    eprintln!(
                        "keyway: name the coordinator of Codis with --zookeeper, --etcd or --files"
                    );
                    return Ok(ExitCode::from(2));
                }
            };
            let imported = import_codis::import(&file.to_string_lossy(), &source)?;
            return print_import(&imported.toml, &imported.notes);
        }
    };
    match imported {
        Ok(import) => print_import(&import.toml, &import.notes),
        Err(errors) => Ok(report(&errors, "not imported")),
    }
}

fn print_import(toml: &str, notes: &[String]) -> Result<ExitCode> {
    print(toml.as_bytes())?;
    for note in notes {
        eprintln!("note: {note}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output. Returns whether its reader is still there. A reader that closed it is
/// not an error; a full disk is.
pub fn print(bytes: &[u8]) -> Result<bool> {
    let mut out = std::io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

fn report(errors: &[ConfigError], consequence: &str) -> ExitCode {
    for error in errors {
        eprintln!("{}", escaped(&error.to_string()));
    }
    eprintln!("keyway: {}; {consequence}", counted(errors.len(), "error"));
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_command_is_told_with_the_command_that_takes_it() {
        let folder = keyway_testkit::TempDir::new();
        let file = |name: &str, text: &str| folder.write(name, text);
        let control = file("control.toml", "cluster = \"prod\"\n[coordinator]\nkind = 7\n");
        let serve = file("serve.toml", "[[listener]]\n[pool.a]\nkind = \"stor\"\n");
        let bus = file("bus.toml", "id = \"z1.relay.0.1\"\n");
        let unknown = file("unknown.toml", "a = 1\n");
        for (file, own, other) in [(&control, "control", "serve"), (&serve, "serve", "control")] {
            assert_eq!(other_command(file, own), None);
            let told = other_command(file, other).expect("it is of the other command");
            assert!(told.ends_with(&format!("run `keyway {own} {}`", file.display())), "{told}");
        }
        let told = other_command(&bus, "serve").expect("it is of the bus");
        assert!(told.contains("a node of the bus"), "{told}");
        assert_eq!(other_command(&unknown, "serve"), None);
    }
}
