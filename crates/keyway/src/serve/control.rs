//! The control plane of a process that serves: the document that it takes, and the control node that
//! runs in it, if its file has one.

use crate::control_node::{Asking, Inside, Staying};
use crate::member::{Joining, Membership, SharedAbout};
use crate::reload::Wake;
use anyhow::Result;
use keyway_config::Config;
use keyway_control::{AdminHandle, AdminState};
use keyway_metrics::Registry;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The control plane before the process serves.
pub(super) struct Prepared<'j> {
    joining: Option<&'j Joining>,
    staying: Option<Staying>,
    wake: Sender<Wake>,
    /// True if this process takes over from another one, which has the addresses still.
    is_upgrade: bool,
}

impl<'j> Prepared<'j> {
    /// Checks everything that an operator can get wrong, while a process before this one can go on.
    ///
    /// # Errors
    /// Returns what is wrong with the token or the certificates.
    pub(super) fn new(
        joining: Option<&'j Joining>,
        wake: Sender<Wake>,
        is_upgrade: bool,
    ) -> Result<Self> {
        joining.map(Joining::check).transpose()?;
        let staying = joining.map(Joining::staying).transpose()?.flatten();
        Ok(Self { joining, staying, wake, is_upgrade })
    }

    /// Returns the control node that is to run in this process, for the admin listener.
    pub(super) fn asking(&self) -> Option<Arc<Asking>> {
        self.staying.as_ref().map(Staying::asking)
    }

    /// Starts the control node, then joins the control plane. In an upgrade clients have nobody else
    /// already, so this process serves on without a control plane if that fails.
    ///
    /// # Errors
    /// Returns what is wrong with an address, the token or the certificates.
    pub(super) fn start(
        self,
        serving: (&Config, &Arc<Registry>),
        admin: Option<&AdminHandle>,
        state: Arc<dyn AdminState>,
    ) -> Result<Control> {
        let is_upgrade = self.is_upgrade;
        self.begin(serving, admin, state).or_else(|error| match is_upgrade {
            true => {
                tracing::error!("no control plane is joined: {error:#}; restart this process");
                Ok(Control { membership: None, inside: None })
            }
            false => Err(error),
        })
    }

    fn begin(
        self,
        serving: (&Config, &Arc<Registry>),
        admin: Option<&AdminHandle>,
        state: Arc<dyn AdminState>,
    ) -> Result<Control> {
        let begun = self.staying.map(|it| it.start(admin_address(admin), self.is_upgrade));
        let inside = begun.transpose()?;
        let membership = Membership::start((self.joining, self.wake), serving, state)?;
        Ok(Control { membership, inside })
    }
}

/// Returns the address of the admin listener, or empty text.
pub(super) fn admin_address(admin: Option<&AdminHandle>) -> String {
    admin.map(|admin| admin.local_addr().to_string()).unwrap_or_default()
}

/// The control plane while the process serves.
pub(super) struct Control {
    membership: Option<Membership>,
    inside: Option<Inside>,
}

impl Control {
    /// Returns what the control plane is told of this process.
    pub(super) fn about(&self) -> SharedAbout {
        Membership::about(self.membership.as_ref())
    }

    /// Ends the part of a control node, and waits for nothing: its session ends meanwhile, so that
    /// another one leads. With `stays` this process stays a member, so that it can be seen and
    /// ended by control. Dropping the result ends all, and waits for that.
    pub(super) fn end(mut self, stays: bool) -> Control {
        match stays {
            true => self.about().set_draining(),
            false => self.membership = None,
        }
        if let Some(inside) = &self.inside {
            inside.end();
        }
        self
    }
}
