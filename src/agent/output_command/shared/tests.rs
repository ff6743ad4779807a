use std::time::SystemTime;

use keyward_machine::clock::TestClock;
use keyward_machine::command::EmulatedProgram;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;

const DEBOUNCE: Duration = Duration::from_secs(1);

/// Outputs with one command, and the starts of its program.
struct Outputs {
    folder: tempfile::TempDir,
    commands: SharedCommands,
    launcher: Launcher,
    clock: Clock,
    begun: Instant,
    /// Milliseconds from the beginning.
    starts: Arc<Mutex<Vec<u128>>>,
}

impl Outputs {
    /// Creates outputs whose program behaves at each start as `programs` says, and at further starts as the last of them.
    fn new(programs: Vec<EmulatedProgram>) -> Self {
        let begun = Instant::now();
        let starts: Arc<Mutex<Vec<u128>>> = Arc::default();
        let seen = Arc::clone(&starts);
        let launcher = Launcher::emulated(move |_| {
            let mut seen = seen.lock();
            seen.push(begun.elapsed().as_millis());
            programs[(seen.len() - 1).min(programs.len() - 1)]
        });
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        let folder = tempfile::tempdir().unwrap();
        Self { folder, commands: SharedCommands::default(), launcher, clock, begun, starts }
    }

    fn runner(&self) -> SharedCommandRunner {
        let command = OutputCommand { command: vec!["reload".to_owned()], timeout: Duration::from_mins(1) };
        let (launcher, clock) = (self.launcher.clone(), self.clock.clone());
        SharedCommandRunner::new(&self.commands, command, EnvVars::default(), DEBOUNCE, launcher, clock)
    }

    /// Runs the command for an output that changes at `millis`. Returns the runner, and the result with its time.
    #[expect(clippy::disallowed_methods, reason = "a test awaits or aborts its own tasks")]
    fn change(
        &self,
        mut runner: SharedCommandRunner,
        name: &str,
        millis: u64,
    ) -> JoinHandle<(SharedCommandRunner, bool, u128)> {
        let (begun, output) = (self.begun, self.folder.path().join(name));
        tokio::spawn(async move {
            sleep(Duration::from_millis(millis)).await;
            runner.record_change();
            let result = runner.run(&output).await;
            (runner, result.is_ok(), begun.elapsed().as_millis())
        })
    }

    fn starts(&self) -> Vec<u128> {
        self.starts.lock().clone()
    }
}

const WELL: EmulatedProgram = EmulatedProgram::Ends { after: Duration::ZERO, status: 0 };
const FAILING: EmulatedProgram = EmulatedProgram::Ends { after: Duration::ZERO, status: 1 << 8 };
const SLOW: EmulatedProgram = EmulatedProgram::Ends { after: Duration::from_secs(5), status: 0 };

#[tokio::test(start_paused = true)]
async fn outputs_that_change_together_have_one_run_after_the_last_of_them() {
    let outputs = Outputs::new(vec![WELL]);
    let runners: Vec<_> = (0..3).map(|_| outputs.runner()).collect();
    let runs: Vec<_> =
        runners.into_iter().zip([0, 600, 1200]).map(|(runner, at)| outputs.change(runner, "a", at)).collect();
    for run in runs {
        let (_, is_ok, at) = run.await.unwrap();
        assert!(is_ok && (2200..2300).contains(&at), "{at}");
    }
    assert_eq!(outputs.starts().len(), 1, "{:?}", outputs.starts());
}

#[tokio::test(start_paused = true)]
async fn an_output_that_shares_its_command_with_no_other_does_not_wait() {
    let outputs = Outputs::new(vec![WELL]);
    drop(outputs.runner());
    let other = OutputCommand { command: vec!["reload".to_owned()], timeout: Duration::from_mins(2) };
    let (launcher, clock) = (outputs.launcher.clone(), outputs.clock.clone());
    let _other = SharedCommandRunner::new(&outputs.commands, other, EnvVars::default(), DEBOUNCE, launcher, clock);
    let (_, is_ok, at) = outputs.change(outputs.runner(), "a", 0).await.unwrap();
    assert!(is_ok && at < 100, "{at}");
}

#[tokio::test(start_paused = true)]
async fn changes_that_never_end_delay_a_run_four_times_the_interval() {
    let outputs = Outputs::new(vec![WELL]);
    let runners: Vec<_> = (0..10).map(|_| outputs.runner()).collect();
    let runs: Vec<_> = runners.into_iter().zip(0..).map(|(runner, at)| outputs.change(runner, "a", at * 900)).collect();
    for run in runs {
        assert!(run.await.unwrap().1);
    }
    let starts = outputs.starts();
    assert!(starts.len() == 2 && (4000..4100).contains(&starts[0]), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_that_of_all_who_waited_and_so_is_a_later_success() {
    let outputs = Outputs::new(vec![FAILING, WELL]);
    let runners = [outputs.runner(), outputs.runner()];
    let runs = runners.map(|runner| outputs.change(runner, "a", 0));
    let mut failed = Vec::new();
    for run in runs {
        let (runner, is_ok, _) = run.await.unwrap();
        assert!(!is_ok);
        failed.push(runner);
    }
    assert_eq!(outputs.starts().len(), 1);
    // The second one finds that the run after the first one's repetition was for it too.
    let output = outputs.folder.path().join("a");
    for runner in &mut failed {
        assert!(runner.run(&output).await.is_ok());
        assert_eq!(outputs.starts().len(), 2);
    }
    let (_, is_ok, _) = outputs.change(failed.remove(0), "a", 0).await.unwrap();
    assert!(is_ok);
    assert_eq!(outputs.starts().len(), 3, "a new change has a run of its own");
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_run_has_the_next_one() {
    let outputs = Outputs::new(vec![SLOW]);
    let runners = [outputs.runner(), outputs.runner(), outputs.runner()];
    let mut ended = Vec::new();
    for run in
        runners.into_iter().zip([0, 3000, 4000]).map(|(runner, at)| outputs.change(runner, "a", at)).collect::<Vec<_>>()
    {
        ended.push(run.await.unwrap().2 / 1000);
    }
    assert_eq!((ended, outputs.starts().len()), (vec![6, 11, 11], 2));
}

#[tokio::test(start_paused = true)]
async fn another_output_takes_over_the_run_of_one_that_is_stopped() {
    for stopped_at in [500, 3000] {
        let outputs = Outputs::new(vec![SLOW]);
        let runners = [outputs.runner(), outputs.runner()];
        let [first, second] = runners.map(|runner| outputs.change(runner, "a", 0));
        sleep(Duration::from_millis(stopped_at)).await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let (_, is_ok, _) = second.await.unwrap();
        assert!(is_ok);
        assert_eq!(outputs.starts().len(), if stopped_at < 1000 { 1 } else { 2 }, "stopped at {stopped_at}");
    }
}
