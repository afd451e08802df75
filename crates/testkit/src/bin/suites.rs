//! Runs the workspace's test programs as `cargo test` does, but several at once, since
//! most of them wait for servers and time-outs.
//!
//! ```text
//!   build ──> one after another: BUSY                  ──> ALONE, one by one ──> what failed, once
//!             beside these, several at once: the others
//!             ─────── beside all these, in time that nobody wants: AHEAD ───────┘
//! ```
//! A program that failed and passes when it is run again alone has passed, which is said. Where the
//! system has no io_uring for us, what is to be run by it is left out, and that is said, too.
//! Usage: `suites LOGS [AHEAD]`. Each program's output goes to a file of its own in LOGS and,
//! when it has ended, in one piece to the standard output; the last line has the totals.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "says how long suites took")]
#![allow(clippy::disallowed_types, reason = "no data plane")]

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;

/// How many run at once, if not one more than there are cores: one computes, the others wait.
const JOBS: &str = "KEYWAY_TEST_JOBS";

/// What no other suite may run beside, and why. Builds at idle priority give way at once, and
/// have ended when something is run again.
const ALONE: &[(&str, &str)] = &[
    ("keyway/bad_input", "a worker with nothing to do takes no processor time"),
    ("keyway/bus_cut", "a dead host is seen within 3.5 s"),
    ("keyway/circuit", "servers that are slow are told from others by how long they take"),
    ("keyway/groups", "a primary hands over within the second that clients are held for"),
    ("keyway/hedging", "a second server is asked after what reads usually take"),
    ("keyway/latencies", "what took a millisecond and more is counted"),
    ("keyway/replicated_failover", "how long writes fail is bounded"),
    ("keyway/shm_clients", "clients at rest take no processor time"),
    ("keyway/timeouts", "time-outs of milliseconds, and replies that come right after"),
    ("store/pauses", "no call takes a millisecond of processor time"),
];

/// What computes for seconds, longest first: a core of its own has it begin early.
const BUSY: &[&str] = &[
    "sim/seeds",
    "store/mixes",
    "report/page",
    "store/collections",
    "store/resident",
    "sim/allocations",
    "store/memory_bound_small",
    "store/effects",
    "store/memory_bound",
];

/// What else takes ten seconds and more, longest first: none of it is to begin last.
const LONG: &[&str] = &[
    "keyway/primary_sentinel",
    "keyway/cluster_members",
    "keyway/client_placement",
    "standby/server",
    "keyway/admin_description",
    "coordinator/conformance",
    "keyway/memcached_clients",
    "keyway/bench_run",
    "keyway/cluster_failover",
    "ring/crash",
    "load/agreement",
    "load/redis",
    "keyway/store_logs",
    "keyway/store_scripts",
    "keyway/cluster_operations",
    "keyway/bench_load",
    "keyway/memcached_findings",
    "testkit/redis_cluster",
    "keyway/cluster_pubsub",
    "keyway/cluster_cut",
];

/// What is run once more with Keyway driven by io_uring, where the system has it: how bytes come
/// and go, under load, in bad order and at ends. `make test-io-uring` runs all that way.
const BY_BOTH: &[&str] = &[
    "keyway/bad_input",
    "keyway/cluster_emulated",
    "keyway/cluster_failover",
    "keyway/cluster_reshard",
    "keyway/conformance",
    "keyway/access",
    "keyway/faults",
    "keyway/keyspace_events",
    "keyway/large_store",
    "keyway/large_values",
    "keyway/leaving",
    "keyway/lifecycle",
    "keyway/limits",
    "keyway/memcached_oracle",
    "keyway/oracle",
    "keyway/pipelining",
    "keyway/pubsub",
    "keyway/reload",
    "keyway/sessions",
    "keyway/timeouts",
    "keyway/tls_clients",
    "keyway/tls_servers",
    "keyway/tracking",
    "keyway/transactions",
    "keyway/upgrade",
    "keyway/users",
    "keyway/workers",
];

/// Tells Keyway what to be driven by.
const DRIVER: (&str, &str) = ("KEYWAY_IO", "io_uring");

