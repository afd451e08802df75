//! Any text as a script: it is answered with one reply, within its time and
//! memory, and the next script finds everything as it should be.

use crate::Choices;
use crate::invariants::one_reply_in;
use keyway_base::{Clock, Time};
use keyway_command::Request;
use keyway_resp::{Framer, Framing, Protocol};
use keyway_script::{Engine, Host, Registry, Run, ScriptLimits, Words};
use keyway_store::{Context, EvictionPolicy, ScriptHold, Store, StoreConfig};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a script may take, however small its time: one C function over a
/// megabyte is not interrupted.
const PATIENCE: Duration = Duration::from_secs(30);

/// Deepest nesting of a reply: what a script returns.
const DEPTH_MAX: u32 = 1024;

struct StoreHost(ScriptHold);

impl Host for StoreHost {
    fn execute(
        &self,
        request: &Request<'_>,
        protocol: Protocol,
        has_written: bool,
        out: &mut Vec<u8>,
    ) {
        if !keyway_command::store_serves(request.command.verb) {
            return keyway_resp::reply::error(out, "ERR not served here");
        }
        let context = Context { database: 0, clock: Clock::default(), protocol, worker: 0 };
        self.0.execute(request, context, has_written, out);
    }

    fn log(&self, _level: u8, _text: &str) {}
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(since.as_nanos() as u64)
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = ScriptLimits {
        time_max: Duration::from_millis(20),
        busy_after: Duration::from_millis(20),
        memory_max: 1 << 20,
        reply_len_max: 1 << 20,
    };
    let registry = Arc::new(Registry::new(limits, now));
    let store = Arc::new(Store::new(StoreConfig {
        memory_max: 4 << 20,
        policy: EvictionPolicy::NoEviction,
        shards: Some(1),
        ..StoreConfig::default()
    }));
    let protocol = choices.pick(&[Protocol::Resp2, Protocol::Resp3]);
    let mut engine = Engine::new(registry);
    let begin = now();
    eval(&mut engine, &store, choices.rest(), protocol);
    assert!(now() - begin < PATIENCE, "it took {:?}", now() - begin);
    let sane = b"return {type(redis.call), type(string.rep), #KEYS, cjson.encode({1})}";
    let reply = eval(&mut engine, &store, sane, Protocol::Resp2);
    one_reply_in(Protocol::Resp2, &reply);
    assert_eq!(&reply, b"*4\r\n$8\r\nfunction\r\n$8\r\nfunction\r\n:1\r\n$3\r\n[1]\r\n");
}

fn eval(engine: &mut Engine, store: &Arc<Store>, text: &[u8], protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    match engine.load(text, false) {
        Err(text) => keyway_resp::reply::error(&mut out, &text.replace(['\r', '\n'], " ")),
        Ok(script) => {
            let hold = store.begin_script().expect("no other script runs");
            let host = Rc::new(StoreHost(hold));
            let run = Arc::new(Run::new(false, "script".to_owned(), Vec::new(), now()));
            let words = Words { keys: &[b"key"], args: &[b"arg"] };
            engine.run(&script, &words, (host, run), false, protocol, &mut out);
        }
    }
    match Framer::new(protocol).frame(&out, u32::MAX, DEPTH_MAX) {
        Ok(Framing::Ready { len, .. }) if len == out.len() => out,
        other => panic!("not one reply but {other:?}"),
    }
}
