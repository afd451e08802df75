//! Lines for people, written by a thread of their own: a slow reader, or one that does not read,
//! does not hold up the driver. Lines that could not be written, as to a full disk, are reported as
//! soon as writing works again.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

/// Most lines that wait to be written. Further lines are dropped, and counted.
const WAITING_MAX: usize = 1024;
/// Longest line, in bytes. The rest is replaced by `…`.
pub const LINE_LEN_MAX: usize = 4096;

/// Writes lines in order. Where lines were dropped, a line tells how many.
pub struct Lines {
    sender: Option<SyncSender<String>>,
    end: Receiver<bool>,
    left_out: u64,
}

impl Lines {
    /// Starts the thread that writes to `out`, each line at once: `out` should have no buffer.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = sync_channel(WAITING_MAX);
        let (ended, end) = channel();
        std::thread::Builder::new().name("bus-lines".to_owned()).spawn(move || {
            let is_whole = write_all(&lines, out);
            // If this cannot be sent, no caller waits for it any more.
            let _ = ended.send(is_whole);
        })?;
        Ok(Self { sender: Some(sender), end, left_out: 0 })
    }

    /// Writes a line, if there is room for it. Never waits.
    pub fn say(&mut self, mut line: String) {
        let Some(sender) = &self.sender else { return };
        if self.left_out > 0 {
            let told = format!("left out {} lines: nobody reads them as fast", self.left_out);
            if sender.try_send(told).is_err() {
                self.left_out += 1;
                return;
            }
            self.left_out = 0;
        }
        if line.len() > LINE_LEN_MAX {
            let is_end = |at: &usize| line.is_char_boundary(*at);
            line.truncate((0..=LINE_LEN_MAX).rev().find(is_end).unwrap_or(0));
            line.push('…');
        }
        if let Err(TrySendError::Full(_)) = sender.try_send(line) {
            self.left_out += 1;
        }
    }

    /// Waits until everything is written, at most for `within`. Returns whether it is; lines that
    /// were dropped and reported do not count.
    pub fn finish(&mut self, within: Duration) -> bool {
        self.sender = None;
        self.left_out == 0 && self.end.recv_timeout(within).unwrap_or(false)
    }
}

/// Writes all lines. Returns whether all were written or reported. A reader that is gone misses
/// nothing.
fn write_all(lines: &Receiver<String>, out: impl Write) -> bool {
    let mut writer = Writer { out, text: Vec::new(), is_torn: false, lost: 0 };
    while let Ok(line) = lines.recv() {
        writer.write(&line);
    }
    writer.lost == 0
}

struct Writer<O> {
    out: O,
    text: Vec<u8>,
    /// True if a line was written in part.
    is_torn: bool,
    /// Lines that were neither written nor reported.
    lost: u64,
}

impl<O: Write> Writer<O> {
    fn write(&mut self, line: &str) {
        if self.lost > 0 {
            let told = format!("left out {} lines: they could not be written", self.lost);
            if self.try_write(&told) {
                self.lost = 0;
            }
        }
        if self.lost > 0 || !self.try_write(line) {
            self.lost += 1;
        }
    }

    /// Returns whether the line was written, or its reader is gone.
    fn try_write(&mut self, line: &str) -> bool {
        self.text.clear();
        if self.is_torn {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(line.as_bytes());
        self.text.push(b'\n');
        let mut rest = &self.text[..];
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(len) if len > 0 => rest = &rest[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return true,
                _ => {
                    self.is_torn |= rest.len() < self.text.len();
                    return false;
                }
            }
        }
        self.is_torn = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that reports the first write, blocks until released, and then reports what it was
    /// given.
    struct Slow {
        asked: std::sync::mpsc::Sender<()>,
        may_go: Receiver<()>,
        goes: bool,
        taken: std::sync::mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.goes {
                self.asked.send(()).unwrap();
                self.goes = self.may_go.recv().is_ok();
            }
            self.taken.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Creates lines whose reader holds the first one and reads no further until it is released. So
    /// it is known how many lines have room.
    fn stuck(first: &str) -> (Lines, std::sync::mpsc::Sender<()>, Receiver<Vec<u8>>) {
        let (asked, is_asked) = channel();
        let (let_go, may_go) = channel();
        let (taken, given) = channel();
        let mut lines = Lines::start(Slow { asked, may_go, goes: false, taken }).unwrap();
        lines.say(first.to_owned());
        is_asked.recv_timeout(Duration::from_secs(10)).unwrap();
        (lines, let_go, given)
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up_and_hears_how_much_was_left_out() {
        let (mut lines, let_go, given) = stuck("0");
        for number in 1..10_000 {
            lines.say(number.to_string());
        }
        assert!(!lines.finish(Duration::from_millis(10)), "it does not read");
        assert_eq!(lines.left_out, 10_000 - WAITING_MAX as u64 - 1);
        let_go.send(()).unwrap();
        assert!(lines.end.recv_timeout(Duration::from_secs(10)).unwrap());
        let text: Vec<u8> = given.try_iter().flatten().collect();
        let written = String::from_utf8(text).unwrap();
        let numbers: Vec<u64> = written.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..=WAITING_MAX as u64).collect::<Vec<_>>());
    }

    #[test]
    fn once_there_is_room_it_says_how_many_were_left_out_and_long_lines_are_cut() {
        let (mut lines, let_go, given) = stuck("x");
        for _ in 0..2 * WAITING_MAX {
            lines.say("x".to_owned());
        }
        let left_out = lines.left_out;
        let_go.send(()).unwrap();
        // There are at least two places for new lines.
        let mut written = Vec::new();
        while written.iter().filter(|byte| **byte == b'\n').count() < 10 {
            written.extend(given.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        lines.say("ü".repeat(LINE_LEN_MAX));
        assert!(lines.finish(Duration::from_secs(10)));
        written.extend(given.try_iter().flatten());
        let text = String::from_utf8(written).unwrap();
        let told = format!("left out {left_out} lines: nobody reads them as fast");
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(last[1], told);
        assert!(last[0].len() == LINE_LEN_MAX + '…'.len_utf8() && last[0].ends_with('…'));
    }

    /// A disk with room for this many bytes.
    struct Disk {
        room: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match bytes.len().min(self.room) {
                0 => Err(ErrorKind::StorageFull.into()),
                len => {
                    self.room -= len;
                    self.written.extend_from_slice(&bytes[..len]);
                    Ok(len)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_counted_and_told_when_there_is_room() {
        let out = Disk { room: 7, written: Vec::new() };
        let mut writer = Writer { out, text: Vec::new(), is_torn: false, lost: 0 };
        ["one", "two", "three"].iter().for_each(|line| writer.write(line));
        assert_eq!((writer.lost, &writer.out.written[..]), (2, &b"one\ntwo"[..]));
        writer.out.room = 1000;
        ["four", "five"].iter().for_each(|line| writer.write(line));
        let text = String::from_utf8(writer.out.written).unwrap();
        let told = "left out 2 lines: they could not be written";
        assert_eq!(text, format!("one\ntwo\n{told}\nfour\nfive\n"));
        assert_eq!(writer.lost, 0);
    }

    #[test]
    fn a_disk_that_stays_full_is_told_at_the_end() {
        let mut lines = Lines::start(Disk { room: 0, written: Vec::new() }).unwrap();
        lines.say("one".to_owned());
        assert!(!lines.finish(Duration::from_secs(10)));
    }
}
