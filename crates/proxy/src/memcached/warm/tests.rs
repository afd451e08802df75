use super::*;
use keyway_base::BackendFault;

const NOW: i64 = 1_700_000_000;

fn item_copy(aim: Aim, old: Dialect, new: Dialect) -> ItemCopy {
    ItemCopy::new(aim, Terms { old, new, ttl_max: 3600 }, b"k", 1, 2)
}

/// Asks, hears `reply`, and tells where and what was asked.
fn ask(item_copy: &mut ItemCopy, reply: &str) -> String {
    let pool = item_copy.next_pool();
    let mut out = Vec::new();
    item_copy.compose(&mut out).expect("it can be said");
    assert_eq!(item_copy.next_pool(), None, "one request at a time");
    item_copy.on_reply(reply.as_bytes(), NOW);
    format!("{:?} {}", pool.expect("there is more to ask"), out.escape_ascii())
}

fn lost(sent: Sent) -> Fault {
    Fault::Backend { fault: BackendFault::Timeout, sent }
}

#[test]
fn an_item_is_moved_with_its_flags_and_the_time_it_has_left() {
    let mut item_copy = item_copy(Aim::Read, Dialect::Meta, Dialect::Meta);
    let asked = ask(&mut item_copy, "VA 3 f7 c41 t90\r\nabc\r\n");
    assert_eq!(asked, r"Old mg k v f c t\r\n");
    assert_eq!(ask(&mut item_copy, "HD c99\r\n"), r"New ms k 3 F7 T90 c ME\r\nabc\r\n");
    assert_eq!(ask(&mut item_copy, "HD\r\n"), r"Old md k C41\r\n");
    assert_eq!((item_copy.end(), item_copy.next_pool()), (Some(End::Filled), None));
}

#[test]
fn what_the_old_pool_lost_meanwhile_is_taken_back_unless_it_was_changed() {
    for gone in ["NF\r\n", "EX\r\n"] {
        let mut item_copy = item_copy(Aim::Read, Dialect::Meta, Dialect::Meta);
        ask(&mut item_copy, "VA 3 f0 c41 t-1\r\nabc\r\n");
        assert_eq!(ask(&mut item_copy, "HD c99\r\n"), r"New ms k 3 c ME\r\nabc\r\n");
        ask(&mut item_copy, gone);
        assert_eq!(ask(&mut item_copy, "HD\r\n"), r"New md k C99\r\n");
        assert_eq!(item_copy.end(), Some(End::Withdrawn));
    }
}

#[test]
fn an_expiry_never_grows() {
    let expiry = |left: &str| {
        let mut item_copy = item_copy(Aim::Read, Dialect::Meta, Dialect::Text);
        ask(&mut item_copy, &format!("VA 1 f0 c1 t{left}\r\na\r\n"));
        item_copy.next_pool().map(|_| item_copy.expiry)
    };
    assert_eq!(expiry("-1"), Some(0));
    assert_eq!(expiry("0"), None, "0 would be for ever");
    assert_eq!(expiry("1"), Some(1));
    assert_eq!(expiry("2592000"), Some(2_592_000));
    assert_eq!(expiry("2592001"), Some(NOW + 2_592_001), "more is a time since 1970");
}

#[test]
fn servers_that_cannot_tell_the_time_left_have_it_bounded() {
    let mut item_copy = item_copy(Aim::Read, Dialect::Text, Dialect::Text);
    assert_eq!(ask(&mut item_copy, "VALUE k 5 3 41\r\nabc\r\nEND\r\n"), r"Old gets k\r\n");
    assert_eq!(ask(&mut item_copy, "STORED\r\n"), r"New add k 5 3600 3\r\nabc\r\n");
    assert_eq!(ask(&mut item_copy, "VALUE k 5 3 41\r\nabc\r\nEND\r\n"), r"Old gets k\r\n");
    assert_eq!(ask(&mut item_copy, "DELETED\r\n"), r"Old delete k\r\n");
    assert_eq!(item_copy.end(), Some(End::Filled));
}

