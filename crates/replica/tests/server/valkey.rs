//! Valkey 9 as the primary: its own form of snapshots, and the old one for who
//! does not say that it reads the new one.

use crate::replayer::Replayer;
use crate::servers::{assert_same, await_state, settings, words};
use crate::valkey_server::{Valkey, program};
use crate::writer::{Writer, play};
use keyway_rdb::Version;
use keyway_replica::{Follower, FollowerSettings, State};
use keyway_testkit::{wait_until, watchdog};
use std::time::Duration;

#[test]
fn valkey_is_followed_in_its_own_form_and_in_that_of_redis() {
    // Making the environment takes long the first time.
    let _watchdog = watchdog(Duration::from_secs(180), "Valkey");
    let program = program();
    for (version, form) in [(Some("9.0.0"), Version::Valkey80), (None, Version::Redis11)] {
        let (from, to) = (Valkey::start(&program, &[]), Valkey::start(&program, &[]));
        (0..20).for_each(|seed| play(from.address, seed));
        let has_own_form = version.is_some();
        let mut client = from.client();
        if has_own_form {
            // RDB 11 cannot hold this, and the server would refuse to make it.
            words(&mut client, "HSET expiring a 1 b 2 c 3");
            words(&mut client, "HPEXPIREAT expiring 4102444800123 FIELDS 1 b");
        }
        let writer = Writer::start(from.address, 3000, || {});
        let replayer = Replayer::over(to.client(), form);
        let seen = replayer.seen();
        let settings = FollowerSettings {
            valkey_version: version.map(str::to_owned),
            ..settings(from.address)
        };
        let follower = Follower::start(settings, Box::new(replayer)).expect("a thread");
        await_state(&follower, State::Online);
        wait_until("units", Duration::from_secs(20), || seen.lock().units > 300);
        writer.end();
        assert_same(&follower, &seen, &mut client, &mut to.client());
        if has_own_form {
            words(&mut client, "SELECT 9");
            words(&mut client, "HSET later a 1");
            words(&mut client, "HPEXPIREAT later 4102444800456 FIELDS 1 a");
        }
        assert_same(&follower, &seen, &mut client, &mut to.client());
        assert_eq!(follower.status().full_resyncs, 1);
        if has_own_form {
            let mut copied = to.client();
            words(&mut copied, "SELECT 9");
            let times = words(&mut copied, "HPEXPIRETIME later FIELDS 1 a");
            assert_eq!(times.array()[0].integer(), 4_102_444_800_456);
        }
    }
}
