//! What a template may call: Go's own functions, those of consul-template that need no Consul, and a few of sprig's.

// 0: what they are given, and how a time is written
mod arguments;
mod go_time;

// 1: functions of their arguments alone
mod encoding;
mod collections;
mod math;
mod sprig;
mod strings;
mod yaml_toml;
mod yaml;

// 2: functions of what is known
mod external;

use std::sync::{Arc, LazyLock};

use gotmpl::{FuncMap, TemplateError as EngineError, Value};

use super::TemplateSource;
use super::evaluation::SharedEvaluation;

type FunctionResult = Result<Value, EngineError>;

/// Functions of their arguments alone, by name.
static PURE: LazyLock<FuncMap> = LazyLock::new(|| {
    let parts = [
        encoding::FUNCTIONS,
        collections::FUNCTIONS,
        math::FUNCTIONS,
        sprig::FUNCTIONS,
        strings::FUNCTIONS,
        yaml_toml::FUNCTIONS,
        yaml::FUNCTIONS,
    ];
    let all = parts.into_iter().flatten();
    all.map(|(name, function)| ((*name).to_owned(), Arc::new(*function) as gotmpl::ValueFunc)).collect()
});

/// A function and its name.
type NamedFunction = (&'static str, fn(&[Value]) -> FunctionResult);

/// What the engine brings itself.
const BUILT_IN: [&str; 19] = [
    "and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "print", "printf",
    "println", "slice", "urlquery",
];

/// What consul-template has and a template here does not, and why or what to write in its place.
const OMITTED: [(&str, &str); 38] = [
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
    ("plugin", "a template starts no program; write the template's command"),
    ("writeToFile", "a template writes its own destination alone; write one more template for the other file"),
    ("executeTemplate", "write {{ template \"NAME\" . }}"),
    ("scratch", "write {{ $name := VALUE }} and {{ $name = VALUE }}"),
    ("md5sum", "that hash is broken; write sha256Hex"),
    ("sockaddr", "it says nothing of secrets; pass the address as a variable"),
    ("spew_dump", DUMPS),
    ("spew_printf", DUMPS),
    ("spew_sdump", DUMPS),
];

const NO_CONSUL: &str = "it reads Consul, and templates here read the secrets server";
const NO_NOMAD: &str = "it reads Nomad, and templates here read the secrets server";
const DUMPS: &str = "it is for looking at values, which are secrets here; write keyward template try";

/// What is called before each action, with its place: the engine does not say where it failed.
pub(super) const MARK_POSITION: &str = "\u{1}at";

/// What each value goes through that is printed.
pub(super) const CHECK_PRINTED: &str = "\u{1}shown";

/// Why a name cannot be called.
pub(super) enum UnavailableFunction {
    /// Others have it: why it is not here, or what to write.
    Left(&'static str),
    /// Nobody has it.
    Unknown,
}

/// Whether a name cannot be called.
pub(super) fn refused(name: &str) -> Option<UnavailableFunction> {
    if PURE.contains_key(name) || external::NAMES.contains(&name) || BUILT_IN.contains(&name) {
        return None;
    }
    Some(
        OMITTED
            .iter()
            .find(|(left, _)| *left == name)
            .map_or(UnavailableFunction::Unknown, |(_, why)| UnavailableFunction::Left(why)),
    )
}

/// Whether a function asks the secrets server.
pub(super) fn asks_the_server(name: &str) -> bool {
    ["pkiCert", "secret", "secrets"].contains(&name)
}

/// Every name that can be called.
pub(super) fn names() -> Vec<String> {
    let named = external::NAMES.iter().chain(&BUILT_IN).map(|name| (*name).to_owned());
    PURE.keys().cloned().chain(named).collect()
}

/// All functions, for one rendering.
pub(super) fn all(source: &TemplateSource, evaluation: &SharedEvaluation) -> FuncMap {
    let mut all = PURE.clone();
    external::add(&mut all, source, evaluation);
    let shared = evaluation.clone();
    all.insert(
        MARK_POSITION.to_owned(),
        Arc::new(move |args| {
            let offset = args.first().and_then(Value::as_int).and_then(|offset| usize::try_from(offset).ok());
            let mut evaluation = shared.lock();
            (evaluation.at, evaluation.lacks_key) = (offset.unwrap_or_default(), false);
            Ok(super::value::text(""))
        }),
    );
    let shared = evaluation.clone();
    all.insert(
        "index".to_owned(),
        Arc::new(move |args| {
            let (Some(whole), keys) = (args.first(), args.get(1..).unwrap_or_default()) else {
                return Err(EngineError::Exec("index wants a list or a map, and where in it".to_owned()));
            };
            let mut found = whole.clone();
            for key in keys {
                let lacks = matches!((&found, key), (Value::Map(map), Value::String(key)) if !map.contains_key(key));
                shared.lock().lacks_key |= lacks;
                found = found.index(key)?;
            }
            Ok(found)
        }),
    );
    let shared = evaluation.clone();
    all.insert(
        CHECK_PRINTED.to_owned(),
        Arc::new(move |args| match args.last() {
            None | Some(Value::Nil) => {
                let evaluation = shared.lock();
                match () {
                    () if !evaluation.unknown.is_empty() => Ok(super::value::text("")),
                    () if evaluation.lacks_key => {
                        Err(EngineError::Exec("there is no value here to be shown".to_owned()))
                    }
                    // JSON's null, as Go writes it.
                    () => Ok(super::value::text("<no value>")),
                }
            }
            Some(value) => {
                value.as_str().map_or(Ok(()), arguments::bounded)?;
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
    fn every_name_is_either_here_or_left_out() {
        let names = names();
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "a name is there twice");
        for (name, _) in OMITTED {
            assert!(!names.iter().any(|its| its == name), "{name} is here and left out");
        }
    }

    #[test]
    fn every_function_stands_in_the_documents() {
        let page = include_str!("../../../../docs/templates.md");
        for name in names().iter().map(String::as_str).chain(OMITTED.iter().map(|(name, _)| *name)) {
            assert!(page.contains(&format!("`{name}")), "docs/templates.md does not name {name}");
        }
    }
}
