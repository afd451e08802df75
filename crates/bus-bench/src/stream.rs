//! Messages in a stream of bytes: the length of each (u32, little-endian), and the message. Each
//! connection begins with the number of its sender.

use crate::case::Channel;
use crate::ends::{Account, Order, ROOM_PATIENCE, Receiving, Sending, say};
use crate::run::Fault;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

/// What is written at once.
const BATCH_LEN: usize = 64 << 10;

/// What is read at once.
const READ_LEN: usize = 256 << 10;

const HEAD_LEN: usize = 4;

pub fn send(order: &Order, sender: usize) -> Result<Account, Fault> {
    match order.case.channel {
        Channel::Tcp6 => {
            let socket = TcpStream::connect((Ipv6Addr::LOCALHOST, order.port))?;
            socket.set_nodelay(true)?;
            socket.set_write_timeout(Some(ROOM_PATIENCE))?;
            send_over(order, sender, socket)
        }
        _ => {
            let socket = UnixStream::connect(&order.places[0])?;
            socket.set_write_timeout(Some(ROOM_PATIENCE))?;
            send_over(order, sender, socket)
        }
    }
}

fn send_over(order: &Order, sender: usize, mut socket: impl Write) -> Result<Account, Fault> {
    let mut out = Vec::with_capacity(BATCH_LEN + HEAD_LEN + order.case.sizes.max);
    out.extend_from_slice(&(sender as u32).to_le_bytes());
    let mut sending = Sending::new(order, sender);
    loop {
        let message = sending.source.fill();
        out.extend_from_slice(&(message.len() as u32).to_le_bytes());
        out.extend_from_slice(message);
        let len = message.len();
        let goes_on = sending.sent(len);
        if out.len() >= BATCH_LEN || !goes_on {
            socket.write_all(&out).map_err(|why| match why.kind() {
                ErrorKind::WouldBlock => Fault::Wrong("the receiver takes nothing"),
                _ => why.into(),
            })?;
            out.clear();
        }
        if !goes_on {
            return Ok(sending.account());
        }
    }
}

/// Says its port first, once it listens.
pub fn receive(order: &Order) -> Result<Account, Fault> {
    let senders = order.case.senders;
    match order.case.channel {
        Channel::Tcp6 => {
            let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0))?;
            say(&listener.local_addr()?.port())?;
            let accept = || {
                let socket = listener.accept()?.0;
                socket.set_nonblocking(true)?;
                Ok(socket)
            };
            receive_over(order, (0..senders).map(|_| accept()).collect::<Result<_, Fault>>()?)
        }
        _ => {
            let listener = UnixListener::bind(&order.places[0])?;
            say(&0_u16)?;
            let accept = || {
                let socket = listener.accept()?.0;
                socket.set_nonblocking(true)?;
                Ok(socket)
            };
            receive_over(order, (0..senders).map(|_| accept()).collect::<Result<_, Fault>>()?)
        }
    }
}

fn receive_over<S: Read + AsFd>(order: &Order, sockets: Vec<S>) -> Result<Account, Fault> {
    let mut receiving = Receiving::new(order);
    let mut inputs: Vec<Input<S>> = sockets.into_iter().map(Input::new).collect();
    while !inputs.is_empty() {
        wait(inputs.iter().map(|input| input.socket.as_fd()))?;
        let mut fault = None;
        inputs.retain_mut(|input| match input.read(&mut receiving) {
            Ok(goes_on) => goes_on,
            Err(why) => {
                fault = Some(why);
                false
            }
        });
        if let Some(why) = fault {
            return Err(why);
        }
    }
    Ok(receiving.account())
}

fn wait<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> Result<(), Fault> {
    let mut all: Vec<PollFd<'_>> =
        sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    match poll(&mut all, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// A connection and what came over it that is no whole message yet.
struct Input<S> {
    socket: S,
    sender: Option<usize>,
    bytes: Vec<u8>,
    filled: usize,
}

impl<S: Read> Input<S> {
    fn new(socket: S) -> Input<S> {
        Input { socket, sender: None, bytes: vec![0; READ_LEN], filled: 0 }
    }

    /// Reads once; whether there may be more.
    fn read(&mut self, receiving: &mut Receiving) -> Result<bool, Fault> {
        match self.socket.read(&mut self.bytes[self.filled..]) {
            Ok(0) if self.filled == 0 => Ok(false),
            Ok(0) => Err(Fault::Wrong("a connection ended within a message")),
            Ok(len) => {
                self.filled += len;
                self.take(receiving)?;
                Ok(true)
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(true)
            }
            Err(why) => Err(why.into()),
        }
    }

    fn take(&mut self, receiving: &mut Receiving) -> Result<(), Fault> {
        let mut rest = &self.bytes[..self.filled];
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD_LEN>() {
            let number = u32::from_le_bytes(*head) as usize;
            let Some(sender) = self.sender else {
                if number >= receiving.senders() {
                    return Err(Fault::Wrong("a sender that there is not"));
                }
                self.sender = Some(number);
                rest = behind;
                continue;
            };
            if number > READ_LEN - HEAD_LEN {
                return Err(Fault::Wrong("a message longer than any"));
            }
            let Some((message, behind)) = behind.split_at_checked(number) else { break };
            receiving.received(sender, message);
            rest = behind;
        }
        let left = rest.len();
        self.bytes.copy_within(self.filled - left..self.filled, 0);
        self.filled = left;
        Ok(())
    }
}
