//! The choice of a replica.

use super::{GroupSeen, RoleSeen, ServerSeen};
use std::cmp::Reverse;
use std::time::Duration;

/// A replica whose link was down for so much longer than its primary is silent lacks writes that
/// others may have. A shorter time would rule out replicas that noticed the end of the primary first.
const LINK_DOWN_BEFORE: Duration = Duration::from_secs(10);

/// The reason why a server cannot become the primary.
pub(crate) fn fitness(server: &ServerSeen) -> Result<u64, &'static str> {
    match &server.role {
        _ if !server.is_reached() => Err("does not answer control"),
        None => Err("has not told its role"),
        Some(RoleSeen::Primary { .. }) => Err("says that it is a primary itself"),
        Some(RoleSeen::Replica { is_syncing: true, .. }) => {
            Err("lacks data: its first full copy is under way")
        }
        Some(RoleSeen::Replica { priority: 0, .. }) => {
            Err("has the priority 0, so it is never promoted")
        }
        Some(RoleSeen::Replica { offset, .. }) => Ok(*offset),
    }
}

/// Returns the replica that lacks least, and of several of them the first by its address. `silent` is
/// the time for which the primary has been silent.
pub(crate) fn best<'s>(
    seen: &'s GroupSeen,
    except: &str,
    silent: Duration,
) -> Option<&'s ServerSeen> {
    let limit = silent + LINK_DOWN_BEFORE;
    let is_cut_off = |server: &ServerSeen| match &server.role {
        Some(RoleSeen::Replica { down_ms: Some(ms), .. }) => u128::from(*ms) > limit.as_millis(),
        _ => false,
    };
    let fit = seen.servers.iter().filter(|server| server.address != except);
    let ranked = fit.filter_map(|server| {
        let offset = fitness(server).ok()?;
        Some(((is_cut_off(server), Reverse(offset), server.address.as_str()), server))
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, server)| server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(address: &str, offset: u64, down_ms: Option<u64>) -> ServerSeen {
        let role = RoleSeen::Replica {
            of: "p:1".to_owned(),
            offset,
            is_linked: down_ms.is_none(),
            down_ms,
            is_syncing: false,
            priority: 100,
        };
        ServerSeen { address: address.to_owned(), silent_ms: None, role: Some(role) }
    }

    #[test]
    fn the_replica_with_most_data_is_chosen_and_one_that_was_cut_off_last() {
        let primary = ServerSeen { address: "p:1".to_owned(), silent_ms: Some(5000), role: None };
        let choose = |replicas: &[ServerSeen]| {
            let servers = [std::slice::from_ref(&primary), replicas].concat();
            let seen = GroupSeen { pool: "a".to_owned(), epoch: 1, servers };
            best(&seen, "p:1", Duration::from_secs(5)).map(|server| server.address.clone())
        };
        let (b, c) = (replica("b:1", 100, Some(5000)), replica("c:1", 200, Some(4000)));
        assert_eq!(choose(&[b.clone(), c.clone()]).as_deref(), Some("c:1"));
        let same = replica("a:1", 200, Some(5000));
        assert_eq!(choose(&[c.clone(), same]).as_deref(), Some("a:1"), "ties go by address");
        let long = replica("c:1", 900, Some(60_000));
        assert_eq!(choose(&[long.clone(), b.clone()]).as_deref(), Some("b:1"));
        assert_eq!(choose(&[long]).as_deref(), Some("c:1"), "better than none");
        let mut never = replica("c:1", 900, None);
        if let Some(RoleSeen::Replica { priority, .. }) = &mut never.role {
            *priority = 0;
        }
        assert_eq!(choose(&[never]), None);
        let away = ServerSeen { silent_ms: Some(10), ..replica("c:1", 900, None) };
        assert_eq!(choose(&[away]), None);
        let mut syncing = b;
        if let Some(RoleSeen::Replica { is_syncing, .. }) = &mut syncing.role {
            *is_syncing = true;
        }
        assert_eq!(choose(&[syncing]), None);
    }
}
