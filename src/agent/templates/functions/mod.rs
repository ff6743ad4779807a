//! Functions of templates: those of consul-template that need no Consul, and those of sprig with the same result at each call.

// 0: arguments, comparison, letters, and Go's integers and time layouts
mod arguments;
mod case;
mod equality;
mod go_integer;
mod go_time;

// 1: pure functions
mod encoding;
mod collections;
mod json;
mod math;
mod strings;
mod sprig;
mod scratch;
mod to_toml;
mod to_yaml;
mod parse_yaml;
mod pki_certificate;

// 2: functions that read secrets, files, variables and the time, and record files
mod inputs;
mod write_file;
mod external;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

use self::arguments::Arguments;
use self::inputs::Inputs;
use super::TemplateSource;
use super::engine::{BUILT_IN, Failure, Host, Map, MapType, Value, check_size};
use super::evaluation::Evaluation;

type FunctionResult = Result<Value, Failure>;

/// Name, smallest and largest number of arguments, and function.
type NamedFunction = (&'static str, usize, usize, fn(&Arguments<'_>) -> FunctionResult);

/// No bound of the arguments.
const MANY: usize = usize::MAX;

/// Pure functions, by name.
static PURE: LazyLock<BTreeMap<&'static str, &'static NamedFunction>> = LazyLock::new(|| {
    let parts = [
        encoding::FUNCTIONS,
        collections::FUNCTIONS,
        json::FUNCTIONS,
        math::FUNCTIONS,
        strings::FUNCTIONS,
        scratch::METHODS,
        to_toml::FUNCTIONS,
        to_yaml::FUNCTIONS,
        parse_yaml::FUNCTIONS,
    ];
    let all = parts.into_iter().chain(sprig::FUNCTIONS).flatten();
    all.map(|function| (function.0, function)).collect()
});

/// Functions that need more than their arguments: the template's notes, and the executor.
const SPECIAL: [&str; 2] = ["executeTemplate", "scratch"];

/// Functions of consul-template that are omitted here, with the reason or a replacement.
const OMITTED: [(&str, &str); 58] = [
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
    ("sockaddr", "it does not read secrets; pass the address as a variable"),
    ("spew_dump", PRINTS_SECRETS),
    ("spew_printf", PRINTS_SECRETS),
    ("spew_sdump", PRINTS_SECRETS),
    ("byPort", NO_CONSUL),
    ("importedServices", NO_CONSUL),
    ("spew_sprintf", PRINTS_SECRETS),
    ("sprig_ago", NO_TIMES),
    ("sprig_toDate", NO_TIMES),
    ("sprig_mustToDate", NO_TIMES),
    ("sprig_must_date_modify", NO_TIMES),
    ("sprig_mustDateModify", NO_TIMES),
    ("sprig_unixEpoch", NO_TIMES),
    ("sprig_bcrypt", NOT_TWICE),
    ("sprig_buildCustomCert", NO_KEYS),
    ("sprig_decryptAES", NO_KEYS),
    ("sprig_derivePassword", NO_KEYS),
    ("sprig_encryptAES", NOT_TWICE),
    ("sprig_genCA", NOT_TWICE),
    ("sprig_genCAWithKey", NOT_TWICE),
    ("sprig_genPrivateKey", NOT_TWICE),
    ("sprig_genSelfSignedCert", NOT_TWICE),
    ("sprig_genSelfSignedCertWithKey", NOT_TWICE),
    ("sprig_genSignedCert", NOT_TWICE),
    ("sprig_genSignedCertWithKey", NOT_TWICE),
    ("sprig_htpasswd", NOT_TWICE),
    ("sprig_randInt", NOT_TWICE),
    ("sprig_shuffle", NOT_TWICE),
];

const NO_CONSUL: &str = "it reads Consul, and templates here read Vault or OpenBao";
const NO_NOMAD: &str = "it reads Nomad, and templates here read Vault or OpenBao";
const NO_TIMES: &str = "it computes with times; use timestamp";
const NOT_TWICE: &str =
    "its result differs at each rendering, which would write the file again; create the value in Vault or OpenBao";
const NO_KEYS: &str = "keys and passwords are made by Vault or OpenBao, not by a template";
const PRINTS_SECRETS: &str = "it prints values, which are secrets here; use keyward template try";

/// Reason why a function is not available.
pub(super) enum UnavailableFunction {
    /// consul-template has it; the reason, or a replacement.
    Omitted(&'static str),
    /// consul-template does not have it either.
    Unknown,
}

/// Returns why a function is not available; `None` if it is.
pub(super) fn unavailable(name: &str) -> Option<UnavailableFunction> {
    if names().contains(&name) {
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
pub(super) fn check_call(source: &TemplateSource, name: &str, first: &str) -> Option<Failure> {
    match name {
        write_file::NAME => write_file::check_path(first, &source.write_folders).err(),
        "secret" => external::makes_token(first).then(|| external::MAKES_TOKEN.to_owned()),
        _ => None,
    }
    .map(|problem| Failure::new(format!("{name}: {problem}")).of_call(name, first))
}

/// Returns true for functions that read secrets.
pub(super) fn reads_secrets(name: &str) -> bool {
    ["pkiCert", "secret", "secrets"].contains(&name)
}

/// Names of all functions.
pub(super) fn names() -> Vec<&'static str> {
    let pure = PURE.keys().copied().filter(|name| !name.contains('.'));
    let external = external::FUNCTIONS.iter().map(|(name, ..)| *name);
    pure.chain(external).chain(SPECIAL).chain(BUILT_IN).collect()
}

/// The functions, bound to one rendering.
pub(super) struct Functions<'a> {
    inputs: Inputs<'a>,
    /// The template's notes.
    notes: Rc<Map>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(source: &'a TemplateSource, evaluation: &'a mut Evaluation) -> Self {
        let notes = Rc::new(Map::new(BTreeMap::new(), MapType::Any));
        Self { inputs: Inputs { source, evaluation }, notes }
    }
}

impl Host for Functions<'_> {
    fn call(&mut self, name: &str, args: &[Value]) -> FunctionResult {
        let result = if let Some((_, min, max, function)) = PURE.get(name) {
            function(&Arguments::between(name, args, *min, *max)?)?
        } else if let Some((_, min, max, function)) = external::FUNCTIONS.iter().find(|(known, ..)| *known == name) {
            function(&mut self.inputs, &Arguments::between(name, args, *min, *max)?)?
        } else if name == "scratch" {
            Value::Scratch(Rc::clone(&self.notes))
        } else {
            return Err(Failure::new(format!("there is no function {name}")));
        };
        check_size(result.as_text().map_or(0, str::len))?;
        Ok(result)
    }

    fn is_incomplete(&self) -> bool {
        !self.inputs.evaluation.unresolved.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_either_available_or_omitted() {
        let names = names();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "a name is repeated");
        for (name, _) in OMITTED {
            assert!(!names.contains(&name), "{name} is available and omitted");
        }
    }

    #[test]
    fn every_function_is_documented() {
        let page = include_str!("../../../../docs/templates.md");
        for name in names().into_iter().chain(OMITTED.iter().map(|(name, _)| *name)) {
            assert!(page.contains(&format!("`{name}")), "docs/templates.md does not name {name}");
        }
    }
}