#[test]
fn classic_servers_are_asked_again_whether_it_is_the_same() {
    for changed in ["END\r\n", "VALUE k 5 3 42\r\nabc\r\nEND\r\n"] {
        let mut item_copy = item_copy(Aim::Read, Dialect::Text, Dialect::Text);
        ask(&mut item_copy, "VALUE k 5 3 41\r\nabc\r\nEND\r\n");
        ask(&mut item_copy, "STORED\r\n");
        ask(&mut item_copy, changed);
        let stored = "VALUE k 5 3 9\r\nabc\r\nEND\r\n";
        assert_eq!(ask(&mut item_copy, stored), r"New gets k\r\n");
        assert_eq!(ask(&mut item_copy, "STORED\r\n"), r"New cas k 0 -1 0 9\r\n\r\n");
        assert_eq!(item_copy.end(), Some(End::Withdrawn));
    }
}

#[test]
fn a_newer_write_wins() {
    let mut reader = item_copy(Aim::Read, Dialect::Meta, Dialect::Meta);
    ask(&mut reader, "VA 3 f0 c41 t-1\r\nabc\r\n");
    ask(&mut reader, "NS\r\n");
    assert_eq!(reader.end(), Some(End::Overtaken));
    let mut writer = item_copy(Aim::Modify, Dialect::Meta, Dialect::Meta);
    ask(&mut writer, "VA 3 f0 c41 t-1\r\nabc\r\n");
    ask(&mut writer, "NS\r\n");
    assert_eq!(ask(&mut writer, "VA 3 f0 c9\r\nnew\r\n"), r"New mg k v f c\r\n");
    assert_eq!(ask(&mut writer, "HD\r\n"), r"Old md k C41\r\n");
    assert_eq!(writer.end(), Some(End::Overtaken));
}

#[test]
fn two_that_bring_the_same_do_not_lose_it_between_them() {
    let mut second = item_copy(Aim::Modify, Dialect::Meta, Dialect::Meta);
    ask(&mut second, "VA 3 f0 c41 t-1\r\nabc\r\n");
    ask(&mut second, "NS\r\n");
    ask(&mut second, "VA 3 f0 c9\r\nabc\r\n");
    assert_eq!(second.end(), Some(End::Overtaken), "the old one is the first one's to take");
}

#[test]
fn nothing_is_brought_that_is_stale_or_not_there() {
    for reply in ["EN\r\n", "VA 3 f0 c41 t-1 X W\r\nabc\r\n", "VA 0 f0 c41 t20 Z\r\n\r\n"] {
        let mut item_copy = item_copy(Aim::Read, Dialect::Meta, Dialect::Meta);
        ask(&mut item_copy, reply);
        assert_eq!(item_copy.end(), Some(End::Missing), "{reply}");
    }
}

#[test]
fn a_fill_without_a_reply_goes_on_where_it_was_stored_and_is_sent_once_more_where_it_was_not() {
    let lost_fill = |aim| {
        let mut item_copy = item_copy(aim, Dialect::Meta, Dialect::Meta);
        ask(&mut item_copy, "VA 3 f0 c41 t-1\r\nabc\r\n");
        item_copy.compose(&mut Vec::new()).unwrap();
        item_copy.on_fault(lost(Sent::Maybe));
        item_copy
    };
    let mut item_copy = lost_fill(Aim::Read);
    assert_eq!(ask(&mut item_copy, "VA 3 f0 c7\r\nabc\r\n"), r"New mg k v f c\r\n");
    assert_eq!(ask(&mut item_copy, "EX\r\n"), r"Old md k C41\r\n", "it was stored");
    assert_eq!(ask(&mut item_copy, "HD\r\n"), r"New md k C7\r\n", "the old pool lost it meanwhile");
    assert_eq!(item_copy.end(), Some(End::Withdrawn));

    let mut item_copy = lost_fill(Aim::Read);
    ask(&mut item_copy, "EN\r\n");
    let again = ask(&mut item_copy, "HD c8\r\n");
    assert!(again.starts_with("New ms k 3 ") && again.contains(" ME"), "{again}");
    assert_eq!(ask(&mut item_copy, "HD\r\n"), r"Old md k C41\r\n");
    assert_eq!(item_copy.end(), Some(End::Filled));

    let mut item_copy = lost_fill(Aim::Read);
    ask(&mut item_copy, "EN\r\n");
    item_copy.compose(&mut Vec::new()).unwrap();
    item_copy.on_fault(lost(Sent::Maybe));
    ask(&mut item_copy, "EN\r\n");
    assert_eq!(item_copy.end(), Some(End::FillFailed), "it is sent twice at most");

    let mut item_copy = lost_fill(Aim::Read);
    ask(&mut item_copy, "VA 3 f0 c7\r\nnew\r\n");
    assert_eq!(item_copy.end(), Some(End::Overtaken), "what was written since stays");
    let mut item_copy = lost_fill(Aim::Modify);
    ask(&mut item_copy, "VA 3 f0 c7\r\nnew\r\n");
    assert_eq!(ask(&mut item_copy, "HD\r\n"), r"Old md k C41\r\n", "the old item goes");
    assert_eq!(item_copy.end(), Some(End::Overtaken));
}

