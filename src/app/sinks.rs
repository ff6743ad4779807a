//! Sinks, built from their options and joined to their sessions.

use std::slice;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::sinks::FileSink;
use keyward_config::{self as config, SinkOrigin};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::reconciler::{self, Claim, Group, Plan, Work};
use super::session::{FileFingerprint, PlanContext, file_fingerprint};
use super::{derived_tokens, identities};

/// Sinks, by name. The handle of one is cancelled before it stops if the token is revoked, so that it clears its file first.
pub(super) type Sinks = Group<SinkOptions, CancellationToken>;

/// Change of the sinks by a new configuration. Dropping it changes nothing.
pub(super) type SinksPlan = Plan<SinkOptions, CancellationToken>;

/// Options of a sink, and the fingerprint of the file with its reader's public key at the time it was read.
type SinkOptions = (config::Sink, Option<FileFingerprint>);

/// Plans the sinks.
pub(super) fn plan(running: &Sinks, context: &PlanContext<'_>) -> anyhow::Result<SinksPlan> {
    let mut plan = context.plan();
    for sink in &context.config.sinks {
        let part = match &sink.origin {
            SinkOrigin::Session(session) => session.clone(),
            SinkOrigin::Identity(token) => identities::part_name(&token.identity),
        };
        let mut claim = running.claim(&sink.options.name, slice::from_ref(&part));
        claim.file = Some(sink.options.path.clone());
        let public_key = sink.options.encrypt.as_ref().and_then(|encrypt| file_fingerprint(&encrypt.public_key_file));
        running.plan(&mut plan, claim, (sink.clone(), public_key), |claim| build(sink, claim, context))?;
    }
    Ok(plan)
}

fn build(sink: &config::Sink, claim: &Claim, context: &PlanContext<'_>) -> anyhow::Result<(CancellationToken, Work)> {
    let shared = context.shared;
    let options = sink.options.clone();
    let output = format!("sink {}", options.name);
    let (watch, derived) = match (&sink.origin, &sink.derive) {
        (SinkOrigin::Identity(token), _) => {
            let tokens = context.identities.get(&token.identity);
            let watch = tokens.and_then(|tokens| tokens.watch(&token.resource)).with_context(|| output)?;
            (watch.clone(), None)
        }
        (SinkOrigin::Session(session), None) => (context.session(session)?.1.watch.clone(), None),
        (SinkOrigin::Session(session), Some(derive)) => {
            let (session, source) = context.session(session)?;
            let (manager, handle) =
                derived_tokens::build_manager(output, None, derive.clone(), session, source, None, shared)?;
            (handle.watch, Some(manager))
        }
    };
    let health = shared.health.register(format!("sink/{}", options.name), options.required, "not written yet");
    let (clock, metrics, outputs) = (shared.clock.clone(), shared.metrics.clone(), shared.outputs.clone());
    let clear = CancellationToken::new();
    let cleared = clear.clone();
    let stop = claim.stop.clone();
    let work = async move {
        let mut sink = FileSink::new(options, watch, clock, health, metrics).with_output_watch(outputs);
        let derived = async {
            if let Some(derived) = derived {
                derived.run(stop.clone()).await;
            }
        };
        tokio::join!(sink.run(stop.clone()), derived);
        if cleared.is_cancelled() {
            sink.clear().await;
        }
    };
    Ok((clear, Box::pin(work)))
}

/// Stops removed and replaced sinks. Those whose session `is_revoked` clear their files.
pub(super) fn stop(sinks: &mut Sinks, plan: &SinksPlan, is_revoked: impl Fn(&str) -> bool) {
    for part in sinks.take_ended(plan) {
        if part.options.0.session().is_some_and(&is_revoked) {
            part.handle.cancel();
        }
        sinks.stop(part.claim);
    }
}

/// Waits until stopped sinks have released their files, at most for [`STOP_LIMIT`]. Logs those that have not.
pub(super) async fn wait_for_files(stopped: Vec<Claim>) {
    let all = stopped.iter().map(|sink| sink.released.clone()).collect();
    if timeout(STOP_LIMIT, reconciler::wait_for_all(all)).await.is_ok() {
        return;
    }
    for Claim { name, sessions, file, .. } in stopped.iter().filter(|sink| !sink.released.is_cancelled()) {
        tracing::warn!(
            event = "sink.release_delayed",
            sink = name,
            session = sessions.first(),
            path = file.as_ref().map(|file| file.display().to_string()),
            "the removed or replaced sink has not released its file in time; its file system may be unresponsive"
        );
    }
}

/// Time for a stopped output to finish its write, and to empty its file.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_waits_for_its_sinks_for_a_limited_time() {
        let group = Sinks::new("sink ", STOP_LIMIT);
        let hung = group.claim("hung", &["one".to_owned()]);
        let ended = group.claim("ended", &["one".to_owned()]);
        ended.released.cancel();
        for (sinks, expected) in [(vec![], 0), (vec![ended.clone()], 0), (vec![ended, hung], 3)] {
            let start = Instant::now();
            wait_for_files(sinks).await;
            assert_eq!(start.elapsed().as_secs(), expected);
        }
    }
}
