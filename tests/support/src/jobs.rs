//! Jobs of several processes: the test binary is started again under `mpirun`, where its test `rank` does the
//! job that the environment names.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Names the job that a rank is to do.
pub const JOB: &str = "RESHARD_MPI_JOB";

/// The command that starts jobs, up to the number of ranks; `RESHARD_MPIRUN` replaces it.
const MPIRUN: &str = "mpirun --oversubscribe --allow-run-as-root --bind-to none";

/// The result of a job.
#[derive(Debug)]
pub struct Outcome {
    /// `None` if it had to be killed.
    pub status: Option<i32>,
    /// The output of its ranks.
    pub text: String,
    /// From its start to its end.
    pub took: Duration,
}

/// A job that runs.
pub struct Job {
    child: Child,
    begin: Instant,
    readers: Vec<thread::JoinHandle<String>>,
}

impl Job {
    /// Starts a job of `ranks` ranks, with these settings in their environment.
    pub fn start(ranks: usize, job: &str, settings: &[(&str, String)]) -> Job {
        let mpirun = std::env::var("RESHARD_MPIRUN").unwrap_or_else(|_| MPIRUN.to_string());
        let mut words = mpirun.split_whitespace();
        let mut child = Command::new(words.next().expect("a command"))
            .args(words)
            .args(["-n", &ranks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "rank", "--nocapture", "--test-threads", "1"])
            .env(JOB, job)
            .envs(settings.iter().map(|(key, value)| (*key, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mpirun starts");
        let readers = vec![read(child.stdout.take().unwrap()), read(child.stderr.take().unwrap())];
        Job { child, begin: Instant::now(), readers }
    }

    /// Returns the launcher's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, at most for this time.
    pub fn wait(mut self, at_most: Duration) -> Outcome {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // Killed, it has no code.
                break Some(status.code().unwrap_or(-1));
            }
            if self.begin.elapsed() > at_most {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break None;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let took = self.begin.elapsed();
        let text = self.readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        Outcome { status, text, took }
    }
}

/// Reads to the end, in a separate thread.
fn read(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Runs a job that must succeed, and returns its output.
#[track_caller]
pub fn succeeds(ranks: usize, job: &str) -> String {
    succeeds_with(ranks, job, &[])
}

/// Returns the same with settings in its environment.
#[track_caller]
pub fn succeeds_with(ranks: usize, job: &str, settings: &[(&str, String)]) -> String {
    let outcome = Job::start(ranks, job, settings).wait(Duration::from_mins(5));
    assert_eq!(outcome.status, Some(0), "{job} with {ranks} ranks: {outcome:?}");
    let finished = outcome.text.matches(&format!("finished {job}")).count();
    assert_eq!(finished, ranks, "every rank must report that it has finished: {outcome:?}");
    outcome.text
}
