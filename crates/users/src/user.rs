use crate::password::{Digest, Passwords};
use crate::rules::{self, RuleFault, empty};
use crate::selector::{Access, Denied, Selector, sort_pattern};
use crate::slow::SlowHash;
use keyway_command::{Request, Verb};
use std::fmt;
use std::sync::Arc;

/// A user: its name, its passwords, and what it may do.
#[derive(Clone)]
pub struct User {
    name: Arc<str>,
    pub(crate) is_on: bool,
    pub(crate) passwords: Passwords,
    pub(crate) root: Selector,
    pub(crate) selectors: Vec<Selector>,
    /// Index of the pool of its requests, if that is not the listener's.
    pool: Option<u16>,
    /// Index of the read policy, if that is neither the listener's nor the pool's.
    reads: Option<u16>,
}

/// The placeholder for a hashed password where users are shown.
const HIDDEN: &str = "#hidden";

impl User {
    /// Creates a user who is on, with nothing allowed, and applies `rules`.
    ///
    /// # Errors
    /// Returns the first invalid rule.
    pub fn new(name: &str, rules: &str) -> Result<User, RuleFault> {
        let mut user = User {
            name: name.into(),
            is_on: true,
            passwords: Passwords::default(),
            root: empty(),
            selectors: Vec::new(),
            pool: None,
            reads: None,
        };
        rules::apply(&mut user, rules)?;
        user.root.settle();
        Ok(user)
    }

    /// Returns every invalid rule among these, in their order.
    pub fn faults(rules: &str) -> Vec<RuleFault> {
        let mut user = User::free("", None);
        user.root = empty();
        rules::faults(&mut user, rules)
    }

    /// Creates a user who may do everything, with a password or without.
    pub fn free(name: &str, password: Option<&str>) -> User {
        let user = User::new(name, "nopass ~* &* +@all").expect("these are rules");
        match password {
            Some(password) => user.with_digest(Digest::of(password.as_bytes())),
            None => user,
        }
    }

    /// Returns the user with one more password.
    #[must_use]
    pub fn with_digest(mut self, digest: Digest) -> User {
        self.passwords.add(digest);
        self
    }

    /// Returns the user with more passwords, given as slow hashes.
    #[must_use]
    pub fn with_slow(mut self, hashes: Vec<SlowHash>) -> User {
        if !hashes.is_empty() {
            self.passwords.is_open = false;
            self.passwords.slow = hashes.into();
        }
        self
    }

    /// Returns the user with this pool.
    #[must_use]
    pub fn of_pool(mut self, pool: Option<u16>) -> User {
        self.pool = pool;
        self
    }

    /// Returns the user with the read policy of this index.
    #[must_use]
    pub fn with_reads(mut self, reads: Option<u16>) -> User {
        self.reads = reads;
        self
    }

    /// Returns the index of its read policy, or `None` for that of the listener or the pool.
    pub fn reads(&self) -> Option<u16> {
        self.reads
    }

    /// Returns its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the index of the pool of its requests, or `None` for that of the listener.
    pub fn pool(&self) -> Option<u16> {
        self.pool
    }

    /// Returns whether it can log in at all.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether any password is right for it.
    pub fn needs_no_password(&self) -> bool {
        self.passwords.is_open
    }

    /// Returns whether it can log in with any password.
    pub fn has_password(&self) -> bool {
        self.passwords.is_open || self.passwords.len() > 0
    }

    /// Returns whether it may do everything, so that its requests need not be judged.
    pub fn is_free(&self) -> bool {
        self.root.is_free()
    }

    /// Returns whether a request is certainly allowed. This alone is true for most allowed
    /// requests.
    #[inline]
    pub fn passes(&self, request: &Request) -> bool {
        self.root.passes(request)
    }

