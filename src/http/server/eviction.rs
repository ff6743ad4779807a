//! Decides which connection is closed for a new caller. Pure.

use std::collections::HashMap;

use super::ListenerLimits;
use super::peer_group::CallerGroup;

/// Decision about a new caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EvictionDecision {
    /// Admit it: the table is not full.
    Admit,
    /// Admit it after closing this connection.
    Evict(u64),
    /// Reject it: no connection can be closed for it.
    Reject,
}

/// A connection that may be closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) id: u64,
    pub(super) group: CallerGroup,
    /// No request is being received or served on it, so it may be closed.
    pub(super) evictable: bool,
    /// Position in the listener's order of accepts and responses; the lowest has been idle the longest.
    pub(super) last_use: u64,
}

/// A new caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewCaller {
    pub(super) group: CallerGroup,
    /// Root or the process's own user.
    pub(super) trusted: bool,
    /// The limit per user applies to it.
    pub(super) capped: bool,
}

/// Number of reserved connections: a sixteenth of the limit, at most 16.
pub(super) fn reserve(limits: &ListenerLimits) -> usize {
    (limits.connections / 16).min(16)
}

/// Decides if a new caller is admitted, and which connection is closed for it.
pub(super) fn decide(open: &[Candidate], new: NewCaller, limits: &ListenerLimits) -> EvictionDecision {
    let own_count = open.iter().filter(|connection| connection.group == new.group).count();
    if new.capped && own_count >= limits.per_user {
        let own_connections: Vec<Candidate> =
            open.iter().filter(|connection| connection.group == new.group).copied().collect();
        return pick_victim(&own_connections).map_or(EvictionDecision::Reject, |(id, _)| EvictionDecision::Evict(id));
    }
    let reserve = reserve(limits);
    let mut limit = limits.connections;
    if !new.trusted {
        // One reserve for root and the process's own user, where users are known; one for groups with few connections.
        limit -= if matches!(new.group, CallerGroup::User(_)) { reserve } else { 0 };
        limit -= if own_count > reserve { reserve } else { 0 };
    }
    if open.len() < limit {
        return EvictionDecision::Admit;
    }
    let own_network_count = open.iter().filter(|connection| connection.group.network() == new.group.network()).count();
    match pick_victim(open) {
        // No connection is closed for a group that has more.
        Some((id, count)) if new.trusted || count >= own_network_count => EvictionDecision::Evict(id),
        _ => EvictionDecision::Reject,
    }
}

