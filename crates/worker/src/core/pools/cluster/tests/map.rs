//! The questions about a cluster, and its servers as they come and go.

use super::*;
use crate::core::pools::cluster::state::About;
use keyway_base::{Fault, Sent};
use keyway_topology::ServerId;

#[test]
fn a_server_ejected_by_hand_stays_so_when_it_leaves_and_comes_back_until_it_is_restored() {
    let mut core = core();
    let index_of =
        |core: &Core| core.plane.cluster_state(0).expect("a cluster").map.index_of(&endpoint(2));
    let is_out = |core: &Core| {
        let plan = &core.plane.plan;
        let at = usize::from(index_of(core).expect("it is there"));
        plan.health.is_held(plan.topology.backend_id(0, at))
    };
    let (both, one) = ([(0, 8191, 1), (8192, 16383, 2)], [(0, 16383, 1)]);
    let plan = Arc::clone(&core.plane.plan);
    assert!(plan.eject(plan.topology.backend_id(0, usize::from(index_of(&core).unwrap()))));
    let mut now = Time(1);
    // Longer than the index of an absent server is kept.
    let mut leave = |core: &mut Core| {
        learn_at(core, &one, now);
        now = now + Duration::from_secs(60);
        learn_at(core, &one, now);
        assert_eq!(index_of(core), None, "it has left");
        let held = core.plane.plan.held_servers();
        (now, held.iter().any(|(_, address)| address == "h:2"))
    };
    for _ in 0..2 {
        let (now, is_listed) = leave(&mut core);
        assert!(is_listed, "an upgrade hands it over");
        learn_at(&mut core, &both, now);
        assert!(is_out(&core));
    }
    assert!(plan.restore(plan.topology.backend_id(0, usize::from(index_of(&core).unwrap()))));
    assert!(!is_out(&core));
    let (now, is_listed) = leave(&mut core);
    learn_at(&mut core, &both, now);
    assert!(!is_listed && !is_out(&core), "it was restored");
    assert!(plan.eject(plan.topology.backend_id(0, usize::from(index_of(&core).unwrap()))));
    let (now, _) = leave(&mut core);
    assert!(!plan.restore_absent(0, "h:3"), "nobody has ejected it");
    assert!(plan.restore_absent(0, "h:2"));
    learn_at(&mut core, &both, now);
    assert!(!is_out(&core), "it was restored while it was away");
}

#[test]
fn who_says_nothing_of_use_is_not_asked_again_while_others_can_be() {
    let mut core = core();
    let index = link(&core, 1);
    let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
    assert!(
        (0..64).any(|_| core.someone_to_ask(0).map(|(_, at)| at) == Some(core.links.key_at(index)))
    );
    core.plane.miss_of_cluster(core.links[index].server_id, 1, fault);
    for _ in 0..32 {
        assert_ne!(core.someone_to_ask(0).map(|(_, at)| at), Some(core.links.key_at(index)));
    }
}

#[test]
fn one_that_is_silent_for_300_ms_has_another_asked_whose_answer_counts() {
    let mut core = core();
    let asked = |core: &mut Core| [1, 2].map(|port| send(core, port).contains("CLUSTER"));
    core.tend_clusters();
    let first = asked(&mut core);
    assert!(first[0] != first[1], "{first:?}");
    pass_to(&mut core, 299);
    core.tend_clusters();
    assert_eq!(asked(&mut core), [false, false]);
    pass_to(&mut core, 301);
    core.tend_clusters();
    let second = asked(&mut core);
    assert_eq!(second, [!first[0], !first[1]]);
    // The answer of the second server counts, and a later answer of the first does not.
    let slots = |last: u16| format!("*1\r\n*3\r\n:0\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:1\r\n");
    let ports = if second[0] { [1, 2] } else { [2, 1] };
    hear(&mut core, ports[0], &slots(16383));
    core.follow_clusters();
    let owned = |core: &Core| {
        core.plane.cluster_state(0).unwrap().map.owned_by(usize::from(index_of(core, 1).unwrap()))
    };
    assert_eq!(owned(&core), 16384);
    hear(&mut core, ports[1], &slots(5460));
    core.follow_clusters();
    assert_eq!(owned(&core), 16384);
}

#[test]
fn nothing_that_is_known_of_a_pool_that_ends_is_known_of_the_next_at_its_position() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "GET a\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, "-TRYAGAIN later\r\n");
    assert_eq!((output(&core, client), core.plane.cluster.retries.len()), (String::new(), 1));
    core.plane.begin_round(0);
    core.plane.note_question(0, 1, About::Role);
    core.plane.cluster.silent.insert((0, 1), Time(u64::MAX));
    core.plane.cluster.unanswered.push((ServerId { pool: 0, server: 1 }, 1));
    core.plane.cluster.told_about.push(0);
    core.plane.cluster.note_unnamed(ServerId { pool: 0, server: 1 });
    core.end_cluster(0);
    assert_eq!(output(&core, client), r"-TRYAGAIN later\r\n");
    let cluster = &core.plane.cluster;
    assert!(cluster.pools.is_empty() && cluster.rounds.is_empty() && cluster.silent.is_empty());
    assert!(cluster.retries.is_empty() && !core.has_heard_of_clusters());
    assert!(!core.plane.owes_answers(0, 1) && !core.plane.is_round_over(0));
}
