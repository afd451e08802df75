use crate::reply_reader::{decimal, endpoint};
use crate::{Endpoint, ViewError};

/// The payload of a message on `+switch-master`: a primary has another address now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchPrimary {
    /// The name of the primary for the sentinels.
    pub name: Box<str>,
    /// Its address before.
    pub from: Endpoint,
    /// Its address now.
    pub to: Endpoint,
}

impl SwitchPrimary {
    /// Reads `name old-host old-port new-host new-port`.
    ///
    /// # Errors
    /// Returns an error if the payload is anything else.
    pub fn parse(payload: &[u8]) -> Result<SwitchPrimary, ViewError> {
        const WHAT: ViewError = ViewError::Expected("a name and two addresses");
        let text = str::from_utf8(payload).map_err(|_| WHAT)?;
        let mut words = text.split(' ');
        let mut word = || words.next().filter(|word| !word.is_empty()).ok_or(WHAT);
        let name = word()?.into();
        let mut address = || {
            let (host, port) = (word()?, word()?);
            endpoint(host, decimal(port, "the port of a primary")?)?.ok_or(WHAT)
        };
        let (from, to) = (address()?, address()?);
        if words.next().is_some() { Err(WHAT) } else { Ok(SwitchPrimary { name, from, to }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_has_a_name_and_two_addresses() {
        let switch = SwitchPrimary::parse(b"main 10.0.0.1 6379 ::1 6380").unwrap();
        assert_eq!(&*switch.name, "main");
        assert_eq!(switch.from.to_string(), "10.0.0.1:6379");
        assert_eq!(switch.to.to_string(), "[::1]:6380");
        for payload in [
            "",
            "main",
            "main 10.0.0.1 6379 10.0.0.2",
            "main 10.0.0.1 6379 10.0.0.2 0",
            "main 10.0.0.1 6379 10.0.0.2 +7",
            "main 10.0.0.1 6379 a/b 7",
            "main  6379 10.0.0.2 7",
            "main 10.0.0.1 6379 10.0.0.2 7 more",
        ] {
            assert!(SwitchPrimary::parse(payload.as_bytes()).is_err(), "{payload}");
        }
    }
}