/// Picks the connection to close and returns it with its network's number of connections: of the network with most
/// connections, of its address with most, the one that has been idle the longest. Earlier requests do not protect a
/// connection: a hoarder could send one first.
pub(super) fn pick_victim(open: &[Candidate]) -> Option<(u64, usize)> {
    let mut networks = HashMap::new();
    let mut groups = HashMap::new();
    for connection in open {
        *networks.entry(connection.group.network()).or_insert(0_usize) += 1;
        *groups.entry(connection.group).or_insert(0_usize) += 1;
    }
    let count = |counts: &HashMap<CallerGroup, usize>, group| counts.get(&group).copied().unwrap_or(0);
    let rank = |candidate: &&Candidate| {
        let connection_counts = (count(&networks, candidate.group.network()), count(&groups, candidate.group));
        (connection_counts, std::cmp::Reverse((candidate.last_use, candidate.id)))
    };
    let victim = open.iter().filter(|candidate| candidate.evictable).max_by_key(rank)?;
    Some((victim.id, count(&networks, victim.group.network())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: usize, per_user: usize) -> ListenerLimits {
        ListenerLimits { connections, per_user, ..ListenerLimits::default() }
    }

    fn busy(id: u64, uid: u32) -> Candidate {
        Candidate { id, group: CallerGroup::User(uid), evictable: false, last_use: 0 }
    }

    fn quiet(id: u64, uid: u32, last_use: u64) -> Candidate {
        Candidate { id, group: CallerGroup::User(uid), evictable: true, last_use }
    }

    fn at(id: u64, address: &str, last_use: u64) -> Candidate {
        Candidate { id, group: CallerGroup::Address(address.parse().unwrap()), evictable: true, last_use }
    }

    fn user(uid: u32) -> NewCaller {
        let trusted = matches!(uid, 0 | 500);
        NewCaller { group: CallerGroup::User(uid), trusted, capped: !trusted }
    }

    fn address(text: &str) -> NewCaller {
        NewCaller { group: CallerGroup::Address(text.parse().unwrap()), trusted: false, capped: false }
    }

    #[test]
    fn a_full_listener_evicts_the_longest_idle_connection_of_the_largest_group() {
        let check = |open: &[Candidate], new, expected: EvictionDecision| {
            assert_eq!(decide(open, new, &limits(4, 3)), expected, "{open:?}");
        };
        check(&[], user(7), EvictionDecision::Admit);
        check(&[busy(1, 1), busy(2, 1), quiet(3, 2, 9), quiet(4, 2, 5)], user(7), EvictionDecision::Evict(4));
        check(&[quiet(1, 8, 1), quiet(2, 2, 7), quiet(3, 2, 8), busy(4, 1)], user(7), EvictionDecision::Evict(2));
        check(&[quiet(1, 8, 1), quiet(2, 2, 7), busy(3, 2), busy(4, 2)], user(7), EvictionDecision::Evict(2));
        check(&[busy(1, 1), busy(2, 1), busy(3, 2), busy(4, 2)], user(7), EvictionDecision::Reject);
        // A caller that holds the most connections, all busy, takes none from callers that hold fewer.
        let open = [busy(1, 7), busy(2, 7), quiet(3, 2, 1), busy(4, 1)];
        check(&open, user(7), EvictionDecision::Reject);
        check(&open, user(0), EvictionDecision::Evict(3));
        check(&open, user(1), EvictionDecision::Evict(3));
    }

    #[test]
    fn eviction_picks_the_largest_network_and_its_largest_address() {
        let open =
            [at(1, "192.0.2.1", 1), at(2, "198.51.100.1", 2), at(3, "198.51.100.1", 3), at(4, "198.51.100.2", 1)];
        assert_eq!(decide(&open, address("203.0.113.1"), &limits(4, 3)), EvictionDecision::Evict(2));
        let spread: Vec<_> =
            (0..3).map(|id| at(id, &format!("198.51.100.{id}"), id)).chain([at(9, "192.0.2.1", 0)]).collect();
        assert_eq!(
            decide(&spread, address("203.0.113.1"), &limits(4, 3)),
            EvictionDecision::Evict(0),
            "many addresses of one"
        );
        let blocks = [at(1, "2001:db8::1", 5), at(2, "2001:db8:0:ff::1", 4), at(3, "2001:db8:1::1", 1)];
        assert_eq!(decide(&blocks, address("192.0.2.1"), &limits(3, 3)), EvictionDecision::Evict(2));
    }

    #[test]
    fn a_user_at_its_limit_loses_one_of_its_own_connections() {
        let own = |second| [busy(1, 7), second, busy(3, 7), quiet(4, 8, 0)];
        assert_eq!(decide(&own(quiet(2, 7, 4)), user(7), &limits(100, 3)), EvictionDecision::Evict(2));
        assert_eq!(decide(&own(busy(2, 7)), user(7), &limits(100, 3)), EvictionDecision::Reject);
        assert_eq!(decide(&own(busy(2, 7)), user(8), &limits(100, 3)), EvictionDecision::Admit);
    }

    #[test]
    fn the_last_connections_are_reserved_for_small_groups_and_then_for_root() {
        let open = |count| (0..count).map(|id| busy(id, 7)).collect::<Vec<_>>();
        let limits = limits(64, 100);
        for (count, uid, expected) in [
            (55, 7, EvictionDecision::Admit),
            (56, 7, EvictionDecision::Reject),
            (59, 8, EvictionDecision::Admit),
            (60, 8, EvictionDecision::Reject),
            (60, 0, EvictionDecision::Admit),
            (63, 500, EvictionDecision::Admit),
        ] {
            assert_eq!(decide(&open(count), user(uid), &limits), expected, "uid {uid} beside {count}");
        }
        assert_eq!(decide(&open(63), address("192.0.2.1"), &limits), EvictionDecision::Admit);
        assert_eq!(decide(&open(64), address("192.0.2.1"), &limits), EvictionDecision::Reject);
    }
}
