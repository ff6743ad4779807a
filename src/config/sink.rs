//! `[sink.NAME]`: a file that holds the token of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::leaf::{self, Wrong, did_you_mean, wrong};
use super::reader::Reader;
use super::remark::At;
use super::tree::quoted;
use super::{Session, Sink};
use crate::agent::sinks::{Format, OnExpiry, Options};

/// The mode of a sink where none is given: the owner writes, the group reads.
const MODE: u32 = 0o640;

/// Reads all sinks. Two may not share a file, nor may two take the same single-use token.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>, sessions: &Sessions) -> Vec<Sink> {
    let mut files: BTreeMap<PathBuf, (At, String)> = BTreeMap::new();
    let mut takers: BTreeMap<String, String> = BTreeMap::new();
    let mut sinks = Vec::new();
    for (name, mut reader) in tables {
        let at = reader.place_of("path").unwrap_or(reader.at);
        let (remarks, path, table) = (reader.scope.remarks, reader.path.clone(), reader.at);
        let sink = read(name.clone(), reader, sessions);
        if !sink.options.path.as_os_str().is_empty()
            && let Some((first, other)) = files.insert(sink.options.path.clone(), (at, name.clone()))
        {
            let found = format!("the file of sink {other} too, at {}", remarks.name(first));
            remarks.mistake(at, &format!("{path}.path"), found, "give each sink its own file");
        }
        if sessions.is_wrapped(&sink.session)
            && let Some(other) = takers.insert(sink.session.clone(), name)
        {
            let found = format!("takes the wrapped token of session {}, as sink {other} does", sink.session);
            remarks.mistake(table, &path, found, "keep one: a wrapped token can be unwrapped once");
        }
        sinks.push(sink);
    }
    sinks
}

fn read(name: String, mut reader: Reader<'_>, sessions: &Sessions) -> Sink {
    let session = sessions.one_of(&mut reader).unwrap_or_default();
    let path = reader.required("path", "the file to write, such as \"/run/keyward/token\"");
    let path = path.and_then(|text| {
        let path = reader.parse(&text, file_path)?;
        reader.folder_of(&text, &path);
        Some(path)
    });
    let format = reader.choice("format", &[("raw", Format::Raw), ("json", Format::Json)]).unwrap_or(Format::Raw);
    if sessions.is_wrapped(&session) && format == Format::Raw {
        let at = reader.place_of("format").unwrap_or(reader.at);
        let found =
            format!("session {session} has a wrap_ttl, and a raw file does not tell a wrapped token from another");
        reader.scope.remarks.missing(at, &reader.key("format"), found, "write format = \"json\"");
    }
    let mode = reader.mode("mode", MODE);
    if mode & 0o007 != 0 {
        let at = reader.place_of("mode").unwrap_or(reader.at);
        let found = format!("{mode:04o} lets every user of this machine at the token");
        reader.scope.remarks.warning(at, &reader.key("mode"), found, "end it with 0, and name a group");
    }
    let on_expiry = [("keep", OnExpiry::Keep), ("truncate", OnExpiry::Truncate), ("remove", OnExpiry::Remove)];
    let options = Options {
        name,
        path: path.unwrap_or_default(),
        format,
        mode,
        owner: reader.user("owner"),
        group: reader.group("group"),
        on_expiry: reader.choice("on_expiry", &on_expiry).unwrap_or(OnExpiry::Keep),
        required: reader.flag("required", true),
    };
    reader.finish();
    Sink { session, options }
}

/// The path of a file.
pub(super) fn file_path(text: &str) -> Result<PathBuf, Wrong> {
    let path = leaf::path(text)?;
    if text.ends_with('/') || path.file_name().is_none() {
        return wrong("is a folder's path", "end it with the file's name");
    }
    Ok(path)
}

/// The sessions that outputs may name.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Every session's name, those with mistakes too, and whether its token is wrapped.
    wrapped: BTreeMap<String, bool>,
}

impl Sessions {
    pub(super) fn new(names: &[String], sessions: &[Session]) -> Self {
        let is_wrapped = |name: &String| sessions.iter().any(|its| its.name == *name && its.login.wrap_ttl.is_some());
        Self { wrapped: names.iter().map(|name| (name.clone(), is_wrapped(name))).collect() }
    }

    pub(super) fn is_wrapped(&self, name: &str) -> bool {
        self.wrapped.get(name).copied().unwrap_or(false)
    }

    /// The names of all sessions.
    pub(super) fn all(&self) -> Vec<String> {
        self.wrapped.keys().cloned().collect()
    }

    /// The names of the sessions whose token is not wrapped.
    pub(super) fn plain(&self) -> Vec<String> {
        self.wrapped.iter().filter(|(_, wrapped)| !**wrapped).map(|(name, _)| name.clone()).collect()
    }

    /// The session that `session` names; the only one where the key is left out.
    pub(super) fn one_of(&self, reader: &mut Reader<'_>) -> Option<String> {
        if reader.place_of("session").is_none() {
            let names: Vec<_> = self.wrapped.keys().cloned().collect();
            match names.as_slice() {
                [only] => return Some(only.clone()),
                [] => reader.missing(
                    "session",
                    "define one with [session.NAME]; where there is only one, it need not be named",
                ),
                names => reader.missing("session", &format!("name one of {}", names.join(", "))),
            }
        }
        let text = reader.text("session")?;
        self.exists(reader, &text).then_some(text.value)
    }

    /// Whether a session of this name exists; says so if not.
    pub(super) fn exists(&self, reader: &Reader<'_>, text: &super::text::Text) -> bool {
        let there = self.wrapped.contains_key(&text.value);
        if !there && !text.unknown {
            let names: Vec<_> = self.wrapped.keys().map(String::as_str).collect();
            let advice = did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
                [] => "define it with [session.NAME]".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            });
            let found = format!("there is no session {}", quoted(&text.value));
            reader.scope.remarks.missing(text.at, &text.key, found, advice);
        }
        there
    }
}
