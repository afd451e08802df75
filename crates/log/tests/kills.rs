//! A process with a log is killed at any point: what it had acknowledged and synced is there,
//! nothing is there that was never written, and the order of writes holds.

mod common;

use common::{BOUND, Logged, run_in, settings};
use keyway_log::{Fsync, Settings};
use keyway_testkit::{Random, TempDir, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u32 = 3;
const DIRECTORY: &str = "KEYWAY_TEST_LOG_DIRECTORY";
const FSYNC: &str = "KEYWAY_TEST_LOG_FSYNC";
/// Kills of a soak between two that wait for an fsync of the rule `1s`, which takes two seconds.
const SYNCED_EVERY: u64 = 25;
/// Longest life of a process that is killed while it begins. It loads its log in that time.
const EARLY_MICROS: u64 = 40_000;

/// Returns how often a process is killed by each test: so often, or more in a soak
/// (`KEYWAY_LOG_KILLS`).
#[allow(clippy::disallowed_methods, reason = "a soak says by the environment how long it is")]
fn kills(usual: u64) -> u64 {
    std::env::var("KEYWAY_LOG_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The moment at which a process is killed.
enum Moment {
    /// Its log has been open for a while: so many lines of a kind have come.
    Lines(u64, &'static str),
    /// So long after it was started.
    Early(Duration),
}

/// Rotations and compactions come often.
fn small(directory: &Path, fsync: Fsync) -> Settings {
    let mut settings = settings(directory, fsync);
    (settings.segment_len, settings.compact_from) = (16 << 10, 64 << 10);
    settings
}

/// Writes until it is killed. It says a line `A thread number` for each write that is
/// acknowledged, and `S thread number` for those that were synced, however late.
#[test]
#[ignore = "the process that the other tests kill"]
#[allow(clippy::disallowed_methods, reason = "the parent says by the environment where")]
fn child() {
    let (Ok(directory), Ok(fsync)) = (std::env::var(DIRECTORY), std::env::var(FSYNC)) else {
        return;
    };
    let fsync = match &fsync[..] {
        "always" => Fsync::Always,
        "1s" => Fsync::EverySecond,
        _ => Fsync::No,
    };
    let logged = Logged::open(small(Path::new(&directory), fsync)).unwrap();
    let written: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (logged, written) = (&logged, &written);
            scope.spawn(move || {
                let held = run_in(&logged.store, 0, &format!("LINDEX list:{thread} -1"));
                let held = held.split("\r\n").nth(1).and_then(|text| text.parse::<u64>().ok());
                for nth in held.unwrap_or(0) + 1.. {
                    run_in(&logged.store, 0, &format!("SET key:{thread} {nth}"));
                    run_in(&logged.store, 0, &format!("RPUSH list:{thread} {nth}"));
                    run_in(&logged.store, 0, &format!("LTRIM list:{thread} -50 -1"));
                    assert_eq!(logged.settle(), 0);
                    say(format_args!("A {thread} {nth}"));
                    written[thread as usize].store(nth, Ordering::Relaxed);
                }
            });
        }
        // All that was written before one fsync began is on the disk after the next.
        if fsync == Fsync::No {
            return;
        }
        loop {
            let before: Vec<u64> = written.iter().map(|nth| nth.load(Ordering::Relaxed)).collect();
            let fsyncs = logged.log.status().fsyncs;
            wait_until("two fsyncs", BOUND, || logged.log.status().fsyncs >= fsyncs + 2);
            for (thread, nth) in before.iter().enumerate() {
                say(format_args!("S {thread} {nth}"));
            }
        }
    });
}

/// Says a line whole.
fn say(line: std::fmt::Arguments<'_>) {
    let line = format!("{line}\n");
    // The parent may have gone.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

fn start(directory: &Path, fsync: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(FSYNC, fsync)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the process. Returns the last numbers that were acknowledged, and those that were
/// synced.
fn kill_at(mut child: Child, moment: &Moment) -> [[u64; THREADS as usize]; 2] {
    let mut numbers = [[0; THREADS as usize]; 2];
    let (lines, kind) = match *moment {
        Moment::Lines(lines, kind) => (lines, kind),
        Moment::Early(time) => {
            rest(time);
            (0, "A")
        }
    };
    if lines == 0 {
        child.kill().unwrap();
    }
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut seen, mut is_killed) = (String::new(), 0, lines == 0);
    while reader.read_line(&mut line).unwrap() > 0 {
        // The harness writes its own words in front of the first line.
        let words: Vec<&str> = line.trim().rsplit(' ').collect();
        if let [nth, thread, of, ..] = words[..]
            && let (Ok(nth), Ok(thread)) = (nth.parse::<u64>(), thread.parse::<usize>())
            && ["A", "S"].contains(&of)
            && line.ends_with('\n')
        {
            let last = &mut numbers[usize::from(of == "S")][thread];
            *last = nth.max(*last);
            seen += u64::from(of == kind);
        }
        line.clear();
        if seen >= lines && !is_killed {
            child.kill().unwrap();
            is_killed = true;
        }
    }
    child.wait().unwrap();
    assert!(is_killed, "the process ended by itself");
    numbers
}

/// One in eight is killed while it begins.
fn usual(_round: u64, random: &mut Random) -> Moment {
    match random.below(8) {
        0 => Moment::Early(Duration::from_micros(random.next_u64() % EARLY_MICROS)),
        _ => Moment::Lines(1 + random.next_u64() % 1000, "A"),
    }
}

#[allow(clippy::disallowed_methods, reason = "the process is killed at a moment by chance")]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// The content of a thread's keys: the last number, and the first and last of its list.
fn held(logged: &Logged, thread: u32) -> (u64, Vec<u64>) {
    let numbers = |text: String| -> Vec<u64> {
        let lines = text.split("\r\n").filter(|line| !line.starts_with(['*', '$', ':']));
        lines.filter_map(|line| line.parse().ok()).collect()
    };
    let key = numbers(run_in(&logged.store, 0, &format!("GET key:{thread}")));
    let list = numbers(run_in(&logged.store, 0, &format!("LRANGE list:{thread} 0 -1")));
    (key.first().copied().unwrap_or(0), list)
}

/// `moment` says when each process is killed.
fn killed(
    (name, fsync): (&str, Fsync),
    kills: u64,
    mut moment: impl FnMut(u64, &mut Random) -> Moment,
) {
    let folder = TempDir::new();
    let mut random = Random::new(20_270_601);
    let mut least = [0; THREADS as usize];
    for round in 0..kills {
        let moment = moment(round, &mut random);
        let [acknowledged, synced] = kill_at(start(folder.path(), name), &moment);
        let logged = Logged::open(small(folder.path(), fsync)).unwrap();
        for thread in 0..THREADS {
            let at = thread as usize;
            let (key, list) = held(&logged, thread);
            // SET comes before RPUSH, and both come in the order of their numbers.
            let last = list.last().copied().unwrap_or(0);
            assert!(key == last || key == last + 1, "round {round}: {key} {list:?}");
            assert!(list.windows(2).all(|pair| pair[0] + 1 == pair[1]), "round {round}: {list:?}");
            let must = if fsync == Fsync::Always { acknowledged[at] } else { synced[at] };
            assert!(last >= must.max(least[at]), "round {round}: {last} of {must}");
            // One write may be on its way to the parent, and one being made.
            let most = acknowledged[at].max(least[at]);
            assert!(fsync != Fsync::Always || key <= most + 2, "round {round}: {key} of {most}");
            least[at] = last;
        }
        logged.end();
    }
}

#[test]
fn with_always_all_that_was_acknowledged_is_there() {
    killed(("always", Fsync::Always), kills(40), usual);
}

#[test]
fn with_a_second_all_that_was_synced_is_there() {
    let count = kills(3);
    let waits = |round: u64| count <= SYNCED_EVERY || round.is_multiple_of(SYNCED_EVERY);
    killed(("1s", Fsync::EverySecond), count, |round, random| match waits(round) {
        true => Moment::Lines(THREADS.into(), "S"),
        false => usual(round, random),
    });
}

#[test]
fn without_fsync_the_order_of_writes_holds() {
    killed(("no", Fsync::No), kills(20), usual);
}