/// What Keyway says that is to be driven by io_uring and cannot.
const REFUSED: &str = "io_uring cannot be had here";

/// Marks what is run once more by io_uring.
const BY_IO_URING: &str = " by io_uring";

/// Where nobody can listen: who is to ends at once, be io_uring there or not.
const NOWHERE: &str = "listener = [{ bind = \"unix:///proc/nobody/socket\", pool = \"p\" }]\n\
                       pool.p.kind = \"store\"\n";

/// The package whose test programs hold several suites, each in a module of its own. A program for
/// each would have cargo compile and link the same code a hundred times.
const OF_MODULES: &str = "keyway";

/// A test program, or a module of one.
#[derive(Clone)]
struct Suite {
    name: String,
    /// Run with [`DRIVER`].
    by_both: bool,
    /// Not run, for want of what it is about.
    is_skipped: bool,
    program: PathBuf,
    arguments: Vec<String>,
    directory: PathBuf,
}

/// What became of one.
struct Outcome<'a> {
    suite: &'a Suite,
    passed: u64,
    failed: u64,
    seconds: f32,
    /// Processor time of the program and of all that it started and waited for.
    cpu_seconds: f32,
    log: PathBuf,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(logs) = arguments.next() else {
        eprintln!("usage: suites LOGS [AHEAD]");
        return ExitCode::FAILURE;
    };
    let ahead = arguments.next();
    match build().and_then(|suites| run_all(suites, &logs, ahead.as_deref())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("suites: {what}");
            ExitCode::FAILURE
        }
    }
}

fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// Builds all tests; in the order in which they are to begin.
fn build() -> Result<Vec<Suite>, String> {
    let output = Command::new(cargo())
        .args(["test", "--workspace", "--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut suites = Vec::new();
    for built in messages.iter().filter_map(suite) {
        match built.has_modules {
            true => suites.extend(modules(&built.suite)?),
            false => suites.push(built.suite),
        }
    }
    if let Some((name, _)) = ALONE.iter().find(|alone| suites.iter().all(|it| it.name != alone.0)) {
        return Err(format!("no test program is called {name}"));
    }
    let keyway = messages.iter().find_map(keyway).ok_or("no program is called keyway")?;
    let is_refused = is_refused(&keyway).map_err(|error| format!("keyway: {error}"))?;
    let again = again(&suites, is_refused)?;
    suites.extend(again);
    suites.sort_by_key(rank);
    Ok(suites)
}

/// The program, if cargo says that it has built it.
fn keyway(message: &Value) -> Option<PathBuf> {
    let target = &message["target"];
    let is_it = target["name"] == "keyway" && target["kind"][0] == "bin";
    let path = message["executable"].as_str().filter(|_| is_it)?;
    (message["profile"]["test"] != true).then(|| path.into())
}

/// Whether the system has no io_uring for Keyway.
fn is_refused(keyway: &Path) -> std::io::Result<bool> {
    let file = std::env::temp_dir().join(format!("keyway-suites-{}.toml", std::process::id()));
    std::fs::write(&file, NOWHERE)?;
    let output = Command::new(keyway).args(["serve", "--io", DRIVER.1]).arg(&file).output();
    std::fs::remove_file(&file)?;
    Ok(String::from_utf8_lossy(&output?.stderr).contains(REFUSED))
}

/// Those that are run by the other driver, too.
fn again(suites: &[Suite], is_skipped: bool) -> Result<Vec<Suite>, String> {
    let of = |name: &&str| {
        let suite = suites.iter().find(|suite| suite.name == *name);
        let suite = suite.cloned().ok_or_else(|| format!("no test program is called {name}"))?;
        Ok(Suite { name: format!("{name}{BY_IO_URING}"), by_both: true, is_skipped, ..suite })
    };
    BY_BOTH.iter().map(of).collect()
}

/// Those that wait long, others that start servers, those that do not, those that compute
/// long, the longest of these last.
fn rank(suite: &Suite) -> usize {
    let place = |list: &[&str]| list.iter().position(|it| *it == suite.name);
    let waits = || ["keyway/", "testkit/"].iter().any(|it| suite.name.starts_with(it));
    let computes = LONG.len() + 1;
    match (place(LONG), place(BUSY)) {
        (Some(at), _) => at,
        (_, Some(at)) => computes + BUSY.len() - at,
        _ if waits() => LONG.len(),
        _ => computes,
    }
}

/// The suites of a program, by the modules of its tests.
fn modules(program: &Suite) -> Result<Vec<Suite>, String> {
    let output = Command::new(&program.program)
        .args(["--list", "--format", "terse"])
        .output()
        .map_err(|error| format!("{}: {error}", program.name))?;
    let mut suites: Vec<Suite> = Vec::new();
    for (module, test) in listed(&String::from_utf8_lossy(&output.stdout)) {
        let name = format!("{OF_MODULES}/{module}");
        match suites.iter_mut().find(|suite| suite.name == name) {
            Some(suite) => suite.arguments.push(test),
            None => {
                let arguments = vec!["--exact".to_owned(), test];
                suites.push(Suite { name, arguments, ..program.clone() });
            }
        }
    }
    match suites.is_empty() {
        true => Err(format!("{} lists no tests", program.name)),
        false => Ok(suites),
    }
}

/// The modules and full names of the tests that a program lists.
fn listed(output: &str) -> impl Iterator<Item = (&str, String)> {
    let tests = output.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.map(|test| (test.split_once("::").map_or(test, |(module, _)| module), test.to_owned()))
}

/// A test program as cargo has built it.
struct Built {
    suite: Suite,
    /// Its modules are suites of their own.
    has_modules: bool,
}

/// What cargo says of a test program it has built; nothing for its other messages.
fn suite(message: &Value) -> Option<Built> {
    if message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let kind = message["target"]["kind"][0].as_str()?;
    let of = if kind == "lib" { "lib" } else { message["target"]["name"].as_str()? };
    let package = directory.file_name()?.to_str()?;
    let (name, has_modules) = (format!("{package}/{of}"), kind == "test" && package == OF_MODULES);
    let arguments = Vec::new();
    let suite = Suite { name, by_both: false, is_skipped: false, program, arguments, directory };
    Some(Built { suite, has_modules })
}

/// Whether all passed, at last.
fn run_all(suites: Vec<Suite>, logs: &Path, ahead: Option<&Path>) -> Result<bool, String> {
    std::fs::create_dir_all(logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let (skipped, suites): (Vec<_>, Vec<_>) = suites.into_iter().partition(|it| it.is_skipped);
    let is_alone = |suite: &Suite| {
        ALONE
            .iter()
            .any(|(name, _)| suite.name.strip_suffix(BY_IO_URING).unwrap_or(&suite.name) == *name)
    };
    let (alone, together): (Vec<_>, Vec<_>) = suites.into_iter().partition(is_alone);
    let ahead = ahead.map(|program| begin_ahead(program, logs)).transpose()?;
    let jobs = std::env::var(JOBS).ok().and_then(|text| text.parse().ok());
    let usual = || 1 + std::thread::available_parallelism().map_or(1, usize::from);
    let mut outcomes =
        run(&together.iter().collect::<Vec<_>>(), jobs.unwrap_or_else(usual), logs, "log");
    outcomes.extend(run(&alone.iter().collect::<Vec<_>>(), 1, logs, "log"));
    if let Some(child) = ahead {
        end_ahead(child);
    }
    let failed: Vec<&Suite> =
        outcomes.iter().filter(|it| it.failed > 0).map(|it| it.suite).collect();
    outcomes.retain(|it| it.failed == 0);
    let first = outcomes.len();
    outcomes.extend(run(&failed, 1, logs, "again.log"));
    for suite in &skipped {
        println!("== {}: SKIPPED: {REFUSED}", suite.name);
    }
    Ok(conclude(&outcomes, first, skipped.len()))
}

/// Says how all ended; those from `first` on were run again, `skipped` programs not at all.
fn conclude(outcomes: &[Outcome], first: usize, skipped: usize) -> bool {
    println!();
    let mut again = 0;
    for Outcome { suite, failed, log, .. } in &outcomes[first..] {
        let logs = format!(
            "{} and {}",
            log.with_extension("").with_extension("log").display(),
            log.display()
        );
        if *failed == 0 {
            again += 1;
            println!("passed only when run again alone: {} ({logs})", suite.name);
        } else {
            println!("FAILED twice: {} ({logs})", suite.name);
        }
    }
    let passed: u64 = outcomes.iter().map(|it| it.passed).sum();
    let failed: u64 = outcomes.iter().map(|it| it.failed).sum();
    println!(
        "suites: {passed} passed, {failed} failed, {again} programs passed only when run again, \
         {skipped} were SKIPPED"
    );
    failed == 0
}

/// Starts what is to use the time in which the suites wait.
fn begin_ahead(program: &Path, logs: &Path) -> Result<Child, String> {
    let told = |error: std::io::Error| format!("{}: {error}", program.display());
    let log = File::create(logs.join("ahead.log")).map_err(told)?;
    Command::new("chrt")
        .args(["--idle", "0"])
        .arg(program)
        .stdin(Stdio::null())
        .stderr(log.try_clone().map_err(told)?)
        .stdout(log)
        .process_group(0)
        .spawn()
        .map_err(told)
}

/// Ends it with all it started. What it has not made yet, and whether that can be made, is the
/// business of who needs it.
fn end_ahead(mut child: Child) {
    if matches!(child.try_wait(), Ok(None)) {
        _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
    }
    _ = child.wait();
}

/// Runs `suites`, as many at once as `jobs`, and prints each when it has ended. The first job
/// takes them from the end, the others from the start.
fn run<'a>(suites: &[&'a Suite], jobs: usize, logs: &Path, extension: &str) -> Vec<Outcome<'a>> {
    let left = Mutex::new(suites.iter().copied().collect::<VecDeque<_>>());
    let (ended, outcomes) = channel();
    let work = &|job: usize, ended: Sender<Outcome<'a>>| {
        let take = || {
            let mut left = left.lock().expect("nobody panics with it");
            if job == 0 { left.pop_back() } else { left.pop_front() }
        };
        while let Some(suite) = take() {
            let log = logs.join(format!("{}.{extension}", suite.name.replace(['/', ' '], "-")));
            let outcome = run_one(suite, log).unwrap_or_else(|error| {
                panic!("{}: {error}", suite.program.display());
            });
            ended.send(outcome).expect("the receiver outlives this thread");
        }
    };
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let ended = ended.clone();
            scope.spawn(move || work(job, ended));
        }
        drop(ended);
        outcomes.iter().inspect(print).collect()
    })
}

