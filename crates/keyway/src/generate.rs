//! `keyway generate`: manual pages and shell completions. They are made from the command line
//! itself, so that they always match the program that wrote them.

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What can be written.
#[derive(Debug, Subcommand)]
pub enum Generate {
    /// Manual pages, one for each command: keyway.1, keyway-serve.1 and so on.
    Man(Man),
    /// Completions for one shell, to standard output.
    Completions(Completions),
}

/// Where manual pages go.
#[derive(Debug, Args)]
pub struct Man {
    /// A directory, made if it is not there.
    directory: PathBuf,
}

/// Whose completions.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: KnownShell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

/// Runs the command that was typed.
pub fn generate(wanted: &Generate) -> Result<ExitCode> {
    match wanted {
        Generate::Man(man) => write_pages(&man.directory)?,
        Generate::Completions(completions) => {
            let shell = match completions.shell {
                KnownShell::Bash => Shell::Bash,
                KnownShell::Zsh => Shell::Zsh,
                KnownShell::Fish => Shell::Fish,
            };
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(), "keyway", &mut script);
            crate::cli::print(&script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the command line with everything that clap adds to it.
fn shown() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn write_pages(directory: &Path) -> Result<()> {
    let place = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(place)?;
    write_page(&shown(), "keyway", directory).with_context(place)
}

/// Writes the page of a command, then those of its subcommands.
fn write_page(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).manual("Keyway").render(&mut page)?;
    fs::write(directory.join(format!("{name}.1")), page)?;
    for below in command.get_subcommands().filter(|one| is_shown(one)) {
        write_page(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}
