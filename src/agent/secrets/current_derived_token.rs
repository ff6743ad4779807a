//! Published derived token, which ends with the token that it derives from.

use std::sync::Arc;

use keyward_machine::clock::ClockReading;

use crate::token::{Generation, Token};

/// A published derived token, and the end of its parent.
#[derive(Debug)]
pub(super) struct CurrentDerivedToken {
    pub(super) token: Arc<Token>,
    /// Login of the parent.
    parent: Generation,
    /// Expiry of the parent, with which the server revokes the token; `None` if the parent has none, and for an orphan.
    parent_ends: Option<ClockReading>,
    /// The server keeps the token after the end of the session's token.
    is_orphan: bool,
}

impl CurrentDerivedToken {
    pub(super) fn new(token: Arc<Token>, parent: &Token, is_orphan: bool) -> Self {
        let parent_ends = parent.expires.filter(|_| !is_orphan);
        Self { token, parent: parent.generation, parent_ends, is_orphan }
    }

    /// Takes over the expiry of the parent, which a renewal moves. Returns false for another token of the session.
    pub(super) fn follow_parent(&mut self, parent: &Token) -> bool {
        let is_parent = self.parent == parent.generation;
        if is_parent && !self.is_orphan {
            self.parent_ends = parent.expires;
        }
        is_parent
    }

    /// Returns the end of the token: its own expiry, or that of its parent if that is earlier.
    pub(super) fn ends(&self) -> Option<ClockReading> {
        [self.token.expires, self.parent_ends].into_iter().flatten().min_by_key(|end| end.boot)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use keyward_machine::secret_string::SecretString;

    use super::*;
    use crate::token::{ClientToken, Lease, TokenKind};

    fn at(seconds: u64) -> ClockReading {
        let boot = Duration::from_secs(seconds);
        ClockReading { boot, wall: SystemTime::UNIX_EPOCH + boot }
    }

    fn token(generation: Generation, expires: Option<u64>) -> Token {
        Token {
            secret: ClientToken::parse(SecretString::from("hvs.test")).unwrap(),
            accessor: None,
            lease: Lease { ttl: Duration::ZERO, renewable: false },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained: at(0),
            expires: expires.map(at),
            generation,
        }
    }

    #[test]
    fn a_child_ends_with_its_parent_and_an_orphan_does_not() {
        let parent = Generation::new();
        let check = |is_orphan: bool, own: Option<u64>, parents: [Option<u64>; 2], expected: [Option<u64>; 2]| {
            let child = Arc::new(token(Generation::new(), own));
            let mut current = CurrentDerivedToken::new(child, &token(parent, parents[0]), is_orphan);
            assert_eq!(current.ends(), expected[0].map(at));
            assert!(!current.follow_parent(&token(Generation::new(), Some(1))));
            assert_eq!(current.ends(), expected[0].map(at), "another token of the session");
            assert!(current.follow_parent(&token(parent, parents[1])));
            assert_eq!(current.ends(), expected[1].map(at), "after a renewal");
        };
        check(false, Some(900), [Some(20), Some(40)], [Some(20), Some(40)]);
        check(false, Some(30), [Some(20), Some(40)], [Some(20), Some(30)]);
        check(false, None, [Some(20), None], [Some(20), None]);
        check(false, Some(900), [None, None], [Some(900), Some(900)]);
        check(true, Some(900), [Some(20), Some(40)], [Some(900), Some(900)]);
        check(true, None, [Some(20), Some(40)], [None, None]);
    }
}
