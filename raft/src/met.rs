//! Which data directory each peer had when this node met it.
//!
//! A node whose directory was lost has forgotten its votes and the entries it confirmed. If it came back under
//! its old number, it could help to elect a leader without entries that a quorum had confirmed, and the cap
//! would be given out twice. So each directory has a number of its own, every message of a node names it, and a
//! peer that comes with another directory than before is refused by all who knew it. Followers have little to say
//! to each other, so each node looks for every peer once ([`meet`]): whoever is lost after that is missed by all.
//!
//! The file `met` is text, for operators to read:
//!
//! ```text
//! weir met
//! directory 5f0c2ad14b9e7731
//! peer 1 90b1f3c2d4e5a697
//! peer 3 1c7d2e8f00a1b2c3
//! checksum 0c1d2e3f
//! ```

use crate::disk::{Disk, RealDisk, read_all, write_whole};
use crate::identity::{IdentityError, with_checksum, without_checksum};
use crate::limits::{MEET_EVERY, MEET_WITHIN, MET_BYTES};
use crate::peer::PeerAsk;
use crate::{Directory, NodeId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

const TITLE: &str = "weir met";
/// The file, in the data directory.
pub(crate) const NAME: &str = "met";

/// What is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    own: Directory,
    peers: BTreeMap<NodeId, Directory>,
}

/// What a peer is told, and what an operator reads, when it comes with another directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    #[error(
        "node {peer} was met with data directory {met} and comes with {now}: it has forgotten what it voted for and \
         confirmed, and is not let in"
    )]
    Replaced {
        peer: NodeId,
        met: Directory,
        now: Directory,
    },
    #[error("node {peer} could not be written down: {error}")]
    NotWritten { peer: NodeId, error: String },
}

/// The peers that were met.
pub(crate) struct Met {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    record: RwLock<Record>,
    /// Held while a peer is written down. Who was refused is in it, so that it is said once.
    refused: Mutex<BTreeMap<NodeId, Directory>>,
}

impl Met {
    /// Writes the file of a directory that is new.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, own: Directory) -> io::Result<()> {
        let record = Record {
            own,
            peers: BTreeMap::new(),
        };
        write_whole(disk, &dir.join(NAME), &[record.to_text().as_bytes()])
    }

    /// Reads the file of a directory.
    ///
    /// # Errors
    ///
    /// See [`IdentityError`].
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Met, IdentityError> {
        let path = dir.join(NAME);
        let bytes = match read_all(&*disk, &path, MET_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let data = dir.to_path_buf();
                return Err(IdentityError::Missing { path, data });
            }
            Err(source) => return Err(IdentityError::Io { path, source }),
        };
        let record = Record::parse(&bytes).map_err(|why| IdentityError::Unreadable {
            path: path.clone(),
            why: why.to_owned(),
        })?;
        Ok(Met {
            disk,
            path,
            record: RwLock::new(record),
            refused: Mutex::default(),
        })
    }

    /// What node 1 knows that has met 2 and 3: a way in for the fuzz targets, without a file.
    pub(crate) fn seam() -> Met {
        let one = Directory::FIRST;
        Met {
            disk: Arc::new(RealDisk),
            path: PathBuf::new(),
            record: RwLock::new(Record {
                own: one,
                peers: BTreeMap::from([(NodeId(2), one), (NodeId(3), one)]),
            }),
            refused: Mutex::default(),
        }
    }

    /// This node's directory.
    pub(crate) fn own(&self) -> Directory {
        self.record
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .own
    }

    /// Lets a peer in that comes with the directory it was met with. One that was never met is written down
    /// first, which blocks for a sync of the disk: once for each peer in the life of a directory.
    pub(crate) fn recognise(&self, peer: NodeId, now: Directory) -> Result<(), Unknown> {
        let met = self.met(peer);
        if met == Some(now) {
            return Ok(());
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        // Again, behind whoever wrote meanwhile.
        let Some(met) = self.met(peer) else {
            return self.write_down(peer, now);
        };
        if met == now {
            return Ok(());
        }
        let unknown = Unknown::Replaced { peer, met, now };
        if refused.insert(peer, now) != Some(now) {
            tracing::error!("{unknown}");
        }
        Err(unknown)
    }

    /// True if the peer was met.
    pub(crate) fn knows(&self, peer: NodeId) -> bool {
        self.met(peer).is_some()
    }

    fn met(&self, peer: NodeId) -> Option<Directory> {
        let record = self.record.read().unwrap_or_else(PoisonError::into_inner);
        record.peers.get(&peer).copied()
    }

    fn write_down(&self, peer: NodeId, now: Directory) -> Result<(), Unknown> {
        let mut record = self
            .record
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        record.peers.insert(peer, now);
        write_whole(&*self.disk, &self.path, &[record.to_text().as_bytes()]).map_err(|error| {
            tracing::warn!(%error, %peer, "a peer could not be written down and is not let in yet");
            let error = error.to_string();
            Unknown::NotWritten { peer, error }
        })?;
        tracing::info!(%peer, directory = %now, "a peer was met for the first time");
        *self.record.write().unwrap_or_else(PoisonError::into_inner) = record;
        Ok(())
    }
}

