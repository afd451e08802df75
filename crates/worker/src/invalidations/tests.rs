use super::*;

const KEYS_MAX: usize = 1000;

fn table_of(clients: &[Client]) -> Table {
    let table = Table::default();
    clients.iter().for_each(|client| table.join(*client, *client as u16, || ()));
    table
}

fn prefixes(list: &[&str]) -> BTreeSet<Vec<u8>> {
    list.iter().map(|prefix| prefix.as_bytes().to_vec()).collect()
}

fn sorted(readers: Readers) -> Vec<Client> {
    let mut sorted: Vec<_> = readers.iter().collect();
    sorted.sort_unstable();
    sorted
}

#[test]
fn every_reader_is_found_once_by_who_changes_the_key() {
    let table = table_of(&[1, 2, 3]);
    assert!(table.enter(1, b"a", KEYS_MAX, 1).is_new && table.enter(2, b"a", KEYS_MAX, 1).is_new);
    assert!(!table.enter(1, b"a", KEYS_MAX, 1).is_new);
    assert!(table.enter(3, b"b", KEYS_MAX, 1).is_new);
    assert_eq!(sorted(table.take(b"a", None)), [1, 2]);
    assert!(table.take(b"a", None).is_empty() && table.take(b"c", None).is_empty());
    assert_eq!((sorted(table.take(b"b", None)), table.len()), (vec![3], 0));
}

#[test]
fn who_reads_a_key_as_it_expires_stays_entered() {
    let table = table_of(&[1, 2]);
    table.enter(1, b"a", KEYS_MAX, 1);
    table.enter(2, b"a", KEYS_MAX, 1);
    assert_eq!(sorted(table.take(b"a", Some(2))), [1, 2]);
    assert_eq!((sorted(table.take(b"a", Some(9))), table.len()), (vec![2], 0));
}

#[test]
fn above_the_bound_keys_are_given_up_and_their_readers_told() {
    let table = table_of(&[1]);
    let mut given_up = BTreeSet::new();
    for number in 0..1000u64 {
        let key = number.to_string();
        let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for (key, readers) in table.enter(1, key.as_bytes(), 100, random).given_up {
            assert!(readers.iter().eq([1]));
            assert!(given_up.insert(key));
        }
        assert!(table.len() <= 100);
    }
    let (kept, ..) = table.kept();
    assert_eq!((kept.len(), given_up.len()), (100, 900));
    assert!(kept.keys().all(|key| !given_up.contains(key)));
}

#[test]
fn long_names_and_many_readers_count_for_more() {
    let (table, keys_max) = (table_of(&[1]), 100);
    let bytes_max = keys_max * Limits::TRACKING_KEY_LEN;
    let mut given_up = 0;
    for number in 0..1000u64 {
        let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let key = format!("{number:01000}");
        let entered = table.enter(number, key.as_bytes(), keys_max, random);
        given_up += entered.given_up.len();
        assert!(table.bytes() <= bytes_max);
        let entered = table.enter(number, b"hot", keys_max, random);
        assert!(entered.is_new && table.bytes() <= bytes_max);
    }
    assert!(given_up > 900 && table.len() < keys_max / 2, "{given_up}");
    let huge = vec![b'x'; NAME_LEN_MAX + 1];
    let before = table.len();
    let entered = table.enter(7, &huge, keys_max, 0);
    assert!(entered.is_new && entered.given_up.len() == 1 && table.len() == before);
    table.clear();
    assert_eq!((table.len(), table.bytes()), (0, 0));
}

#[test]
fn prefixes_are_told_in_their_order_and_keys_in_theirs() {
    let table = table_of(&[1, 2]);
    table.change_prefixes(1, &prefixes(&[]), &prefixes(&["x", "ab"]));
    table.change_prefixes(2, &prefixes(&[]), &prefixes(&["", "ab"]));
    let keys = [("abc", Some(1)), ("ab", None), ("a", Some(2)), ("xy", Some(1))];
    let changed = keys.map(|(key, by)| (Box::from(key.as_bytes()), by)).into();
    let told: Vec<_> = table
        .broadcasts(&changed)
        .into_iter()
        .map(|told| {
            let keys = told.keys.iter().map(|(key, _)| String::from_utf8_lossy(key).into());
            (keys.collect::<Vec<String>>().join(" "), told.clients)
        })
        .collect();
    let expected = [
        ("a ab abc xy".to_owned(), vec![(2, 2)]),
        ("ab abc".to_owned(), vec![(1, 1), (2, 2)]),
        ("xy".to_owned(), vec![(1, 1)]),
    ];
    assert_eq!(told, expected);
    table.change_prefixes(2, &prefixes(&["", "ab"]), &prefixes(&["ab"]));
    table.change_prefixes(1, &prefixes(&["x", "ab"]), &prefixes(&[]));
    assert!(table.has_prefixes());
    assert_eq!(table.broadcasts(&changed).len(), 1);
    table.change_prefixes(2, &prefixes(&["ab"]), &prefixes(&[]));
    assert!(!table.has_prefixes());
}

