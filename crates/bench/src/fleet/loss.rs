//! Loss of packets of the bus, in a network namespace of this run alone.
//!
//! The namespace has a loopback device and nothing else, and it ends with the run. Packets have 1500
//! bytes, as on a network. A classic BPF program on the receiving side drops packets by chance: the
//! sender's TCP does not notice other than by the lack of an acknowledgement. It drops packets of the
//! bus alone, in both directions; the requests that are timed lose none.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::Error;

/// The word by which this program starts itself within the namespace.
pub const INSIDE: &str = "--inside-namespace";

/// Executes this program again within a namespace. Returns why that is impossible.
pub fn enter() -> Error {
    let own = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new("unshare");
    command.arg("--net").arg(own).args(std::env::args().skip(1)).arg(INSIDE);
    Error::io("--loss needs the program `unshare`")(command.exec())
}

/// Prepares the loopback device of the namespace. Nothing is lost yet.
///
/// # Errors
/// Returns an error that names the missing tool or kernel module.
pub fn prepare() -> Result<(), Error> {
    run("ip", "link set dev lo up mtu 1500 gso_max_segs 1")?;
    run("tc", "qdisc add dev lo clsact")
}

/// Begins to lose packets of this port, besides those of other ports.
///
/// # Errors
/// Returns the errors of [`prepare`].
pub fn begin(port: u16, percent: f64) -> Result<(), Error> {
    let mut words: Vec<String> =
        "filter add dev lo ingress bpf da bytecode".split(' ').map(str::to_owned).collect();
    words.push(program(port, percent));
    execute("tc", &words)
}

/// Returns the program that drops packets: the number of instructions, then each one as its code,
/// jumps and operand. The result 2 drops a packet, 0 lets it pass.
fn program(port: u16, percent: f64) -> String {
    // `as` saturates: all packets get lost from 100 % on.
    let below = (percent / 100.0 * 2f64.powi(32)) as u32;
    let lines = [
        "40 0 0 12".to_owned(),         // the type of the frame
        "21 0 9 2048".to_owned(),       // is it IPv4?
        "48 0 0 23".to_owned(),         // its protocol
        "21 0 7 6".to_owned(),          // is it TCP?
        "40 0 0 34".to_owned(),         // the port of the sender
        format!("21 2 0 {port}"),       // is it the bus?
        "40 0 0 36".to_owned(),         // the port of the receiver
        format!("21 0 3 {port}"),       // is it the bus?
        "32 0 0 4294963256".to_owned(), // a random number of 32 bits
        format!("53 1 0 {below}"),      // is it large enough?
        "6 0 0 2".to_owned(),
        "6 0 0 0".to_owned(),
    ];
    format!("{},{}", lines.len(), lines.join(","))
}

fn run(program: &str, line: &str) -> Result<(), Error> {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    execute(program, &words)
}

fn execute(program: &str, words: &[String]) -> Result<(), Error> {
    let line = format!("{program} {}", words.join(" "));
    let output = Command::new(program).args(words).output();
    let output = output.map_err(Error::io(format!("--loss needs `{program}` of iproute2")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = std::io::Error::other(said.trim().to_owned());
    Err(Error::io(format!("--loss needs root, and clsact and cls_bpf of the kernel: {line}"))(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_as_many_instructions_as_it_says() {
        let text = program(6391, 5.0);
        let (count, lines) = text.split_once(',').unwrap();
        assert_eq!(count.parse(), Ok(lines.split(',').count()));
        assert!(lines.contains("53 1 0 214748364"), "{lines}");
        assert!(program(1, 1000.0).contains(&u32::MAX.to_string()));
    }
}
