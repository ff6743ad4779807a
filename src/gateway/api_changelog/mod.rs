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

pub use date::{ApiDate, NoDate};
pub use endpoint::{Endpoint, NoEndpoint, Route, Template};
pub use filter::{Filter, FilterError};
pub use kind::{Action, Edition, Kind, Subject, UnknownWord};
pub use release::{NoRelease, Release};
pub use row::{Change, Documentation, Gateway, Marks, Row, Table, Words};

/// The whole history, newest first.
#[derive(Debug)]
pub struct Changelog {
    rows: Vec<Row>,
    resources: BTreeSet<String>,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    entries: Vec<row::Written>,
    pages: Vec<row::Written>,
    replacements: Vec<row::Written>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
    #[error(transparent)]
    Date(#[from] NoDate),
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

    fn parse(text: &str) -> Result<Self, Unreadable> {
        let tables: Tables = serde_json::from_str(text)?;
        let mut rows = Vec::new();
        for (table, written) in
            [(Table::Entries, tables.entries), (Table::Pages, tables.pages), (Table::Replacements, tables.replacements)]
        {
            for row::Written { id, changelog, documentation, changes } in written {
                rows.push(Row { id, date: changelog.date.parse()?, table, changelog, documentation, changes });
            }
        }
        // Rows of a day stay in the order of the tables.
        rows.sort_by_key(|row| std::cmp::Reverse(row.date));
        let resources = rows.iter().flat_map(|row| &row.changes).map(|change| change.resource.clone()).collect();
        Ok(Self { rows, resources })
    }

    /// Every row, newest first; rows of one day as the tables have them.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows that a filter takes, newest first.
    pub fn find<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(|row| filter.takes(row))
    }

    /// The rows of a day.
    pub fn of_day(&self, date: ApiDate) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.date == date)
    }

    /// A change by its id, such as `2021-06-08/d1`, and its row. The day may be written without zeros.
    pub fn change(&self, id: &str) -> Option<(&Row, &Change)> {
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
    pub fn resource(&self, name: &str) -> Result<&str, UnknownWord> {
        let plain = name.trim().to_lowercase().replace([' ', '_'], "-");
        match self.resources.get(&plain) {
            Some(resource) => Ok(resource),
            None => Err(UnknownWord::new(name, &self.resources().collect::<Vec<_>>())),
        }
    }
}

#[cfg(test)]
mod tests;
