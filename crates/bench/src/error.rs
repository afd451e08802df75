//! What can go wrong in a measurement, as texts for the person who runs it.

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
        /// The name of the program in the tables.
        program: String,
        /// How it ended.
        why: String,
    },
    /// The load could not be sent or answered.
    #[error("load: {0}")]
    Load(String),
    /// The system under test answered, but not as the work requires.
    #[error("wrong answers: {0}")]
    Answers(String),
    /// A file, a socket or a process could not be read or written.
    #[error("{what}: {why}")]
    Io {
        /// What was being done, with the name of the file.
        what: String,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// Something from `/proc` or from a tool's output was not as expected.
    #[error("cannot read {what} from {text:?}")]
    Parse {
        /// The figure that was searched.
        what: &'static str,
        /// The text in which it should have been, truncated.
        text: String,
    },
    /// The user pressed Ctrl-C, or the process was told to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an error of the operating system with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |why| Error::Io { what, why }
    }

    /// Returns the error for a figure that is missing in `text`. It keeps only the first 200
    /// characters of the text.
    pub fn parse(what: &'static str, text: &str) -> Error {
        Error::Parse { what, text: text.chars().take(200).collect() }
    }
}
