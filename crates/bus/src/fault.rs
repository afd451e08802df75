//! Every fault, with the numbers that are sent.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $text:literal;)+) => {
        /// The reason why a message came back, a connection was refused, or one ended. The numbers
        /// are part of the protocol (docs/protocol/bus.md).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name = $code,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)+];

            /// Returns the reason with this number; [`Reason::Unknown`] if the number is not known.
            pub fn of(code: u16) -> Reason {
                match code {
                    $($code => Reason::$name,)+
                    _ => Reason::Unknown,
                }
            }

            /// Returns its text for operators.
            pub fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// A number of a later version.
    Unknown = 0, "a reason that this version does not know";
    /// No connection leads to the destination.
    Unreachable = 1, "no node of that id is known here, and there is no upstream to ask";
    /// The message has made too many hops.
    Ttl = 2, "the message went through as many nodes as its ttl allows";
    /// The path already contains this node.
    Loop = 3, "the message came by a second time: two nodes take each other for the way";
    /// A queue on the way is full.
    Full = 4, "the queue to the next node is full";
    /// The connection on which it was sent was lost; it may have arrived.
    LinkLost = 5, "the connection was lost after the message was sent";
    /// A later message of the same sender arrived first.
    Late = 6, "a later message of the same sender was delivered before, by another way";
    /// It is longer than the next node accepts.
    TooLarge = 7, "the message is longer than that node takes";
    /// There was no answer in time; it may have arrived.
    Timeout = 8, "there was no answer in time";
    /// The body could not be read.
    Malformed = 9, "the body is not what its frame says";
    /// There is no memory for the parts of the message.
    Memory = 10, "the node has no memory left for messages in parts";
    /// The destination does not know the command.
    NoCommand = 11, "that node has no such command";
    /// The node is leaving.
    Leaving = 12, "the node is leaving the bus";
    /// The destination's inbox has no room.
    InboxFull = 13, "that node does not keep up with its messages";
    /// The message must not go up, and there is no other way.
    NoUpstream = 14, "the destination is not below this node, and the message must not go up";
    /// The rest of a message in parts did not come.
    Stalled = 15, "the rest of a message in parts did not come";
    /// There is no place for one more topic, or for its bytes.
    TopicsFull = 16, "the node has as many topics, or bytes of them, as it takes";
    /// No token matches.
    Denied = 32, "no token of the other node is one of ours";
    /// The acceptor could not prove that it knows a token.
    Unproven = 33, "the node that was dialled does not prove that it knows the token";
    /// There is no common version.
    Version = 34, "there is no version of the protocol that both speak";
    /// This node does not accept the id.
    IdRefused = 35, "nodes of that id are not let in here";
    /// Another connection has that id.
    IdInUse = 36, "a node of that id is connected already";
    /// Another node than the expected one was dialled.
    IdMismatch = 37, "the node at that address has another id";
    /// There are too many connections.
    PeersMax = 38, "the node has as many connections as it takes";
    /// The handshake took too long.
    HandshakeTimeout = 39, "the registration was not done in time";
    /// The other node has our own id.
    OwnId = 40, "the node at that address has our own id";
    /// The certificate has other names.
    CertificateName = 41, "the certificate of the other node is not made out to its id";
    /// Two nodes have one id.
    IdTwice = 42, "two nodes on the bus have that id";
    /// The bytes are not a frame.
    NoFrame = 64, "the bytes are no frame of the bus";
    /// The checksum is wrong.
    Checksum = 65, "the checksum of a frame is wrong";
    /// The frame is not allowed in this state.
    Unexpected = 66, "a frame that must not come at this point";
    /// More was sent than the credit allows.
    Credit = 67, "more was sent than there was credit for";
    /// The fragments do not belong together.
    Fragments = 68, "fragments that are not of one message";
    /// The peer was silent for too long.
    Silent = 69, "nothing was heard for three heartbeats";
    /// The transport has ended.
    Closed = 70, "the connection ended";
    /// The upstreams form a cycle.
    Cycle = 71, "that node has this one below it: a cycle of upstreams";
    /// The other node has left in order.
    Bye = 72, "the other node has left";
    /// A direct connection was not used.
    Idle = 73, "a direct connection that was not used";
    /// The same node has connected again.
    Replaced = 74, "the same node has connected anew";
    /// The node could not be connected to.
    DialFailed = 75, "no address of the node could be connected to";
    /// The connection was refused, or there is no such socket.
    NobodyListens = 76, "nobody listens at that address";
    /// Connecting, or the other side's first answer, took too long.
    NoAnswer = 77, "there was no answer from that address in time";
    /// The other side speaks another protocol.
    NotBus = 78, "what listens at that address is no node of the bus";
    /// The name cannot be resolved.
    NoName = 79, "the host's name has no address";
    /// The network does not reach the address.
    NoRoute = 80, "the network does not lead to that address";
    /// The system does not let this user connect.
    NoPermission = 81, "this user may not connect to that address";
    /// The backlog of a unix socket is full.
    Backlog = 82, "so many wait at that address that no more are taken";
    /// The connection ended before anything was sent.
    HungUp = 83, "what listens at that address hung up: it is no node of the bus, or has too many connections";
    /// The first bytes are not TLS.
    NotTls = 84, "the other side does not speak TLS";
    /// The certificate is of an unknown authority.
    Untrusted = 85, "the certificate of the other node is not issued by an authority of ca_file";
    /// The certificate has expired, or is not valid yet.
    Expired = 86, "the certificate of the other node is not valid at this time";
    /// The other side refuses our certificate.
    CertificateRefused = 87, "the other node refuses our certificate, or wants one";
    /// The other side says that our certificate has expired.
    CertificateExpired = 89, "the other node says that our certificate has expired";
    /// The certificate is missing, damaged, an authority's, or for another purpose.
    BadCertificate = 90, "the other node shows no certificate, or one that is damaged or for something else";
    /// Any other failure of TLS.
    TlsFailed = 88, "there was no agreement on TLS";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Reason {}

/// The reason why a message was not accepted from its sender: nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// There is no way to the destination, a queue is full, or the message is too long.
    Refused(Reason),
    /// As many messages wait for answers as may.
    TooManyWaiting,
    /// The destination is [`NodeId::NONE`].
    NoDestination,
    /// The version is older than the current one, or has the same number and another body.
    Stale,
    /// There are more topics than may be, or the name of the topic has no or more than 63 bytes.
    Topic,
}

impl fmt::Display for SendFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendFault::Refused(reason) => reason.fmt(f),
            SendFault::TooManyWaiting => f.write_str("as many messages wait for answers as may"),
            SendFault::NoDestination => f.write_str("a message needs a destination"),
            SendFault::Stale => f.write_str("a version at least as new is there already"),
            SendFault::Topic => {
                f.write_str("a topic's name is 1 to 63 letters and digits of ASCII and -_./:")
            }
        }
    }
}

impl std::error::Error for SendFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_its_number_and_no_other_s() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of(*reason as u16), *reason);
        }
        assert_eq!(Reason::of(9999), Reason::Unknown);
    }
}
