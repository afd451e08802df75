//! A process of its own that writes without end, to be killed.

use crate::laws::key;
use crate::stage::Stage;
use keyway_coordinator::Txn;
use keyway_testkit::{Process, TempDir};
use std::process::Command;

const STAGE: &str = "KEYWAY_COORDINATOR_WRITER";

/// A child, and where its output goes.
pub struct Writer {
    process: Process,
    _directory: TempDir,
}

impl Writer {
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

pub fn spawn(stage: &Stage) -> Writer {
    let directory = TempDir::new();
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", "writer::writes", "--ignored", "--nocapture"]);
    command.env(STAGE, stage.to_text());
    let process = Process::spawn("writer", &mut command, directory.path());
    Writer { process, _directory: directory }
}

/// Started by [`spawn`] only.
#[test]
#[ignore = "a child process of other tests"]
fn writes() {
    let Some(stage) = std::env::var_os(STAGE) else { return };
    let stage = Stage::parse(stage.to_str().expect("a stage is text"));
    crate::block_on(async move {
        let here = stage.open().await;
        for number in 0..100_000u32 {
            let value = vec![number.to_le_bytes()[0]; 20_000];
            let txn = Txn::new().put(&key("a"), value.clone()).put(&key("b"), value);
            here.txn(txn).await.expect("a transaction");
        }
    });
}
