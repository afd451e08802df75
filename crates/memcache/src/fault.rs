//! Requests that are refused when they are parsed, with memcached's texts.

use crate::packet::{self, Status};
use crate::{Dialect, Head};

/// Why bytes are no request. Most faults leave the connection synchronised: the client gets an
/// error and continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// There is no command of that name, or with that many words.
    Unknown,
    /// A key is too long, or something is no number.
    BadLine,
    /// An expiry is no number.
    BadExpiry,
    /// A step of incr or decr is no number.
    BadDelta,
    /// There are words after the key of a delete.
    DeleteUsage,
    /// A value is not followed by a line end.
    BadChunk,
    /// A value is longer than the limit.
    ValueTooLarge,
    /// A line is longer than the limit. Closes.
    LineTooLong,
    /// There are more keys than the limit.
    TooManyKeys,
    /// A meta flag is given twice.
    MetaDuplicate,
    /// A meta flag is unknown.
    MetaUnknown,
    /// The number of a meta flag is no number.
    MetaNumber,
    /// A key is no base64.
    MetaKey,
    /// A meta `M` has no mode, or more than one letter.
    MetaModeLength,
    /// A meta `J` is no number.
    MetaInitial,
    /// A meta `D` is no number.
    MetaDelta,
    /// A mode is unknown to ms.
    MetaSetMode,
    /// A mode is unknown to ma.
    MetaArithmeticMode,
    /// There are more flags than mg accepts.
    MetaGetTooMany,
    /// There are more flags than ms, md or ma accept.
    MetaTooMany,
    /// A flag of md or ma is wrong in any way.
    MetaFlag,
    /// An opaque token is longer than 31 bytes.
    MetaOpaque,
    /// Binary: the operation is unknown.
    Opcode,
    /// Binary: the lengths are not right for the operation. Closes.
    Arguments,
    /// Binary: the lengths contradict each other. Closes.
    Lengths,
    /// Binary: a packet does not begin like one. Closes without a reply.
    Magic,
    /// The client uses HTTP. Closes without a reply.
    Http,
}

impl RequestFault {
    /// Returns whether the connection ends after the error.
    pub fn closes(self) -> bool {
        matches!(
            self,
            Self::LineTooLong | Self::Arguments | Self::Lengths | Self::Magic | Self::Http
        )
    }

    /// Returns the line of the text protocols, without its end. It is empty if nothing is sent.
    pub fn line(self) -> &'static str {
        match self {
            Self::Unknown => "ERROR",
            Self::BadLine => "CLIENT_ERROR bad command line format",
            Self::BadExpiry => "CLIENT_ERROR invalid exptime argument",
            Self::BadDelta => "CLIENT_ERROR invalid numeric delta argument",
            Self::DeleteUsage => {
                "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"
            }
            Self::BadChunk => "CLIENT_ERROR bad data chunk",
            Self::ValueTooLarge => "SERVER_ERROR object too large for cache",
            Self::LineTooLong => "CLIENT_ERROR line too long",
            Self::TooManyKeys => "CLIENT_ERROR too many keys",
            Self::MetaDuplicate => "CLIENT_ERROR duplicate flag",
            Self::MetaUnknown => "CLIENT_ERROR invalid flag",
            Self::MetaNumber => "CLIENT_ERROR bad token in command line format",
            Self::MetaKey => "CLIENT_ERROR error decoding key",
            Self::MetaModeLength => "CLIENT_ERROR incorrect length for M token",
            Self::MetaInitial => "CLIENT_ERROR invalid numeric initial value",
            Self::MetaDelta => "CLIENT_ERROR invalid numeric delta value",
            Self::MetaSetMode => "CLIENT_ERROR invalid mode for ms M token",
            Self::MetaArithmeticMode => "CLIENT_ERROR invalid mode for ma M token",
            Self::MetaGetTooMany => "CLIENT_ERROR options flags are too long",
            Self::MetaTooMany => "CLIENT_ERROR options flags too long",
            Self::MetaFlag => "CLIENT_ERROR invalid or duplicate flag",
            Self::MetaOpaque => "CLIENT_ERROR opaque token too long",
            Self::Opcode | Self::Arguments | Self::Lengths | Self::Magic | Self::Http => "",
        }
    }

    /// Appends the error reply to a request of which `head` was read. It appends nothing where
    /// memcached sends nothing: to a classic command that asked for no reply, and before it closes
    /// a connection with another protocol.
    pub fn write(self, head: &Head, out: &mut Vec<u8>) {
        if head.dialect == Dialect::Binary {
            let status = match self {
                Self::Opcode | Self::Lengths => Status::UNKNOWN_COMMAND,
                Self::ValueTooLarge => Status::TOO_LARGE,
                Self::Magic => return,
                _ => Status::INVALID,
            };
            return packet::error(out, head, status, status.text());
        }
        let silent = head.quiet && head.dialect == Dialect::Text;
        let line = self.line();
        if silent || line.is_empty() {
            return;
        }
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
