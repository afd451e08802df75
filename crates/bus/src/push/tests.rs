use super::*;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { count: 2, len: 10_000, body_len: 5_000 };

fn stamp(version: u64) -> Stamp {
    Stamp { epoch: 1, version }
}

fn pushed(from: &mut Topics, have: Option<Stamp>) -> Push {
    let (body, tail, packed) = from.map.get_mut("a").unwrap().push_for("a", have, true);
    let body = [&body[..], &tail].concat();
    let body = match packed {
        true => crate::compress::decompressed(&body, 1 << 20).unwrap(),
        false => body,
    };
    Push::read(body).unwrap()
}

#[test]
fn a_change_of_a_version_that_is_there_goes_as_a_delta() {
    let (mut parent, mut child) = (Topics::default(), Topics::default());
    let mut body = vec![b'x'; 3000];
    parent.publish("a", stamp(1), NodeId(1), body.clone(), BOUNDS).unwrap();
    let first = pushed(&mut parent, None);
    assert_eq!(child.take(first.clone(), Sum::default(), BOUNDS, Time(0)), Ok(Taken::New));
    assert_eq!(child.take(first, Sum::default(), BOUNDS, Time(0)), Ok(Taken::Known));
    body.splice(100..110, *b"changed");
    parent.publish("a", stamp(2), NodeId(1), body.clone(), BOUNDS).unwrap();
    let delta = pushed(&mut parent, Some(stamp(1)));
    assert!(matches!(&delta.form, Form::Delta(delta) if delta.inserted.len() <= 7));
    assert_eq!(
        Topics::default().take(delta.clone(), Sum::default(), BOUNDS, Time(0)),
        Ok(Taken::WantsFull)
    );
    assert_eq!(child.take(delta, Sum::default(), BOUNDS, Time(0)), Ok(Taken::New));
    assert_eq!(*child.map["a"].body, body);
    assert!(matches!(pushed(&mut parent, Some(stamp(0))).form, Form::Full(_)));
}

#[test]
fn what_is_sent_is_made_once_for_all() {
    let bounds = Bounds { len: 1 << 20, body_len: 1 << 20, ..BOUNDS };
    for compress in [false, true] {
        let mut parent = Topics::default();
        let mut body = vec![b'x'; 100_000];
        parent.publish("a", stamp(1), NodeId(1), body.clone(), bounds).unwrap();
        body.splice(100..20_000, vec![b'y'; 19_900]);
        parent.publish("a", stamp(2), NodeId(1), body, bounds).unwrap();
        assert_eq!(parent.len, 119_900, "what changed counts");
        let topic = parent.map.get_mut("a").unwrap();
        for have in [None, Some(stamp(1))] {
            let one = topic.push_for("a", have, compress);
            let other = topic.push_for("a", have, compress);
            assert_eq!(one.2, compress);
            assert!(Arc::ptr_eq(&one.0, &other.0), "{compress} {have:?}");
        }
        // If there is no room for the delta, the whole body is sent.
        let full = Bounds { len: 100_001, ..bounds };
        parent.publish("a", stamp(3), NodeId(1), vec![b'x'; 100_000], full).unwrap();
        assert_eq!(parent.len, 100_000);
        assert!(!parent.map["a"].is_delta_from(Some(stamp(2))));
    }
}

#[test]
fn names_of_topics_that_nobody_has_any_more_take_no_places() {
    let mut topics = Topics::default();
    let mut versions = BTreeMap::new();
    for number in 0..100 {
        let name = format!("t{number}");
        topics.note_held(&mut versions, &name, Held::default(), BOUNDS);
    }
    assert!(versions.len() <= 4);
    for name in ["a", "b"] {
        topics.publish(name, stamp(1), NodeId(1), vec![], BOUNDS).unwrap();
        topics.note_held(&mut versions, name, Held::default(), BOUNDS);
    }
    assert!(versions.contains_key("a") && versions.contains_key("b") && versions.len() <= 4);
}

#[test]
fn an_older_version_and_another_of_the_same_are_not_taken() {
    let mut topics = Topics::default();
    topics.publish("a", stamp(2), NodeId(1), b"two".to_vec(), BOUNDS).unwrap();
    let push = |version, body: &[u8]| Push {
        topic: "a".to_owned(),
        stamp: stamp(version),
        publisher: NodeId(1),
        crc: crc32c::crc32c(body),
        form: Form::Full(body.to_vec()),
    };
    assert_eq!(topics.take(push(1, b"one"), Sum::default(), BOUNDS, Time(0)), Ok(Taken::Known));
    assert_eq!(
        topics.take(push(2, b"other"), Sum::default(), BOUNDS, Time(0)),
        Ok(Taken::Conflict)
    );
    let bent = Push { crc: 1, ..push(3, b"three") };
    assert_eq!(topics.take(bent, Sum::default(), BOUNDS, Time(0)), Err(Reason::Checksum));
    assert_eq!(*topics.map["a"].body, b"two");
}

