//! Rules of polkit, read as far as a program can without running their JavaScript (`polkit(8)`).

use keyward_config::systemd::UnitAction;
use keyward_machine::os;

use super::rights::UserIdentity;

/// Action that `systemctl` needs to start, stop or reload a unit.
const ACTION: &str = "org.freedesktop.systemd1.manage-units";

/// Returns true if a rule file seems to let the user control the unit: it names the action, returns YES, and matches user
/// or group, and the unit if it names any.
pub(crate) fn allows(files: &[String], identity: &UserIdentity, control: &UnitAction) -> bool {
    files.iter().any(|file| allows_by(&without_comments(file), identity, control))
}

fn allows_by(file: &str, identity: &UserIdentity, control: &UnitAction) -> bool {
    let quotes = |text: &str| [format!("\"{text}\""), format!("'{text}'")].iter().any(|quoted| file.contains(quoted));
    let groups = identity.groups.iter().chain([&identity.gid]).filter_map(|id| os::group_name(*id));
    let is_for_user = quotes(&identity.name) || groups.into_iter().any(|group| quotes(&group));
    let names_units = file.contains("lookup(\"unit\")") || file.contains("lookup('unit')");
    let names_verbs = file.contains("lookup(\"verb\")") || file.contains("lookup('verb')");
    (quotes(ACTION) || file.contains("org.freedesktop.systemd1."))
        && file.contains("polkit.Result.YES")
        && is_for_user
        && (!names_units || quotes(&control.unit))
        && (!names_verbs || quotes(control.verb))
}

/// Removes `//` and `/* */` comments. A `//` inside of a string is taken for one: rules hold no addresses.
fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut output = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        output.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    output.push_str(rest);
    output.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n")
}

/// A rule that lets the user control the unit.
pub(crate) fn rule(user: &str, control: &UnitAction) -> String {
    format!(
        "polkit.addRule(function(action, subject) {{ if (action.id == \"{ACTION}\" && action.lookup(\"unit\") == \
         \"{}\" && action.lookup(\"verb\") == \"{}\" && subject.user == \"{user}\") return polkit.Result.YES; }});",
        control.unit, control.verb
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_counts_for_its_user_unit_and_verb_alone() {
        let user = |name: &str| UserIdentity {
            name: name.to_owned(),
            uid: 4_000_000,
            gid: 4_000_000,
            groups: std::collections::BTreeSet::new(),
            passes_modes: false,
        };
        let control = |verb: &'static str, unit: &str| UnitAction { verb, unit: unit.to_owned() };
        let reload = control("reload", "nginx.service");
        let files = [rule("keyward", &reload)];
        assert!(allows(&files, &user("keyward"), &reload), "{files:?}");
        assert!(!allows(&files, &user("other"), &reload));
        assert!(!allows(&files, &user("keyward"), &control("restart", "nginx.service")));
        assert!(!allows(&files, &user("keyward"), &control("reload", "apache2.service")));
        assert!(!allows(&[format!("// {}", files[0])], &user("keyward"), &reload));
        assert!(!allows(&[format!("/* {} */", files[0])], &user("keyward"), &reload));
        assert!(!allows(&[], &user("keyward"), &reload));
        let any = "polkit.addRule(function(a, s) { if (a.id.indexOf(\"org.freedesktop.systemd1.\") == 0 && \
                   s.user == 'keyward') { return polkit.Result.YES; } });";
        assert!(allows(&[any.to_owned()], &user("keyward"), &control("stop", "x.service")));
    }
}
