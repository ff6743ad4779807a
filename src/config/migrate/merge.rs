//! Several files of one configuration -> one object, in the order of the files.
//!
//! Vault Agent takes a single block such as `vault {}` from the last file that has it. consul-template merges the files' blocks:
//! each key is taken from the last file that has it (`Merge` in its package config). Within a file both take the last block.

use std::collections::BTreeSet;

use keyward_hcl::{Attribute, Object, Value};

/// Keys at the top that Vault Agent has and consul-template has not.
const AGENT_KEYS: [&str; 6] = ["api_proxy", "auto_auth", "cache", "env_template", "listener", "template_config"];

/// Blocks at the top that consul-template merges.
const MERGED_BLOCKS: [&str; 9] =
    ["consul", "deduplicate", "default_delimiters", "exec", "log_file", "nomad", "syslog", "vault", "wait"];

/// Lists of `exec { env {} }` to which each file adds.
const ADDED_LISTS: [&str; 5] = ["allowlist", "blacklist", "custom", "denylist", "whitelist"];

/// True for a file with a block that only Vault Agent and Vault Proxy have.
pub(super) fn is_vault_agent(file: &Object) -> bool {
    file.attributes.iter().any(|item| AGENT_KEYS.contains(&item.key.as_str()))
}

/// Joins the files of one configuration.
pub(super) fn join(files: Vec<Object>) -> Object {
    let merges = !files.iter().any(is_vault_agent);
    let names = BTreeSet::from(MERGED_BLOCKS.map(str::to_owned));
    let mut all = Object::default();
    for mut file in files {
        if merges {
            merge(&mut all, &mut file, &names);
        }
        all.attributes.append(&mut file.attributes);
    }
    all
}

/// Moves the earlier blocks of these names into the later ones of the same name. Keys of an earlier block come first there, so that
/// the later value of a repeated key is the last.
fn merge(earlier: &mut Object, later: &mut Object, names: &BTreeSet<String>) {
    for name in names {
        let Some(index) = last_block(earlier, name) else { continue };
        let Some(target) = last_block(later, name) else { continue };
        let Value::Object(mut block) = earlier.attributes.remove(index).value.value else { continue };
        let Value::Object(into) = &mut later.attributes[target].value.value else { continue };
        let nested = into.attributes.iter().map(|item| item.key.clone()).collect();
        merge(&mut block, into, &nested);
        add_lists(&mut block, into);
        block.attributes.append(&mut into.attributes);
        into.attributes = block.attributes;
    }
}

/// Returns the index of the last attribute of that name, if it is a block.
fn last_block(object: &Object, name: &str) -> Option<usize> {
    let index = object.attributes.iter().rposition(|item| item.key == name)?;
    matches!(object.attributes[index].value.value, Value::Object(_)).then_some(index)
}

/// Moves the items of the earlier lists to the beginning of the later ones of the same name.
fn add_lists(earlier: &mut Object, later: &mut Object) {
    for name in ADDED_LISTS {
        let list = |item: &Attribute| item.key == name && matches!(item.value.value, Value::List(_));
        let Some(index) = earlier.attributes.iter().rposition(list) else { continue };
        let Some(target) = later.attributes.iter_mut().rfind(|item| list(item)) else { continue };
        if let Value::List(mut items) = earlier.attributes.remove(index).value.value
            && let Value::List(into) = &mut target.value.value
        {
            items.append(into);
            *into = items;
        }
    }
}

#[cfg(test)]
mod tests {
    use keyward_hcl as hcl;

    use super::*;

    /// Formats an object on one line: `key=value`, blocks in braces, and the items of lists.
    fn format_object(object: &Object) -> String {
        let items = object.attributes.iter().map(|item| format!("{}{}", item.key, format_value(&item.value.value)));
        items.collect::<Vec<_>>().join(" ")
    }

    fn format_value(value: &Value) -> String {
        match value {
            Value::Object(block) => format!("{{{}}}", format_object(block)),
            Value::List(items) => items.iter().map(|item| format_value(&item.value)).collect(),
            Value::Text(text) | Value::Number(text) => format!("={text}"),
            other => format!("={}", other.kind()),
        }
    }

    #[test]
    fn blocks_of_several_files_are_merged_as_consul_template_does() {
        let check = |files: &[&str], expected: &str| {
            let objects = files.iter().map(|text| hcl::read(text).unwrap()).collect();
            assert_eq!(format_object(&join(objects)), expected, "{files:?}");
        };
        check(&["vault { a = 1 b = 2 }", "vault { b = 3 }"], "vault{a=1 b=2 b=3}");
        check(&["vault { a = 1 }", "x = 1", "vault { b = 2 }"], "x=1 vault{a=1 b=2}");
        check(&["vault { ssl { a = 1 } }", "vault { ssl { b = 2 } c = 3 }"], "vault{ssl{a=1 b=2} c=3}");
        check(&["vault { ssl { a = 1 } }", "vault { c = 3 }"], "vault{ssl{a=1} c=3}");
        check(&["{\"vault\": {\"a\": 1}}", "vault { b = 2 }"], "vault{a=1 b=2}");
        // Within a file the last block counts.
        check(
            &["vault { a = 1 } vault { b = 2 }", "vault { c = 3 } vault { d = 4 }"],
            "vault{a=1} vault{c=3} vault{b=2 d=4}",
        );
        check(
            &[
                "exec { command = [\"a\"] env { custom = [\"A\"] } }",
                "exec { command = [\"b\"] env { custom = [\"B\"] } }",
            ],
            "exec{command=a command=b env{custom=A=B}}",
        );
        // Templates add up, and other values follow each other.
        check(
            &["template { a = 1 } wait = \"1s\"", "template { b = 2 } wait { min = 2 }"],
            "template{a=1} wait=1s template{b=2} wait{min=2}",
        );
        // Vault Agent merges nothing.
        check(&["vault { a = 1 }", "vault { b = 2 }\nauto_auth {}"], "vault{a=1} vault{b=2} auto_auth{}");
    }
}
