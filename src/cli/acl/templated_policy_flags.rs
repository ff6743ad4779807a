//! `--templated-policy NAME --var name:value ...`: each variable belongs to the template before it.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use keyward_acl::client::TemplatedPolicy;
use serde_json::Value;

/// Templated policies, in the order of their flags.
#[derive(Debug, Clone, Default)]
pub(super) struct TemplatedPolicies(pub(super) Vec<TemplatedPolicy>);

const POLICY: &str = "templated_policy";
const VAR: &str = "var";

impl Args for TemplatedPolicies {
    fn augment_args(command: Command) -> Command {
        let policy = Arg::new(POLICY).long("templated-policy").value_name("NAME").action(ArgAction::Append);
        let var = Arg::new(VAR).long("var").value_name("NAME:VALUE").action(ArgAction::Append).value_parser(pair);
        command
            .arg(policy.help("Link the policy of this template, such as builtin/service; repeatable"))
            .arg(var.help("Variable of the template before it; repeatable"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TemplatedPolicies {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let policies = matches.get_many::<String>(POLICY).unwrap_or_default();
        let places: Vec<_> = matches.indices_of(POLICY).unwrap_or_default().collect();
        let mut list: Vec<_> = policies
            .map(|name| TemplatedPolicy { template_name: name.clone(), ..TemplatedPolicy::default() })
            .collect();
        let variables = matches.get_many::<(String, String)>(VAR).unwrap_or_default();
        for ((name, value), var_index) in variables.zip(matches.indices_of(VAR).unwrap_or_default()) {
            let policy_index = places.iter().rposition(|policy| *policy < var_index);
            let policy = policy_index.and_then(|index| list.get_mut(index)).ok_or_else(|| {
                Error::raw(ErrorKind::ValueValidation, "--var stands before the --templated-policy that it is for\n")
            })?;
            policy.template_variables.get_or_insert_default().insert(name.clone(), Value::String(value.clone()));
        }
        Ok(Self(list))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `NAME:VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME:VALUE".to_owned()),
    }
}

/// `NAME=VALUE`.
pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_belongs_to_the_template_before_it() {
        let parse = |args: &[&str]| {
            let command = TemplatedPolicies::augment_args(Command::new("it"));
            let matches = command.try_get_matches_from([&["it"], args].concat());
            matches.and_then(|matches| TemplatedPolicies::from_arg_matches(&matches)).map_err(|error| error.to_string())
        };
        let service = ["--templated-policy", "builtin/service", "--var", "name:web"];
        let node = ["--templated-policy", "builtin/node", "--var", "name:n:1"];
        let found = parse(&[&service[..], &["--templated-policy", "builtin/dns"], &node[..]].concat()).unwrap().0;
        let shown: Vec<_> = found
            .iter()
            .map(|policy| {
                let variables = policy.template_variables.clone().unwrap_or_default();
                format!("{} {}", policy.template_name, Value::from(variables))
            })
            .collect();
        assert_eq!(shown, [r#"builtin/service {"name":"web"}"#, "builtin/dns {}", r#"builtin/node {"name":"n:1"}"#]);
        assert!(parse(&[]).unwrap().0.is_empty());
        assert!(parse(&["--var", "name:web"]).unwrap_err().contains("stands before"));
        assert!(parse(&["--templated-policy", "a", "--var", "name"]).unwrap_err().contains("NAME:VALUE"));
    }
}
