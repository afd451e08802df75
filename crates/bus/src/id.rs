//! Names of nodes: 64 bits with zone, role, group and instance.

use std::fmt;
use std::str::FromStr;

const ZONE_MAX: u64 = (1 << 12) - 1;
const ROLE_MAX: u64 = (1 << 4) - 1;
const PART_MAX: u64 = (1 << 24) - 1;
/// Roles with a name. Others are written `r6` to `r14`.
const ROLES: [(u64, &str); 6] =
    [(1, "control"), (2, "relay"), (3, "proxy"), (4, "cache"), (5, "tool"), (15, "guest")];
const GUEST: u64 = 15;
const CONTROL: u64 = 1;

/// The id of a node. It is written `z1.proxy.7.3`: zone (12 bits), role (4), group (24), instance
/// (24). A plain number is read too. 0 means "no node", and is written `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The reason why a text is not a node or range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdFault(pub String);

impl fmt::Display for IdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for IdFault {}

impl NodeId {
    /// No node: the source of a node without an id, and a destination that does not matter.
    pub const NONE: NodeId = NodeId(0);

    /// Returns the id with these parts; `None` if one is too large.
    pub fn of(zone: u64, role: u64, group: u64, instance: u64) -> Option<Self> {
        let fits =
            zone <= ZONE_MAX && role <= ROLE_MAX && group <= PART_MAX && instance <= PART_MAX;
        fits.then_some(NodeId(zone << 52 | role << 48 | group << 24 | instance))
    }

    /// Returns an id for a node without one, in the zone of the node that accepts it.
    pub fn guest(host: NodeId, random: u64) -> Self {
        NodeId(host.zone() << 52 | GUEST << 48 | (random & ((1 << 48) - 1)).max(1))
    }

    /// Returns whether this is [`NodeId::NONE`].
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether it was made by [`NodeId::guest`].
    pub fn is_guest(self) -> bool {
        self.0 >> 48 & ROLE_MAX == GUEST
    }

    /// Returns the id of the control node with the same zone, group and instance.
    #[must_use]
    pub fn as_control(self) -> NodeId {
        NodeId(self.0 & !(ROLE_MAX << 48) | CONTROL << 48)
    }

    /// Returns its zone.
    pub fn zone(self) -> u64 {
        self.0 >> 52
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let role = self.0 >> 48 & ROLE_MAX;
        write!(f, "z{}.", self.zone())?;
        match ROLES.iter().find(|(number, _)| *number == role) {
            Some((_, name)) => f.write_str(name)?,
            None => write!(f, "r{role}")?,
        }
        write!(f, ".{}.{}", self.0 >> 24 & PART_MAX, self.0 & PART_MAX)
    }
}

impl FromStr for NodeId {
    type Err = IdFault;

    fn from_str(text: &str) -> Result<Self, IdFault> {
        if text == "none" {
            return Ok(NodeId::NONE);
        }
        if let Some(id) = plain_number(text) {
            return Ok(NodeId(id));
        }
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() != 4 {
            return Err(unknown(text));
        }
        Ok(NodeId(prefix(text, &parts)?.0))
    }
}

fn plain_number(text: &str) -> Option<u64> {
    let digits = |text: &str, radix| -> Option<u64> {
        let is_plain = !text.is_empty() && !text.starts_with('+');
        is_plain.then(|| u64::from_str_radix(text, radix).ok()).flatten()
    };
    match text.strip_prefix("0x") {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    }
}

fn unknown(text: &str) -> IdFault {
    IdFault(format!(
        "`{}` is no node id: write zone.role.group.instance, as z1.proxy.7.3, or a number",
        text.chars().take(64).collect::<String>()
    ))
}

/// Returns the bits of one to four parts, and the number of low bits that are left open.
fn prefix(text: &str, parts: &[&str]) -> Result<(u64, u32), IdFault> {
    let number = |part: &str, max: u64| {
        let number = plain_number(part).filter(|_| !part.starts_with("0x"));
        number
            .filter(|number| *number <= max)
            .ok_or_else(|| IdFault(format!("`{part}` in `{text}` is no number from 0 to {max}")))
    };
    if parts.is_empty() || parts.len() > 4 || text.len() > 64 {
        return Err(unknown(text));
    }
    let zone = parts[0].strip_prefix('z').ok_or_else(|| unknown(text))?;
    let mut bits = number(zone, ZONE_MAX)? << 52;
    if let Some(role) = parts.get(1) {
        bits |= role_number(role).ok_or_else(|| {
            IdFault(format!(
                "`{role}` in `{text}` is no role: control, relay, proxy, cache, tool, guest, or r0 to r15"
            ))
        })? << 48;
    }
    if let Some(group) = parts.get(2) {
        bits |= number(group, PART_MAX)? << 24;
    }
    if let Some(instance) = parts.get(3) {
        bits |= number(instance, PART_MAX)?;
    }
    Ok((bits, [52, 48, 24, 0][parts.len() - 1]))
}

