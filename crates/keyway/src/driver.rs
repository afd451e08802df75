//! Chooses the driver of the workers' sockets: epoll, or io_uring if the system offers it.

use anyhow::{Context, Result};
use clap::ValueEnum;
use keyway_config::IoDriver;
use keyway_net::{EpollIo, Listener, Mailbox, Ring, Sockets, UringIo};
use rustix::io::Errno;
use std::io;
use std::sync::OnceLock;

/// The driver of this process.
static CHOSEN: OnceLock<Driver> = OnceLock::new();

/// The drivers of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Readiness (epoll).
    Epoll,
    /// Completion (io_uring).
    IoUring,
    /// Completion. A worker to which the system refuses it uses readiness.
    IoUringOrEpoll,
}

/// Creates a worker's ring, which the system may refuse. Tests replace it.
pub type MakeRing = fn() -> io::Result<Ring>;

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

/// Finds out which driver the system offers, once for the process.
///
/// # Errors
/// Returns an error if io_uring is wanted and the system does not offer it.
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
            Ok(()) => Driver::IoUringOrEpoll,
            Err(error) => {
                let reason = explained(error);
                tracing::info!(%reason, "sockets go by epoll: io_uring cannot be had here");
                Driver::Epoll
            }
        },
    };
    Ok(*CHOSEN.get_or_init(|| driver))
}

/// Returns the error of the system with an explanation.
fn explained(error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids it"
        }
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => {
            "this kernel has none, or lacks parts of Linux 6.1"
        }
        io::ErrorKind::OutOfMemory => {
            "no memory is left: the machine's, or what this process's cgroup may have (memory.max)"
        }
        _ if is_out_of_descriptors(&error) => {
            "no file descriptor is left: raise `ulimit -n` or lower clients_max"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns the name of the process's driver, as INFO shows it.
pub fn name() -> &'static str {
    match CHOSEN.get() {
        None | Some(Driver::Epoll) => "epoll",
        Some(Driver::IoUring | Driver::IoUringOrEpoll) => "io_uring",
    }
}

/// Creates the sockets of one worker. Called in the worker's thread. They listen last of all, so
/// that no client is sent to a worker that fails to start.
///
/// # Errors
/// Returns an error if the system has no descriptors or memory left, or refuses the ring that is
/// wanted.
pub fn sockets<M>(
    driver: Driver,
    make_ring: MakeRing,
    listeners: Vec<(u16, Listener)>,
    mailbox: &Mailbox<M>,
) -> Result<Sockets> {
    let ring = match driver {
        Driver::Epoll => None,
        Driver::IoUring => {
            let refused =
                "cannot create an io_uring: io = \"auto\" goes by epoll where it is refused";
            Some(make_ring().map_err(explained).context(refused)?)
        }
        Driver::IoUringOrEpoll => match make_ring() {
            Ok(ring) => Some(ring),
            Err(error) => {
                let reason = explained(error);
                tracing::warn!(%reason, "a worker goes by epoll: it is refused an io_uring");
                None
            }
        },
    };
    let base = EpollIo::at(listeners, mailbox).context("cannot create an instance of epoll")?;
    Ok(match ring {
        Some(ring) => UringIo::over(base, ring).into(),
        None => base.into(),
    })
}
