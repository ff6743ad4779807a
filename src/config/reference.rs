//! Description of every section and key, which `keyward config` uses: the document docs/reference/configuration.md. Tests compare it with
//! the readers: each key, its type and range, its default.

use std::sync::LazyLock;

/// The document.
const DOCUMENT: &str = include_str!("../../docs/reference/configuration.md");

/// A section, as one heading of the document describes it. A section may have several headings, by its kind.
#[derive(Debug)]
pub(super) struct SectionReference {
    /// Names from the top, `NAME` for one of the user's choice.
    pub(super) path: Vec<&'static str>,
    /// Kind of the section that these keys are for; `None` for keys of every kind.
    pub(super) section_kind: Option<&'static str>,
    /// First paragraph of the section.
    pub(super) meaning: String,
    /// The keys.
    pub(super) keys: Vec<KeyReference>,
}

/// A key.
#[derive(Debug)]
pub(super) struct KeyReference {
    /// The name.
    pub(super) name: &'static str,
    /// Type and range, such as `duration, 1s to 32d`.
    pub(super) kind: &'static str,
    /// The text may hold references.
    pub(super) takes_references: bool,
    /// Value if the key is left out.
    pub(super) default: DefaultValue,
    /// The meaning.
    pub(super) meaning: String,
}

/// Value of a key that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DefaultValue {
    /// It may not be left out.
    Required,
    /// It has no value.
    None,
    /// A value in TOML.
    Literal(&'static str),
    /// A value that depends on others, in words.
    Described(&'static str),
}

/// Headings of sections that are not of the first kind, with their kinds.
const SECTION_KINDS: [(&str, &str); 6] = [
    ("of an API proxy", "api_proxy"),
    ("of identities", "identity"),
    ("of pages", "ui"),
    ("for systemd", "systemd_credentials"),
    ("of SSH", "ssh"),
    ("of SPIFFE", "spiffe"),
];

/// Returns all sections, in the order of the document.
pub(super) fn sections() -> &'static [SectionReference] {
    static SECTIONS: LazyLock<Vec<SectionReference>> =
        LazyLock::new(|| DOCUMENT.split("\n## ").skip(1).filter_map(parse_section).collect());
    &SECTIONS
}

fn parse_section(text: &'static str) -> Option<SectionReference> {
    let (heading, body) = text.split_once('\n')?;
    let (path, kind) = heading.strip_prefix("`[")?.split_once("]`")?;
    let section_kind = SECTION_KINDS.iter().find(|(words, _)| kind.trim() == *words).map(|(_, kind)| *kind);
    let first = body.trim_start().lines().take_while(|line| !line.is_empty() && !line.starts_with('|'));
    Some(SectionReference {
        path: path.split('.').collect(),
        section_kind,
        meaning: plain(&first.collect::<Vec<_>>().join(" ")),
        keys: body.lines().filter_map(parse_key).collect(),
    })
}

fn parse_key(line: &'static str) -> Option<KeyReference> {
    let mut cells = line.strip_prefix("| ")?.split('|').map(str::trim);
    let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    let (kind, default, meaning) = (cells.next()?, cells.next()?, cells.next()?);
    let (kind, takes_references) = kind.strip_suffix(", R").map_or((kind, false), |kind| (kind, true));
    let literal = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    let default = match (default, literal.filter(|literal| !literal.contains('`'))) {
        ("", _) => DefaultValue::None,
        ("required", _) => DefaultValue::Required,
        // A path, not TOML.
        (_, Some(literal)) if !literal.starts_with('/') => DefaultValue::Literal(literal),
        _ => DefaultValue::Described(default),
    };
    Some(KeyReference { name, kind, takes_references, default, meaning: plain(meaning) })
}

/// Replaces the links of a text by their words.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((head, words)) = before.rsplit_once('[') else { break };
        let Some((_, after)) = after.split_once(')') else { break };
        plain.push_str(head);
        plain.push_str(words);
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_its_keys_with_types_and_defaults() {
        let server = &sections()[0];
        assert_eq!((server.path.as_slice(), server.section_kind), (&["server", "NAME"][..], None));
        assert!(server.meaning.starts_with("A server that sessions log in to"), "{}", server.meaning);
        let key = |name: &str| server.keys.iter().find(|key| key.name == name).unwrap();
        assert_eq!((key("kind").default, key("ca_file").default), (DefaultValue::Required, DefaultValue::None));
        assert_eq!(key("connect_timeout").default, DefaultValue::Literal("\"5s\""));
        assert_eq!((key("address").kind, key("address").takes_references), ("text", true));
        let kinds: Vec<_> = sections().iter().filter_map(|section| section.section_kind).collect();
        assert_eq!(kinds, ["ssh", "spiffe", "api_proxy", "identity", "ui", "systemd_credentials"]);
    }

    #[test]
    fn links_become_their_words() {
        assert_eq!(plain("see [the page](a.md#b), [or](c.md) not [this]"), "see the page, or not [this]");
        assert_eq!(plain("a [list] of (words)"), "a [list] of (words)");
    }
}
