//! What is measured.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    /// Rings in shared memory: one, or a lane for each sender.
    Shm,
    /// A unix socket for each sender.
    Unix,
    /// TCP over IPv6's loopback.
    Tcp6,
}

impl Channel {
    /// All there are.
    pub const ALL: [Channel; 3] = [Channel::Shm, Channel::Unix, Channel::Tcp6];
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Channel::Shm => "shm",
            Channel::Unix => "unix",
            Channel::Tcp6 => "tcp6",
        })
    }
}

impl FromStr for Channel {
    type Err = String;

    fn from_str(text: &str) -> Result<Channel, String> {
        Channel::ALL
            .into_iter()
            .find(|channel| channel.to_string() == text)
            .ok_or_else(|| format!("\"{text}\" is no channel: shm, unix and tcp6 are"))
    }
}

/// Lengths of messages, drawn evenly, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The shortest.
    pub min: usize,
    /// The longest.
    pub max: usize,
}

/// A message holds its number.
const LEN_MIN: usize = 8;

/// Longest message, in bytes: much less than a ring.
const LEN_MAX: usize = 64 << 10;

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.min, self.max))
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let wrong =
            || format!("\"{text}\" is no range of lengths from {LEN_MIN} to {LEN_MAX}, as 8-128");
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let (min, max) = (min.parse().map_err(|_| wrong())?, max.parse().map_err(|_| wrong())?);
        match LEN_MIN <= min && min <= max && max <= LEN_MAX {
            true => Ok(Sizes { min, max }),
            false => Err(wrong()),
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// What carries the messages.
    pub channel: Channel,
    /// How long they are.
    pub sizes: Sizes,
    /// How many processes send, to one that receives.
    pub senders: usize,
}
