//! Resources without rules of their own: `mesh` and `peering`, and intentions of all services.

use super::*;

/// Asserts a decision of the rules of a token and of its namespace's defaults, and the rule that explains it.
fn check(
    direct: &[&str],
    defaults: &str,
    default_policy: DefaultPolicy,
    access: Access,
    resource: Resource<'_>,
    expected: (bool, Option<&str>),
) {
    let direct: Vec<_> = direct.iter().map(|text| ("default", *text)).collect();
    let grants = grants("default", &direct, &[("default", defaults)], default_policy);
    let explained = grants.explain(&resource, access, "default");
    let rule = match &explained.reason {
        Reason::Rule(policy) => Some(policy.rule.as_str()),
        Reason::DefaultPolicy => None,
        other => panic!("{other:?}"),
    };
    let case = format!("{direct:?} {defaults} {default_policy:?} {access:?} {resource:?}");
    assert_eq!((explained.decision.is_allowed(), rule), expected, "{case}");
    assert_eq!(grants.decide(&resource, access, "default"), explained.decision, "{case}");
}

#[test]
fn mesh_and_peering_follow_operator_without_a_rule_of_their_own() {
    let deny = DefaultPolicy::Deny;
    let allow = DefaultPolicy::Allow;
    let denied = "operator = \"deny\"";
    let writes = "operator = \"write\"";
    for (name, resource) in [("mesh", Resource::Mesh), ("peering", Resource::Peering)] {
        check(&[denied], "", allow, Access::Write, resource, (false, Some(denied)));
        check(&[writes], "", deny, Access::Write, resource, (true, Some(writes)));
        check(&[], writes, deny, Access::Write, resource, (true, Some(writes)));
        check(&[], "", allow, Access::Write, resource, (true, None));
        // Its own rule in any of the policies precedes one for `operator`; a direct policy precedes a default.
        let own = &*format!("{name} = \"read\"");
        check(&[writes, own], "", deny, Access::Write, resource, (false, Some(own)));
        check(&[denied, own], "", deny, Access::Read, resource, (true, Some(own)));
        check(&[denied], own, deny, Access::Read, resource, (false, Some(denied)));
        check(&[own], writes, deny, Access::Write, resource, (false, Some(own)));
    }
    check(&[writes], "", deny, Access::Read, Resource::Keyring, (false, None));
}

#[test]
fn intentions_of_all_services_are_read_by_any_rule_and_written_by_all_of_them() {
    let deny = DefaultPolicy::Deny;
    let allow = DefaultPolicy::Allow;
    let resource = Resource::Intention("*");
    let all = "service_prefix \"\" { policy = \"write\" intentions = \"write\" }";
    let none = "service_prefix \"\" { policy = \"deny\" }";
    let db_denied = "service \"db\" { policy = \"read\" intentions = \"deny\" }";
    let web = "service \"web\" { policy = \"read\" }";
    let web_writes = "service \"web\" { policy = \"write\" intentions = \"write\" }";
    let all_rule = "service_prefix \"\" { intentions = \"write\" }";
    let none_rule = "service_prefix \"\" { intentions = \"deny\" }";
    let db_rule = "service \"db\" { intentions = \"deny\" }";
    let web_rule = "service \"web\" { intentions = \"read\" }";
    check(&[all], "", deny, Access::Write, resource, (true, Some(all_rule)));
    check(&[all, db_denied], "", deny, Access::Write, resource, (false, Some(db_rule)));
    check(&[all, db_denied], "", deny, Access::Read, resource, (true, Some(all_rule)));
    check(&[db_denied], "", allow, Access::Write, resource, (false, Some(db_rule)));
    check(&[web], "", deny, Access::Read, resource, (true, Some(web_rule)));
    check(&[none, web], "", allow, Access::Read, resource, (true, Some(web_rule)));
    check(&[none], "", allow, Access::Read, resource, (false, Some(none_rule)));
    // Rules for some names do not allow the write, nor deny the read, of all.
    check(&[web_writes], "", deny, Access::Write, resource, (false, None));
    check(&[web_writes], "", allow, Access::Write, resource, (true, None));
    check(&[db_denied], "", allow, Access::Read, resource, (true, None));
    check(&[db_denied], "", deny, Access::Read, resource, (false, None));
    check(&[web_writes], all, deny, Access::Write, resource, (true, Some(all_rule)));
    check(&[db_denied], all, deny, Access::Write, resource, (false, Some(db_rule)));
    // A rule for a service named `*` is one of many.
    check(
        &["service \"*\" { policy = \"read\" intentions = \"write\" }"],
        "",
        deny,
        Access::Write,
        resource,
        (false, None),
    );
}
