//! A crowd of connections that want nothing but to be there.

use crate::frames::{PREFACE, SETTINGS, frame};
use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// File descriptors of this process that are not the crowd's.
const FILES_OWN: u64 = 256;
/// Longest time to connect: a full backlog answers the second or third try of the system.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// How far each of the crowd goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Connected, and not a word.
    Silent,
    /// A part of HTTP/2's first words.
    Half,
    /// The first words, and nothing of what must follow.
    Begun,
    /// All that a client says before its first call.
    Greeted,
}

impl Manner {
    /// All of them.
    pub const ALL: [Manner; 4] = [Manner::Silent, Manner::Half, Manner::Begun, Manner::Greeted];

    fn words(self) -> Vec<u8> {
        match self {
            Manner::Silent => Vec::new(),
            Manner::Half => PREFACE.iter().copied().take(7).collect(),
            Manner::Begun => PREFACE.to_vec(),
            Manner::Greeted => [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat(),
        }
    }
}

/// Connections that were made at once. Dropping it closes them.
#[derive(Debug)]
pub struct Crowd {
    streams: Vec<TcpStream>,
    /// Connections that were not made, or broke while their first words were written.
    pub refused: usize,
}

impl Crowd {
    /// Makes `count` connections at once, in turn of all `manners`.
    pub async fn gather(address: &str, count: usize, manners: &[Manner]) -> anyhow::Result<Crowd> {
        allow_files(u64::try_from(count)?)?;
        let mut coming = JoinSet::new();
        for manner in manners.iter().cycle().take(count) {
            let (address, words) = (address.to_owned(), manner.words());
            coming.spawn(async move {
                let stream = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
                let mut stream = stream.ok()?.ok()?;
                stream.write_all(&words).await.ok()?;
                Some(stream)
            });
        }
        let all = coming.join_all().await;
        let streams: Vec<TcpStream> = all.into_iter().flatten().collect();
        Ok(Crowd {
            refused: count - streams.len(),
            streams,
        })
    }

    /// How many the other side has not closed.
    pub fn open(&self) -> usize {
        let is_open = |stream: &&TcpStream| {
            let mut buffer = [0; 1024];
            loop {
                match stream.try_read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
        };
        self.streams.iter().filter(is_open).count()
    }
}

/// As many of `wanted` connections as this machine lets one process have.
pub fn affordable(wanted: usize) -> usize {
    let files = getrlimit(Resource::Nofile).maximum;
    let most = files.map_or(wanted, |files| {
        usize::try_from(files.saturating_sub(FILES_OWN)).unwrap_or(usize::MAX)
    });
    wanted.min(most)
}

/// Raises this process's limit of file descriptors, so that it can be such a crowd.
pub(crate) fn allow_files(crowd: u64) -> anyhow::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = crowd + FILES_OWN;
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    ensure!(
        maximum.is_none_or(|maximum| maximum >= wanted),
        "this machine allows {maximum:?} file descriptors, {wanted} are needed"
    );
    let raised = Rlimit {
        current: Some(wanted),
        maximum,
    };
    setrlimit(Resource::Nofile, raised).context("raising the limit of file descriptors")
}
