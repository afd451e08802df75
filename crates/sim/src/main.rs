//! Runs the simulator from the command line: `keyway-sim --seeds 500 --from 0`.
#![forbid(unsafe_code)]

use keyway_sim::{
    Options, run_fleet, run_many_fleets, run_many_of, run_many_replicas, run_replicas, run_seed,
};
use std::fmt::Display;
use std::process::ExitCode;

const USAGE: &str =
    "usage: keyway-sim [--seeds COUNT] [--from SEED] [--story] [--memcached] [--warm-up] [--routes]
                  [--clusters] [--replicated] [--slots] [--replicas] [--fleet] [--mutes] [--io epoll|ring]
                  [--reloads yes|no] [--bounds yes|no]
  --seeds COUNT  how many seeds to run (500)
  --from SEED    the first of them (0)
  --story        tell what happened before a violation; slow
  --memcached    pools of memcached
  --warm-up      one that is warmed up from another
  --routes       pools of memcached behind one that leads to them
  --clusters     a cluster
  --replicated   primaries with replicas, and sentinels
  --slots        groups of servers that share slots
  --replicas     stores that replicate to each other; other options do not matter
  --fleet        control nodes, members and a coordinator; other options do not matter
  --mutes        most clients do not read what they ask for; with one of the kinds above, or alone
  --io DRIVER    how workers' sockets are driven, epoll or ring; else each seed decides it
  --reloads ANSWER
                 whether the settings are reloaded, yes or no; else each seed decides it
  --bounds ANSWER
                 whether the memory of a store is bounded, where a seed has one; else each seed
                 decides it";

fn main() -> ExitCode {
    let (mut seeds, mut from, mut story) = (500u64, 0u64, false);
    let (mut options, mut replicas, mut fleet) = (Options::default(), false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--io" {
            match args.next().and_then(|name| name.parse().ok()) {
                Some(driver) => options.io = Some(driver),
                None => return usage(),
            }
            continue;
        }
        if arg == "--reloads" {
            let Some(answer) = yes_or_no(args.next()) else { return usage() };
            options.reloads = Some(answer);
            continue;
        }
        if arg == "--bounds" {
            let Some(answer) = yes_or_no(args.next()) else { return usage() };
            options.bounds = Some(answer);
            continue;
        }
        let mut number = || args.next().and_then(|text| text.parse().ok());
        match arg.as_str() {
            "--seeds" => match number() {
                Some(count) => seeds = count,
                None => return usage(),
            },
            "--from" => match number() {
                Some(first) => from = first,
                None => return usage(),
            },
            "--story" => story = true,
            "--memcached" => options.memcached = true,
            "--warm-up" => (options.memcached, options.warm_up) = (true, true),
            "--routes" => (options.memcached, options.routes) = (true, true),
            "--clusters" => options.clusters = true,
            "--replicated" => options.replicated = true,
            "--slots" => (options.replicated, options.slots) = (true, true),
            "--replicas" => replicas = true,
            "--fleet" => fleet = true,
            "--mutes" => options.mutes = true,
            _ => return usage(),
        }
    }
    if replicas {
        return run_others((from, seeds, story), run_replicas, run_many_replicas);
    }
    if fleet {
        return run_others((from, seeds, story), run_fleet, run_many_fleets);
    }
    if story {
        options.story = true;
        let found = (from..from + seeds).find_map(|seed| run_seed(seed, &options).err());
        return match found {
            None => ExitCode::SUCCESS,
            Some(violation) => {
                println!("{violation}");
                ExitCode::FAILURE
            }
        };
    }
    let summary = run_many_of(from, seeds, &options);
    println!("{summary}");
    for violation in &summary.violations {
        println!("{violation}");
    }
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds of a kind that has a world of its own.
fn run_others<R: Display, V: Display>(
    (from, seeds, has_story): (u64, u64, bool),
    run: impl Fn(u64, bool) -> Result<R, V>,
    run_many: impl Fn(u64, u64) -> (R, Vec<V>),
) -> ExitCode {
    if has_story {
        let found = (from..from + seeds).find_map(|seed| match run(seed, true) {
            Ok(report) => {
                println!("seed {seed}: {report}");
                None
            }
            Err(violation) => Some(violation),
        });
        if let Some(violation) = &found {
            println!("{violation}");
        }
        return if found.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let (total, violations) = run_many(from, seeds);
    println!("{seeds} seeds, {} violations: {total}", violations.len());
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn yes_or_no(answer: Option<String>) -> Option<bool> {
    match answer.as_deref() {
        Some("yes") => Some(true),
        Some("no") => Some(false),
        _ => None,
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::FAILURE
}
