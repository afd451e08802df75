//! Ranges of addresses, for access rules.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits: `10.0.0.0/8`, `2001:db8::/32`, `127.0.0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// The reason why a text is not a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNetwork {
    /// It has no address.
    Address,
    /// The number of bits is missing, or too large for the address.
    Prefix,
    /// The address has bits beyond the prefix; the network without them is given.
    Bits(Network),
}

impl Network {
    /// Returns whether it contains this address. An IPv4 address within IPv6 counts as IPv4.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.first, addr.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(addr)) => {
                (first.to_bits() ^ addr.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(first), IpAddr::V6(addr)) => {
                (first.to_bits() ^ addr.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }

    fn len_of(addr: IpAddr) -> u8 {
        if addr.is_ipv4() { 32 } else { 128 }
    }
}

/// Returns `addr` with the bits after the first `prefix` bits cleared.
fn cut(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((addr.to_bits() & mask).into())
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((addr.to_bits() & mask).into())
        }
    }
}

impl FromStr for Network {
    type Err = NotNetwork;

    fn from_str(text: &str) -> Result<Self, NotNetwork> {
        let (addr, prefix) = match text.split_once('/') {
            Some((addr, prefix)) => (addr, Some(prefix)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| NotNetwork::Address)?;
        let len = Network::len_of(addr);
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match prefix {
            None => len,
            Some(prefix) => {
                let number = Some(prefix).filter(is_number).and_then(|text| text.parse().ok());
                number.filter(|prefix| *prefix <= len).ok_or(NotNetwork::Prefix)?
            }
        };
        let network = Network { first: cut(addr, prefix), prefix };
        if network.first == addr { Ok(network) } else { Err(NotNetwork::Bits(network)) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == Network::len_of(self.first) {
            return self.first.fmt(f);
        }
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("192.168.4.0/22", "192.168.7.255", "192.168.8.0"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("::/0", "2001:db8::1", "8.8.8.8"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::1", "::1", "::2"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(network.to_string().parse(), Ok(network));
        }
    }

    #[test]
    fn what_is_no_network_is_told_for_what_it_is() {
        let read = |text: &str| text.parse::<Network>().unwrap_err();
        for text in ["", "localhost", "10.0.0/8", "10.0.0.0.0", "/8", "[::1]"] {
            assert_eq!(read(text), NotNetwork::Address, "{text}");
        }
        for text in ["10.0.0.0/", "10.0.0.0/33", "::/129", "::/+1", "::/-1", "10.0.0.0/8/8"] {
            assert_eq!(read(text), NotNetwork::Prefix, "{text}");
        }
        let NotNetwork::Bits(meant) = read("10.1.2.3/8") else { panic!() };
        assert_eq!(meant.to_string(), "10.0.0.0/8");
    }
}
