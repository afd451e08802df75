//! `keyway hash-password`: makes the hash for a configuration file from a typed password.

use anyhow::{Context, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, Read, Write, stderr, stdin, stdout};
use std::process::ExitCode;

/// Longest password, as in a configuration.
const LEN_MAX: usize = 4096;

/// Reads a password without showing it, and prints its hash.
pub fn run(is_slow: bool) -> Result<ExitCode> {
    let password = if isatty(stdin()) { typed()? } else { line()? };
    if password.is_empty() {
        bail!("there is no password: type one, or write it to standard input as the first line");
    }
    if password.len() > LEN_MAX {
        bail!("the password is too long: it has {} bytes, and may have {LEN_MAX}", password.len());
    }
    let text = match is_slow {
        true => slow_text(password.as_bytes())?,
        false => keyway_users::digest_text(password.as_bytes()),
    };
    writeln!(stdout(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

fn slow_text(password: &[u8]) -> Result<String> {
    let mut salt = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut salt)?;
    keyway_users::slow_text(password, &salt).context("this password cannot be hashed")
}

/// Reads the password twice, so that a typing error does not lock anyone out.
fn typed() -> Result<String> {
    let before = tcgetattr(stdin())?;
    restore_on_signal(before.clone())?;
    let mut hidden = before.clone();
    hidden.local_modes &= !LocalModes::ECHO;
    let mut asked = Vec::new();
    for prompt in ["Password: ", "The same again: "] {
        write!(stderr(), "{prompt}")?;
        stderr().flush()?;
        asked.push(unseen(&hidden, &before));
        writeln!(stderr())?;
    }
    let (again, first) = (asked.pop().transpose()?, asked.pop().transpose()?);
    match (first, again) {
        (Some(first), Some(again)) if first == again => Ok(first),
        _ => bail!("the two are not the same"),
    }
}

/// Restores the terminal's echo when a signal ends the process, and then lets the signal end it.
fn restore_on_signal(before: Termios) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let watch = move || {
        for signal in signals.forever() {
            // A terminal that is gone needs no restoring.
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
            let _ = writeln!(stderr());
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new()
        .name("keyway-signals".into())
        .spawn(watch)
        .context("cannot start a thread")?;
    Ok(())
}

fn unseen(hidden: &Termios, before: &Termios) -> Result<String> {
    tcsetattr(stdin(), OptionalActions::Flush, hidden)?;
    let line = line();
    tcsetattr(stdin(), OptionalActions::Now, before)?;
    line
}

fn line() -> Result<String> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}
