//! Stock Rust clients: `stock-clients HOST:PORT [LIBRARY ...]`
//!
//! Prints a line per case: language, library, topic, pass or fail, reason.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[cfg(feature = "fred")]
mod with_fred;
mod with_redis_rs;

const LIMIT: Duration = Duration::from_secs(20);

/// Why a case failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Result<(), Failure>;

/// One case: its topic and what it does.
type Case = (&'static str, fn(&Test) -> Outcome);

/// What a case is told: where the server is, and its own name.
struct Test {
    address: String,
    base: String,
}

impl Test {
    /// A key that may be on any shard.
    fn spread(&self, name: impl std::fmt::Display) -> String {
        format!("{}:{name}", self.base)
    }

    /// A key that shares its shard with the others of the case.
    fn together(&self, name: impl std::fmt::Display) -> String {
        format!("{{{}}}:{name}", self.base)
    }
}

fn equal<T: PartialEq + Debug>(got: T, wanted: T) -> Outcome {
    if got == wanted { Ok(()) } else { Err(format!("expected {wanted:?}, got {got:?}").into()) }
}

fn check(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(what.into()) }
}

/// Runs a case on a thread of its own; one that does not end is left behind.
fn run(address: &str, library: &str, (topic, work): Case) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    let test = Test { address: address.to_owned(), base: format!("rust:{library}:{topic}") };
    thread::spawn(move || {
        // Libraries panic too, where a reply is not what they expect.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&test)));
        let said = match outcome {
            Ok(outcome) => outcome.map_err(|failure| failure.to_string()),
            Err(panic) => Err(format!("panicked: {}", words_of(panic.as_ref()))),
        };
        // Nobody receives what a case says after its limit.
        let _ = sender.send(said);
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no end within {LIMIT:?}")),
    }
}

fn words_of(panic: &dyn Any) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(address) = arguments.next() else {
        eprintln!("usage: stock-clients HOST:PORT [LIBRARY ...]");
        std::process::exit(1);
    };
    let wanted: Vec<String> = arguments.collect();
    let libraries: &[(&str, &[Case])] = &[
        ("redis-rs", with_redis_rs::CASES),
        #[cfg(feature = "fred")]
        ("fred", with_fred::CASES),
    ];
    for (library, cases) in libraries {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == library) {
            continue;
        }
        for case in *cases {
            let verdict = match run(&address, library, *case) {
                Ok(()) => "pass\t".to_owned(),
                Err(reason) => {
                    format!("fail\t{}", reason.split_whitespace().collect::<Vec<_>>().join(" "))
                }
            };
            println!("rust\t{library}\t{}\t{verdict}", case.0);
        }
    }
    // Cases left behind do not keep the process.
    std::process::exit(0);
}
