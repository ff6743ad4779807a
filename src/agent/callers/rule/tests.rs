use std::path::Path;

use keyward_http::peer::{ExecutableFacts, FactSource};

use super::*;

fn facts() -> PeerFacts {
    PeerFacts {
        pid: Some(7),
        uid: Some(33),
        gid: Some(33),
        groups: [4, 24].into(),
        cgroup: Some("/system.slice/nginx.service/worker".into()),
        executable: Some(ExecutableFacts { path: Path::new("/usr/sbin/nginx").into(), sha256: Some([1; 32]) }),
        source: FactSource::PidfdInfo,
    }
}

fn unit(name: &str) -> Vec<NamePattern> {
    vec![NamePattern::new(name)]
}

fn cgroup(path: &str) -> Vec<CgroupPattern> {
    vec![CgroupPattern::parse(path).unwrap()]
}

fn program(path: &str, sha256: Option<[u8; 32]>) -> Vec<ExecutableRule> {
    vec![ExecutableRule { path: path.into(), sha256 }]
}

#[test]
fn every_criterion_must_be_met_by_one_of_its_values() {
    let any = CallerMatch::default;
    for (rule, expected) in [
        (any(), None),
        (CallerMatch { uids: vec![1, 33], ..any() }, None),
        (CallerMatch { uids: vec![1], ..any() }, Some(Criterion::Uid)),
        (CallerMatch { gids: vec![4], ..any() }, Some(Criterion::Gid)),
        (CallerMatch { groups: vec![4], ..any() }, None),
        (CallerMatch { groups: vec![33], ..any() }, None),
        (CallerMatch { groups: vec![5], ..any() }, Some(Criterion::Group)),
        (CallerMatch { units: unit("nginx.service"), ..any() }, None),
        (CallerMatch { units: unit("worker"), ..any() }, Some(Criterion::Unit)),
        (CallerMatch { cgroups: cgroup("/system.slice"), ..any() }, None),
        (CallerMatch { cgroups: cgroup("/user.slice"), ..any() }, Some(Criterion::Cgroup)),
        (CallerMatch { pods: vec![PodPattern::parse("*").unwrap()], ..any() }, Some(Criterion::Pod)),
        (CallerMatch { executables: program("/usr/sbin/nginx", None), ..any() }, None),
        (CallerMatch { executables: program("/usr/sbin/nginx", Some([1; 32])), ..any() }, None),
        (CallerMatch { executables: program("/usr/sbin/nginx", Some([2; 32])), ..any() }, Some(Criterion::Executable)),
        (CallerMatch { uids: vec![33], units: unit("cron.service"), ..any() }, Some(Criterion::Unit)),
    ] {
        assert_eq!(rule.unmet(&facts()), expected, "{rule}");
    }
}

#[test]
fn a_fact_that_is_not_told_meets_no_criterion() {
    let unknown = PeerFacts { uid: None, gid: None, groups: [].into(), cgroup: None, executable: None, ..facts() };
    let any = CallerMatch::default;
    for rule in [
        CallerMatch { uids: vec![65534], ..any() },
        CallerMatch { gids: vec![65534], ..any() },
        CallerMatch { groups: vec![65534], ..any() },
        CallerMatch { units: unit("*"), ..any() },
        CallerMatch { cgroups: cgroup("/*"), ..any() },
        CallerMatch { pods: vec![PodPattern::parse("*").unwrap()], ..any() },
        CallerMatch { executables: program("", None), ..any() },
    ] {
        assert!(rule.unmet(&unknown).is_some(), "{rule}");
    }
    let unread = PeerFacts {
        executable: facts().executable.map(|executable| ExecutableFacts { sha256: None, ..executable }),
        ..facts()
    };
    let digest = CallerMatch { executables: program("/usr/sbin/nginx", Some([1; 32])), ..any() };
    assert_eq!(digest.unmet(&unread), Some(Criterion::Executable), "its digest could not be read");
}

#[test]
fn a_rule_covers_another_if_each_of_its_criteria_does() {
    let any = CallerMatch::default;
    let web = CallerMatch { uids: vec![33], units: unit("nginx.service"), ..any() };
    for (wide, narrow, expected) in [
        (any(), web.clone(), true),
        (web.clone(), any(), false),
        (CallerMatch { uids: vec![33, 34], ..any() }, web.clone(), true),
        (CallerMatch { uids: vec![34], ..any() }, web.clone(), false),
        (CallerMatch { units: unit("nginx*"), ..any() }, web.clone(), true),
        (CallerMatch { groups: vec![5], ..any() }, CallerMatch { gids: vec![5], ..any() }, true),
        (CallerMatch { gids: vec![5], ..any() }, CallerMatch { groups: vec![5], ..any() }, false),
        (
            CallerMatch { executables: program("/a", None), ..any() },
            CallerMatch { executables: program("/a", Some([1; 32])), ..any() },
            true,
        ),
        (
            CallerMatch { executables: program("/a", Some([1; 32])), ..any() },
            CallerMatch { executables: program("/a", None), ..any() },
            false,
        ),
    ] {
        assert_eq!(wide.covers(&narrow), expected, "{wide} | {narrow}");
    }
}

#[test]
fn a_unit_outside_the_cgroup_of_its_rule_is_a_contradiction() {
    let rule = |name, path| CallerMatch { units: unit(name), cgroups: cgroup(path), ..CallerMatch::default() };
    assert!(rule("nginx.service", "/system.slice/cron.service").contradiction().is_some());
    assert!(rule("nginx.service", "/system.slice/nginx.service/worker").contradiction().is_none());
    assert!(rule("nginx.service", "/system.slice").contradiction().is_none());
    assert!(rule("*.service", "/system.slice/cron.service").contradiction().is_none());
}
