//! Files of each side, read by the other.

use crate::data::{LIBRARY, collect, fill, rewritten, tell, told_by};
use keyway_rdb::Version;
use keyway_testkit::{RedisServer, TempDir, run_tool};
use std::time::Duration;

/// Returns what a server saves.
fn saved(server: &RedisServer) -> Vec<u8> {
    let mut client = server.client();
    tell(&mut client, &[b"save"]);
    let directory = tell(&mut client, &[b"config", b"get", b"dir"]).array()[1].text();
    std::fs::read(format!("{directory}/dump.rdb")).expect("the server's file")
}

#[test]
fn a_file_of_the_server_reads_as_the_server_tells() {
    // Files are compressed as by default, and with only small and only large forms.
    for options in [
        &[][..],
        &["--rdbcompression", "no", "--list-max-listpack-size", "5", "--list-compress-depth", "1"],
        &[
            "--hash-max-listpack-entries",
            "0",
            "--zset-max-listpack-entries",
            "0",
            "--set-max-intset-entries",
            "0",
            "--stream-node-max-entries",
            "7",
        ],
        &[
            "--hash-max-listpack-entries",
            "9999",
            "--zset-max-listpack-entries",
            "9999",
            "--set-max-intset-entries",
            "9999",
            "--rdbchecksum",
            "no",
        ],
    ] {
        let server = RedisServer::start_with(options);
        fill(&mut server.client());
        let file = saved(&server);
        let told = told_by(&server);
        assert!(told.len() > 20);
        for size in [file.len(), 1000, 7] {
            let collected = collect(&file, size);
            assert_eq!(collected.told, told);
            assert_eq!(collected.libraries, [LIBRARY.as_bytes()]);
            assert!(collected.is_over);
            assert!(collected.aux["redis-ver"].starts_with("7."), "{:?}", collected.aux);
        }
    }
}

#[test]
fn how_keys_are_used_is_read_too() {
    for (policy, name) in
        [("allkeys-lfu", "frequency: Some("), ("allkeys-lru", "idle_seconds: Some(")]
    {
        let server = RedisServer::start_with(&["--maxmemory-policy", policy, "--maxmemory", "1gb"]);
        fill(&mut server.client());
        let file = saved(&server);
        let mut reader = keyway_rdb::Feed::new(keyway_rdb::ReadLimits::default());
        let mut keys = 0;
        let fed = reader.feed(&file, &mut |event| {
            if let keyway_rdb::Event::Key(key) = event {
                let shown = format!("{key:?}");
                assert!(shown.contains(name), "{shown}");
                keys += 1;
            }
            Ok::<(), ()>(())
        });
        assert_eq!((fed, keys > 20), (Ok(file.len()), true));
    }
}

#[test]
fn the_server_reads_what_is_written() {
    let server = RedisServer::start();
    fill(&mut server.client());
    let file = saved(&server);
    let told = told_by(&server);
    for version in [Version::Redis9, Version::Redis10] {
        let directory = TempDir::new();
        let path = directory.write("dump.rdb", rewritten(&file, version));
        let path = path.to_str().expect("a path");
        let check = run_tool("redis-check-rdb", &[path], b"", Duration::from_secs(20));
        assert!(check.text.contains("RDB looks OK"), "{}", check.text);
        let folder = directory.path().to_str().expect("a path");
        let second = RedisServer::start_with(&["--dir", folder]);
        let mut read = told_by(&second);
        if version == Version::Redis9 {
            // Such a file contains neither counters of streams nor what was deleted.
            read.retain(|(_, key), _| !key.starts_with(b"stream") && key != b"empty");
            assert_eq!(read.len(), told.len() - 3);
            assert!(read.iter().all(|(key, lines)| told[key] == *lines));
        } else {
            assert_eq!(read, told);
        }
        // The server's own checksums of values agree.
        let (mut one, mut other) = (server.client(), second.client());
        for (database, key) in told.keys() {
            let number = database.to_string();
            tell(&mut one, &[b"select", number.as_bytes()]);
            tell(&mut other, &[b"select", number.as_bytes()]);
            let digest = [b"debug", &b"digest-value"[..], key];
            assert_eq!(tell(&mut one, &digest), tell(&mut other, &digest));
        }
        let libraries = |client: &mut _| tell(client, &[b"function", b"list", b"withcode"]);
        assert_eq!(libraries(&mut one), libraries(&mut other));
    }
}
