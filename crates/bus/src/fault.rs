//! Everything that can go wrong, with the numbers that travel.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $text:literal;)+) => {
        /// Why a message came back, a connection was refused, or one ended. The numbers are part of the
        /// protocol (docs/protocol/bus.md).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name = $code,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)+];

            /// The reason of a number; one that is not known is [`Reason::Unknown`].
            pub fn of(code: u16) -> Reason {
                match code {
                    $($code => Reason::$name,)+
                    _ => Reason::Unknown,
                }
            }

            /// What it says to an operator.
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
    /// No way leads to the destination.
    Unreachable = 1, "no node of that id is known here, and there is no upstream to ask";
    /// Too many hops.
    Ttl = 2, "the message went through as many nodes as its ttl allows";
    /// The path already has this node.
    Loop = 3, "the message came by a second time: two nodes take each other for the way";
    /// A queue on the way is full.
    Full = 4, "the queue to the next node is full";
    /// The connection it was sent on was lost; it may have arrived.
    LinkLost = 5, "the connection was lost after the message was sent";
    /// A later message of the same sender came first.
    Late = 6, "a later message of the same sender was delivered before, by another way";
    /// Longer than the next node takes.
    TooLarge = 7, "the message is longer than that node takes";
    /// No answer in time; it may have arrived.
    Timeout = 8, "there was no answer in time";
    /// The body could not be read.
    Malformed = 9, "the body is not what its frame says";
    /// No memory for the parts of the message.
    Memory = 10, "the node has no memory left for messages in parts";
    /// The destination does not do that.
    NoCommand = 11, "that node has no such command";
    /// The node is going.
    Leaving = 12, "the node is leaving the bus";
    /// The destination does not take what its inbox has no room for.
    InboxFull = 13, "that node does not keep up with its messages";
    /// Only to be delivered without going up, and that was not possible.
    NoUpstream = 14, "the destination is not below this node, and the message must not go up";
    /// The rest of a message in parts did not come.
    Stalled = 15, "the rest of a message in parts did not come";
    /// No place for one more topic, or for its bytes.
    TopicsFull = 16, "the node has as many topics, or bytes of them, as it takes";
    /// No token fits.
    Denied = 32, "no token of the other node is one of ours";
    /// The acceptor could not prove that it knows a token.
    Unproven = 33, "the node that was dialled does not prove that it knows the token";
    /// No common version.
    Version = 34, "there is no version of the protocol that both speak";
    /// An id that this node does not let in.
    IdRefused = 35, "nodes of that id are not let in here";
    /// Another connection has that id.
    IdInUse = 36, "a node of that id is connected already";
    /// Somebody else was dialled than was meant.
    IdMismatch = 37, "the node at that address has another id";
    /// Too many connections.
    PeersMax = 38, "the node has as many connections as it takes";
    /// It took too long.
    HandshakeTimeout = 39, "the registration was not done in time";
    /// Our own id.
    OwnId = 40, "the node at that address has our own id";
    /// The certificate has other names.
    CertificateName = 41, "the certificate of the other node is not made out to its id";
    /// Two nodes have one id.
    IdTwice = 42, "two nodes on the bus have that id";
    /// Bytes that are no frame.
    NoFrame = 64, "the bytes are no frame of the bus";
    /// The checksum is wrong.
    Checksum = 65, "the checksum of a frame is wrong";
    /// A frame that has no place in this state.
    Unexpected = 66, "a frame that must not come at this point";
    /// More than the credit that was given.
    Credit = 67, "more was sent than there was credit for";
    /// Fragments that do not fit.
    Fragments = 68, "fragments that are not of one message";
    /// Silence.
    Silent = 69, "nothing was heard for three heartbeats";
    /// The transport ended.
    Closed = 70, "the connection ended";
    /// The tree bites its tail.
    Cycle = 71, "that node has this one below it: a cycle of upstreams";
    /// Nothing left to say.
    Bye = 72, "the other node has left";
    /// A direct connection that nobody uses.
    Idle = 73, "a direct connection that was not used";
    /// The same node came again.
    Replaced = 74, "the same node has connected anew";
    /// It could not be connected to.
    DialFailed = 75, "no address of the node could be connected to";
    /// Connecting was refused, or there is no such socket.
    NobodyListens = 76, "nobody listens at that address";
    /// Connecting, or the first word of the other side, took too long.
    NoAnswer = 77, "there was no answer from that address in time";
    /// The other side says something, and it is nothing of ours.
    NotBus = 78, "what listens at that address is no node of the bus";
    /// The name is not known.
    NoName = 79, "the host's name has no address";
    /// The network says that it leads nowhere.
    NoRoute = 80, "the network does not lead to that address";
    /// The system does not let this user connect.
    NoPermission = 81, "this user may not connect to that address";
    /// A unix socket whose backlog is full.
    Backlog = 82, "so many wait at that address that no more are taken";
    /// The connection ended before anything was said.
    HungUp = 83, "what listens at that address hung up: it is no node of the bus, or has too many connections";
    /// What came first was no TLS.
    NotTls = 84, "the other side does not speak TLS";
    /// The certificate is of an authority that is not ours.
    Untrusted = 85, "the certificate of the other node is not issued by an authority of ca_file";
    /// The certificate is too old, or too new.
    Expired = 86, "the certificate of the other node is not valid at this time";
    /// The other side says so of ours.
    CertificateRefused = 87, "the other node refuses our certificate, or wants one";
    /// The other side says so of ours.
    CertificateExpired = 89, "the other node says that our certificate has expired";
    /// Missing, damaged, an authority's, or for something else.
    BadCertificate = 90, "the other node shows no certificate, or one that is damaged or for something else";
    /// Anything else that TLS ends with.
    TlsFailed = 88, "there was no agreement on TLS";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Reason {}

/// Why a message was not taken from its sender: nothing of it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// No way there, a full queue, or too long.
    Refused(Reason),
    /// As many messages wait for answers as may.
    TooManyWaiting,
    /// The destination is none.
    NoDestination,
    /// An older version than the one there is, or as old with another body.
    Stale,
    /// More topics than may be, a topic's name of no or more than 63 bytes.
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
