//! Values of many megabytes, written and read as a client does that has not so much memory.

use crate::{resident_bytes, resident_peak_bytes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bytes.
pub const MB: usize = 1 << 20;

/// What a value is made of: as long as no power of two divides, so that a part that
/// is lost, doubled or moved is noticed.
const BLOCK_LEN: usize = 65_521;

fn block() -> Vec<u8> {
    (0..BLOCK_LEN).map(|at| b'a' + (at * 7 % 26) as u8).collect()
}

/// A connection that waits no longer than a minute for anything.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let bound = Some(Duration::from_secs(60));
    stream.set_read_timeout(bound).and_then(|()| stream.set_write_timeout(bound)).expect("bounds");
    stream
}

/// Writes bytes `from..to` of the value that all tests share.
pub fn write_value(stream: &mut TcpStream, from: usize, to: usize) {
    let (block, mut at) = (block(), from);
    while at < to {
        let start = at % BLOCK_LEN;
        let end = BLOCK_LEN.min(start + to - at);
        stream.write_all(&block[start..end]).expect("the value is taken");
        at += end - start;
    }
}

/// Reads as many bytes of it, and looks at each.
pub fn read_value(stream: &mut TcpStream, len: usize) {
    let (block, mut at, mut buf) = (block(), 0, vec![0; BLOCK_LEN]);
    while at < len {
        let start = at % BLOCK_LEN;
        let most = (BLOCK_LEN - start).min(len - at);
        let count = stream.read(&mut buf[..most]).expect("more of the value");
        assert!(count > 0, "closed after {at} of {len} bytes");
        assert!(buf[..count] == block[start..start + count], "another value around byte {at}");
        at += count;
    }
}

/// Reads so many bytes, and compares them.
pub fn expect(stream: &mut TcpStream, wanted: &[u8]) {
    let mut got = vec![0; wanted.len()];
    stream.read_exact(&mut got).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(wanted));
}

/// A SET up to its value, of so many arguments in all.
pub fn set_head(key: &str, len: usize, args: usize) -> Vec<u8> {
    format!("*{args}\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len()).into_bytes()
}

/// Sets the first bytes of it.
pub fn set(stream: &mut TcpStream, key: &str, len: usize) {
    stream.write_all(&set_head(key, len, 3)).expect("taken");
    write_value(stream, 0, len);
    stream.write_all(b"\r\n").expect("taken");
    expect(stream, b"+OK\r\n");
}

/// Sends a GET.
pub fn ask(stream: &mut TcpStream, key: &str) {
    let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
    stream.write_all(request.as_bytes()).expect("taken");
}

/// Reads a value with GET, and looks at each byte.
pub fn get(stream: &mut TcpStream, key: &str, len: usize) {
    ask(stream, key);
    expect(stream, format!("${len}\r\n").as_bytes());
    read_value(stream, len);
    expect(stream, b"\r\n");
}

/// How much more memory a process needed at its most while `work` was done.
pub fn growth_during(pid: u32, work: impl FnOnce()) -> usize {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak is forgotten");
    let before = resident_bytes(pid);
    work();
    resident_peak_bytes(pid).saturating_sub(before) as usize
}
