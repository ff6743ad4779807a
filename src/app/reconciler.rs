//! The one way in which a reload starts, replaces and stops what runs.
//!
//! A [`Part`] is planned, built, started, stopped, and has ended. It is kept if a new configuration gives it equal options, and none of its
//! sessions is built anew. Otherwise another one is built, which starts once its predecessors have released its name and file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use keyward_machine::tasks::{TaskError, TaskGroup};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Work of a part. It does nothing until it is started, so that a plan may be dropped.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A part that is built or runs, with its options `O` and the handle `H` by which others use it.
pub(super) struct Part<O, H> {
    pub(super) claim: Claim,
    pub(super) options: O,
    pub(super) handle: H,
    /// `None` once it is started.
    work: Option<Work>,
}

/// Resources that a part has until it ends, and the signals by which others stop it and wait for it.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    /// Name within its group.
    pub(super) name: String,
    /// Sessions whose tokens it uses: it is built anew with them.
    pub(super) sessions: Vec<String>,
    /// File that no other part writes meanwhile.
    pub(super) file: Option<PathBuf>,
    /// Cancelled to stop it.
    pub(super) stop: CancellationToken,
    /// Cancelled once its successor may start: by its work, or at its end.
    pub(super) released: CancellationToken,
    /// Cancelled at its end.
    pub(super) ended: CancellationToken,
}

/// Parts of one kind. They stop together when the process ends.
pub(super) struct Group<O, H> {
    /// Start of the names of tasks.
    kind: &'static str,
    /// Longest time that a part waits for another one of its name.
    name_limit: Duration,
    pub(super) running: BTreeMap<String, Part<O, H>>,
    /// Stopped parts. Those that have ended are dropped when another is added.
    stopped: Vec<Claim>,
    pub(super) tasks: TaskGroup,
}

/// Change of a group. Dropping it changes nothing.
pub(super) struct Plan<O, H> {
    /// Sessions that are built anew.
    rebuilt: BTreeSet<String>,
    /// Parts that continue to run.
    kept: BTreeSet<String>,
    pub(super) built: Vec<Part<O, H>>,
}

impl<O, H> Plan<O, H> {
    /// Creates a plan that stops all parts; `rebuilt` are the sessions that are built anew.
    pub(super) fn new(rebuilt: &BTreeSet<String>) -> Self {
        Self { rebuilt: rebuilt.clone(), kept: BTreeSet::new(), built: Vec::new() }
    }

    /// Returns the part of this name if it is built anew.
    pub(super) fn find(&self, name: &str) -> Option<&Part<O, H>> {
        self.built.iter().find(|part| part.claim.name == name)
    }
}

impl<O, H> Group<O, H> {
    /// Creates an empty group. A part waits for another one of its name for at most `name_limit`.
    pub(super) fn new(kind: &'static str, name_limit: Duration) -> Self {
        let tasks = TaskGroup::default();
        Self { kind, name_limit, running: BTreeMap::new(), stopped: Vec::new(), tasks }
    }

