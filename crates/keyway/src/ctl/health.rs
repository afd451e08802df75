//! `keyway ctl --config FILE health`: for a program that watches a process on the same machine,
//! such as a container's health check, which has the file and no secret.

use super::client::{Client, Unreachable};
use super::{Ctl, UNREACHABLE, fail, print, request, tell};
use crate::admin_of::{AdminOf, admin_of};
use std::path::Path;
use std::process::ExitCode;

/// Asks the admin listener that the file names. Neither question nor answer is secret, so any
/// certificate is accepted. If the listener demands a certificate and there is none, it is enough
/// that it does.
pub fn run(ctl: &Ctl, file: &Path) -> ExitCode {
    let admin = match admin_of(file) {
        Ok(Some(admin)) => admin,
        Ok(None) => {
            let place = file.display();
            let what = format!("not known: {place} has no admin listener, which could be asked\n");
            return print(&what).err().unwrap_or(ExitCode::SUCCESS);
        }
        Err(error) => return fail(&format!("{error:#}"), 2),
    };
    let asked =
        Client::of_this_machine(&admin, &ctl.whom.tls).map(|client| ask(ctl, &admin, &client));
    match asked {
        Ok(Ok(status)) => status,
        Ok(Err(Unreachable(what))) => fail(&what, UNREACHABLE),
        Err(what) => fail(&what, 2),
    }
}

fn ask(ctl: &Ctl, admin: &AdminOf, client: &Client) -> Result<ExitCode, Unreachable> {
    if admin.wants_certificates && ctl.whom.tls.cert_file.is_none() {
        client.shake_hands()?;
        let what = "not known: it answers, and wants to see a certificate: --cert-file\n";
        return Ok(print(what).err().unwrap_or(ExitCode::SUCCESS));
    }
    let (method, path, body) = request(&ctl.what);
    Ok(tell(ctl, &client.ask(method, &path, body.as_ref())?))
}
