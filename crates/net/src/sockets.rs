use crate::{Accept, Address, Door, EpollIo, Event, Io, Listener, ListenerIndex, Recv, Send};
use crate::{Socket, Token, UringIo};
use keyway_base::Clock;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// One of the two drivers of real sockets, chosen when a worker starts.
#[allow(clippy::large_enum_variant, reason = "a worker has one")]
pub enum Sockets {
    /// Readiness (epoll), available on every Linux.
    Epoll(EpollIo),
    /// Completion (io_uring), if the kernel has it and permits it.
    Uring(UringIo),
}

impl From<EpollIo> for Sockets {
    fn from(io: EpollIo) -> Self {
        Sockets::Epoll(io)
    }
}

impl From<UringIo> for Sockets {
    fn from(io: UringIo) -> Self {
        Sockets::Uring(io)
    }
}

/// Makes the same call on either driver.
macro_rules! either {
    ($self:ident, $io:ident => $call:expr) => {
        match $self {
            Sockets::Epoll($io) => $call,
            Sockets::Uring($io) => $call,
        }
    };
}

impl Sockets {
    fn base(&self) -> &EpollIo {
        match self {
            Sockets::Epoll(io) => io,
            Sockets::Uring(io) => io.base(),
        }
    }

    /// Returns the settings of shared memory, by listener.
    pub(crate) fn doors(&self) -> impl Iterator<Item = Option<&Door>> {
        self.base().doors()
    }

    /// Returns the buffer that sockets of epoll are read into.
    pub(crate) fn read_buf(&mut self) -> &mut [u8] {
        match self {
            Sockets::Epoll(io) => io.read_buf(),
            Sockets::Uring(io) => io.base_mut().read_buf(),
        }
    }

    /// Gives another token to a socket that epoll watches.
    pub(crate) fn rename(&self, socket: Socket, token: Token) -> bool {
        self.base().rename(socket, token)
    }
}

impl Io for Sockets {
    #[inline]
    fn clock(&mut self) -> Clock {
        either!(self, io => io.clock())
    }

    #[inline]
    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        either!(self, io => io.poll(wait, events))
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        either!(self, io => io.accept(listener))
    }

    fn local_address(&self, socket: Socket) -> Option<SocketAddr> {
        self.base().local_address(socket)
    }

    fn resolve(&mut self, host: &str, number: u32) -> bool {
        either!(self, io => io.resolve(host, number))
    }

    fn pause_accepting(&mut self, paused: bool) {
        either!(self, io => io.pause_accepting(paused))
    }

    fn accept_beside(&mut self, listener: ListenerIndex) -> bool {
        either!(self, io => io.accept_beside(listener))
    }

    fn hold_listener(&mut self, listener: ListenerIndex, held: bool) {
        either!(self, io => io.hold_listener(listener, held))
    }

    fn listen(&mut self, index: ListenerIndex, listener: Listener) -> bool {
        either!(self, io => io.listen(index, listener))
    }

    fn empty_listener(&mut self, index: ListenerIndex) {
        either!(self, io => io.empty_listener(index))
    }

    fn end_listening(&mut self, index: ListenerIndex) {
        either!(self, io => io.end_listening(index))
    }

    fn stop_listening(&mut self) {
        either!(self, io => io.stop_listening())
    }

    fn leave_listening(&mut self) {
        either!(self, io => io.leave_listening())
    }

    fn has_arrivals(&self) -> bool {
        either!(self, io => io.has_arrivals())
    }

    fn take_notice(&mut self) -> Option<&'static str> {
        either!(self, io => io.take_notice())
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        either!(self, io => io.watch(socket, token))
    }

    fn connect(&mut self, address: &Address, token: Token) {
        either!(self, io => io.connect(address, token))
    }

    fn cancel_connect(&mut self, token: Token) {
        either!(self, io => io.cancel_connect(token))
    }

    #[inline]
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        either!(self, io => io.recv(socket))
    }

    #[inline]
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        either!(self, io => io.send(socket, bytes))
    }

    #[inline]
    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        either!(self, io => io.send_pieces(socket, pieces))
    }

    fn release(&mut self, socket: Socket) -> Socket {
        either!(self, io => io.release(socket))
    }

    fn give_up(&mut self, socket: Socket) -> Option<(OwnedFd, Vec<u8>)> {
        either!(self, io => io.give_up(socket))
    }

    fn take_over(&mut self, descriptor: OwnedFd, unread: Vec<u8>) -> Option<Socket> {
        either!(self, io => io.take_over(descriptor, unread))
    }

    fn finish(&mut self, socket: Socket) -> bool {
        either!(self, io => io.finish(socket))
    }

    fn close(&mut self, socket: Socket) {
        either!(self, io => io.close(socket))
    }
}
