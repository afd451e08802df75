//! Operators of the admin address: their roles, and the pools that they may change.

use std::fmt;
use std::str::FromStr;

/// Longest name of an operator, in bytes. It stands in each entry of the audit log.
const NAME_LEN_MAX: usize = 64;

/// Names that Keyway gives itself: the operator of `admin_token_file`, that of an address that asks
/// for nothing, and the control node that decides.
const OWN_NAMES: [&str; 3] = [Operator::ADMIN, Operator::ANONYMOUS, "control"];

/// The rights of an operator. A later role has those of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Changes servers, documents and rollouts of its pools.
    Operator,
    /// Changes everything.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    /// Returns the word in the file.
    pub fn text(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(text: &str) -> Result<Role, ()> {
        Role::ALL.into_iter().find(|role| role.text() == text).ok_or(())
    }
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    name: String,
    role: Role,
    pools: Option<Vec<String>>,
}

impl Operator {
    /// The name of the operator who shows the token of `admin_token_file`.
    pub const ADMIN: &str = "admin";

    /// The name of every client of an address that asks for nothing.
    pub const ANONYMOUS: &str = "anonymous";

    /// Creates an operator who may change these pools; all of them with `None`.
    ///
    /// # Errors
    /// Returns what is wrong with the name, or that the role has no use for pools.
    pub fn new(name: &str, role: Role, pools: Option<Vec<String>>) -> Result<Operator, String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(format!("the name is not 1 to {NAME_LEN_MAX} of A-Z a-z 0-9 . _ - @"));
        }
        if OWN_NAMES.contains(&name) {
            return Err(format!("the name {name} is one that Keyway gives itself"));
        }
        match pools.is_some() && role != Role::Operator {
            true => Err(format!("a role of {role} has no pools: pools are of operators")),
            false => Ok(Operator { name: name.to_owned(), role, pools }),
        }
    }

    /// Returns the operator of `admin_token_file`.
    pub fn admin() -> Operator {
        Operator { name: Operator::ADMIN.to_owned(), role: Role::Admin, pools: None }
    }

    /// Returns the operator of an address that asks for nothing. It may do everything: other
    /// machines do not reach such an address.
    pub fn anonymous() -> Operator {
        Operator { name: Operator::ANONYMOUS.to_owned(), ..Operator::admin() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the pools that it may change; `None` if it is not confined to some.
    pub fn pools(&self) -> Option<&[String]> {
        self.pools.as_deref()
    }

    /// Returns whether it may change a pool.
    pub fn may_change(&self, pool: &str) -> bool {
        let is_its = |pools: &Vec<String>| pools.iter().any(|its| its == pool);
        self.role >= Role::Operator && self.pools.as_ref().is_none_or(is_its)
    }

    /// Returns the text for a change of something that it may not change, such as `pool a`.
    pub fn refusal(&self, what: &str) -> String {
        let its = self.pools.as_ref().filter(|pools| !pools.is_empty());
        let its = its.map_or_else(|| "none".to_owned(), |pools| pools.join(", "));
        format!("this changes {what}; {} may change {its}, and an admin may change all", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_changes_its_pools_and_a_viewer_none() {
        let of = |role, pools: Option<&[&str]>| {
            let pools = pools.map(|pools| pools.iter().map(|pool| (*pool).to_owned()).collect());
            Operator::new("ann", role, pools).unwrap()
        };
        let ann = of(Role::Operator, Some(&["a", "b"]));
        assert!(ann.may_change("a") && ann.may_change("b") && !ann.may_change("c"));
        assert!(!ann.may_change("A") && !ann.may_change(""));
        assert!(of(Role::Operator, None).may_change("c"));
        assert!(!of(Role::Operator, Some(&[])).may_change("a"));
        assert!(!of(Role::Viewer, None).may_change("a"));
        assert!(of(Role::Admin, None).may_change("a") && Operator::admin().may_change("a"));
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
    }

    #[test]
    fn names_are_words_that_keyway_does_not_use_itself() {
        for bad in ["", "admin", "anonymous", "control", "a b", "é", "a\n", &"a".repeat(65)] {
            assert!(Operator::new(bad, Role::Admin, None).is_err(), "{bad:?}");
        }
        assert!(Operator::new("ann@example.com", Role::Viewer, None).is_ok());
        assert!(Operator::new("ann", Role::Viewer, Some(Vec::new())).is_err());
        assert!(Role::ALL.iter().all(|role| role.text().parse() == Ok(*role)));
    }
}
