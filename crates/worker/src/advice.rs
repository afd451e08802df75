//! Says what to change in the configuration when a server refuses with a known text.

use keyway_base::{Foreign, quoted};

/// The end of the name of a pool of sentinels, after the name of the pool that they watch.
const OF_SENTINELS: &str = "/sentinels";

/// Returns which key of which table to check when a server has answered `said` to a pool, or `None`
/// if the text is not known.
pub(crate) fn advice(pool: &str, said: &str) -> Option<String> {
    let (table, key) = match pool.strip_suffix(OF_SENTINELS) {
        Some(table) => (table, "sentinel_password"),
        None => (pool, "password"),
    };
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["NOAUTH"]) {
        Some(format!("set {key} in [pool.{table}]"))
    } else if has(&["WRONGPASS", "invalid password"]) {
        Some(format!("check {key} in [pool.{table}]"))
    } else if has(&["without any password configured", "no password is set"]) {
        Some(format!("it wants none: remove {key} from [pool.{table}]"))
    } else {
        None
    }
}

/// Returns the same for a server that ends plain connections before it has answered once.
pub(crate) fn advice_of_tls(pool: &str) -> String {
    let (table, key) = match pool.strip_suffix(OF_SENTINELS) {
        Some(table) => (table, "sentinel_tls"),
        None => (pool, "tls"),
    };
    format!("if it speaks TLS on this port, set {key} in [pool.{table}]")
}

/// Names the protocol of a server that sends `said`, if it is known, and says what to change.
pub(crate) fn advice_of_foreign(pool: &str, said: &[u8]) -> String {
    let quoted = quoted(said);
    let Some(foreign) = Foreign::of(said) else {
        return format!("it said {quoted}; check its address");
    };
    let what = match foreign {
        Foreign::Tls => advice_of_tls(pool),
        Foreign::Memcached => format!("use kind = \"memcached\" in [pool.{pool}]"),
        Foreign::Redis => format!("use kind = \"sharded\" in [pool.{pool}]"),
        Foreign::Ssh | Foreign::Http => "check its address".to_owned(),
    };
    format!("it speaks {}: it said {quoted}; {what}", foreign.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_sentinels_have_a_key_of_their_own() {
        let noauth = "NOAUTH Authentication required.";
        assert_eq!(advice("a", noauth).as_deref(), Some("set password in [pool.a]"));
        let of_sentinels = advice("a/sentinels", noauth);
        assert_eq!(of_sentinels.as_deref(), Some("set sentinel_password in [pool.a]"));
        let wrong = advice("a", "WRONGPASS invalid username-password pair or user is disabled.");
        assert_eq!(wrong.as_deref(), Some("check password in [pool.a]"));
        assert_eq!(advice("a", "LOADING Redis is loading the dataset in memory"), None);
        let memcached = advice_of_foreign("a", b"ERROR\r\n");
        assert!(memcached.starts_with("it speaks the protocol of memcached: it said 'ERROR'; use"));
        assert_eq!(advice_of_foreign("a", b"220 x\r\n"), "it said '220 x'; check its address");
        assert!(advice_of_tls("a/sentinels").ends_with("set sentinel_tls in [pool.a]"));
    }
}
