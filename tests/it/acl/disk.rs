//! Guarantees of the embedded store: crashes, power loss, disk failures, and many readers beside one writer.

mod crash;
mod drive;
mod faults;
mod groups;
mod memory;
mod power;
mod state_machine;

use std::path::Path;

use drive::Drive;
use keyward_acl::store::{Batch, Embedded, Freshness, Key, Page, Store as _, Write};

fn open(drive: &Drive) -> Embedded {
    Embedded::open_backend(drive.clone(), Path::new("a test's drive"), "dc1").unwrap()
}

fn put(key: &Key, value: &str) -> Batch {
    Batch { checks: Vec::new(), writes: vec![Write::Put(key.clone(), value.into())] }
}

async fn value(store: &Embedded, key: &Key) -> Option<String> {
    let record = store.get(key, Freshness::Linearizable).await.unwrap();
    record.map(|record| String::from_utf8(record.value.into()).unwrap())
}

/// Reads all records of a kind by pages.
async fn all(store: &Embedded, prefix: &str) -> Vec<(Key, String)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = Page { after: after.clone(), limit: 100 };
        let listing = store.list(prefix, page, Freshness::Linearizable).await.unwrap();
        let text = |record: keyward_acl::store::Record| String::from_utf8(record.value.into()).unwrap();
        found.extend(listing.entries.into_iter().map(|(key, record)| (key, text(record))));
        if !listing.more {
            return found;
        }
        after = found.last().map(|(key, _)| key.clone());
    }
}
