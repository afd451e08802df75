//! Measures what the kernel alone takes: a server that answers GET, SET, HGETALL and HMSET without
//! doing anything.
//!
//! It reads, counts the requests by their names, and writes as many fixed replies, with one call
//! for each read. It does nothing else. No server with one thread and epoll can use less for a
//! request. What another server uses in addition is its own work.

use crate::error::Error;
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Length of the value in its replies to GET, in bytes.
const VALUE_LEN: usize = 64;

const LISTENER: u64 = u64::MAX;

/// Serves until it is killed.
///
/// # Errors
/// Returns an error if the port cannot be opened, or if the system has no epoll instance left.
pub fn serve(port: u16) -> Result<(), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(Error::io("floor"))?;
    let failed = |errno: rustix::io::Errno| Error::io("floor")(errno.into());
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&poll, &listener, data, epoll::EventFlags::IN).map_err(failed)?;
    let mut clients: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut replies = Vec::new();
    let mut buf = vec![0; 64 << 10];
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        for event in &events {
            let data = event.data.u64();
            if data == LISTENER {
                let (client, _) = listener.accept().map_err(Error::io("floor"))?;
                let set = client.set_nonblocking(true).and_then(|()| client.set_nodelay(true));
                set.map_err(Error::io("floor"))?;
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let data = epoll::EventData::new_u64(clients.len() as u64);
                epoll::add(&poll, &client, data, flags).map_err(failed)?;
                clients.push(Some(client));
                continue;
            }
            let Some(place) = clients.get_mut(data as usize) else { continue };
            if place.as_mut().is_some_and(|client| !answer(client, &mut buf, &mut replies)) {
                *place = None;
            }
        }
    }
}

/// Answers the client. Returns whether it is still connected.
fn answer(client: &mut TcpStream, buf: &mut [u8], replies: &mut Vec<u8>) -> bool {
    loop {
        let len = match client.read(buf) {
            Ok(0) => return false,
            Ok(len) => len,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        replies.clear();
        put_replies(&buf[..len], replies);
        if client.write_all(replies).is_err() {
            return false;
        }
        if len < buf.len() {
            return true;
        }
    }
}

fn put_replies(requests: &[u8], replies: &mut Vec<u8>) {
    for name in requests.windows(5) {
        match name {
            b"GET\r\n" => put_value(replies),
            b"ING\r\n" => replies.extend_from_slice(b"+PONG\r\n"),
            // This is the end of HGETALL.
            b"ALL\r\n" => {
                replies.extend_from_slice(b"*2\r\n$6\r\nfield0\r\n");
                put_value(replies);
            }
            // HMSET has the same end.
            b"SET\r\n" => replies.extend_from_slice(b"+OK\r\n"),
            _ => {}
        }
    }
}

fn put_value(replies: &mut Vec<u8>) {
    replies.extend_from_slice(format!("${VALUE_LEN}\r\n").as_bytes());
    replies.resize(replies.len() + VALUE_LEN, b'x');
    replies.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_answered_once() {
        let mut replies = Vec::new();
        put_replies(
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n",
            &mut replies,
        );
        assert_eq!(replies.len(), "$64\r\n".len() + 64 + 2 + "+OK\r\n".len());
        assert!(replies.starts_with(b"$64\r\n") && replies.ends_with(b"+OK\r\n"));
        replies.clear();
        put_replies(
            b"*4\r\n$5\r\nHMSET\r\n$1\r\na\r\n$1\r\nf\r\n$1\r\nv\r\n*2\r\n$7\r\nHGETALL\r\n$1\r\na\r\n",
            &mut replies,
        );
        assert_eq!(replies.len(), "+OK\r\n*2\r\n$6\r\nfield0\r\n$64\r\n".len() + 64 + 2);
        assert!(replies.starts_with(b"+OK\r\n*2\r\n"));
    }
}
