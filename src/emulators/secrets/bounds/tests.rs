use serde_json::json;

use super::*;

#[test]
fn a_machine_of_a_flexible_scale_set_is_admitted_by_the_name_of_the_set_alone() {
    const GROUP: &str = "/subscriptions/11111111-2222-3333-4444-555555555555/resourcegroups/rg";
    let machine = format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/flex_ab12cd34");
    let claims = Claims::from_iter([("oid".to_owned(), json!("us")), ("xms_mirid".to_owned(), json!(machine))]);
    let bounds = Bounds {
        service_principal_ids: vec!["us".to_owned()],
        scale_sets: vec!["flex".to_owned()],
        ..Bounds::default()
    };
    let check = |field: &str, value: &str, expected: Result<(), &str>| {
        let mut body = json!({
            "subscription_id": "11111111-2222-3333-4444-555555555555", "resource_group_name": "rg",
        });
        body[field] = json!(value);
        let found = bounds.admit(&claims, &LoginFields::from_body(&body));
        assert_eq!(found, expected.map_err(str::to_owned), "{field} {value}");
    };
    check("vmss_name", "flex", Ok(()));
    check("vm_name", "flex_ab12cd34", Err("bound scale set defined but this vm isn't in a scale set"));
    check("resource_id", &machine, Err("scale set requires the vmss_name field to be set"));
}
