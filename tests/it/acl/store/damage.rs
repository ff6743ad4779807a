//! Damaged store files: nothing is lost or changed silently.

use std::path::Path;

use keyward_acl::store::{
    Batch, Embedded, Freshness, Key, OpenError, Page, Store as _, StoreError, Verification, Write,
};
use redb::{Database, ReadableTable as _, TableDefinition};

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

fn key(kind: &str, number: usize) -> Key {
    Key::new(&[kind, "default", &format!("{number:06}")])
}

fn value(number: usize) -> Vec<u8> {
    format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(number % 700)).into_bytes()
}

/// Creates a store with some tokens and policies, and closes it.
async fn create_filled_store(folder: &Path, tokens: usize) {
    let store = Embedded::open(folder, "dc1").unwrap();
    let kinds = [("token", tokens), ("policy", 10)];
    let all: Vec<_> = kinds.iter().flat_map(|(kind, count)| (0..*count).map(move |number| (*kind, number))).collect();
    for some in all.chunks(100) {
        let writes = some.iter().map(|(kind, number)| Write::Put(key(kind, *number), value(*number))).collect();
        store.commit(Batch { checks: Vec::new(), writes }).await.unwrap();
    }
}

type StoredRecords = Vec<(String, Vec<u8>, u64, u64)>;

/// Reads everything of a store.
async fn listed(store: &Embedded) -> Result<StoredRecords, StoreError> {
    let page = Page { after: None, limit: 100_000 };
    let listing = store.list("", page, Freshness::Linearizable).await?;
    let record = |(key, record): (Key, keyward_acl::store::Record)| {
        (key.as_str().to_owned(), record.value.to_vec(), record.created.0, record.modified.0)
    };
    Ok(listing.entries.into_iter().map(record).collect())
}

fn kinds_of(found: &Verification) -> Vec<&str> {
    found.damaged_kinds.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn a_flipped_bit_is_never_silent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    create_filled_store(&path, 1500).await;
    let store = Embedded::open(&path, "dc1").unwrap();
    let expected = listed(&store).await.unwrap();
    assert_eq!((expected.len(), store.verify().await.unwrap().is_clean()), (1510, true));
    drop(store);
    let file = path.join("acl.redb");
    let whole = std::fs::read(&file).unwrap();
    let mut reported = 0;
    for flip in 0..200_usize {
        let mut damaged = whole.clone();
        let place = (flip * 7919 + 13).wrapping_mul(104_729) % damaged.len();
        damaged[place] ^= 1 << (flip % 8);
        std::fs::write(&file, damaged).unwrap();
        let offline = Embedded::verify_file(&path);
        match Embedded::open(&path, "dc1") {
            Ok(store) => {
                let found = listed(&store).await;
                let clean = store.verify().await.is_ok_and(|found| found.is_clean());
                assert!(!clean || found.is_ok_and(|found| found == expected), "bit {} of byte {place}", flip % 8);
            }
            Err(error) => {
                reported += 1;
                assert!(offline.is_err() || offline.is_ok_and(|found| !found.is_clean()), "{error}");
            }
        }
    }
    assert!(reported > 20, "{reported} of 200 were told of: are these bytes in use?");
    std::fs::write(&file, whole).unwrap();
    assert_eq!(listed(&Embedded::open(&path, "dc1").unwrap()).await.unwrap(), expected);
}

#[tokio::test]
async fn damaged_pages_fail_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    create_filled_store(folder.path(), 300).await;
    let file = Embedded::file_in(folder.path());
    let mut bytes = std::fs::read(&file).unwrap();
    let expected = b"{\"number\":250,";
    // All occurrences: unused pages may hold a copy.
    let places: Vec<_> = (0..bytes.len() - expected.len()).filter(|at| bytes[*at..].starts_with(expected)).collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place + 11] ^= 1;
    }
    std::fs::write(&file, &bytes).unwrap();
    let error = Embedded::open(folder.path(), "dc1").unwrap_err();
    assert!(matches!(error, OpenError::PagesDamaged { .. }), "{error}");
    for expected in ["acl.redb is damaged", "keyward acl verify --dir", "--new-store", "restore a snapshot"] {
        assert!(error.to_string().contains(expected), "{error}");
    }
    let found = Embedded::verify_file(folder.path()).unwrap();
    assert_eq!((found.pages, found.is_clean()), (Some(false), false));
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "nothing is changed");
}

/// Changes records directly in the database file, with valid pages.
fn edit_database_file(folder: &Path, change: impl FnOnce(&mut redb::Table<'_, &'static str, &'static [u8]>)) {
    let database = Database::open(Embedded::file_in(folder)).unwrap();
    let transaction = database.begin_write().unwrap();
    change(&mut transaction.open_table(RECORDS).unwrap());
    transaction.commit().unwrap();
}

#[tokio::test]
async fn changed_moved_and_lost_records_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    create_filled_store(folder.path(), 50).await;
    let (first, second, third) = (key("token", 1), key("token", 2), key("policy", 3));
    let bytes = |table: &redb::Table<'_, &'static str, &'static [u8]>, key: &Key| {
        table.get(key.as_str()).unwrap().unwrap().value().to_vec()
    };
    edit_database_file(folder.path(), |table| {
        let mut changed = bytes(table, &first);
        *changed.last_mut().unwrap() ^= 1;
        table.insert(first.as_str(), changed.as_slice()).unwrap();
        let moved = bytes(table, &key("token", 5));
        table.insert(second.as_str(), moved.as_slice()).unwrap();
        table.remove(third.as_str()).unwrap();
    });
    let store = Embedded::open(folder.path(), "dc1").unwrap();
    for damaged in [&first, &second] {
        let error = store.get(damaged, Freshness::Linearizable).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unreadable { key } if key == damaged.as_str()), "{error}");
    }
    let found = store.verify().await.unwrap();
    assert_eq!((found.records, found.unchecked, found.damaged), (59, 0, 2));
    assert_eq!(found.damaged_keys, [first.as_str(), second.as_str()]);
    // The second record has another's checksum; the first has its own.
    assert_eq!(kinds_of(&found), ["policy", "token"]);
    // The other records of the list are read; these have no value.
    let listing = listed(&store).await.unwrap();
    let empty: Vec<_> =
        listing.iter().filter(|(_, value, ..)| value.is_empty()).map(|(key, ..)| key.as_str()).collect();
    assert_eq!((listing.len(), empty), (59, vec![first.as_str(), second.as_str()]));
    drop(store);
    assert_eq!(Embedded::verify_file(folder.path()).unwrap(), Verification { pages: Some(true), ..found });
}

#[tokio::test]
async fn a_damaged_record_that_is_replaced_or_removed_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    create_filled_store(folder.path(), 50).await;
    let keys = [key("token", 1), key("token", 2)];
    edit_database_file(folder.path(), |table| {
        for key in &keys {
            let mut bytes = table.get(key.as_str()).unwrap().unwrap().value().to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            table.insert(key.as_str(), bytes.as_slice()).unwrap();
        }
    });
    let store = Embedded::open(folder.path(), "dc1").unwrap();
    assert_eq!(store.verify().await.unwrap().damaged, 2);
    let [replaced, removed] = keys;
    let writes = vec![Write::Put(replaced, b"{}".to_vec()), Write::Delete(removed)];
    store.commit(Batch { checks: Vec::new(), writes }).await.unwrap();
    let found = store.verify().await.unwrap();
    assert!(found.is_clean() && found.records == 59, "{found:?}");
}
