//! Commands by their names: `set:1,get:10,mget_20:1`.

use super::{Command, CommandKind};
use crate::error::Error;

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
