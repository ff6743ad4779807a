use std::time::{Duration, UNIX_EPOCH};

use super::*;

const NOW: u64 = 1_900_000_000;
const VM: &str = "/subscriptions/SUB/resourcegroups/GROUP/providers/Microsoft.Compute/virtualMachines/web-1";
const SET: &str = "/subscriptions/SUB/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachineScaleSets/pool";
const USER: &str =
    "/subscriptions/SUB/resourceGroups/GROUP/providers/Microsoft.ManagedIdentity/userAssignedIdentities/me";

fn trust() -> IssuerConfig {
    IssuerConfig { issuer: "https://sts.example/t/".into(), audience: "https://management.example/".into() }
}

fn claims() -> SignedClaims {
    SignedClaims {
        iss: trust().issuer,
        aud: Audience::One(trust().audience),
        exp: Some(NOW + 3600),
        nbf: Some(NOW - 300),
        oid: Some("principal-1".into()),
        tid: Some("tenant-1".into()),
        appid: Some("app-1".into()),
        xms_mirid: Some(VM.into()),
        xms_az_rid: None,
    }
}

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(ToString::to_string).collect()
}

fn any_of_the_subscription() -> BoundClaims {
    BoundClaims { subscriptions: list(&["sub"]), ..BoundClaims::default() }
}

fn verify(claims: &SignedClaims, bounds: &BoundClaims, claimed: &ClaimedFields) -> Result<VerifiedFacts, ClaimsError> {
    verify_login(claims, &trust(), bounds, claimed, Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(NOW)))
}

#[test]
fn issuer_audience_and_times_must_match() {
    let check = |change: fn(&mut SignedClaims), expected: Option<&str>| {
        let mut claims = claims();
        change(&mut claims);
        let refusal =
            verify(&claims, &any_of_the_subscription(), &ClaimedFields::default()).err().map(|error| error.to_string());
        assert!(
            refusal.is_some() == expected.is_some()
                && refusal.iter().all(|text| text.contains(expected.unwrap_or_default())),
            "{refusal:?} instead of {expected:?}"
        );
    };
    check(|_| (), None);
    check(|claims| claims.iss = "https://sts.example/t".into(), Some("different provider"));
    check(|claims| claims.iss = String::new(), Some("different provider"));
    check(|claims| claims.aud = Audience::One("https://management.example".into()), Some("expected audience"));
    check(|claims| claims.aud = Audience::default(), Some("expected audience"));
    check(|claims| claims.aud = Audience::Many(vec!["other".into(), "https://management.example/".into()]), None);
    check(|claims| claims.aud = Audience::Many(vec!["other".into()]), Some("expected audience"));
    check(|claims| claims.exp = None, Some("without expiration"));
    check(|claims| claims.exp = Some(NOW), Some("token is expired"));
    check(|claims| claims.exp = Some(NOW + 1), None);
    check(|claims| claims.exp = Some(0), Some("token is expired"));
    check(|claims| claims.nbf = Some(NOW), None);
    check(|claims| claims.nbf = Some(NOW + 1), Some("before the nbf"));
    check(|claims| claims.nbf = None, None);
    check(|claims| claims.oid = None, Some("no oid claim"));
    check(|claims| claims.oid = Some(String::new()), Some("no oid claim"));
}

#[test]
fn bounds_are_checked_against_the_claims() {
    let machine = |text: &str| SignedClaims { xms_mirid: Some(text.into()), ..claims() };
    let used_on = |text: &str| SignedClaims { xms_mirid: Some(USER.into()), xms_az_rid: Some(text.into()), ..claims() };
    let nothing = SignedClaims { xms_mirid: None, ..claims() };
    let bounds =
        |principals: &[&str], subscriptions: &[&str], groups: &[&str], sets: &[&str], machines: &[&str]| BoundClaims {
            principals: list(principals),
            subscriptions: list(subscriptions),
            resource_groups: list(groups),
            scale_sets: list(sets),
            virtual_machines: list(machines),
        };
    let check = |claims: &SignedClaims, bounds: &BoundClaims, expected: Option<ClaimsError>| {
        assert_eq!(verify(claims, bounds, &ClaimedFields::default()).err(), expected, "{claims:?} {bounds:?}");
    };
    let principal = bounds(&["PRINCIPAL-1"], &[], &[], &[], &[]);
    check(&nothing, &principal, None);
    check(&claims(), &principal, None);
    check(&SignedClaims { oid: Some("other".into()), ..claims() }, &principal, Some(ClaimsError::Principal));
    check(&claims(), &bounds(&["principal-2", "principal-1"], &["sub"], &[], &[], &[]), None);
    check(&claims(), &bounds(&["principal-2"], &["sub"], &[], &[], &[]), Some(ClaimsError::Principal));
    check(&claims(), &bounds(&[], &["other"], &[], &[], &[]), Some(ClaimsError::Subscription));
    check(&nothing, &bounds(&[], &["sub"], &[], &[], &[]), Some(ClaimsError::NoMachine));
    check(&claims(), &bounds(&[], &["sub"], &["group"], &[], &[]), None);
    check(&claims(), &bounds(&[], &["sub"], &["grou"], &[], &[]), Some(ClaimsError::ResourceGroup));
    check(&claims(), &bounds(&[], &["sub"], &[], &[], &["WEB-1"]), None);
    check(&claims(), &bounds(&[], &["sub"], &[], &[], &["web-10", "web"]), Some(ClaimsError::VirtualMachine));
    check(&machine(SET), &bounds(&[], &["sub"], &["group"], &["pool"], &[]), None);
    check(&machine(SET), &bounds(&[], &["sub"], &[], &[], &["pool"]), Some(ClaimsError::VirtualMachine));
    check(&used_on(&format!("{SET}/virtualMachines/0")), &bounds(&[], &["sub"], &[], &["pool"], &[]), None);
    // A machine that only has a scale set's name in its own is no member of it.
    check(
        &machine(&VM.replace("web-1", "pool_1")),
        &bounds(&[], &["sub"], &[], &["pool"], &[]),
        Some(ClaimsError::ScaleSet),
    );
    // A user-assigned identity is not the machine that uses it.
    check(&machine(USER), &bounds(&[], &["sub"], &["group"], &[], &[]), Some(ClaimsError::NoMachine));
    check(&used_on(VM), &bounds(&[], &["sub"], &["group"], &[], &["web-1"]), None);
    check(&used_on("/nonsense"), &bounds(&[], &["sub"], &[], &[], &[]), Some(ClaimsError::NoMachine));
    check(&used_on("/nonsense"), &principal, None);
    let two = SignedClaims { xms_az_rid: Some(VM.replace("web-1", "web-2")), ..claims() };
    check(&two, &principal, Some(ClaimsError::ConflictingMachines));
    check(&SignedClaims { xms_az_rid: Some(VM.to_uppercase()), ..claims() }, &principal, None);
    // Without a bound every login is refused, although the configuration should have been refused.
    check(&claims(), &BoundClaims::default(), Some(ClaimsError::Principal));
}

