//! Measures the cost of judging a request of a user, for callgrind: `judge RULES COMMAND COUNT`
//! judges a request with one key COUNT times. With `none` as RULES it judges none.

use keyway_base::ByteRange;
use keyway_command::{Args, Request};
use keyway_users::User;
use std::hint::black_box;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rules, command, count] = words.as_slice() else { panic!("judge RULES COMMAND COUNT") };
    let user = (rules != "none").then(|| User::new("app", rules).expect("rules"));
    let parts: Vec<&str> = match command.as_str() {
        "set" => vec!["SET", "key:000001", "value"],
        _ => vec!["GET", "key:000001"],
    };
    let buf = parts.concat();
    let mut end = 0;
    let range = |part: &&str| {
        end += part.len();
        ByteRange::new(end - part.len(), end)
    };
    let ranges: Vec<ByteRange> = parts.iter().map(range).collect();
    let request = Request::resolve(Args::new(buf.as_bytes(), &ranges)).expect("a command");
    let mut allowed = 0u64;
    for _ in 0..count.parse::<u64>().expect("a number") {
        let request = black_box(&request);
        let may = black_box(&user)
            .as_ref()
            .is_none_or(|user| user.passes(request) || user.judge(request).is_ok());
        allowed += u64::from(may);
    }
    println!("{allowed}");
}