    /// Judges a request.
    ///
    /// # Errors
    /// Returns the reason if it is denied.
    pub fn judge(&self, request: &Request) -> Result<(), Denied> {
        if self.passes(request) {
            return Ok(());
        }
        match self.root.judge(request) {
            Err(denied) if !self.selectors.is_empty() => self.judge_by_others(request, denied)?,
            judged => judged?,
        }
        if matches!(request.command.verb, Verb::Sort | Verb::SortRo) {
            return self.judge_sort(request);
        }
        Ok(())
    }

    #[cold]
    fn judge_by_others(&self, request: &Request, mut denied: Denied) -> Result<(), Denied> {
        for selector in &self.selectors {
            match selector.judge(request) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.or(other),
            }
        }
        Err(denied)
    }

    /// Judges a SORT by patterns. It needs the right to read every key.
    #[cold]
    fn judge_sort(&self, request: &Request) -> Result<(), Denied> {
        let Some(option) = sort_pattern(request) else { return Ok(()) };
        let may = |own: &Selector| own.judge(request).is_ok() && own.reads_everything();
        match self.all().any(may) {
            true => Ok(()),
            false => Err(Denied::Pattern(option)),
        }
    }

    /// Returns whether it may certainly use `verb` on one key in a way.
    #[inline]
    pub fn may_use(&self, verb: Verb, key: &[u8], access: Access) -> bool {
        self.root.commands.has(verb) && self.root.may_use(key, access)
    }

    /// Judges the use of `verb` on `keys` in a way, for a client whose request is not one of Redis.
    ///
    /// # Errors
    /// Returns [`Denied::Command`], or the first key that it may not use like that.
    pub fn judge_keys<'k>(
        &self,
        verb: Verb,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        access: Access,
    ) -> Result<(), Denied> {
        let judge = |own: &Selector| {
            if !own.commands.has(verb) {
                return Err(Denied::Command);
            }
            match keys.clone().position(|key| !own.may_use(key, access)) {
                Some(at) => Err(Denied::Key(at)),
                None => Ok(()),
            }
        };
        let mut denied = match judge(&self.root) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.selectors {
            match judge(selector) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.or(other),
            }
        }
        Err(denied)
    }

    /// Returns whether it may use `verb` on some keys.
    pub fn may(&self, verb: Verb) -> bool {
        self.all().any(|own| own.commands.has(verb))
    }

    /// Returns whether it may receive messages of a channel, or of those of a pattern, with `verb`.
    pub fn may_hear(&self, verb: Verb, channel: &[u8], is_pattern: bool) -> bool {
        self.all().any(|own| own.commands.has(verb) && own.may_hear(channel, is_pattern))
    }

    /// Returns whether it may do everything that another user may. It returns `false` if that
    /// depends on patterns that are not exactly equal.
    pub fn may_all_of(&self, other: &User) -> bool {
        other.all().all(|its| self.all().any(|own| own.covers(its)))
    }

    fn all(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Returns the flags in the words of `ACL GETUSER`.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.passwords.is_open.then_some("nopass"));
        flags
    }

    /// Returns whether both have the same passwords.
    pub fn has_passwords_of(&self, other: &User) -> bool {
        self.passwords == other.passwords
    }

    /// Returns placeholders for its passwords, which are never shown.
    pub fn passwords(&self) -> Vec<&'static str> {
        vec![HIDDEN; self.passwords.len()]
    }

    /// Returns its commands, keys and channels as rules, and then those of each of its selectors.
    pub fn permissions(&self) -> impl Iterator<Item = [String; 3]> {
        self.all().map(|own| [own.command_text(), own.key_text(), own.channel_text()])
    }

    /// Returns its rules without its passwords: a line of `ACL LIST` without the name.
    pub fn rules(&self) -> String {
        let mut words: Vec<String> = self.flags().into_iter().map(str::to_owned).collect();
        words.extend(self.passwords().into_iter().map(str::to_owned));
        words.push(self.root.text());
        words.extend(self.selectors.iter().map(|own| format!("({})", own.text())));
        words.join(" ")
    }
}

