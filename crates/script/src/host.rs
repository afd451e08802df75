use keyway_command::Request;
use keyway_resp::Protocol;

/// How a script reaches the rest of the program.
pub trait Host {
    /// Executes a command that a script may send. Appends its reply, in `protocol`, to `out`, and
    /// counts it if it is an error. `has_written`: the script has sent a command that writes
    /// before. The command is then not refused for lack of memory.
    fn execute(
        &self,
        request: &Request<'_>,
        protocol: Protocol,
        has_written: bool,
        out: &mut Vec<u8>,
    );

    /// Returns the bytes that are kept until the script's end because of what it did, such as
    /// messages to be delivered. If they exceed the script's memory limit, it is ended.
    fn kept_len(&self) -> usize {
        0
    }

    /// Notes that the script has run for so long that others must no longer wait for it. It is
    /// called once.
    fn note_busy(&self) {}

    /// Counts an error with which a command is refused before it is executed. Its text has no dash.
    fn count_error(&self, _text: &[u8]) {}

    /// Notes that the script's own reply, if it is an error, was already counted when a command was
    /// answered with it.
    fn note_counted(&self) {}

    /// Writes a line of `redis.log` with a level from 0 (debug) to 3 (warning).
    fn log(&self, level: u8, text: &str);
}
