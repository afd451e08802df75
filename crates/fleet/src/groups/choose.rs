//! The choice of a replica.

use super::{Group, GroupSeen, Phase, RoleSeen, ServerSeen};
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

/// Returns how much a replica may lack: 0 if it follows the primary, more if its link was down for
/// longer than `limit`, and most if that never was up. `None`: it follows another server, so its
/// offset counts other writes.
fn distance(server: &ServerSeen, group: &Group, limit: Duration) -> Option<u8> {
    let Some(RoleSeen::Replica { of, is_linked, down_ms, .. }) = &server.role else { return None };
    let was_handed_over = group.next() == Some(of.as_str());
    if *of != group.primary && !was_handed_over {
        // A primary that died before it was one has no replicas yet.
        let is_of_old = group.phase == Phase::Promoting && group.old.as_ref() == Some(of);
        return is_of_old.then_some(3);
    }
    Some(match down_ms {
        _ if *is_linked => 0,
        Some(ms) if u128::from(*ms) <= limit.as_millis() => 0,
        Some(_) => 1,
        None => 2,
    })
}

/// Returns the replica of the decided primary that lacks least, and of several of them the first by its
/// address. `silent` is the time for which the primary has been silent. Servers for which `counts`
/// does not hold are left out.
pub(crate) fn best<'s>(
    seen: &'s GroupSeen,
    group: &Group,
    silent: Duration,
    counts: impl Fn(&ServerSeen) -> bool,
) -> Option<&'s ServerSeen> {
    let limit = silent + LINK_DOWN_BEFORE;
    let others = seen.servers.iter().filter(|server| server.address != group.primary);
    let others = others.filter(|server| counts(server));
    let ranked = others.filter_map(|server| {
        let offset = fitness(server).ok()?;
        let distance = distance(server, group, limit)?;
        Some(((distance, Reverse(offset), server.address.as_str()), server))
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

    fn decided(old: Option<&str>, phase: Phase) -> Group {
        let (primary, old) = ("p:1".to_owned(), old.map(str::to_owned));
        Group { epoch: 1, primary, old, phase, at: 0, why: String::new() }
    }

    #[test]
    fn a_replica_of_another_server_is_not_chosen_and_one_without_a_link_comes_last() {
        let change = |mut server: ServerSeen, to: &str, linked: bool| {
            if let Some(RoleSeen::Replica { of, is_linked, .. }) = &mut server.role {
                (*of, *is_linked) = (to.to_owned(), linked);
            }
            server
        };
        let choose = |group: &Group, servers: &[&ServerSeen]| {
            let servers = servers.iter().map(|server| (*server).clone()).collect();
            let seen = GroupSeen { pool: "a".to_owned(), epoch: 1, servers };
            best(&seen, group, Duration::ZERO, |_| true).map(|server| server.address.clone())
        };
        let settled = decided(Some("old:1"), Phase::Settled);
        let near = replica("b:1", 10, Some(500));
        let never = change(replica("c:1", 900, None), "p:1", false);
        let stranger = change(replica("d:1", 900, None), "x:1", true);
        let of_old = change(replica("e:1", 900, None), "old:1", true);
        let cut_off = replica("f:1", 5, Some(60_000));
        let all = [&near, &never, &stranger, &of_old, &cut_off];
        assert_eq!(choose(&settled, &all).as_deref(), Some("b:1"));
        assert_eq!(choose(&settled, &all[1..]).as_deref(), Some("f:1"));
        assert_eq!(choose(&settled, &all[1..4]).as_deref(), Some("c:1"), "better than none");
        assert_eq!(choose(&settled, &[&stranger, &of_old]), None);
        let promoting = decided(Some("old:1"), Phase::Promoting);
        assert_eq!(choose(&promoting, &[&stranger, &of_old]).as_deref(), Some("e:1"));
        assert_eq!(choose(&promoting, &[&of_old, &never]).as_deref(), Some("c:1"));
        let switching = decided(None, Phase::Switching { to: "x:1".to_owned() });
        assert_eq!(choose(&switching, &[&stranger]).as_deref(), Some("d:1"), "it has everything");
    }

    #[test]
    fn the_replica_with_most_data_is_chosen_and_one_that_was_cut_off_last() {
        let primary = ServerSeen { address: "p:1".to_owned(), silent_ms: Some(5000), role: None };
        let choose = |replicas: &[ServerSeen]| {
            let servers = [std::slice::from_ref(&primary), replicas].concat();
            let seen = GroupSeen { pool: "a".to_owned(), epoch: 1, servers };
            best(&seen, &decided(None, Phase::Settled), Duration::from_secs(5), |_| true)
                .map(|server| server.address.clone())
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
