//! Identities for tools, built from their options. Their tokens outlive listeners: a reload that does not change an identity keeps them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use keyward_agent::identity_tokens::{IdentityTokenDeps, IdentityTokenKeeper, IdentityTokenOptions, IdentityTokens};
use keyward_config::Config;

use super::reconciler::{Claim, Group, Plan, Work};
use super::session::Shared;

/// Identities, by name.
pub(super) type Identities = Group<IdentityTokenOptions, IdentityTokens>;

/// Change of the identities by a new configuration. Dropping it changes nothing.
pub(super) type IdentitiesPlan = Plan<IdentityTokenOptions, IdentityTokens>;

/// Plans the identities.
pub(super) fn plan(running: &Identities, config: &Config, shared: &Shared) -> anyhow::Result<IdentitiesPlan> {
    let mut plan = Plan::new(&[].into());
    for options in &config.identities {
        let claim = running.claim(&options.name, &[]);
        running.plan(&mut plan, claim, options.clone(), |claim| build(options, claim, shared))?;
    }
    Ok(plan)
}

/// Returns the tokens of the identities that will run, by name.
pub(super) fn planned(
    running: &Identities,
    plan: &IdentitiesPlan,
    config: &Config,
) -> BTreeMap<String, IdentityTokens> {
    let tokens =
        |options: &IdentityTokenOptions| Some((options.name.clone(), running.planned(plan, &options.name)?.clone()));
    config.identities.iter().filter_map(tokens).collect()
}

/// Name of an identity among the parts that others are built anew with; no session has such a name.
pub(super) fn part_name(identity: &str) -> String {
    format!("identity/{identity}")
}

fn build(options: &IdentityTokenOptions, claim: &Claim, shared: &Shared) -> anyhow::Result<(IdentityTokens, Work)> {
    let health = shared.health.register(part_name(&options.name), options.required, "no token yet");
    let deps = IdentityTokenDeps { clock: shared.clock.clone(), metrics: shared.metrics.clone(), health };
    let (keeper, tokens) =
        IdentityTokenKeeper::build(options, deps).with_context(|| format!("identity {}", options.name))?;
    Ok((tokens, Box::pin(keeper.run(claim.stop.clone()))))
}