/// Runs one program to its end, all it says into `log`.
fn run_one(suite: &Suite, log: PathBuf) -> std::io::Result<Outcome<'_>> {
    let file = File::create(&log)?;
    let began = Instant::now();
    let mut child = Command::new(&suite.program)
        .args(&suite.arguments)
        .current_dir(&suite.directory)
        .env("CARGO_MANIFEST_DIR", &suite.directory)
        .envs(suite.by_both.then_some(DRIVER))
        .stdin(Stdio::null())
        .stderr(file.try_clone()?)
        .stdout(file)
        .spawn()?;
    let cpu_seconds = cpu_seconds_at_end(&child)?;
    let status = child.wait()?;
    let seconds = began.elapsed().as_secs_f32();
    let (passed, mut failed) = totals(&String::from_utf8_lossy(&std::fs::read(&log)?));
    if !status.success() && failed == 0 {
        // It ended before it could say which.
        failed = 1;
    }
    Ok(Outcome { suite, passed, failed, seconds, cpu_seconds, log })
}

/// Waits for the end of `child`, which is left to be waited for once more. Returns its processor
/// time. Servers that a test killed without waiting for them are not counted.
fn cpu_seconds_at_end(child: &Child) -> std::io::Result<f32> {
    waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    Ok(cpu_ticks(&stat) as f32 / rustix::param::clock_ticks_per_second() as f32)
}

