//! `keyway bench report` and `keyway bench compare`: results for people to read.

use super::output::{self, Form, MARKDOWN_MARK};
use anyhow::{Context, Result};
use clap::Args;
use keyway_report::{Run, Settings, compare, csv, digest, html, markdown, region, terminal};
use keyway_scenario::read;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct Report {
    /// The result: JSON that a run wrote.
    file: PathBuf,
    #[command(flatten)]
    out: Out,
}

/// Where a result goes.
#[derive(Debug, Args)]
pub struct Out {
    /// Write a page with plots, which needs nothing beside it.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the tables as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write every round as a line.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the result as JSON of the current schema.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown into this document, between the lines <!-- NAME:begin --> and
    /// <!-- NAME:end -->, NAME being the benchmark's.
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Print no tables.
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Args)]
pub struct Digest {
    /// The results: JSON that runs wrote.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write it as Markdown into this document, between the lines <!-- digest:begin --> and
    /// <!-- digest:end -->.
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Compare {
    /// The result that the other is compared with.
    old: PathBuf,
    /// The other.
    new: PathBuf,
    /// Do not call it a difference when the medians differ by less than so many percent.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent)]
    margin: f64,
    /// How likely chance alone may be for a difference to count as shown.
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = share)]
    chance: f64,
    /// Print Markdown.
    #[arg(long)]
    markdown: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=1000.0).contains(percent));
    percent.map(|percent: f64| percent / 100.0).ok_or("percent are from 0 to 1000".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0001..=0.5).contains(share));
    share.ok_or("a share is from 0.0001 to 0.5".to_owned())
}

/// Makes the wanted outputs of a result.
pub fn report(arguments: &Report) -> Result<ExitCode> {
    let run = match read_result(&arguments.file) {
        Ok(run) => run,
        Err(why) => return Ok(no_result(&why)),
    };
    if let Err(error) = arguments.out.check_files(Some(&arguments.file)) {
        return Ok(no_result(&format!("{error:#}")));
    }
    arguments.out.write(&run)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a result. An empty file has an error of its own.
fn read_result(file: &Path) -> Result<Run, String> {
    read(file).map_err(|error| {
        let found = std::fs::metadata(file).ok();
        match found.is_some_and(|found| found.is_file() && found.len() == 0) {
            true => format!(
                "{} is empty: it is no result of keyway bench; write one with --json",
                file.display()
            ),
            false => error.to_string(),
        }
    })
}

/// Returns the exit status for a file that is not a result, or may not be written.
fn no_result(why: &str) -> ExitCode {
    eprintln!("keyway: {}", crate::cli::escaped(why));
    ExitCode::from(2)
}

impl Out {
    /// Writes the wanted files, and prints the tables. JSON comes first, because all other forms
    /// are made from it.
    pub fn write(&self, run: &Run) -> Result<()> {
        let json = self.json.as_ref().map(|file| keyway_report::write(run, file));
        // The figures are shown even if a file cannot be written.
        if !self.quiet || matches!(json, Some(Err(_))) {
            print(&terminal(run, width()))?;
        }
        json.transpose()?;
        if let Some(file) = &self.html {
            write(file, &html(run)?)?;
        }
        if let Some(file) = &self.markdown {
            write(file, &format!("{MARKDOWN_MARK}{}", markdown(run)))?;
        }
        if let Some(file) = &self.csv {
            write(file, &csv(run))?;
        }
        if let Some(file) = &self.into {
            region::replace(file, &run.scenario, &markdown(run))?;
        }
        Ok(())
    }

    /// Checks that the wanted files can be written.
    pub fn check(&self, scenario: &str) -> Result<()> {
        self.check_files(None)?;
        if let Some(file) = &self.into {
            region::find(file, scenario)?;
        }
        Ok(())
    }

    /// Checks that only earlier results are overwritten. `input` is the result that is read.
    fn check_files(&self, input: Option<&Path>) -> Result<()> {
        let files = [
            (Form::Json, &self.json),
            (Form::Html, &self.html),
            (Form::Markdown, &self.markdown),
            (Form::Csv, &self.csv),
        ];
        let named = |(form, file): (Form, &'_ Option<PathBuf>)| Some((form, file.clone()?));
        let files: Vec<(Form, PathBuf)> = files.into_iter().filter_map(named).collect();
        output::check(files.iter().map(|(form, file)| (*form, file.as_path())), input)
    }

    /// Returns the files that are written.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.json, &self.html, &self.markdown, &self.csv].into_iter().flatten()
    }
}

/// Prints a digest of several results.
pub fn digested(arguments: &Digest) -> Result<ExitCode> {
    let runs: Result<Vec<Run>, String> =
        arguments.files.iter().map(|file| read_result(file)).collect();
    let runs = match runs {
        Ok(runs) => runs,
        Err(why) => return Ok(no_result(&why)),
    };
    let table = digest(&runs);
    match &arguments.into {
        Some(file) => region::replace(file, "digest", &table.markdown())?,
        None => print(&table.terminal(width()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the differences. The status tells whether anything is worse.
pub fn compared(arguments: &Compare) -> ExitCode {
    let (old, new) = match (read_result(&arguments.old), read_result(&arguments.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (old, new) => {
            for error in [old.err(), new.err()].into_iter().flatten() {
                let _ = no_result(&error);
            }
            return ExitCode::from(2);
        }
    };
    let settings = Settings { chance_max: arguments.chance, margin: arguments.margin };
    let found = compare(&old, &new, settings);
    let table = found.table();
    let text = if arguments.markdown { table.markdown() } else { table.terminal(width()) };
    if let Err(error) = print(&text) {
        eprintln!("keyway: {error:#}");
        return ExitCode::from(2);
    }
    match (found.is_worse(), found.changes.is_empty(), found.skipped.is_empty()) {
        (true, ..) => ExitCode::FAILURE,
        (_, true, _) => {
            eprintln!("keyway: the results have nothing in common to compare");
            ExitCode::from(2)
        }
        (.., false) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn print(text: &str) -> Result<()> {
    crate::cli::print(text.as_bytes()).map(drop)
}

/// Returns the width of the terminal. Any other output gets unwrapped lines.
fn width() -> usize {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(usize::MAX)
}