/// Exchanges a word with every peer that was not met yet; ends when all were.
pub(crate) async fn meet(met: Arc<Met>, peers: Vec<NodeId>, ask: PeerAsk) {
    let mut missing = peers;
    loop {
        missing.retain(|peer| !met.knows(*peer));
        if missing.is_empty() {
            return;
        }
        for peer in &missing {
            // The answer does not matter: that there is one is the meeting.
            ask.takes_lead(*peer, MEET_WITHIN).await;
        }
        tokio::time::sleep(MEET_EVERY).await;
    }
}

impl Record {
    fn to_text(&self) -> String {
        let Record { own, peers } = self;
        let mut body = format!("{TITLE}\ndirectory {own}\n");
        for (peer, directory) in peers {
            // Writing to a string does not fail.
            let _ = writeln!(body, "peer {peer} {directory}");
        }
        with_checksum(body)
    }

    fn parse(bytes: &[u8]) -> Result<Record, &'static str> {
        let body = without_checksum(bytes)?;
        let mut lines = body.lines();
        if lines.next() != Some(TITLE) {
            return Err("not a file of peers");
        }
        let own = lines
            .next()
            .and_then(|line| line.strip_prefix("directory "));
        let own = own.and_then(Directory::parse).ok_or("no directory")?;
        let peer = |line: &str| {
            let (peer, directory) = line.strip_prefix("peer ")?.split_once(' ')?;
            Some((NodeId(peer.parse().ok()?), Directory::parse(directory)?))
        };
        let peers = lines.map(|line| peer(line).ok_or("a line is not a peer's"));
        Ok(Record {
            own,
            peers: peers.collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(number: u64) -> Directory {
        Directory::new(number).unwrap()
    }

    fn open(dir: &Path) -> Met {
        Met::open(Arc::new(RealDisk), dir).unwrap()
    }

    #[test]
    fn a_peer_is_known_by_its_directory_from_the_first_meeting_on() {
        let dir = tempfile::tempdir().unwrap();
        Met::create(&RealDisk, dir.path(), directory(7)).unwrap();
        let met = open(dir.path());
        assert_eq!(met.own(), directory(7));
        assert_eq!(met.recognise(NodeId(2), directory(20)), Ok(()));
        assert_eq!(met.recognise(NodeId(3), directory(30)), Ok(()));
        for met in [met, open(dir.path())] {
            assert_eq!(met.own(), directory(7));
            assert_eq!(met.recognise(NodeId(2), directory(20)), Ok(()));
            let refused = met.recognise(NodeId(2), directory(21)).unwrap_err();
            assert!(matches!(refused, Unknown::Replaced { .. }), "{refused}");
            // A stranger does not become the peer by coming often, nor does the peer have to leave.
            assert_eq!(met.recognise(NodeId(2), directory(21)), Err(refused));
            assert_eq!(met.recognise(NodeId(2), directory(20)), Ok(()));
        }
    }

    #[test]
    fn a_peer_that_cannot_be_written_down_is_let_in_once_it_can() {
        let dir = tempfile::tempdir().unwrap();
        Met::create(&RealDisk, dir.path(), directory(7)).unwrap();
        let met = open(dir.path());
        let away = dir.path().with_extension("away");
        std::fs::rename(dir.path(), &away).unwrap();
        let refused = met.recognise(NodeId(2), directory(20)).unwrap_err();
        assert!(matches!(refused, Unknown::NotWritten { .. }), "{refused}");
        std::fs::rename(&away, dir.path()).unwrap();
        assert_eq!(met.recognise(NodeId(2), directory(20)), Ok(()));
        assert_eq!(open(dir.path()).met(NodeId(2)), Some(directory(20)));
    }

    #[test]
    fn a_damaged_or_missing_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Met::open(Arc::new(RealDisk), dir.path()).err().unwrap();
        assert!(missing.to_string().contains("met is missing"), "{missing}");
        Met::create(&RealDisk, dir.path(), directory(7)).unwrap();
        open(dir.path())
            .recognise(NodeId(2), directory(20))
            .unwrap();
        let file = dir.path().join(NAME);
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, &damaged).unwrap();
            assert!(Met::open(Arc::new(RealDisk), dir.path()).is_err(), "{at}");
        }
    }
}
