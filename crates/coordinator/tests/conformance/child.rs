//! A process of its own that holds a session, to be killed.

use crate::laws::key;
use crate::stage::Stage;
use keyway_coordinator::Txn;
use keyway_testkit::{Process, TempDir};
use std::process::Command;
use std::time::Duration;

/// Names the stage to a child. A process that has it is one.
const STAGE: &str = "KEYWAY_COORDINATOR_STAGE";

/// A child, and where its output goes.
pub struct Child {
    process: Process,
    _directory: TempDir,
}

impl Child {
    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn pause(&self) {
        self.process.pause();
    }
}

/// Starts one that holds the key `child` of this stage.
pub fn spawn(stage: &Stage) -> Child {
    let directory = TempDir::new();
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", "child::holds_a_session", "--ignored", "--nocapture"]);
    command.env(STAGE, stage.to_text());
    let process = Process::spawn("child", &mut command, directory.path());
    Child { process, _directory: directory }
}

/// Started by [`spawn`] only.
#[test]
#[ignore = "a child process of other tests"]
fn holds_a_session() {
    let Some(stage) = std::env::var_os(STAGE) else { return };
    let stage = Stage::parse(stage.to_str().expect("a stage is text"));
    crate::block_on(async move {
        let here = stage.open().await;
        let session = here.session(Duration::from_secs(2)).await.expect("a session");
        let txn = Txn::new().put_bound(&key("child"), b"child".to_vec(), &session);
        here.txn(txn).await.expect("a transaction");
        session.lost().await;
    });
}
