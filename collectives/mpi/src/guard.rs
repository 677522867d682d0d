//! A guard that ends launchers whose ranks are gone.
//!
//! A rank that dies ends the job: the launcher is notified, ends the other ranks, and ends itself. The last
//! step is up to the launcher, and Open MPI 4.1 was seen to hang in it, with every rank gone, so no rank can
//! end it. So each rank has a guard, a separate process that needs nothing but a shell:
//!
//! ```text
//! rank: start the guard; initialise MPI; ..; finalise MPI; end the guard       nothing happens
//! rank: start the guard; initialise MPI; ..; the rank dies                     the pipe between them closes
//! guard:                                      wait for that; wait for GRACE; if the launcher runs, kill it
//! ```
//!
//! The guard holds nothing of the rank's, uses no CPU time while it waits, and begins before MPI has opened
//! anything that it could inherit. It is in a separate process group, as launchers end the groups of their
//! ranks.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Launchers that serve one job and can be ended with it.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"];

/// Seconds that a launcher has to end by itself when a rank is gone.
const GRACE: &str = "10";

/// The script: `$1` is the launcher's process, `$2` its start time in its `stat` file, `$3` the grace period.
const SCRIPT: &str = r#"
read -r word
sleep "$3"
stat=$(cat "/proc/$1/stat") || exit 0
set -- "$1" "$2" ${stat##*) }
[ "$2" = "${22}" ] || exit 0
echo "error: the launcher did not end when its ranks did; it is killed now" >>"/proc/$1/fd/2"
kill -KILL "$1"
"#;

/// A process that ends the launcher if this one dies; if dropped, it does nothing.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Guards this process, if it was started by a single-job launcher and a shell exists.
    pub(crate) fn start() -> Option<Guard> {
        let launcher = std::os::unix::process::parent_id();
        let name = std::fs::read_to_string(format!("/proc/{launcher}/comm")).ok()?;
        if !LAUNCHERS.contains(&name.trim_end()) {
            return None;
        }
        let stat = std::fs::read_to_string(format!("/proc/{launcher}/stat")).ok()?;
        let child = Command::new("sh")
            .args(["-c", SCRIPT, "reshard-guard", &launcher.to_string(), started(&stat)?, GRACE])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Some(Guard { child: child.ok()? })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It holds nothing and has done nothing, so it can be ended at any point.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the start time in a process's `stat`: the 22nd field, where the name in parentheses is one field.
fn started(stat: &str) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(started(stat), Some("4711"));
        assert_eq!(started("7 (sh) S 1"), None);
    }

    /// Runs the script on a stand-in process for a launcher, and returns `true` if that process was ended.
    fn ends(started_at: impl Fn(&str) -> String) -> bool {
        let mut launcher = Command::new("sleep").arg("60").spawn().unwrap();
        let id = launcher.id().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let start = started_at(started(&stat).unwrap());
        let mut guard = Command::new("sh")
            .args(["-c", SCRIPT, "guard", &id, &start, "0"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(launcher.try_wait().unwrap().is_none(), "the guard must not act while the rank runs");
        drop(guard.stdin.take());
        guard.wait().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let ended = launcher.try_wait().unwrap().is_some();
        let _ = launcher.kill();
        let _ = launcher.wait();
        ended
    }

    #[test]
    fn a_launcher_that_stays_when_its_rank_is_gone_is_ended() {
        assert!(ends(str::to_string));
    }

    #[test]
    fn another_process_of_the_same_number_is_not_ended() {
        assert!(!ends(|start| format!("{start}0")));
    }

    #[test]
    fn who_has_no_launcher_has_no_guard() {
        assert!(Guard::start().is_none());
    }
}
