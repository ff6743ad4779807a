//! Entry point of the fuzz target `credential_name`.

use super::grants::{GrantRule, PeerIds, UnitPattern, decide};

/// Decides a request by uid, gid and socket name against one rule that grants `id` to `unit`. Returns unit and id if it is
/// granted.
pub fn decide_request(ids: (u32, u32), name: &[u8], unit: &str, id: &str) -> Option<(String, String)> {
    let rule = GrantRule { units: vec![UnitPattern::parse(unit).ok()?], id: id.to_owned() };
    let grant = decide(PeerIds { uid: ids.0, gid: ids.1 }, name, std::iter::once(&rule)).ok()?;
    Some((grant.1.unit.to_owned(), grant.1.credential.to_owned()))
}
