//! Requests that are refused where they are read, in memcached's words.

use crate::packet::{self, Status};
use crate::{Dialect, Head};

/// Why bytes are no request. Most leave the connection in step: the client is
/// told and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// No command of that name, or with that many words.
    Unknown,
    /// A key too long, or something that is no number.
    BadLine,
    /// An expiry that is no number.
    BadExpiry,
    /// A step of incr or decr that is no number.
    BadDelta,
    /// Words behind the key of a delete.
    DeleteUsage,
    /// A value that is not followed by a line end.
    BadChunk,
    /// A value longer than the bound.
    ValueTooLarge,
    /// A line longer than the bound. Closes.
    LineTooLong,
    /// More keys than the bound.
    TooManyKeys,
    /// A meta flag given twice.
    MetaDuplicate,
    /// A meta flag there is none of.
    MetaUnknown,
    /// A meta flag whose number is none.
    MetaNumber,
    /// A key that is no base64.
    MetaKey,
    /// A meta `M` without a mode, or with more than a letter.
    MetaModeLength,
    /// A meta `J` that is no number.
    MetaInitial,
    /// A meta `D` that is no number.
    MetaDelta,
    /// A mode that ms does not have.
    MetaSetMode,
    /// A mode that ma does not have.
    MetaArithmeticMode,
    /// More flags than mg takes.
    MetaGetTooMany,
    /// More flags than ms, md or ma take.
    MetaTooMany,
    /// A flag of md or ma that is wrong in any way.
    MetaFlag,
    /// An opaque token longer than 31 bytes.
    MetaOpaque,
    /// Binary: no such operation.
    Opcode,
    /// Binary: lengths that do not go with the operation. Closes.
    Arguments,
    /// Binary: lengths that contradict each other. Closes.
    Lengths,
    /// Binary: a packet that does not begin as one. Closes without a word.
    Magic,
    /// Someone speaks HTTP. Closes without a word.
    Http,
}

impl RequestFault {
    /// Whether the connection ends after the error.
    pub fn closes(self) -> bool {
        matches!(
            self,
            Self::LineTooLong | Self::Arguments | Self::Lengths | Self::Magic | Self::Http
        )
    }

    /// The line of the text protocols, without its end; empty for silence.
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

    /// Appends the error reply to a request of which `head` is what was read.
    /// Nothing where memcached says nothing: to a classic command that asked
    /// for no reply, and before it closes on who speaks another protocol.
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
