//! The run itself.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::now;
use super::disturb::{begin, end};
use super::fault::Disturbance;
use super::ledger::{Ledger, Totals};
use super::plan::{Plan, SESSIONS, TEMPLATES, VAULT_SESSIONS, session};
use super::sampler::{CEILINGS, Sample, Sampled, Sampler, above, growth};
use super::stage::{JWT, Stage};
use super::{outputs, proxy_callers, server_callers, token_callers};
use crate::harness::binary::eventually;
use crate::harness::rng::TestRng;
use crate::harness::world::run_in_network_namespace;

/// Longest time from the end of a fault until everything is ready again, and no call is left to be repeated.
const RECOVERY: Duration = Duration::from_mins(1);

/// Age of the versions that outputs hold once all is well: templates read each 10 s, and write up to 4 s later.
const AGE: Duration = Duration::from_secs(25);

#[test]
fn one_process_with_everything_gives_no_wrong_answer_under_a_fault_each_minute() {
    run_in_network_namespace(|| soak(&Plan::from_environment()));
}

fn soak(plan: &Plan) {
    if let Some(out) = &plan.out {
        std::fs::create_dir_all(out).unwrap();
    }
    let mut stage = Stage::start(plan.openbao);
    stage.run();
    // A session of the ACL server may have been quicker than that server.
    until(&stage, Duration::from_mins(2), || stage.ready());
    let (begun, ledger, mut tasks) = (now(), Arc::new(Ledger::default()), JoinSet::new());
    let (process, log) = (Arc::clone(&stage.process), stage.log.clone());
    let sampled = Sampled { process, ledger: Arc::clone(&ledger), log, begun };
    let sampler = Sampler::start(sampled, plan.out.as_deref());
    start_callers(&stage, &ledger, &mut tasks);
    let faults = disturb(&mut stage, plan, &ledger, begun);
    until(&stage, Duration::from_mins(2), || outputs::are_newest(stage.folder(), &stage.truth, AGE));
    let seconds = begun.elapsed();
    stage.runtime.block_on(tasks.shutdown());
    let samples = sampler.end();
    let (status, _) = stage.agent.take().unwrap().stop();
    let totals = ledger.totals();
    let mut problems: Vec<String> = totals.wrong.clone();
    problems.extend(above(&samples, plan.is_long()));
    problems.extend((!status.success()).then(|| format!("the program ended with {status}")));
    problems.extend(secrets_in_the_log(&stage));
    let report = report(plan, seconds, &totals, &faults, &samples, &problems);
    eprintln!("{report:#}");
    if let Some(out) = &plan.out {
        std::fs::write(out.join("report.json"), format!("{report:#}\n")).unwrap();
        std::fs::copy(stage.path("log.txt"), out.join("log.txt")).unwrap();
    }
    assert!(problems.is_empty(), "{problems:#?}\n{}", stage.tail());
}

fn until(stage: &Stage, limit: Duration, mut attempt: impl FnMut() -> Result<(), String>) {
    eventually(limit, || attempt().map_err(|error| format!("{error}\n{}", stage.tail())));
}

/// Starts all callers, and the one who writes new versions of the secrets.
fn start_callers(stage: &Stage, ledger: &Arc<Ledger>, tasks: &mut JoinSet<()>) {
    let _entered = stage.runtime.enter();
    let truth = stage.truth.clone();
    tasks.spawn(async move {
        for number in 0.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            truth.write(&session(number % VAULT_SESSIONS)).await;
        }
    });
    proxy_callers::start(stage.folder(), &stage.truth, ledger, tasks);
    token_callers::start(stage.folder(), &stage.truth, ledger, tasks);
    server_callers::start(stage, ledger, tasks);
    outputs::start(stage.folder(), &stage.truth, ledger, tasks);
}

/// A fault that is over.
struct Past {
    name: String,
    second: u64,
    recovery: Duration,
}

