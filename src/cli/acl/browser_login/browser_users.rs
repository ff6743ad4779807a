//! Users whose processes count as the person's browser.

use keyward_config::Environment;
use keyward_http::server::CallerGroup;

/// Users of this machine from whom the listener takes requests. Others could lead the login to an identity of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrowserUsers {
    /// All: the kernel does not tell one from another.
    All,
    /// Root, this command's user, and the one that started it by sudo.
    Own { user: u32, behind_sudo: Option<u32> },
}

impl BrowserUsers {
    /// Returns those of this process.
    pub(super) fn of(environment: &Environment, kernel_tells: bool) -> Self {
        // A browser of Windows has no socket on this side of the Windows Subsystem for Linux.
        if !kernel_tells || environment.variables.contains_key("WSL_DISTRO_NAME") {
            return Self::All;
        }
        let sudo = environment.variables.get("SUDO_UID").and_then(|uid| uid.parse().ok());
        Self::Own { user: environment.user, behind_sudo: sudo.filter(|_| environment.user == 0) }
    }

    /// Returns true if a request of this group may be the browser's. A socket without a user is refused: its process has closed
    /// it, so that nobody can tell whose it was.
    pub(super) fn admit(self, group: CallerGroup) -> bool {
        match self {
            Self::All => true,
            Self::Own { user, behind_sudo } => {
                group.user().is_some_and(|uid| uid == 0 || uid == user || Some(uid) == behind_sudo)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_if_they_are_of_this_user_of_root_or_of_the_user_behind_sudo() {
        let check = |user: u32, variables: &[(&str, &str)], kernel_tells: bool, expected: [bool; 4]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let users = BrowserUsers::of(&Environment { variables, user }, kernel_tells);
            let unknown = CallerGroup::Address([127, 0, 0, 1].into());
            let groups = [CallerGroup::User(0), CallerGroup::User(7), CallerGroup::User(8), unknown];
            assert_eq!(groups.map(|group| users.admit(group)), expected, "{users:?}");
        };
        check(7, &[], true, [true, true, false, false]);
        check(0, &[], true, [true, false, false, false]);
        check(0, &[("SUDO_UID", "7")], true, [true, true, false, false]);
        check(0, &[("SUDO_UID", "x")], true, [true, false, false, false]);
        // Whoever is not root has set the variable without sudo.
        check(7, &[("SUDO_UID", "8")], true, [true, true, false, false]);
        check(7, &[], false, [true; 4]);
        check(7, &[("WSL_DISTRO_NAME", "Debian")], true, [true; 4]);
    }
}
