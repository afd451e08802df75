use keyway_command::Request;
use keyway_resp::Protocol;

/// What a script reaches of the world.
pub trait Host {
    /// Executes a command that a script may send; appends its reply, in
    /// `protocol`, to `out`, and counts it if it is an error. `has_written` when the script has sent a command
    /// that writes before: it is then not refused for want of memory.
    fn execute(
        &self,
        request: &Request<'_>,
        protocol: Protocol,
        has_written: bool,
        out: &mut Vec<u8>,
    );

    /// Bytes of what is kept until the script's end because of what it did, such
    /// as messages to be delivered: with more than a script may have of memory,
    /// it is ended.
    fn kept_len(&self) -> usize {
        0
    }

    /// Notes that the script has run for so long that others are not to wait for
    /// it any more. Called once.
    fn note_busy(&self) {}

    /// Counts an error that a command is refused with before it is executed; its
    /// text has no dash.
    fn count_error(&self, _text: &[u8]) {}

    /// Notes that the script's own reply, if it is an error, is one that was counted
    /// when a command was answered so.
    fn note_counted(&self) {}

    /// Writes a line of `redis.log` at a level from 0 (debug) to 3 (warning).
    fn log(&self, level: u8, text: &str);
}
