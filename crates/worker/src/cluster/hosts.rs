//! The addresses of host names in reports about replicas, by Keyway or by their primary.

use keyway_base::Time;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long a name is not looked up again. If it were shorter, name servers would be asked more
/// often. If it were longer, a replica that has returned with another address would stay unread for
/// longer.
const STANDS_FOR: Duration = Duration::from_secs(10);

/// Number of names that are known at once. Beyond that none is looked up until others are
/// discarded. A primary may report that many replicas.
const HOSTS_MAX: usize = 1024;

/// How long a name is kept that is not used.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Names that were looked up.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<Box<str>, Host>);

#[derive(Debug)]
struct Host {
    address: Option<IpAddr>,
    looked_up: Time,
}

impl Hosts {
    /// Returns the address of a host, which may be given as an address, as far as it is known.
    pub(super) fn address(&self, host: &str) -> Option<IpAddr> {
        match host.parse::<IpAddr>() {
            Ok(address) => Some(address.to_canonical()),
            Err(_) => self.0.get(host)?.address,
        }
    }

    /// Returns whether the caller must look a host up.
    pub(super) fn try_claim(&mut self, host: &str, now: Time) -> bool {
        if host.parse::<IpAddr>().is_ok() {
            return false;
        }
        if let Some(known) = self.0.get_mut(host) {
            let is_due = known.looked_up + STANDS_FOR <= now;
            if is_due {
                known.looked_up = now;
            }
            return is_due;
        }
        if self.0.len() >= HOSTS_MAX {
            self.0.retain(|_, known| now < known.looked_up + FORGOTTEN_AFTER);
        }
        let has_room = self.0.len() < HOSTS_MAX;
        if has_room {
            self.0.insert(host.into(), Host { address: None, looked_up: now });
        }
        has_room
    }

    /// Notes the address of a name. If the name no longer resolves, its last address is kept.
    pub(super) fn note(&mut self, host: &str, address: Option<IpAddr>) {
        if let (Some(known), Some(address)) = (self.0.get_mut(host), address) {
            known.address = Some(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_name_is_looked_up_once_in_a_while_and_stays_where_it_was() {
        let mut hosts = Hosts::default();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        assert!(!hosts.try_claim("10.0.0.1", at(0)) && !hosts.try_claim("::1", at(0)));
        assert_eq!(hosts.address("10.0.0.1"), Some(address));
        assert_eq!(hosts.address("::ffff:10.0.0.1"), Some(address));
        assert!(hosts.try_claim("a", at(0)) && !hosts.try_claim("a", at(9)));
        assert_eq!(hosts.address("a"), None);
        hosts.note("a", Some(address));
        assert!(hosts.try_claim("a", at(10)) && !hosts.try_claim("a", at(10)));
        hosts.note("a", None);
        assert_eq!(hosts.address("a"), Some(address));
        hosts.note("b", Some(address));
        assert_eq!(hosts.address("b"), None, "nobody has asked for it");
    }

    #[test]
    fn names_are_bounded_and_old_ones_make_room() {
        let mut hosts = Hosts::default();
        for nth in 0..HOSTS_MAX {
            assert!(hosts.try_claim(&format!("h{nth}"), at(0)));
        }
        assert!(!hosts.try_claim("one more", at(30)));
        assert!(hosts.try_claim("h0", at(30)));
        assert!(hosts.try_claim("one more", at(61)));
        assert_eq!(hosts.0.len(), 2);
    }
}