    /// Returns the claim of a part of this group that uses the tokens of these sessions.
    pub(super) fn claim(&self, name: impl Into<String>, sessions: &[String]) -> Claim {
        Claim {
            name: name.into(),
            sessions: sessions.to_vec(),
            file: None,
            stop: self.tasks.stop_token().child_token(),
            released: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Removes the running parts that a plan does not keep; each is stopped next.
    pub(super) fn take_ended(&mut self, plan: &Plan<O, H>) -> Vec<Part<O, H>> {
        self.running.extract_if(.., |name, _| !plan.kept.contains(name)).map(|(_, part)| part).collect()
    }

    /// Stops a part.
    pub(super) fn stop(&mut self, claim: Claim) {
        claim.stop.cancel();
        self.add_stopped(claim);
    }

    /// Stops a part once `predecessors` are over, or with its group.
    pub(super) fn stop_after(&mut self, claim: Claim, predecessors: impl Future<Output = ()> + Send + 'static) {
        let stop = claim.stop.clone();
        self.tasks.start(format!("end of {}{}", self.kind, claim.name), async move {
            let _ = stop.run_until_cancelled(predecessors).await;
            stop.cancel();
            Ok(())
        });
        self.add_stopped(claim);
    }

    fn add_stopped(&mut self, claim: Claim) {
        self.stopped.retain(|stopped| !stopped.ended.is_cancelled());
        self.stopped.push(claim);
    }

    /// Returns the stopped parts that use the token of a session.
    pub(super) fn stopped_of<'a>(&'a self, session: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.stopped.iter().filter(move |stopped| stopped.sessions.iter().any(|name| name == session))
    }

    /// Starts the parts of a plan, each after its predecessors.
    pub(super) fn start(&mut self, plan: Plan<O, H>) {
        for mut part in plan.built {
            let Some(work) = part.work.take() else { continue };
            let [of_file, of_name] = self.predecessors(&part.claim);
            let name_limit = self.name_limit;
            let ends = [part.claim.released.clone().drop_guard(), part.claim.ended.clone().drop_guard()];
            self.tasks.start(format!("{}{}", self.kind, part.claim.name), async move {
                let _ends = ends;
                // Without a limit: a late write by the old part would replace the content of the new one.
                wait_for_all(of_file).await;
                let _ = timeout(name_limit, wait_for_all(of_name)).await;
                work.await;
                Ok(())
            });
            self.running.insert(part.claim.name.clone(), part);
        }
    }

    /// Returns the signals of the stopped parts that have the file of a new one, and of those that have its name.
    fn predecessors(&self, claim: &Claim) -> [Vec<CancellationToken>; 2] {
        let released = |is_before: &dyn Fn(&Claim) -> bool| {
            self.stopped.iter().filter(|stopped| is_before(stopped)).map(|stopped| stopped.released.clone()).collect()
        };
        let of_file = released(&|stopped| claim.file.is_some() && stopped.file == claim.file);
        [of_file, released(&|stopped| stopped.name == claim.name)]
    }

    /// Returns the handle of the part of this name that will run.
    pub(super) fn planned<'a>(&'a self, plan: &'a Plan<O, H>, name: &str) -> Option<&'a H> {
        let kept = || self.running.get(name).filter(|_| plan.kept.contains(name));
        plan.find(name).or_else(kept).map(|part| &part.handle)
    }

    /// Stops the parts that a plan does not keep, and starts those that it built.
    pub(super) fn commit(&mut self, plan: Plan<O, H>) {
        for part in self.take_ended(&plan) {
            self.stop(part.claim);
        }
        self.start(plan);
    }

    /// Starts the parts that a plan built. Stops those that it does not keep once no request uses their sessions: `draining` returns
    /// the signals of that.
    pub(super) fn commit_after(&mut self, plan: Plan<O, H>, draining: impl Fn(&str) -> Vec<CancellationToken>) {
        for part in self.take_ended(&plan) {
            let draining = part.claim.sessions.iter().flat_map(|session| draining(session)).collect();
            self.stop_after(part.claim, wait_for_all(draining));
        }
        self.start(plan);
    }

    /// Stops all parts, and aborts those that take longer than `limit`.
    pub(super) async fn end(self, limit: Duration) -> Result<(), TaskError> {
        self.tasks.stop_token().cancel();
        self.tasks.run(limit).await
    }
}

impl<O: PartialEq, H> Group<O, H> {
    /// Plans a part: keeps the running one, or has another one built. Returns the handle of the one that will run.
    ///
    /// Each name is planned once; later calls with it return the same handle.
    pub(super) fn plan<'a>(
        &'a self,
        plan: &'a mut Plan<O, H>,
        claim: Claim,
        options: O,
        build: impl FnOnce(&Claim) -> anyhow::Result<(H, Work)>,
    ) -> anyhow::Result<&'a H> {
        let name = claim.name.clone();
        if self.planned(plan, &name).is_none() {
            let rebuilt = claim.sessions.iter().any(|session| plan.rebuilt.contains(session));
            if self.running.get(&name).is_some_and(|running| running.options == options) && !rebuilt {
                plan.kept.insert(claim.name);
            } else {
                let (handle, work) = build(&claim)?;
                plan.built.push(Part { claim, options, handle, work: Some(work) });
            }
        }
        self.planned(plan, &name).with_context(|| format!("{}{name} is not planned", self.kind))
    }
}

