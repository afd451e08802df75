//! `keyway ctl upgrade`: asks for an upgrade, and waits for its outcome.

use super::client::{Answer, Client, Unreachable};
use super::{Ctl, REFUSED, UNREACHABLE, What, fail, members, request, tell};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

/// Time between two questions.
const EVERY: Duration = Duration::from_millis(100);

/// Most unanswered questions in a row before it gives up. When one process stops listening and the
/// next has just begun, a question may be lost.
const UNANSWERED_MAX: u32 = 20;

/// Asks for an upgrade, and waits. The process itself ends an upgrade that takes longer than
/// `upgrade_timeout`.
pub fn run(ctl: &Ctl, client: &Client) -> ExitCode {
    let (method, path, body) = request(&What::Upgrade);
    let asked = match client.ask(method, &path, body.as_ref()) {
        Ok(answer) if answer.status == 202 => answer,
        Ok(answer) if answer.status == 404 && members::instead(&path, &answer.body).is_some() => {
            return fail(members::NAME_THEM, 2);
        }
        Ok(answer) => return tell(ctl, &answer),
        Err(Unreachable(what)) => return fail(&what, UNREACHABLE),
    };
    let before = &asked.body["pid"];
    let mut unanswered = 0;
    loop {
        std::thread::park_timeout(EVERY);
        match client.ask("GET", "/v1/status", None) {
            Ok(answer) if answer.status == 200 => {
                unanswered = 0;
                if let Some(code) = judge(ctl, before, &answer) {
                    return code;
                }
            }
            Ok(answer) => return tell(ctl, &answer),
            Err(Unreachable(what)) if unanswered == UNANSWERED_MAX => {
                let what = format!(
                    "{what}; an upgrade was begun: the log tells what came of it, and `admin` may \
                     be elsewhere now"
                );
                return fail(&what, UNREACHABLE);
            }
            Err(_) => unanswered += 1,
        }
    }
}

fn judge(ctl: &Ctl, before: &Value, answer: &Answer) -> Option<ExitCode> {
    if answer.body["pid"] != *before {
        return Some(tell(ctl, answer));
    }
    let upgrade = &answer.body["upgrade"];
    if upgrade["state"] != "failed" {
        return None;
    }
    let code = fail("the upgrade has failed, and the process serves on as before:", REFUSED);
    for reason in upgrade["reasons"].as_array().into_iter().flatten() {
        eprintln!("  {}", super::show::text(reason));
    }
    Some(code)
}

/// Returns the line about the process that serves now.
pub fn serves(body: &Value) -> String {
    let text = super::show::text;
    format!("process {} of version {} serves\n", text(&body["pid"]), text(&body["version"]))
}