#[test]
fn a_long_topic_is_summed_in_pieces_and_its_memory_given_back_so() {
    let long = Bounds { count: 1, len: 64 << 20, body_len: 64 << 20 };
    let body: Vec<u8> = (0..5u32 << 20).map(|at| (at >> 7) as u8).collect();
    let mut topics = Topics::default();
    topics.publish("a", stamp(1), NodeId(1), body.clone(), long).unwrap();
    let sent: Vec<bool> = (0..4).map(|_| topics.go_on()).collect();
    assert_eq!(sent, [false, false, true, false], "2 MiB, 2 MiB, the rest");
    assert!(topics.map["a"].is_summed() && !topics.has_chores());
    assert_eq!(topics.map["a"].crc(), crc32c::crc32c(&body));
    // A version that replaces it while it is summed is another version. The old one is freed in
    // pieces unless it is still held.
    topics.publish("a", stamp(2), NodeId(1), body.clone(), long).unwrap();
    let held = Arc::clone(&topics.map["a"].body);
    topics.go_on();
    topics.publish("a", stamp(3), NodeId(1), b"short".to_vec(), long).unwrap();
    assert_eq!(topics.map["a"].crc(), crc32c::crc32c(b"short"));
    let lens: Vec<usize> = topics.discarded.iter().map(|body| body.len()).collect();
    assert_eq!(lens, [3 << 20, 5 << 20]);
    let mut turns = 0;
    while topics.has_chores() {
        topics.go_on();
        turns += 1;
    }
    assert!((2..=5).contains(&turns) && topics.discarded.is_empty(), "{turns}");
    assert_eq!((held.len(), Arc::strong_count(&held)), (5 << 20, 1));
    // An unfinished sum is finished when another body of the same version comes.
    topics.publish("a", stamp(4), NodeId(1), body.clone(), long).unwrap();
    let push = Push {
        topic: "a".to_owned(),
        stamp: stamp(4),
        publisher: NodeId(2),
        crc: crc32c::crc32c(&body),
        form: Form::Full(body),
    };
    let taken = topics.take(push.clone(), Sum::default(), long, Time(0));
    assert_eq!(taken, Ok(Taken::Known));
    let other = topics.take(Push { crc: 1, ..push }, Sum::default(), long, Time(0));
    assert_eq!(other, Ok(Taken::Conflict));
}

#[test]
fn topics_are_bounded() {
    let mut topics = Topics::default();
    for name in ["a", "b"] {
        topics.publish(name, stamp(1), NodeId(1), vec![0; 5000], BOUNDS).unwrap();
    }
    assert!(topics.publish("c", stamp(1), NodeId(1), vec![], BOUNDS).is_err());
    assert!(topics.publish("a", stamp(2), NodeId(1), vec![0; 5001], BOUNDS).is_err());
    assert!(topics.publish("a", stamp(2), NodeId(1), vec![0; 5000], BOUNDS).is_ok());
    assert!(!is_topic("") && !is_topic("a b") && is_topic("pools/a.toml"));
}

#[test]
fn a_topic_that_was_withdrawn_says_so_and_makes_room() {
    let (mut parent, mut child) = (Topics::default(), Topics::default());
    let later = Time(0) + Duration::from_secs(60);
    for topics in [&mut parent, &mut child] {
        topics.publish("a", stamp(1), NodeId(1), vec![7; 5000], BOUNDS).unwrap();
    }
    parent.withdraw("a", stamp(2), NodeId(1), BOUNDS, Time(0)).unwrap();
    assert_eq!(parent.len, 0);
    let gone = pushed(&mut parent, Some(stamp(1)));
    assert_eq!(gone.form, Form::Gone);
    assert_eq!(child.take(gone.clone(), Sum::default(), BOUNDS, Time(0)), Ok(Taken::Gone));
    assert_eq!(child.take(gone, Sum::default(), BOUNDS, Time(0)), Ok(Taken::Known));
    assert_eq!(child.len, 0);
    // Its place is used for another topic when there is no free one.
    for name in ["b", "c"] {
        child.publish(name, stamp(1), NodeId(1), vec![], BOUNDS).unwrap();
    }
    assert_eq!(child.map.keys().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(parent.forget_gone(Duration::from_secs(61), later), [""; 0]);
    assert_eq!(parent.forget_gone(Duration::from_secs(60), later), ["a"]);
    assert!(parent.map.is_empty());
}

proptest! {
    #[test]
    fn a_delta_makes_the_new_body_of_the_old(
        old in prop::collection::vec(0u8..3, 0..60), new in prop::collection::vec(0u8..3, 0..60),
    ) {
        if let Some(delta) = Delta::between(stamp(1), &old, &new) {
            prop_assert_eq!(delta.apply(&old, 100), Some(new));
        }
    }

    #[test]
    fn no_push_is_a_panic(body in prop::collection::vec(any::<u8>(), 0..100), old in prop::collection::vec(any::<u8>(), 0..50)) {
        if let Some(Push { form: Form::Delta(delta), .. }) = Push::read(body) {
            let _ = delta.apply(&old, 100);
        }
    }
}
