//! `keyway generate`: manual pages and shell completions, made of the command line itself, so
//! that they are never older than the program that wrote them.

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::builder::StyledStr;
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

/// Does what was typed.
pub fn generate(wanted: &Generate) -> Result<ExitCode> {
    match wanted {
        Generate::Man(man) => write_pages(&man.directory)?,
        Generate::Completions(completions) => {
            let shell = match completions.shell {
                KnownShell::Bash => Shell::Bash,
                KnownShell::Zsh => Shell::Zsh,
                KnownShell::Fish => Shell::Fish,
            };
            clap_complete::generate(shell, &mut shown(), "keyway", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line without what is hidden.
fn shown() -> Command {
    let mut command = Cli::command();
    command.build();
    without_hidden(command)
}

/// Commands cannot be taken away from one, so it is made anew of those that are not hidden.
fn without_hidden(command: Command) -> Command {
    let kept: Vec<Command> =
        command.get_subcommands().filter(|one| is_shown(one)).cloned().map(without_hidden).collect();
    if command.get_subcommands().all(is_shown) && kept.is_empty() {
        return command;
    }
    let mut anew = Command::new(command.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned().collect::<Vec<_>>())
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .subcommand_required(command.is_subcommand_required_set())
        .subcommands(kept);
    anew = with_texts(anew, &command);
    match command.get_display_name() {
        Some(name) => anew.display_name(name.to_owned()),
        None => anew,
    }
}

fn with_texts(mut anew: Command, command: &Command) -> Command {
    type Setter = fn(Command, StyledStr) -> Command;
    let texts: [(Option<&StyledStr>, Setter); 4] = [
        (command.get_about(), |anew, text| anew.about(text)),
        (command.get_long_about(), |anew, text| anew.long_about(text)),
        (command.get_after_help(), |anew, text| anew.after_help(text)),
        (command.get_after_long_help(), |anew, text| anew.after_long_help(text)),
    ];
    for (text, set) in texts {
        if let Some(text) = text {
            anew = set(anew, text.clone());
        }
    }
    anew
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn write_pages(directory: &Path) -> Result<()> {
    let place = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(place)?;
    write_page(&shown(), "keyway", directory).with_context(place)
}

/// The page of a command, then those of the commands below it.
fn write_page(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let mut page = Vec::new();
    let titled = command.clone().name(name.to_owned()).display_name(name.to_owned());
    clap_mangen::Man::new(titled).manual("Keyway").render(&mut page)?;
    fs::write(directory.join(format!("{name}.1")), page)?;
    for below in command.get_subcommands().filter(|one| is_shown(one)) {
        write_page(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}
