//! Text of the polkit rule.

use super::UnitNeeds;
use super::needs::SERVICE_ACCOUNT;

impl UnitNeeds {
    /// Name of the rule's file.
    pub const POLKIT_NAME: &'static str = "50-keyward.rules";

    /// Folder of the rule's file on the machine that runs the unit.
    pub const POLKIT_FOLDER: &'static str = "/etc/polkit-1/rules.d";

    /// Formats the rule that lets the service's user do what its commands ask systemd for, and nothing else; `None` if
    /// they ask for nothing.
    pub fn polkit_rule(&self) -> Option<String> {
        if self.unit_actions.is_empty() {
            return None;
        }
        let cases: Vec<String> = self
            .unit_actions
            .iter()
            .map(|action| format!("        [{}, {}]", quote(&action.unit), quote(action.verb)))
            .collect();
        Some(format!(
            "// Lets keyward ask systemd for what its configuration's commands need, and for nothing else.
polkit.addRule(function (action, subject) {{
    var allowed = [
{}
    ];
    if (action.id != \"org.freedesktop.systemd1.manage-units\" || subject.user != {}) {{
        return polkit.Result.NOT_HANDLED;
    }}
    var asked = allowed.some(function (it) {{
        return action.lookup(\"unit\") == it[0] && action.lookup(\"verb\") == it[1];
    }});
    return asked ? polkit.Result.YES : polkit.Result.NOT_HANDLED;
}});
",
            cases.join(",\n"),
            quote(SERVICE_ACCOUNT),
        ))
    }
}

/// Writes a string of JavaScript; JSON's strings are such.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
