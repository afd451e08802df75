//! Which of the two drivers of sockets the workers have: epoll, or io_uring where it can be had.

use anyhow::{Context, Result};
use clap::ValueEnum;
use keyway_config::IoDriver;
use keyway_net::{EpollIo, Io, Listener, ListenerIndex, Mailbox, Sockets, UringIo};
use std::io;
use std::sync::OnceLock;

/// That of this process.
static CHOSEN: OnceLock<Driver> = OnceLock::new();

/// What workers can be driven by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// By readiness.
    Epoll,
    /// By completion.
    IoUring,
}

/// `--io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// By readiness: on every Linux.
    Epoll,
    /// By completion; not started where the system has none for us.
    #[value(name = "io_uring", alias = "io-uring", alias = "uring")]
    IoUring,
    /// io_uring where it can be had, else epoll.
    Auto,
}

impl From<Wanted> for IoDriver {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Epoll => IoDriver::Epoll,
            Wanted::IoUring => IoDriver::IoUring,
            Wanted::Auto => IoDriver::Auto,
        }
    }
}

/// Looks what the system lets us have, once for the process.
///
/// # Errors
/// When io_uring is asked for and not to be had.
pub fn choose(wanted: IoDriver) -> Result<Driver> {
    let driver = match wanted {
        IoDriver::Epoll => Driver::Epoll,
        IoDriver::IoUring => {
            UringIo::probe().map_err(explained).context(
                "io_uring cannot be had here: choose io = \"auto\" or \"epoll\" in [server], or \
                 --io auto",
            )?;
            Driver::IoUring
        }
        IoDriver::Auto => match UringIo::probe() {
            Ok(()) => Driver::IoUring,
            Err(error) => {
                let reason = explained(error);
                tracing::info!(%reason, "sockets go by epoll: io_uring cannot be had here");
                Driver::Epoll
            }
        },
    };
    Ok(*CHOSEN.get_or_init(|| driver))
}

/// What the system means by refusing.
fn explained(error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids it"
        }
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => {
            "this kernel has none, or lacks parts of Linux 6.1"
        }
        io::ErrorKind::OutOfMemory => "out of memory, or of what may be locked (ulimit -l)",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

/// The name of what the process has, as INFO tells it.
pub fn name() -> &'static str {
    match CHOSEN.get() {
        None | Some(Driver::Epoll) => "epoll",
        Some(Driver::IoUring) => "io_uring",
    }
}

/// The sockets of one worker, made in its thread, which listen at these positions.
///
/// # Errors
/// When the system has no descriptors or memory left.
pub fn sockets<M>(
    driver: Driver,
    listeners: Vec<(u16, Listener)>,
    mailbox: &Mailbox<M>,
) -> io::Result<Sockets> {
    let (mut row, mut others) = (Vec::new(), Vec::new());
    for (index, listener) in listeners {
        match usize::from(index) == row.len() {
            true => row.push(listener),
            false => others.push((index, listener)),
        }
    }
    let mut io: Sockets = match driver {
        Driver::Epoll => EpollIo::new(row, mailbox)?.into(),
        Driver::IoUring => UringIo::new(row, mailbox)?.into(),
    };
    for (index, listener) in others {
        if !io.listen(ListenerIndex(index), listener) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
    }
    Ok(io)
}