#[test]
fn nothing_is_left_of_clients_who_have_left() {
    let table = table_of(&[1, 2]);
    for number in 0..20_000 {
        let key = format!("k{number}");
        table.enter(1 + number % 2, key.as_bytes(), 1 << 20, 0);
        table.enter(1, b"common", 1 << 20, 0);
        table.enter(2, b"common", 1 << 20, 0);
    }
    table.leave(1, || panic!("there is another"));
    let mut both = Readers::of(1);
    both.insert(2);
    assert!(table.present(&both).as_slice() == [(2, 2)]);
    let steps = (0..).take_while(|_| table.sweep()).count();
    assert!(steps > 2, "a step is bounded");
    let (kept, trackers, _) = table.kept();
    assert_eq!((kept.len(), table.len(), trackers), (10_001, 10_001, 1));
    assert!(table.bytes() > 10_001 * KEY_COST && table.bytes() < 10_001 * (KEY_COST + 24));
    assert!(kept.values().all(|readers| readers.iter().eq([&2])));
    let mut is_unwatched = false;
    table.leave(2, || is_unwatched = true);
    assert!(is_unwatched);
    assert_eq!((table.kept(), table.len()), ((BTreeMap::new(), 0, 0), 0));
    assert_eq!(table.bytes(), 0);
}

#[test]
fn a_client_that_is_told_of_prefixes_is_told_of_no_key_that_it_read_before() {
    let table = table_of(&[1, 2]);
    let mut both = Readers::of(1);
    both.insert(2);
    table.change_prefixes(1, &prefixes(&[]), &prefixes(&[""]));
    assert!(table.present(&both).as_slice() == [(2, 2)]);
    table.change_prefixes(1, &prefixes(&[""]), &prefixes(&[]));
    assert_eq!(table.present(&both).len(), 2);
}

#[test]
fn a_message_is_delivered_once_those_taken_with_it_were_sent() {
    let invalidations = Invalidations::default();
    let told = || Told { client: 1, what: What::Broken { target: 1 } };
    assert_eq!(invalidations.post_awaited(1, told(), 0), (true, 1));
    invalidations.take(1);
    assert_eq!(invalidations.post_awaited(1, told(), 2), (true, 2));
    assert!(!invalidations.is_delivered(1, 1));
    assert!(invalidations.acknowledge(1).into_iter().eq([0]));
    assert!(invalidations.is_delivered(1, 1) && !invalidations.is_delivered(1, 2));
    invalidations.take(1);
    assert!(invalidations.acknowledge(1).into_iter().eq([2]));
    assert!(invalidations.is_delivered(1, 2));
}

#[test]
fn changes_are_watched_while_anybody_is_there() {
    let table = Table::default();
    let watched = std::cell::Cell::new(0);
    let join = |client| table.join(client, 0, || watched.set(watched.get() + 1));
    let leave = |client| table.leave(client, || watched.set(watched.get() - 1));
    [1, 2, 1].into_iter().for_each(join);
    assert_eq!(watched.get(), 1);
    [2, 2, 3].into_iter().for_each(leave);
    assert_eq!(watched.get(), 1);
    leave(1);
    assert_eq!(watched.get(), 0);
}

#[test]
fn an_inbox_is_bounded_and_who_misses_something_is_known() {
    let invalidations = Invalidations::default();
    let push: Arc<[u8]> = vec![b'x'; INBOX_LEN_MAX / 4].into();
    let mut wakes = 0;
    for client in 1..=5 {
        let what = What::Changed(Arc::clone(&push));
        wakes += u32::from(invalidations.post(1, Told { client, what }));
        let what = What::Redirected { tracker: 9, push: Arc::clone(&push) };
        wakes += u32::from(invalidations.post(1, Told { client, what }));
    }
    assert_eq!(wakes, 1, "it knows");
    let (messages, missed) = invalidations.take(1);
    assert_eq!((messages.len(), missed.len()), (3, 7));
    assert!(missed.contains(&(2, true)) && !missed.contains(&(2, false)));
    assert_eq!(invalidations.take(1), (Vec::new(), IndexSet::new()));
    let what = What::Broken { target: 1 };
    assert!(invalidations.post(1, Told { client: 1, what }));
}
