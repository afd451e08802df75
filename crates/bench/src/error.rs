//! What can go wrong in a measurement, in words for the person who runs it.

/// Why a run, or one measurement of it, has no figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that does not exist.
    #[error("{0} (--help lists every option)")]
    Usage(String),
    /// A program of the run could not be started, or did not do what was asked.
    #[error("{0}")]
    Program(#[from] keyway_scenario::Error),
    /// A program that was being measured ended by itself.
    #[error("{program} ended during the measurement: {why}")]
    Ended {
        /// The program's name in the tables.
        program: String,
        /// How it ended.
        why: String,
    },
    /// The load could not be sent or answered.
    #[error("load: {0}")]
    Load(String),
    /// The system under test answered, but not what the work calls for.
    #[error("wrong answers: {0}")]
    Answers(String),
    /// A file, a socket or a process could not be read or written.
    #[error("{what}: {why}")]
    Io {
        /// What was being done, with the file's name.
        what: String,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// Something from `/proc` or from a tool's output was not as expected.
    #[error("cannot read {what} from {text:?}")]
    Parse {
        /// The figure that was looked for.
        what: &'static str,
        /// The text it should have been in, cut short.
        text: String,
    },
    /// The user pressed Ctrl-C, or the process was told to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an operating system error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |why| Error::Io { what, why }
    }

    /// A figure missing from `text`; only the text's first 200 characters are
    /// kept.
    pub fn parse(what: &'static str, text: &str) -> Error {
        Error::Parse { what, text: text.chars().take(200).collect() }
    }
}
