//! Pages that ask for the listener's key or for an ACL token.

use maud::{Markup, html};

use super::Frame;
use super::text::rich;

/// Secret that a page asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignIn {
    /// The listener's key.
    Key,
    /// An ACL token.
    AclToken,
}

impl SignIn {
    /// Name of the form's field.
    pub(crate) const FIELD: &str = "secret";

    /// Name in the log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::AclToken => "acl token",
        }
    }

    /// Path that the form is sent to.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Key => "/sign-in",
            Self::AclToken => "/acl/sign-in",
        }
    }
}

/// Builds the page. `next` is the path that the browser wanted to see; `error` says why the last attempt failed.
pub(crate) fn page(frame: Frame, method: SignIn, next: &str, error: Option<&str>) -> Markup {
    let (title, label, hint) = match method {
        SignIn::Key => (
            "Sign in",
            "Key of this listener",
            "The key is in the file that `key_file` of this listener names. `keyward dev` prints its path.",
        ),
        SignIn::AclToken => {
            ("Sign in to the ACL server", "ACL token", "The pages show what this token may read, and no secret.")
        }
    };
    let content = html! {
        @if let Some(error) = error { p.error role="alert" { (error) } }
        form.card.sign-in method="post" action=(method.path()) {
            input type="hidden" name="next" value=(next);
            label for="secret" { (label) }
            input id="secret" name=(SignIn::FIELD) type="password" autocomplete="off" required autofocus
                aria-describedby="hint";
            p.minor id="hint" { (rich(hint)) }
            button type="submit" { "Sign in" }
        }
    };
    frame.page(title, if method == SignIn::Key { "" } else { "/acl" }, &content)
}
