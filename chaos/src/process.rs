//! One `weir server` process: started, signalled, killed, waited for.

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// A process of ours. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts `program server --config config`; what it writes is appended to `log`.
    pub fn start(program: &Path, config: &Path, log: &Path) -> anyhow::Result<Process> {
        Process::start_with(program, config, log, &[])
    }

    /// The same with environment variables, which a node lays over its configuration.
    pub fn start_with(
        program: &Path,
        config: &Path,
        log: &Path,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Process> {
        Process::spawn(Command::new(program), config, log, variables)
    }

    /// The same with at most so many file descriptors.
    pub fn start_limited(
        program: &Path,
        config: &Path,
        log: &Path,
        files: u32,
    ) -> anyhow::Result<Process> {
        let mut shell = Command::new("sh");
        let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        shell.arg("-c").arg(limited).arg(program);
        Process::spawn(shell, config, log, &[])
    }

    /// The same by a user for whom the rights of files count, as they do not for root.
    pub fn start_unprivileged(
        program: &Path,
        config: &Path,
        log: &Path,
    ) -> anyhow::Result<Process> {
        if !geteuid().is_root() {
            return Process::start(program, config, log);
        }
        let mut without = Command::new("setpriv");
        without
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .arg(program);
        Process::spawn(without, config, log, &[])
    }

    fn spawn(
        mut command: Command,
        config: &Path,
        log: &Path,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        let child = command
            .arg("server")
            .arg("--config")
            .arg(config)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid
            .and_then(Pid::from_raw)
            .context("the process has no id")?;
        Ok(Process { child, pid })
    }

    /// SIGKILL, and waits until the process is gone.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing a process")
    }

    /// Bytes of memory that the process has now, without what was swapped out.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.pid.as_raw_nonzero());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next());
        Ok(kibibytes.with_context(|| path)?.parse::<u64>()? * 1024)
    }

    /// Processor time that the threads of the process have used so far.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let mut nanoseconds = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let on_cpu = text.split_ascii_whitespace().next();
            nanoseconds += on_cpu.context("no schedstat")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// File descriptors that the process has open.
    pub fn open_files(&self) -> anyhow::Result<usize> {
        let path = format!("/proc/{}/fd", self.pid.as_raw_nonzero());
        Ok(std::fs::read_dir(path)?.count())
    }

    /// SIGSTOP: the process stands still, its sockets stay open.
    pub fn pause(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    /// SIGCONT: the process goes on as if no time had passed.
    pub fn resume(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// SIGTERM, and waits for the process to end by itself.
    pub async fn terminate(self, within: Duration) -> anyhow::Result<ExitStatus> {
        kill_process(self.pid, Signal::TERM)?;
        self.exit(within).await
    }

    /// Waits for the process to end by itself.
    pub async fn exit(mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let ended = tokio::time::timeout(within, self.child.wait()).await;
        Ok(ended.with_context(|| format!("still running after {within:?}"))??)
    }

    /// Fails if the process has ended.
    pub fn check_runs(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the process ended: {ended:?}");
        Ok(())
    }
}

/// The last lines that a process wrote, for a failed test's message.
pub fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let all: Vec<_> = text.lines().collect();
    all.iter()
        .skip(all.len().saturating_sub(lines))
        .fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        })
}
