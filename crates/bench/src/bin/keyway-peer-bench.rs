//! Compares Keyway with its peers on this machine. See `--help`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use keyway_bench::comparison::{compare, count_instructions};
use keyway_bench::misses::compare_misses;
use keyway_bench::options::{Action, Options, help};
use keyway_bench::report::{callgrind_markdown, comparison_markdown, to_json};
use keyway_bench::{Error, features, fleet, interrupt, memory};
use keyway_report::region;
use keyway_scenario::process::become_guarded;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error @ Error::Usage(_)) => fail(&error, 2),
        Err(error @ Error::Interrupted) => fail(&error, 130),
        Err(error) => fail(&error, 1),
    }
}

fn fail(error: &Error, status: u8) -> ExitCode {
    eprintln!("keyway-peer-bench: {error}");
    ExitCode::from(status)
}

/// Does what the command line says. Returns true if nothing failed.
fn run() -> Result<bool, Error> {
    let own_path = std::env::current_exe().unwrap_or_default();
    let beside = own_path.parent().unwrap_or(Path::new("."));
    let words: Vec<String> = std::env::args().skip(1).collect();
    match (words.first().map(String::as_str), words.get(1).and_then(|word| word.parse().ok())) {
        // This program starts itself with these words.
        (Some("guarded"), Some(run)) => match become_guarded(run, &words[2..])? {},
        (Some("floor"), Some(port)) => {
            let port = u16::try_from(port).unwrap_or_default();
            return keyway_bench::floor::serve(port).map(|()| true);
        }
        _ => {}
    }
    let options = Options::parse(words, beside)?;
    if options.action == Action::Help {
        print!("{}", help());
        return Ok(true);
    }
    interrupt::install()?;
    memory::raise_descriptor_limit();
    if let Some(nice) = options.nice {
        rustix::process::setpriority_process(None, nice)
            .map_err(|errno| Error::io(format!("--nice {nice}"))(errno.into()))?;
    }
    match options.action {
        Action::Callgrind => run_callgrind(&options),
        Action::Misses => run_misses(&options),
        Action::Tls => print_text(features::measure_tls(&options)?),
        Action::Transactions => print_text(features::measure_transactions(&options)?),
        Action::Fanout => print_text(features::measure_fanout(&options)?),
        Action::Persistence => print_text(features::measure_persistence(&options)?),
        Action::Fleet => print_text(fleet::measure_fleet(&options)?),
        Action::Reload => print_text(features::measure_reload(&options)?),
        _ => run_comparison(&options),
    }
}

fn run_comparison(options: &Options) -> Result<bool, Error> {
    let report = compare(options)?;
    let text = comparison_markdown(&report);
    print!("{text}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", to_json(&report)))
            .map_err(Error::io(path.display().to_string()))?;
    }
    write_document(options.document(), "bench", &text)?;
    Ok(report.failures().is_empty())
}

fn run_callgrind(options: &Options) -> Result<bool, Error> {
    let (setting, figures) = count_instructions(options)?;
    let text = callgrind_markdown(&setting, &figures);
    print!("{text}");
    write_document(options.document(), "callgrind", &text)?;
    Ok(figures.iter().all(|(_, figure)| figure.is_ok()))
}

fn run_misses(options: &Options) -> Result<bool, Error> {
    let (text, is_met) = compare_misses(options)?;
    print!("{text}");
    write_document(options.document(), "misses", &text)?;
    Ok(is_met)
}

fn print_text(text: String) -> Result<bool, Error> {
    print!("{text}");
    Ok(true)
}

fn write_document(path: Option<PathBuf>, name: &str, text: &str) -> Result<(), Error> {
    if let Some(path) = path {
        region::replace(&path, name, text).map_err(Error::io("the document"))?;
        eprintln!("written to {}", path.display());
    }
    Ok(())
}
