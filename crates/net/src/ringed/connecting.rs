//! Connections being made: the hello, and its answer.

use super::line::{Rings, Stage};
use super::terms::RingFault;
use super::{RINGED_SOCKET, Ringed, SOCKET, own_token, plain};
use crate::io::Io;
use crate::{ConnectFault, Event, Socket, Token};
use keyway_ring::{Hello, Refusal};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::io;

/// Capacity that is asked for in each direction, in bytes. Less is asked for if that is refused.
const CAPACITY: usize = 1 << 20;

impl Ringed {
    pub(super) fn on_connect(&mut self, number: u32, event: Event, events: &mut Vec<Event>) {
        let position = self.connecting.iter().position(|&(own, _)| own == number);
        let token = position.map(|position| self.connecting.swap_remove(position).1);
        match (event, token) {
            (Event::Connected { socket, .. }, Some(token)) => {
                self.begin_asking(socket, token, events)
            }
            // The connection was given up meanwhile.
            (Event::Connected { socket, .. }, None) => self.io.close(socket),
            (Event::ConnectFailed { fault, .. }, Some(token)) => {
                events.push(Event::ConnectFailed { token, fault });
            }
            _ => {}
        }
    }

    pub(super) fn begin_asking(&mut self, socket: Socket, token: Token, events: &mut Vec<Event>) {
        // SAFETY: `Connected` hands the descriptor over, and no other owner has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket.0) };
        let number = socket.as_raw_fd();
        self.add_line(socket, token, Stage::Asking(Hello::new(CAPACITY, CAPACITY)), None);
        let Some(line) = self.lines[number as usize].as_deref() else { return };
        let own = own_token(SOCKET, line.generation, number as u32);
        let is_named = self.io.rename(plain(line), own);
        if !(is_named && self.ask(number, Hello::new(CAPACITY, CAPACITY))) {
            self.give_up(number, ConnectFault::Other, events);
        }
    }

    /// Sends a hello. Returns `false` if that was not possible.
    pub(super) fn ask(&mut self, number: i32, hello: Hello) -> bool {
        let Some(line) = self.line(number) else { return false };
        line.stage = Stage::Asking(hello);
        keyway_ring::say(&line.socket, &hello).is_ok()
    }

    pub(super) fn give_up(&mut self, number: i32, fault: ConnectFault, events: &mut Vec<Event>) {
        if let Some(line) = self.take_line(number) {
            events.push(Event::ConnectFailed { token: line.token, fault });
        }
    }

    /// Handles the answer to a hello, if it has come.
    pub(super) fn on_answer(&mut self, number: i32, hello: Hello, events: &mut Vec<Event>) {
        let now = self.now;
        let Some(line) = self.line(number) else { return };
        let opened = match keyway_ring::hear(&line.socket, &hello) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(Err(Refusal::Capacity)) if hello.up > keyway_ring::CAPACITY_MIN => {
                let less = Hello::new(hello.up / 2, hello.down / 2);
                return match self.ask(number, less) {
                    true => {}
                    false => self.give_up(number, ConnectFault::Rings(RingFault::NoAnswer), events),
                };
            }
            Ok(Err(why)) => Err(RingFault::of(why)),
            Ok(Ok(shared)) => Ok(Rings::new(shared, &line.socket, now)),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(RingFault::Memory),
            Err(_) => Err(RingFault::NoAnswer),
        };
        match opened {
            Err(fault) => self.give_up(number, ConnectFault::Rings(fault), events),
            Ok(rings) => {
                line.stage = Stage::Open(rings);
                let token = line.token;
                events.push(Event::Connected { token, socket: Socket(RINGED_SOCKET | number) });
                self.begin_reading(number);
                // Bytes right after the answer were reported together with it.
                self.on_socket(number, false, events);
            }
        }
    }
}