fn role_number(text: &str) -> Option<u64> {
    if let Some((number, _)) = ROLES.iter().find(|(_, name)| *name == text) {
        return Some(*number);
    }
    plain_number(text.strip_prefix('r')?).filter(|number| *number <= ROLE_MAX)
}

/// A range of ids, both ends included. It is written as a prefix (`z1.proxy`), as two ids
/// (`FROM-TO`), or as `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first.
    pub from: NodeId,
    /// The last.
    pub to: NodeId,
}

impl IdRange {
    /// Every id.
    pub const ALL: IdRange = IdRange { from: NodeId(0), to: NodeId(u64::MAX) };

    /// Returns whether `id` is one of them.
    pub fn contains(self, id: NodeId) -> bool {
        self.from <= id && id <= self.to
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

impl FromStr for IdRange {
    type Err = IdFault;

    fn from_str(text: &str) -> Result<Self, IdFault> {
        if text == "*" {
            return Ok(IdRange::ALL);
        }
        if let Some((from, to)) = text.split_once('-') {
            let range = IdRange { from: from.parse()?, to: to.parse()? };
            if range.from > range.to {
                return Err(IdFault(format!("`{text}` ends before it begins")));
            }
            return Ok(range);
        }
        if let Some(id) = plain_number(text) {
            return Ok(IdRange { from: NodeId(id), to: NodeId(id) });
        }
        let parts: Vec<&str> = text.split('.').collect();
        let (bits, open) = prefix(text, &parts)?;
        let rest = (1u64 << open) - 1;
        Ok(IdRange { from: NodeId(bits), to: NodeId(bits | rest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_reads_as_it_is_written() {
        let id: NodeId = "z1.proxy.7.3".parse().unwrap();
        assert_eq!(id.0, 1 << 52 | 3 << 48 | 7 << 24 | 3);
        assert_eq!(id.to_string(), "z1.proxy.7.3");
        assert_eq!("z0.r6.0.1".parse::<NodeId>().unwrap().to_string(), "z0.r6.0.1");
        assert_eq!("0x10".parse::<NodeId>().unwrap(), NodeId(16));
        assert_eq!("none".parse::<NodeId>().unwrap(), NodeId::NONE);
    }

    #[test]
    fn what_is_no_id_is_refused_with_what_is() {
        for text in
            ["", "z1", "z1.proxy.7", "z1.proxy.7.3.1", "z4096.proxy.0.0", "z1.r16.0.0", "1.2.3.4"]
        {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
        for text in ["z1.proxy.16777216.0", "z1.proxy.0.16777216", "z+1.proxy.0.0", "z1.webb.0.0"] {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
        let fault = "z1.webb.0.0".parse::<NodeId>().unwrap_err();
        assert!(fault.to_string().contains("control, relay, proxy"), "{fault}");
    }

    #[test]
    fn a_prefix_is_the_range_of_all_below_it() {
        let range: IdRange = "z1.proxy".parse().unwrap();
        assert!(range.contains("z1.proxy.0.0".parse().unwrap()));
        assert!(range.contains("z1.proxy.16777215.16777215".parse().unwrap()));
        assert!(!range.contains("z1.cache.0.0".parse().unwrap()));
        assert!(!range.contains("z2.proxy.0.0".parse().unwrap()));
        let one: IdRange = "z1.proxy.1.1".parse().unwrap();
        assert_eq!(one.from, one.to);
        assert!("z1.proxy.2.0-z1.proxy.1.0".parse::<IdRange>().is_err());
        assert!("*".parse::<IdRange>().unwrap().contains(NodeId(5)));
    }

    proptest! {
        #[test]
        fn every_id_survives_its_text(bits: u64) {
            prop_assert_eq!(NodeId(bits).to_string().parse::<NodeId>().unwrap(), NodeId(bits));
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,80}") {
            let _ = text.parse::<NodeId>();
            let _ = text.parse::<IdRange>();
        }
    }
}