impl Selector {
    fn command_text(&self) -> String {
        self.command_rules.join(" ")
    }

    fn key_text(&self) -> String {
        if self.has_all_keys {
            return "~*".to_owned();
        }
        let word = |own: &crate::selector::KeyPattern| {
            let sign = match (own.access.reads, own.access.writes) {
                (true, false) => "%R~",
                (false, true) => "%W~",
                _ => "~",
            };
            format!("{sign}{}", String::from_utf8_lossy(own.pattern.text()))
        };
        self.keys.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn channel_text(&self) -> String {
        if self.has_all_channels {
            return "&*".to_owned();
        }
        let word =
            |own: &crate::pattern::Pattern| format!("&{}", String::from_utf8_lossy(own.text()));
        self.channels.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn text(&self) -> String {
        let channels = match self.has_all_channels {
            true => self.channel_text(),
            false => format!("resetchannels {}", self.channel_text()).trim_end().to_owned(),
        };
        let words = [self.key_text(), channels, self.command_text()];
        words.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" ")
    }
}

/// Shows nothing of its passwords.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({} {})", self.name, self.rules())
    }
}

/// Two users are equal if they may do the same in the same places. Their passwords do not matter:
/// see [`User::has_passwords_of`].
impl PartialEq for User {
    fn eq(&self, other: &User) -> bool {
        let places = |user: &User| (user.pool, user.reads);
        self.name == other.name && places(self) == places(other) && self.rules() == other.rules()
    }
}

impl Eq for User {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_has_lost_is_seen_and_what_it_has_won_is_no_loss() {
        let user = |rules: &str| User::new("feed", rules).unwrap();
        let before = "~app:* %R~ro:* &news.* +@read +set +config|get (~other:* +get)";
        let same = [
            before,
            "allkeys allchannels +@all",
            "~app:* ~ro:* ~more:* &news.* &x +@all (~other:* +@read)",
            "&* +@all ~app:* ~ro:* ~other:*",
        ];
        for rules in same {
            assert!(user(rules).may_all_of(&user(before)), "{rules}");
        }
        let less = [
            "",
            "~app:* %R~ro:* &news.* +@read +set +config|get",
            "~app:* %R~ro:* &news.* +@read +config|get (~other:* +get)",
            "~app:* %W~ro:* &news.* +@read +set +config|get (~other:* +get)",
            "~app:* %R~ro:* +@read +set +config|get (~other:* +get)",
            "~app:* %R~ro:* &news.* +@read +set +config|set (~other:* +get)",
        ];
        for rules in less {
            assert!(!user(rules).may_all_of(&user(before)), "{rules}");
        }
        let hears = |rules: &str, name: &[u8], is_pattern| {
            let verb = if is_pattern { Verb::Psubscribe } else { Verb::Subscribe };
            user(rules).may_hear(verb, name, is_pattern)
        };
        assert!(hears("&news.* +subscribe", b"news.a", false));
        assert!(hears("+psubscribe (&news.* +@all)", b"news.*", true));
        assert!(!hears("&news.* +psubscribe", b"news.a", false));
        assert!(!hears("&news.* +psubscribe", b"news.a*", true));
        assert!(user("+monitor").may(Verb::Monitor) && !user("+get ~*").may(Verb::Monitor));
    }

    #[test]
    fn users_of_other_passwords_or_other_places_are_others() {
        let rules = |password: &str| format!("on {password} ~* +@all");
        let user = |password: &str| User::new("feed", &rules(password)).unwrap();
        let (one, other) =
            (user(&format!("#{}", "1f".repeat(32))), user(&format!("#{}", "2f".repeat(32))));
        assert_eq!(one.rules(), other.rules(), "what is shown of them is the same");
        assert!(one.has_passwords_of(&one.clone()) && !one.has_passwords_of(&other));
        assert!(one.clone() != User { reads: Some(1), ..one.clone() });
        assert!(one.clone() != User { pool: Some(1), ..one.clone() });
    }
}