#[test]
fn a_fill_that_was_not_sent_fails_and_a_lost_old_server_takes_it_back() {
    let filling = || {
        let mut item_copy = item_copy(Aim::Read, Dialect::Meta, Dialect::Meta);
        ask(&mut item_copy, "VA 3 f0 c41 t-1\r\nabc\r\n");
        item_copy.compose(&mut Vec::new()).unwrap();
        item_copy
    };
    let mut item_copy = filling();
    item_copy.on_fault(lost(Sent::No));
    assert_eq!(item_copy.end(), Some(End::FillFailed));
    let mut item_copy = filling();
    item_copy.on_reply(b"HD c99\r\n", NOW);
    item_copy.on_fault(lost(Sent::No));
    assert_eq!(ask(&mut item_copy, "HD\r\n"), r"New md k C99\r\n", "the old server is lost");
    assert_eq!((item_copy.end(), item_copy.old_errors), (Some(End::Withdrawn), 1));
}

#[test]
fn a_write_that_needs_nothing_only_deletes() {
    let mut item_copy = item_copy(Aim::Clear, Dialect::Binary, Dialect::Meta);
    assert_eq!(item_copy.next_pool(), Some(WarmUpPool::Old));
    let mut out = Vec::new();
    item_copy.compose(&mut out).unwrap();
    assert_eq!(out[..2], [0x80, 0x04]);
    item_copy.on_fault(lost(Sent::Maybe));
    assert_eq!(item_copy.end(), Some(End::OldFailed(lost(Sent::Maybe))));
    let mut emptied = super::tests::item_copy(Aim::Flush(9), Dialect::Meta, Dialect::Meta);
    assert_eq!(ask(&mut emptied, "OK\r\n"), r"Old flush_all 9\r\n");
    assert_eq!(emptied.end(), Some(End::Cleared(true)));
}

#[test]
fn a_key_the_old_servers_cannot_name_is_not_there() {
    let terms = Terms { old: Dialect::Text, new: Dialect::Binary, ttl_max: 1 };
    let mut item_copy = ItemCopy::new(Aim::Read, terms, b"a b", 0, 0);
    assert_eq!(item_copy.compose(&mut Vec::new()), None);
    assert_eq!(item_copy.end(), Some(End::Missing));
}

#[test]
fn ends_are_counted_once() {
    let totals = WarmUpTotals::default();
    let mut filled = item_copy(Aim::Read, Dialect::Meta, Dialect::Meta);
    for reply in ["VA 1 f0 c1 t5\r\na\r\n", "HD c2\r\n", "HD\r\n"] {
        ask(&mut filled, reply);
    }
    totals.note(&filled);
    totals.note_new_hits(3);
    let told = WarmUpFigures {
        new_hits: 3,
        lookups: 1,
        old_hits: 1,
        fills: 1,
        is_active: true,
        ..WarmUpFigures::default()
    };
    assert_eq!(totals.figures(true), told);
}
