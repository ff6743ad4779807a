//! Access control lists of files and folders (`acl(5)`). The group bits of a mode are then the mask of the list, so that the mode
//! does not say who may write.

use std::os::fd::AsFd;
use std::path::Path;

/// Entry of a list that lets others than the owner and everybody write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclWriter {
    /// A user, by id.
    User(u32),
    /// The group of the file.
    OwningGroup {
        /// Its rights (`rwx`, 0 to 7) without that to write.
        other_rights: u16,
    },
    /// Another group, by id.
    Group(u32),
}

impl AclWriter {
    /// Returns true for all but root and this user.
    pub fn is_other_than(self, user: u32) -> bool {
        !matches!(self, Self::User(id) if id == 0 || id == user)
    }
}

/// Returns the entries of an open file's list that let others write. `None` if it has no list that can be read: the mode decides.
pub fn writers_of_file(file: impl AsFd) -> Option<Vec<AclWriter>> {
    let mut bytes = vec![0_u8; MAX_SIZE];
    let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes[..]).ok()?;
    parse_writers(bytes.get(..length)?)
}

/// The same of the file or folder at a path.
pub fn writers_of_path(path: &Path) -> Option<Vec<AclWriter>> {
    let mut bytes = vec![0_u8; MAX_SIZE];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut bytes[..]).ok()?;
    parse_writers(bytes.get(..length)?)
}

/// Extended attribute with the list.
const ATTRIBUTE: &str = "system.posix_acl_access";

/// Maximum size of an extended attribute (`XATTR_SIZE_MAX` of linux/limits.h).
const MAX_SIZE: usize = 65536;

// From linux/posix_acl_xattr.h and linux/posix_acl.h.
const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
const WRITE: u16 = 0o2;

/// Parses a list: a version, then entries of tag, rights and id, all little-endian. `None` for anything else.
fn parse_writers(bytes: &[u8]) -> Option<Vec<AclWriter>> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let mut writers = Vec::new();
    let mut mask = WRITE;
    let mut has_owning_group = false;
    for &[tag_low, tag_high, rights_low, rights_high, id @ ..] in entries {
        let rights = u16::from_le_bytes([rights_low, rights_high]);
        let id = u32::from_le_bytes(id);
        let writer = match u16::from_le_bytes([tag_low, tag_high]) {
            USER => AclWriter::User(id),
            OWNING_GROUP => {
                has_owning_group = true;
                AclWriter::OwningGroup { other_rights: rights & 0o7 & !WRITE }
            }
            GROUP => AclWriter::Group(id),
            MASK => {
                mask = rights;
                continue;
            }
            OWNER | OTHERS => continue,
            _ => return None,
        };
        if rights & WRITE != 0 {
            writers.push(writer);
        }
    }
    // The mask limits all of these entries.
    if mask & WRITE == 0 {
        writers.clear();
    }
    // Every list has that entry: without it, nothing is known of the group.
    has_owning_group.then_some(writers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Id of entries that name nobody.
    const NO_ID: u32 = u32::MAX;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_entries_that_may_write_are_those_that_the_mask_lets() {
        let check = |named: &[(u16, u16, u32)], owning_group: u16, mask: u16, expected: &[AclWriter]| {
            let mut entries = vec![(OWNER, 7, NO_ID), (OWNING_GROUP, owning_group, NO_ID), (OTHERS, 5, NO_ID)];
            entries.push((MASK, mask, NO_ID));
            entries.extend(named);
            assert_eq!(parse_writers(&list(&entries)).as_deref(), Some(expected), "{entries:?}");
        };
        check(&[(USER, 7, 990)], 5, 7, &[AclWriter::User(990)]);
        check(&[(USER, 5, 990), (GROUP, 4, 5)], 5, 7, &[]);
        check(&[(USER, 7, 990), (GROUP, 2, 5)], 0, 7, &[AclWriter::User(990), AclWriter::Group(5)]);
        check(&[(USER, 5, 990)], 7, 7, &[AclWriter::OwningGroup { other_rights: 5 }]);
        check(&[(USER, 7, 990), (GROUP, 7, 5)], 7, 5, &[]);
        // Without named entries a list needs no mask.
        let entries = [(OWNER, 7, NO_ID), (OWNING_GROUP, 6, NO_ID), (OTHERS, 0, NO_ID)];
        assert_eq!(parse_writers(&list(&entries)), Some(vec![AclWriter::OwningGroup { other_rights: 4 }]));
    }

    #[test]
    fn bytes_of_another_form_are_no_list() {
        let good = list(&[(OWNER, 7, NO_ID), (OWNING_GROUP, 5, NO_ID), (OTHERS, 5, NO_ID)]);
        assert_eq!(parse_writers(&good), Some(Vec::new()));
        // Two whole entries are a list too.
        for length in 0..good.len() {
            assert_eq!(parse_writers(&good[..length]), (length == 20).then(Vec::new), "{length}");
        }
        assert_eq!(parse_writers(&[&good[..], b"1234567"].concat()), None);
        assert_eq!(parse_writers(&[&3_u32.to_le_bytes(), &good[4..]].concat()), None);
        assert_eq!(parse_writers(&list(&[(OWNING_GROUP, 5, NO_ID), (0x40, 7, 1)])), None);
    }

    #[test]
    fn root_and_the_agents_user_are_no_others() {
        let others = |writer: AclWriter| writer.is_other_than(990);
        assert!(!others(AclWriter::User(0)) && !others(AclWriter::User(990)));
        assert!(others(AclWriter::User(991)) && others(AclWriter::Group(990)));
        assert!(others(AclWriter::OwningGroup { other_rights: 5 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_writers(&bytes);
            let _ = parse_writers(&[&VERSION.to_le_bytes()[..], &bytes].concat());
        }
    }
}