/// Goes through all faults in random order, again and again; after each everything must be ready in time.
fn disturb(stage: &mut Stage, plan: &Plan, ledger: &Ledger, begun: Instant) -> Vec<Past> {
    let (mut rng, mut queue, mut past) = (TestRng(plan.seed), Vec::new(), Vec::new());
    let mut reported = 0;
    progress(plan, &format!("seed {}", plan.seed));
    let mut next = begun;
    while next.saturating_duration_since(begun) + plan.period <= plan.length {
        next += plan.period;
        let fault = loop {
            if queue.is_empty() {
                queue = rng.shuffle(Disturbance::all());
            }
            let fault = queue.pop().unwrap();
            // A process that is killed late shows no growth.
            let late = plan.is_long() && begun.elapsed() > plan.length / 4;
            let skipped = match fault {
                Disturbance::Killed => late,
                Disturbance::Outage => plan.outage().is_none(),
                _ => false,
            };
            if !skipped {
                break fault;
            }
        };
        std::thread::sleep(plan.period / 8);
        let second = begun.elapsed().as_secs();
        ledger.begin(&fault.name(), fault.tolerance());
        begin(stage, fault, plan);
        let length = plan.outage().filter(|_| fault == Disturbance::Outage);
        std::thread::sleep(length.unwrap_or_else(|| plan.fault()));
        end(stage, fault);
        let ended = now();
        let mut left = stage.recovered();
        while left.is_err() && ended.elapsed() < RECOVERY + ledger.slack() {
            std::thread::sleep(Duration::from_millis(50));
            left = stage.recovered();
        }
        if let Err(error) = left {
            ledger.wrong(format!("no recovery within {RECOVERY:?}: {error}"));
        }
        let recovery = ended.elapsed();
        ledger.end_tolerance(now());
        let totals = ledger.totals();
        progress(plan, &format!("{second} s: {}: ready after {recovery:.1?}; {} wrong", fault.name(), totals.wrongs));
        totals.wrong.iter().skip(reported).for_each(|text| progress(plan, text));
        reported = totals.wrong.len();
        past.push(Past { name: fault.name(), second, recovery });
        std::thread::sleep(next.saturating_duration_since(now()));
    }
    past
}

/// Tells how far the run is; the test's own output comes at its end.
fn progress(plan: &Plan, text: &str) {
    eprintln!("{text}");
    if let Some(out) = &plan.out {
        let file = std::fs::File::options().create(true).append(true).open(out.join("progress.txt"));
        writeln!(file.unwrap(), "{text}").unwrap();
    }
}

fn secrets_in_the_log(stage: &Stage) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(stage.path("log.txt")).unwrap()).into_owned();
    let secrets = ["hvs.emulated-", JWT, &stage.acl_jwt];
    let acl = stage.acl_tokens.iter().map(|(secret, _)| secret.as_str());
    let found = secrets.into_iter().chain(acl).filter(|secret| text.contains(secret));
    found.map(|secret| format!("the log has the secret {}...", &secret[..8])).collect()
}

fn report(
    plan: &Plan,
    length: Duration,
    totals: &Totals,
    faults: &[Past],
    samples: &[Sample],
    problems: &[String],
) -> Value {
    let most = |figure: &dyn Fn(&Sample) -> u64| samples.iter().map(figure).max().unwrap_or_default();
    let seconds = length.as_secs().max(1);
    let of_proxy = |(kind, count): (&String, &u64)| if kind.starts_with("proxy ") { *count } else { 0 };
    let proxied = totals.good.get("proxy").unwrap_or(&0) + totals.errors.iter().map(of_proxy).sum::<u64>();
    let faults: Vec<_> = faults
        .iter()
        .map(|phase| json!({"second": phase.second, "fault": phase.name, "recovery_s": phase.recovery.as_secs_f32()}))
        .collect();
    json!({
        "seconds": seconds,
        "seed": plan.seed,
        "openbao": plan.openbao,
        "sessions": SESSIONS,
        "templates": TEMPLATES,
        "proxied_a_second": proxied / seconds,
        "good": totals.good,
        "errors": totals.errors,
        "wrong": totals.wrongs,
        "faults": faults,
        "most": {
            "rss_kib": most(&|sample| sample.rss_kib),
            "anonymous_kib": most(&|sample| sample.anonymous_kib),
            "descriptors": most(&|sample| sample.descriptors as u64),
            "threads": most(&|sample| sample.threads),
            "log_bytes": most(&|sample| sample.log_bytes),
            "growth_kib": growth(samples),
        },
        "ceilings": {
            "anonymous_kib": CEILINGS.anonymous_kib,
            "descriptors": CEILINGS.descriptors,
            "threads": CEILINGS.threads,
            "log_bytes_a_minute": CEILINGS.log_bytes_a_minute,
            "growth_kib": CEILINGS.growth_kib,
        },
        "problems": problems,
        "result": if problems.is_empty() { "passed" } else { "failed" },
    })
}