/// The processor time in a process's `stat` (proc(5)): utime, stime, cutime and cstime.
fn cpu_ticks(stat: &str) -> u64 {
    // The name before them has spaces and brackets as it likes.
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let fields = after_name.split(' ').skip(11).take(4);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn print(outcome: &Outcome) {
    let Outcome { suite, passed, failed, seconds, cpu_seconds, log } = outcome;
    let said = std::fs::read(log).unwrap_or_default();
    println!(
        "== {}: {passed} passed, {failed} failed, {seconds:.1} s, {cpu_seconds:.1} s of a core\n{}",
        suite.name,
        String::from_utf8_lossy(&said)
    );
}

/// Tests that passed and failed, of all the lines of results in what a program said.
fn totals(said: &str) -> (u64, u64) {
    let number = |text: &str, what| -> u64 {
        text.split(';')
            .find_map(|part| part.strip_suffix(what)?.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0)
    };
    said.lines().filter(|line| line.starts_with("test result: ")).fold(
        (0, 0),
        |(passed, failed), line| {
            (passed + number(line, " passed"), failed + number(line, " failed"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 3.24s";

    #[test]
    fn results_are_added_up() {
        assert_eq!(totals(""), (0, 0));
        assert_eq!(
            totals(&format!("running 2 tests\n{RESULT}\ntest a ... ok\n{RESULT}\n")),
            (24, 2)
        );
    }

    #[test]
    fn processor_time_is_counted_of_a_process_and_its_children() {
        let stat = "77 (a) b) c) S 1 77 77 0 -1 4194304 100 200 0 0 5 6 70 800 20 0 1 0 99 1 2";
        assert_eq!(cpu_ticks(stat), 881);
        assert_eq!(cpu_ticks(""), 0);
    }

    #[test]
    fn of_cargos_messages_those_about_test_programs_count() {
        let message = serde_json::json!({
            "manifest_path": "/a/crates/keyway/Cargo.toml",
            "target": { "kind": ["test"], "name": "cluster" },
            "profile": { "test": true },
            "executable": "/t/cluster-12",
        });
        let Built { suite: found, has_modules } = suite(&message).unwrap();
        assert_eq!(
            (found.name.as_str(), found.directory.to_str(), has_modules),
            ("keyway/cluster", Some("/a/crates/keyway"), true)
        );
        assert!(suite(&serde_json::json!({ "reason": "build-finished" })).is_none());
    }

    #[test]
    fn modules_are_found_in_the_list_of_a_program() {
        let output = "circuit::opens: test\nreload::users::change: test\nalone: test\n\n3 tests\n";
        let found: Vec<_> = listed(output).collect();
        let expected = [
            ("circuit", "circuit::opens"),
            ("reload", "reload::users::change"),
            ("alone", "alone"),
        ];
        assert_eq!(found, expected.map(|(module, test)| (module, test.to_owned())));
    }

    /// A shell as a test program, which fails the first time and passes the second.
    #[test]
    fn what_failed_is_run_again_once() {
        let logs = std::env::temp_dir().join(format!("keyway-suites-{}", std::process::id()));
        let script = |name: &str, arguments: &[&str]| Suite {
            name: name.to_owned(),
            by_both: false,
            is_skipped: false,
            program: "sh".into(),
            arguments: arguments.iter().map(|&it| it.to_owned()).collect(),
            directory: logs.clone(),
        };
        std::fs::create_dir_all(&logs).unwrap();
        const GOOD: &str = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let once = &[
            "-c",
            "echo 'test result: ok. 2 passed; 0 failed'; test -e seen || { touch seen; exit 1; }",
        ];
        let run = |suites| run_all(suites, &logs, Some(Path::new("true"))).unwrap();
        assert!(run(vec![script("a/good", &["-c", GOOD]), script("a/flaky", once)]));
        assert!(logs.join("a-flaky.log").exists() && logs.join("a-flaky.again.log").exists());
        assert!(!run(vec![script("a/bad", &["-c", "exit 7"]), script("a/good", &["-c", GOOD])]));
        std::fs::remove_dir_all(&logs).unwrap();
    }
}
