//! The dated history of the platform's API: 97 entries, ten lists that came in pages and six calls that were replaced,
//! as the changelog writes them and as types.

mod date;
mod release;
mod kind;
mod endpoint;
mod row;
mod filter;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

pub use date::{ApiDate, InvalidDate};
pub use endpoint::{Endpoint, InvalidEndpoint, PathTemplate, Route};
pub use filter::{ChangeFilter, FilterError};
pub use kind::{ChangeKind, ChangeSubject, Edition, GatewayAction, UnknownValue};
pub use release::{InvalidRelease, Release};
pub use row::{Change, ChangelogFields, ChangelogRow, ChangelogTable, ChangelogText, Documentation, GatewayBehavior};

/// The whole history, newest first.
#[derive(Debug)]
pub struct Changelog {
    rows: Vec<ChangelogRow>,
    resources: BTreeSet<String>,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangelogFile {
    entries: Vec<row::StoredRow>,
    pages: Vec<row::StoredRow>,
    replacements: Vec<row::StoredRow>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
enum ChangelogError {
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
    #[error(transparent)]
    Date(#[from] InvalidDate),
}

static CHANGELOG: LazyLock<Changelog> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the text is part of the program, and every test reads it")]
    Changelog::parse(include_str!("../changes.json")).expect("changes.json is read as it was written")
});

impl Changelog {
    /// The history that the program carries, read once.
    pub fn get() -> &'static Self {
        &CHANGELOG
    }

    fn parse(text: &str) -> Result<Self, ChangelogError> {
        let tables: ChangelogFile = serde_json::from_str(text)?;
        let mut rows = Vec::new();
        for (table, rows_of_table) in [
            (ChangelogTable::Entries, tables.entries),
            (ChangelogTable::Pages, tables.pages),
            (ChangelogTable::Replacements, tables.replacements),
        ] {
            for row::StoredRow { id, changelog, documentation, changes } in rows_of_table {
                rows.push(ChangelogRow { id, date: changelog.date.parse()?, table, changelog, documentation, changes });
            }
        }
        // Rows of a day stay in the order of the tables.
        rows.sort_by_key(|row| std::cmp::Reverse(row.date));
        let resources = rows.iter().flat_map(|row| &row.changes).map(|change| change.resource.clone()).collect();
        Ok(Self { rows, resources })
    }

    /// Every row, newest first; rows of one day as the tables have them.
    pub fn rows(&self) -> &[ChangelogRow] {
        &self.rows
    }

    /// The rows that a filter takes, newest first.
    pub fn find<'a>(&'a self, filter: &'a ChangeFilter) -> impl Iterator<Item = &'a ChangelogRow> {
        self.rows.iter().filter(|row| filter.matches(row))
    }

    /// The rows of a day.
    pub fn rows_on(&self, date: ApiDate) -> impl Iterator<Item = &ChangelogRow> {
        self.rows.iter().filter(move |row| row.date == date)
    }

    /// A change by its id, such as `2021-06-08/d1`, and its row. The day may be written without zeros.
    pub fn change(&self, id: &str) -> Option<(&ChangelogRow, &Change)> {
        let (day, rest) = id.trim().split_once('/')?;
        let id = format!("{}/{rest}", day.parse::<ApiDate>().ok()?);
        self.rows.iter().find_map(|row| Some((row, row.changes.iter().find(|change| change.id == id)?)))
    }

    /// Every change, newest first.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.rows.iter().flat_map(|row| &row.changes)
    }

    /// The resources that changes are about, by name.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str)
    }

    /// A resource as the history spells it: letters may be large, and words parted by spaces or underscores.
    ///
    /// # Errors
    /// No change is about it. The error names the nearest.
    pub fn resource(&self, name: &str) -> Result<&str, UnknownValue> {
        let plain = name.trim().to_lowercase().replace([' ', '_'], "-");
        match self.resources.get(&plain) {
            Some(resource) => Ok(resource),
            None => Err(UnknownValue::new(name, &self.resources().collect::<Vec<_>>())),
        }
    }
}

#[cfg(test)]
mod tests;
