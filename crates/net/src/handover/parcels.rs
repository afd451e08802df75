//! Parcels between two processes: bytes of any length, with a descriptor if there is one.
//!
//! ```text
//!  packet: 0, bytes … │ 0, bytes … │ 1, bytes, descriptor      one parcel
//! ```

use super::bounded;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Bytes of a parcel in one packet. More may not fit into what a socket takes at once.
const PACKET_LEN: usize = 32 << 10;

/// Longest wait for the rest of a parcel.
const REST_PATIENCE: Duration = Duration::from_secs(60);

/// How often a descriptor is sent again while too many are on their way, and the pause in front of each try.
const TRIES_MAX: u32 = 5000;
const TRY_EVERY: Duration = Duration::from_millis(1);

/// First byte of a packet that is followed by others of the same parcel.
const MORE: u8 = 0;
/// First byte of the last one.
const LAST: u8 = 1;

/// One end of a socket for parcels.
#[derive(Debug)]
pub struct Parcels {
    socket: OwnedFd,
}

impl Parcels {
    /// Creates a pair. The other end is for the other process.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn pair() -> io::Result<(Parcels, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Parcels { socket }, other))
    }

    /// Wraps the end that this process was given.
    pub fn given(socket: OwnedFd) -> Parcels {
        Parcels { socket }
    }

    /// Sends a parcel. Waits for the other side, for `within` at a time.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the other process does not read, and `BrokenPipe` if it is gone.
    pub fn send(
        &self,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        within: Duration,
    ) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(bounded(within)))?;
        let mut rest = bytes;
        loop {
            let (part, behind) = rest.split_at(rest.len().min(PACKET_LEN));
            match behind.is_empty() {
                true => return self.send_packet(LAST, part, descriptor),
                false => self.send_packet(MORE, part, None)?,
            }
            rest = behind;
        }
    }

    fn send_packet(
        &self,
        mark: u8,
        part: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor does not fit"));
        }
        let mark = [mark];
        let pieces = [IoSlice::new(&mark), IoSlice::new(part)];
        let mut tries = 0;
        loop {
            match sendmsg(&self.socket, &pieces, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                // As many descriptors are on their way as this process may have open.
                Err(Errno::TOOMANYREFS) if tries < TRIES_MAX => {
                    tries += 1;
                    std::thread::park_timeout(TRY_EVERY);
                }
                outcome => return outcome.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// Receives the next parcel of `len_max` bytes at most. Waits for it to begin for `within`.
    ///
    /// # Errors
    /// Returns `WouldBlock` if none has begun, `UnexpectedEof` if the other process is gone, and
    /// `InvalidData` if it sends what is no parcel, or does not end one.
    pub fn receive(
        &self,
        len_max: usize,
        within: Duration,
    ) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(bounded(within)))?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is no parcel");
        let (mut whole, mut packet) = (Vec::new(), vec![0; PACKET_LEN + 1]);
        loop {
            let (len, descriptor) = match self.receive_packet(&mut packet) {
                Err(_) if !whole.is_empty() => return Err(wrong()),
                received => received?,
            };
            let (mark, part) = packet[..len].split_first().ok_or_else(wrong)?;
            if part.len() > len_max.saturating_sub(whole.len()) {
                return Err(wrong());
            }
            whole.extend_from_slice(part);
            match (*mark, descriptor) {
                // A parcel that has begun is waited for, or the next one would not be understood.
                (MORE, None) => {
                    sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(REST_PATIENCE))?;
                }
                (LAST, descriptor) => return Ok((whole, descriptor)),
                _ => return Err(wrong()),
            }
        }
    }

    fn receive_packet(&self, packet: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut pieces = [IoSliceMut::new(packet)];
            match recvmsg(&self.socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                outcome => break outcome?,
            }
        };
        let mut descriptor = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.last().or(descriptor);
            }
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            let what = "a parcel was cut: a limit of file descriptors?";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok((got.bytes, descriptor))
    }

    /// Returns its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn parcels_of_any_length_arrive_whole_and_in_order_with_their_descriptors() {
        let (here, there) = Parcels::pair().unwrap();
        let there = Parcels::given(there);
        let parcels: Vec<Vec<u8>> = [0, 1, PACKET_LEN - 1, PACKET_LEN, PACKET_LEN + 1, 1 << 20]
            .into_iter()
            .map(|len| (0..len).map(|at| (at % 251) as u8).collect())
            .collect();
        let (mut near, far) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for parcel in &parcels {
                    here.send(parcel, Some(far.as_fd()), SOON).unwrap();
                    here.send(parcel, None, SOON).unwrap();
                }
            });
            for parcel in &parcels {
                let (bytes, descriptor) = there.receive(1 << 20, SOON).unwrap();
                assert!(bytes == *parcel);
                let mut socket = UnixStream::from(descriptor.expect("a descriptor"));
                near.write_all(b"x").unwrap();
                socket.read_exact(&mut [0]).unwrap();
                let (bytes, descriptor) = there.receive(1 << 20, SOON).unwrap();
                assert!(bytes == *parcel && descriptor.is_none());
            }
        });
        drop(here);
        let end = there.receive(1, SOON).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_parcel_that_is_too_long_is_refused() {
        let (here, there) = Parcels::pair().unwrap();
        here.send(&[0; 100], None, SOON).unwrap();
        let refused = Parcels::given(there).receive(99, SOON).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
