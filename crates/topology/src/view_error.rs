use std::fmt;

/// Most nodes of a cluster, or instances told by a Sentinel, that are accepted. Redis Cluster
/// itself is made for up to a thousand.
pub const NODES_MAX: usize = 1000;

/// Longest reply that is read, in bytes. CLUSTER SLOTS takes about ten million bytes for a thousand
/// nodes whose slots are scattered one by one.
pub const VIEW_LEN_MAX: usize = 16 << 20;

/// Bytes of a server's own error text that are kept.
const REFUSAL_LEN_MAX: usize = 200;

/// The reason why a reply tells nothing about a cluster or its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewError {
    /// The bytes are not exactly one reply.
    NotOneReply,
    /// The reply is longer than [`VIEW_LEN_MAX`].
    TooLong,
    /// The server answered with this error, cut if it is long.
    Refused(Box<str>),
    /// The reply has something else instead of this.
    Expected(&'static str),
    /// A field is not a number, or is out of range.
    Number(&'static str),
    /// The host of a node is neither a name nor an address.
    Host(Box<str>),
    /// A slot is 16384 or more, or a range ends before it starts.
    SlotRange,
    /// The ranges add up to far more slots than there are.
    TooManySlots,
    /// There are more than [`NODES_MAX`] nodes.
    TooManyNodes,
    /// No server has any slot, although other views know owners.
    NoSlots,
}

impl ViewError {
    pub(crate) fn refused(text: &[u8]) -> ViewError {
        ViewError::Refused(cut(text))
    }

    pub(crate) fn host(text: &str) -> ViewError {
        ViewError::Host(cut(text.as_bytes()))
    }
}

/// Returns the start of `text`, escaped for display.
fn cut(text: &[u8]) -> Box<str> {
    // Quotes stay as they are: errors are full of them.
    let shown = |&byte: &u8| match byte {
        b'\'' | b'"' => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    };
    text.iter().take(REFUSAL_LEN_MAX).map(shown).collect::<String>().into()
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::NoSlots => {
                f.write_str("names no server for any slot: it was reset, or is of no cluster")
            }
            ViewError::NotOneReply => f.write_str("is not exactly one reply"),
            ViewError::TooLong => write!(f, "is longer than {VIEW_LEN_MAX} bytes"),
            ViewError::Refused(text) if text.contains("cluster support disabled") => write!(
                f,
                "is an error: {text}: it is no cluster: use kind = \"sharded\" or \"replicated\""
            ),
            ViewError::Refused(text) => write!(f, "is an error: {text}"),
            ViewError::Expected(what) => write!(f, "has something else in place of {what}"),
            ViewError::Number(what) => write!(f, "has no possible number for {what}"),
            ViewError::Host(text) => write!(f, "has a node without a possible host: {text}"),
            ViewError::SlotRange => f.write_str("has a range of slots that cannot be"),
            ViewError::TooManySlots => f.write_str("has slots claimed many times over"),
            ViewError::TooManyNodes => write!(f, "has more than {NODES_MAX} nodes"),
        }
    }
}

impl std::error::Error for ViewError {}
