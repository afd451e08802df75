//! Commands by their names: `set:1,get:10,mget_20:1`.

use super::{Command, CommandKind, Sizes};
use crate::error::Error;
use std::str::FromStr;

const NAMES: &str = "get, set, setex, mget_20, mset_10, del, incr, touch";

impl Command {
    /// The command of that name; a number of keys stands behind `mget_` and `mset_`.
    ///
    /// # Errors
    /// [`Error::Asked`] when there is none.
    pub fn named(name: &str) -> Result<Command, Error> {
        let kind = match name {
            "get" => CommandKind::Get,
            "set" => CommandKind::Set,
            "setex" => CommandKind::Setex,
            "del" => CommandKind::Delete,
            "incr" => CommandKind::Increment,
            "touch" => CommandKind::Touch,
            _ => many(name).ok_or_else(|| {
                Error::asked(format!(
                    "{name:?} is no command by name: {NAMES} are; for others \
                    there are templates"
                ))
            })?,
        };
        Ok(Command { name: name.to_owned(), kind })
    }
}

fn many(name: &str) -> Option<CommandKind> {
    let (verb, keys) = name.split_once('_')?;
    let keys = keys.parse().ok()?;
    match verb {
        "mget" => Some(CommandKind::Mget(keys)),
        "mset" => Some(CommandKind::Mset(keys)),
        _ => None,
    }
}

/// Reads names with how often each comes, by comma; once where nothing is said.
///
/// # Errors
/// [`Error::Asked`].
pub fn parse_mix(text: &str) -> Result<Vec<(Command, u32)>, Error> {
    text.split(',')
        .map(|part| {
            let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight = weight.parse().map_err(|_| {
                Error::asked(format!("{weight:?} is no weight: as in set:1,get:10"))
            })?;
            Ok((Command::named(name)?, weight))
        })
        .collect()
}

/// A number of bytes, as `100`, `64k` or `1m`.
fn len(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| format!("{text:?} is no number of bytes, as 100, 64k or 1m"))
}

impl FromStr for Sizes {
    type Err = String;

    /// `100`, `8-128`, or `64:9,4k:1`: sizes with how often each comes.
    fn from_str(text: &str) -> Result<Sizes, String> {
        if text.contains(':') {
            let one = |part: &str| {
                let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
                let weight = weight.parse().map_err(|_| format!("{weight:?} is no weight"))?;
                Ok((len(size)?, weight))
            };
            return text.split(',').map(one).collect::<Result<_, String>>().map(Sizes::Weighted);
        }
        match text.split_once('-') {
            Some((from, to)) => Ok(Sizes::Range(len(from)?, len(to)?)),
            None => len(text).map(Sizes::Fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_with_its_weights() {
        let mix = parse_mix("set:1,get:10,mget_20").unwrap();
        let kinds: Vec<_> =
            mix.into_iter().map(|(command, weight)| (command.kind, weight)).collect();
        let expected = [(CommandKind::Set, 1), (CommandKind::Get, 10), (CommandKind::Mget(20), 1)];
        assert_eq!(kinds, expected);
        for wrong in ["", "got", "get:x", "mget_", "mdel_2", "get,"] {
            assert!(parse_mix(wrong).is_err(), "{wrong}");
        }
    }
}
