//! Dated history of the platform's API, parsed from the changelog: 97 entries, ten lists that came in pages, and six
//! replaced calls.

mod date;
mod release;
mod kind;
mod endpoint;
mod row;
mod filter;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

pub use date::ApiDate;
pub(crate) use date::InvalidDate;
pub use endpoint::Endpoint;
pub(crate) use endpoint::{PathTemplate, Route};
pub use filter::ChangeFilter;
pub(crate) use filter::FilterError;
pub(crate) use kind::{ChangeKind, ChangeSubject, Edition, GatewayAction, UnknownValue};
pub(crate) use release::Release;
pub(crate) use row::Table;
pub use row::{Change, Documentation, Row};

/// The complete history, newest first.
#[derive(Debug)]
pub struct Changelog {
    rows: Vec<Row>,
    resources: BTreeSet<String>,
}

/// The embedded file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangelogFile {
    entries: Vec<row::StoredRow>,
    pages: Vec<row::StoredRow>,
    replacements: Vec<row::StoredRow>,
}

/// Error of parsing the file.
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
    /// Returns the embedded history, parsed once.
    pub fn get() -> &'static Self {
        &CHANGELOG
    }

    fn parse(text: &str) -> Result<Self, ChangelogError> {
        let tables: ChangelogFile = serde_json::from_str(text)?;
        let mut rows = Vec::new();
        for (table, rows_of_table) in
            [(Table::Entries, tables.entries), (Table::Pages, tables.pages), (Table::Replacements, tables.replacements)]
        {
            for row::StoredRow { id, changelog, documentation, changes } in rows_of_table {
                let date = changelog.date.parse()?;
                let changes = changes.into_iter().map(|change| Change { date, ..change }).collect();
                rows.push(Row { id, date, table, changelog, documentation, changes });
            }
        }
        // Stable sort: rows of a day keep the order of the tables.
        rows.sort_by_key(|row| std::cmp::Reverse(row.date));
        let resources = rows.iter().flat_map(|row| &row.changes).map(|change| change.resource.clone()).collect();
        Ok(Self { rows, resources })
    }

    /// Returns all rows, newest first; rows of one day in the order of the tables.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the first and the last date. What the platform changed after the last one is unknown here.
    pub fn span(&self) -> Option<(ApiDate, ApiDate)> {
        Some((self.rows.last()?.date, self.rows.first()?.date))
    }

    /// Returns the rows that match a filter, newest first.
    pub fn find<'a>(&'a self, filter: &'a ChangeFilter) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(|row| filter.matches(row))
    }

    /// Returns the rows of a date.
    pub fn rows_on(&self, date: ApiDate) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.date == date)
    }

    /// Finds a change by its id, such as `2021-06-08/d1`, and its row. The date may omit zeros.
    pub fn change(&self, id: &str) -> Option<(&Row, &Change)> {
        let (day, rest) = id.trim().split_once('/')?;
        let id = format!("{}/{rest}", day.parse::<ApiDate>().ok()?);
        self.rows.iter().find_map(|row| Some((row, row.changes.iter().find(|change| change.id == id)?)))
    }

    /// Returns all changes, newest first.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.rows.iter().flat_map(|row| &row.changes)
    }

    /// Returns the resources that changes are about, by name.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str)
    }

    /// Returns the canonical name of a resource, ignoring case; words may be separated by spaces or underscores.
    ///
    /// # Errors
    /// No change is about it. The error suggests the nearest name.
    pub(crate) fn resource(&self, name: &str) -> Result<&str, UnknownValue> {
        let plain = name.trim().to_lowercase().replace([' ', '_'], "-");
        match self.resources.get(&plain) {
            Some(resource) => Ok(resource),
            None => Err(UnknownValue::new(name, &self.resources().collect::<Vec<_>>())),
        }
    }
}

#[cfg(test)]
mod tests;
