//! Functions of templates: Go's built-in ones, those of consul-template that need no Consul, and some of sprig's.

// 0: arguments, and Go's time layouts
mod arguments;
mod go_time;

// 1: pure functions
mod encoding;
mod collections;
mod math;
mod sprig;
mod strings;
mod to_yaml_toml;
mod parse_yaml;
mod pki_certificate;

// 2: functions that read secrets, files, variables and the time
mod external;
mod write_file;

use std::sync::{Arc, LazyLock};

use gotmpl::{FuncMap, TemplateError as EngineError, Value};

use super::TemplateSource;
use super::evaluation::SharedEvaluation;

type FunctionResult = Result<Value, EngineError>;

/// Pure functions, by name.
static PURE: LazyLock<FuncMap> = LazyLock::new(|| {
    let parts = [
        encoding::FUNCTIONS,
        collections::FUNCTIONS,
        math::FUNCTIONS,
        sprig::FUNCTIONS,
        strings::FUNCTIONS,
        to_yaml_toml::FUNCTIONS,
        parse_yaml::FUNCTIONS,
    ];
    let all = parts.into_iter().flatten();
    all.map(|(name, function)| ((*name).to_owned(), Arc::new(*function) as gotmpl::ValueFunc)).collect()
});

/// Name and function.
type NamedFunction = (&'static str, fn(&[Value]) -> FunctionResult);

/// Functions of the template engine.
const BUILT_IN: [&str; 19] = [
    "and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "print", "printf",
    "println", "slice", "urlquery",
];

/// Functions of consul-template that are omitted here, with the reason or a replacement.
const OMITTED: [(&str, &str); 37] = [
    ("byKey", NO_CONSUL),
    ("byMeta", NO_CONSUL),
    ("byTag", NO_CONSUL),
    ("caLeaf", NO_CONSUL),
    ("caRoots", NO_CONSUL),
    ("connect", NO_CONSUL),
    ("datacenters", NO_CONSUL),
    ("exportedServices", NO_CONSUL),
    ("key", NO_CONSUL),
    ("keyExists", NO_CONSUL),
    ("keyExistsGet", NO_CONSUL),
    ("keyOrDefault", NO_CONSUL),
    ("ls", NO_CONSUL),
    ("node", NO_CONSUL),
    ("nodes", NO_CONSUL),
    ("partitions", NO_CONSUL),
    ("peerings", NO_CONSUL),
    ("safeLs", NO_CONSUL),
    ("safeTree", NO_CONSUL),
    ("service", NO_CONSUL),
    ("services", NO_CONSUL),
    ("tree", NO_CONSUL),
    ("explode", NO_CONSUL),
    ("nomadService", NO_NOMAD),
    ("nomadServices", NO_NOMAD),
    ("nomadVar", NO_NOMAD),
    ("nomadVarExists", NO_NOMAD),
    ("nomadVarList", NO_NOMAD),
    ("nomadVarListSafe", NO_NOMAD),
    ("plugin", "a template starts no program; use the template's command"),
    ("executeTemplate", "write {{ template \"NAME\" . }}"),
    ("scratch", "write {{ $name := VALUE }} and {{ $name = VALUE }}"),
    ("md5sum", "that hash is broken; write sha256Hex"),
    ("sockaddr", "it does not read secrets; pass the address as a variable"),
    ("spew_dump", PRINTS_SECRETS),
    ("spew_printf", PRINTS_SECRETS),
    ("spew_sdump", PRINTS_SECRETS),
];

const NO_CONSUL: &str = "it reads Consul, and templates here read Vault or OpenBao";
const NO_NOMAD: &str = "it reads Nomad, and templates here read Vault or OpenBao";
const PRINTS_SECRETS: &str = "it prints values, which are secrets here; use keyward template try";

/// Called before each action with its byte offset, since the engine's errors have no position.
pub(super) const MARK_POSITION: &str = "\u{1}at";

/// Called on each printed value.
pub(super) const CHECK_PRINTED: &str = "\u{1}shown";

/// Reason why a function is not available.
pub(super) enum UnavailableFunction {
    /// consul-template has it; the reason, or a replacement.
    Omitted(&'static str),
    /// consul-template does not have it either.
    Unknown,
}

/// Returns why a function is not available; `None` if it is.
pub(super) fn unavailable(name: &str) -> Option<UnavailableFunction> {
    if PURE.contains_key(name)
        || external::NAMES.contains(&name)
        || name == write_file::NAME
        || BUILT_IN.contains(&name)
    {
        return None;
    }
    Some(
        OMITTED
            .iter()
            .find(|(omitted, _)| *omitted == name)
            .map_or(UnavailableFunction::Unknown, |(_, reason)| UnavailableFunction::Omitted(reason)),
    )
}

/// Checks a call whose first argument is a literal, and which has others; returns the problem.
pub(super) fn check_call(source: &TemplateSource, name: &str, first: &str) -> Option<String> {
    match name {
        write_file::NAME => write_file::check_path(first, &source.write_folders).err(),
        "secret" => external::makes_token(first).then(|| external::MAKES_TOKEN.to_owned()),
        _ => None,
    }
    .map(|problem| format!("{name}: {problem}"))
}

/// Returns true for functions that read secrets.
pub(super) fn reads_secrets(name: &str) -> bool {
    ["pkiCert", "secret", "secrets"].contains(&name)
}

/// Names of all functions.
pub(super) fn names() -> Vec<String> {
    let other_names = external::NAMES.iter().chain(&[write_file::NAME]).chain(&BUILT_IN).map(|name| (*name).to_owned());
    PURE.keys().cloned().chain(other_names).collect()
}

/// Returns all functions, bound to one rendering.
pub(super) fn all(source: &TemplateSource, evaluation: &SharedEvaluation) -> FuncMap {
    let mut all = PURE.clone();
    external::add(&mut all, source, evaluation);
    write_file::add(&mut all, source, evaluation);
    let allows_missing_keys = source.allows_missing_keys;
    let shared = evaluation.clone();
    all.insert(
        MARK_POSITION.to_owned(),
        Arc::new(move |args| {
            let offset = args.first().and_then(Value::as_int).and_then(|offset| usize::try_from(offset).ok());
            let mut evaluation = shared.lock();
            (evaluation.offset, evaluation.lacks_key) = (offset.unwrap_or_default(), false);
            Ok(super::value::text(""))
        }),
    );
    let shared = evaluation.clone();
    all.insert(
        "index".to_owned(),
        Arc::new(move |args| {
            let (Some(whole), keys) = (args.first(), args.get(1..).unwrap_or_default()) else {
                return Err(EngineError::Exec("index needs a list or a map, and a key".to_owned()));
            };
            let mut value = whole.clone();
            for key in keys {
                let is_missing_key =
                    matches!((&value, key), (Value::Map(map), Value::String(key)) if !map.contains_key(key));
                shared.lock().lacks_key |= is_missing_key;
                value = value.index(key)?;
            }
            Ok(value)
        }),
    );
    let shared = evaluation.clone();
    all.insert(
        CHECK_PRINTED.to_owned(),
        Arc::new(move |args| match args.last() {
            None | Some(Value::Nil) => {
                let evaluation = shared.lock();
                match () {
                    () if !evaluation.unresolved.is_empty() => Ok(super::value::text("")),
                    () if evaluation.lacks_key && !allows_missing_keys => {
                        Err(EngineError::Exec("there is no value here to print".to_owned()))
                    }
                    // Go prints JSON's null so.
                    () => Ok(super::value::text("<no value>")),
                }
            }
            Some(value) => {
                value.as_str().map_or(Ok(()), arguments::check_size)?;
                Ok(value.clone())
            }
        }),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_either_available_or_omitted() {
        let names = names();
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "a name is repeated");
        for (name, _) in OMITTED {
            assert!(!names.iter().any(|available| available == name), "{name} is available and omitted");
        }
    }

    #[test]
    fn every_function_is_documented() {
        let page = include_str!("../../../../docs/templates.md");
        for name in names().iter().map(String::as_str).chain(OMITTED.iter().map(|(name, _)| *name)) {
            assert!(page.contains(&format!("`{name}")), "docs/templates.md does not name {name}");
        }
    }
}