/// Waits until all of these tokens are cancelled.
pub(super) async fn wait_for_all(tokens: Vec<CancellationToken>) {
    for token in tokens {
        token.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    fn claim(group: &Group<u8, ()>, name: &str, session: &str, file: Option<&str>) -> Claim {
        Claim { file: file.map(PathBuf::from), ..group.claim(name, &[session.to_owned()]) }
    }

    /// Plans a part that runs until it is stopped, and then as long as `hangs`. Its options are a number.
    fn add(group: &Group<u8, ()>, plan: &mut Plan<u8, ()>, claim: Claim, options: u8, hangs: Duration) {
        let build = |claim: &Claim| {
            let stop = claim.stop.clone();
            let work = async move {
                stop.cancelled().await;
                tokio::time::sleep(hangs).await;
            };
            anyhow::Ok(((), Box::pin(work) as Work))
        };
        group.plan(plan, claim, options, build).unwrap();
    }

    fn plan() -> Plan<u8, ()> {
        Plan::new(&BTreeSet::from(["rebuilt".to_owned()]))
    }

    fn built(plan: &Plan<u8, ()>) -> Vec<&str> {
        plan.built.iter().map(|part| &*part.claim.name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_is_kept_if_its_options_are_equal_and_its_sessions_stay() {
        let mut group = Group::new("part ", LIMIT);
        let mut first = plan();
        for (name, session) in [("same", "one"), ("changed", "one"), ("removed", "one"), ("follows", "rebuilt")] {
            add(&group, &mut first, claim(&group, name, session, None), 1, Duration::ZERO);
        }
        assert_eq!(built(&first), ["same", "changed", "removed", "follows"]);
        group.commit(first);

        let mut dropped = plan();
        add(&group, &mut dropped, claim(&group, "changed", "one", None), 7, Duration::ZERO);
        drop(dropped);
        assert_eq!(group.running.values().map(|part| part.options).collect::<Vec<_>>(), [1, 1, 1, 1]);

        let mut second = plan();
        for (name, session, options) in [("same", "one", 1), ("changed", "one", 2), ("follows", "rebuilt", 1)] {
            add(&group, &mut second, claim(&group, name, session, None), options, Duration::ZERO);
            // A name that is planned already stays planned as it is.
            add(&group, &mut second, claim(&group, name, session, None), 9, Duration::ZERO);
        }
        assert_eq!(built(&second), ["changed", "follows"]);
        let same = group.running["same"].claim.clone();
        let removed = group.running["removed"].claim.clone();
        group.commit(second);
        removed.ended.cancelled().await;
        assert!(!same.stop.is_cancelled());
        assert_eq!(
            group.running.iter().map(|(name, part)| (&**name, part.options)).collect::<Vec<_>>(),
            [("changed", 2), ("follows", 1), ("same", 1)]
        );
        group.end(LIMIT).await.unwrap();
        assert!(same.ended.is_cancelled());
    }

    /// Returns the seconds after which a new part starts; a minute stands for never.
    async fn seconds_to_start(group: &mut Group<u8, ()>, name: &str, file: Option<&str>) -> u64 {
        let (started, starts) = tokio::sync::oneshot::channel();
        let mut plan = plan();
        plan.kept.extend(group.running.keys().filter(|running| *running != name).cloned());
        let work = |_: &Claim| {
            let work = async move {
                let _ = started.send(());
            };
            anyhow::Ok(((), Box::pin(work) as Work))
        };
        group.plan(&mut plan, claim(group, name, "four", file), 0, work).unwrap();
        let start = Instant::now();
        group.commit(plan);
        let _ = timeout(Duration::from_mins(1), starts).await;
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_part_that_hangs_holds_up_those_of_its_file_alone_and_those_of_its_name_for_a_limited_time() {
        let mut group = Group::new("part ", LIMIT);
        let mut all = plan();
        add(&group, &mut all, claim(&group, "hung", "one", Some("/nfs/token")), 1, Duration::MAX);
        add(&group, &mut all, claim(&group, "ended", "two", Some("/run/token")), 1, Duration::ZERO);
        add(&group, &mut all, claim(&group, "VARIABLE", "three", None), 1, Duration::MAX);
        group.commit(all);
        let hung = group.running["hung"].claim.clone();
        let ended = group.running["ended"].claim.clone();
        tokio::task::yield_now().await;
        group.commit(plan());
        ended.ended.cancelled().await;
        for (name, file, expected) in [
            ("other", Some("/nfs/token"), 60),
            ("hung", Some("/run/elsewhere"), 3),
            ("ended", Some("/run/token"), 0),
            ("another", Some("/run/other"), 0),
            ("OTHER", None, 0),
        ] {
            assert_eq!(seconds_to_start(&mut group, name, file).await, expected, "{name}");
        }
        // Later reloads still know the part that hangs.
        group.commit(plan());
        assert_eq!(group.stopped_of("one").map(|part| &*part.name).collect::<Vec<_>>(), ["hung"]);
        assert_eq!(group.stopped_of("two").count(), 0, "it has ended");
        assert!(!hung.released.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_is_stopped_after_its_predecessors_or_with_its_group() {
        for (wait, expected) in [(5, 5), (500, 60)] {
            let mut group = Group::new("part ", LIMIT);
            let mut all = plan();
            add(&group, &mut all, claim(&group, "part", "one", None), 1, Duration::ZERO);
            group.commit(all);
            let part = group.take_ended(&plan()).remove(0).claim;
            group.stop_after(part.clone(), tokio::time::sleep(Duration::from_secs(wait)));
            let start = Instant::now();
            let _ = timeout(Duration::from_mins(1), part.ended.cancelled()).await;
            assert_eq!(start.elapsed().as_secs(), expected);
            group.end(LIMIT).await.unwrap();
            assert!(part.ended.is_cancelled());
        }
    }
}