#[test]
fn a_claimed_field_must_equal_its_signed_claim() {
    let claimed = |field: &str, value: &str| {
        let mut claimed = ClaimedFields::default();
        let place = match field {
            "subscription_id" => &mut claimed.subscription_id,
            "resource_group_name" => &mut claimed.resource_group_name,
            "vm_name" => &mut claimed.vm_name,
            "vmss_name" => &mut claimed.vmss_name,
            _ => &mut claimed.resource_id,
        };
        *place = Some(value.to_owned());
        claimed
    };
    let principal = BoundClaims { principals: list(&["principal-1"]), ..BoundClaims::default() };
    let check = |claim: Option<&str>, field: &'static str, value: &str, differs: bool| {
        let claims = SignedClaims { xms_mirid: claim.map(str::to_owned), ..claims() };
        let refusal = verify(&claims, &principal, &claimed(field, value)).err();
        assert_eq!(refusal, differs.then_some(ClaimsError::FieldMismatch { field }), "{claim:?} {field} {value}");
    };
    check(Some(VM), "subscription_id", "SUB", false);
    check(Some(VM), "subscription_id", "sub", false);
    check(Some(VM), "subscription_id", "other", true);
    check(Some(VM), "resource_group_name", "group2", true);
    check(Some(VM), "vm_name", "web-1", false);
    check(Some(VM), "vm_name", "web-2", true);
    check(Some(VM), "vm_name", "", false);
    check(Some(VM), "vmss_name", "pool", false);
    check(Some(SET), "vmss_name", "other", true);
    check(Some(SET), "vm_name", "pool_0", false);
    check(Some(VM), "resource_id", VM, false);
    check(Some(VM), "resource_id", SET, true);
    check(None, "vm_name", "web-2", false);
    check(None, "resource_id", VM, false);
}

#[test]
fn claimed_fields_satisfy_no_bound_and_become_no_fact() {
    let claims = SignedClaims { xms_mirid: None, ..claims() };
    let claimed = ClaimedFields {
        subscription_id: Some("sub".into()),
        resource_group_name: Some("group".into()),
        vm_name: Some("web-1".into()),
        ..ClaimedFields::default()
    };
    assert_eq!(verify(&claims, &any_of_the_subscription(), &claimed), Err(ClaimsError::NoMachine));
    let principal = BoundClaims { principals: list(&["principal-1"]), ..BoundClaims::default() };
    let facts = verify(&claims, &principal, &claimed).unwrap();
    assert_eq!(facts.keys().map(String::as_str).collect::<Vec<_>>(), ["app_id", "principal_id", "tenant_id"]);
}

#[test]
fn bounds_that_accept_too_many_are_invalid() {
    let check = |bounds: BoundClaims, expected: Option<&str>| {
        let found = bounds.validation_error();
        assert!(
            found.is_some() == expected.is_some() && found.iter().all(|text| text.contains(expected.unwrap_or(""))),
            "{found:?}"
        );
    };
    check(BoundClaims::default(), Some("no bound"));
    check(BoundClaims { principals: list(&["*"]), ..BoundClaims::default() }, Some("\"*\""));
    check(BoundClaims { subscriptions: list(&[""]), ..BoundClaims::default() }, Some("empty"));
    check(
        BoundClaims { principals: list(&["p"]), virtual_machines: list(&["web"]), ..BoundClaims::default() },
        Some("subscription"),
    );
    check(BoundClaims { principals: list(&["p"]), ..BoundClaims::default() }, None);
    check(any_of_the_subscription(), None);
}
