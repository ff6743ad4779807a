//! Which connection makes room for a new caller. Pure.

use std::collections::HashMap;

use super::Limits;
use super::state::Phase;

/// What is to be done about a new caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room.
    Room,
    /// There is, once this connection is closed.
    InPlaceOf(u64),
    /// Every connection is answering a request.
    Full,
}

/// What the choice of a connection to close is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) id: u64,
    pub(super) uid: Option<u32>,
    pub(super) phase: Phase,
    /// Its stamp: a time for those that wait for a head, a turn for the idle ones.
    pub(super) since: u64,
}

/// Whether a caller is let in, and at whose cost.
pub(super) fn admit(open: &[Standing], uid: Option<u32>, limits: &Limits, privileged: [u32; 2]) -> Admission {
    let trusted = uid.is_some_and(|uid| privileged.contains(&uid));
    if let Some(uid) = uid
        && !trusted
    {
        let own: Vec<Standing> = open.iter().filter(|it| it.uid == Some(uid)).copied().collect();
        if own.len() >= limits.per_user {
            return least_missed(&own).map_or(Admission::Full, Admission::InPlaceOf);
        }
    }
    let kept = if trusted || uid.is_none() { 0 } else { (limits.connections / 16).min(16) };
    if open.len() < limits.connections - kept {
        return Admission::Room;
    }
    least_missed(open).map_or(Admission::Full, Admission::InPlaceOf)
}

/// Of those that answer no request: one of the user that has most of them, one that has sent nothing whole before
/// one that is between requests, the longest so.
pub(super) fn least_missed(open: &[Standing]) -> Option<u64> {
    let mut waiting: HashMap<Option<u32>, usize> = HashMap::new();
    let candidates = || open.iter().filter(|it| it.phase != Phase::Busy && it.since != 0);
    for it in candidates() {
        *waiting.entry(it.uid).or_default() += 1;
    }
    let rank = |it: &&Standing| {
        let count = waiting.get(&it.uid).copied().unwrap_or(0);
        (std::cmp::Reverse(count), it.phase == Phase::Idle, it.since, it.id)
    };
    candidates().min_by_key(rank).map(|it| it.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u32; 2] = [0, 500];

    fn limits(connections: usize, per_user: usize) -> Limits {
        Limits { connections, per_user, ..Limits::default() }
    }

    fn standing(id: u64, uid: u32, phase: Phase, since: u64) -> Standing {
        Standing { id, uid: Some(uid), phase, since }
    }

    #[test]
    fn a_full_listener_makes_room_at_the_cost_of_who_holds_most_and_says_least() {
        let check = |open: &[Standing], uid: Option<u32>, wanted: Admission| {
            assert_eq!(admit(open, uid, &limits(4, 3), OURS), wanted, "{open:?}");
        };
        let busy = |id| standing(id, 1, Phase::Busy, 0);
        check(&[], Some(7), Admission::Room);
        check(
            &[busy(1), busy(2), standing(3, 2, Phase::Idle, 9), standing(4, 2, Phase::Idle, 5)],
            Some(7),
            Admission::InPlaceOf(4),
        );
        check(
            &[busy(1), standing(2, 2, Phase::Idle, 1), standing(3, 2, Phase::Fresh, 8), busy(4)],
            Some(7),
            Admission::InPlaceOf(3),
        );
        check(
            &[standing(1, 8, Phase::Idle, 1), standing(2, 2, Phase::Idle, 7), standing(3, 2, Phase::Head, 8), busy(4)],
            Some(7),
            Admission::InPlaceOf(3),
        );
        check(
            &[busy(1), busy(2), standing(3, 2, Phase::Busy, 0), standing(4, 2, Phase::Busy, 0)],
            Some(7),
            Admission::Full,
        );
    }

    #[test]
    fn a_user_at_its_limit_gives_up_a_connection_of_its_own_and_no_other() {
        let own = |phase| [standing(1, 7, Phase::Busy, 0), standing(2, 7, phase, 4), standing(3, 7, Phase::Busy, 0)];
        assert_eq!(admit(&own(Phase::Idle), Some(7), &limits(100, 3), OURS), Admission::InPlaceOf(2));
        assert_eq!(admit(&own(Phase::Busy), Some(7), &limits(100, 3), OURS), Admission::Full);
        assert_eq!(admit(&own(Phase::Busy), Some(8), &limits(100, 3), OURS), Admission::Room);
    }

    #[test]
    fn the_last_places_are_kept_for_root_and_ourselves() {
        let open: Vec<Standing> = (0..30).map(|id| standing(id, 7, Phase::Busy, 0)).collect();
        for (uid, wanted) in [(8, Admission::Full), (0, Admission::Room), (500, Admission::Room)] {
            assert_eq!(admit(&open, Some(uid), &limits(32, 100), OURS), wanted, "uid {uid}");
        }
        assert_eq!(admit(&open, None, &limits(32, 100), OURS), Admission::Room);
    }
}
