//! Which node of which cluster a data directory belongs to.
//!
//! A directory that is opened by the wrong node, or by two, can make that node vote twice or forget
//! what it acknowledged. So the first start writes down whose it is, every later start compares, and a
//! lock keeps a second process out. A refusal changes nothing on disk.
//!
//! The file `identity` is text, for operators to read:
//!
//! ```text
//! weir data directory
//! format 1
//! cluster 2019a17523af9620f749cc57a70ce7cc
//! node 2
//! shards 16
//! checksum 5a0cf9b2
//! ```

use crate::NodeId;
use crate::disk::{Disk, DiskLock, read_all, write_whole};
use crate::limits::IDENTITY_BYTES;
use crate::met::Met;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
const TITLE: &str = "weir data directory";
const NAME: &str = "identity";
const LOCK: &str = "lock";
/// Hex digits of a cluster id.
const CLUSTER_DIGITS: usize = 32;

/// Which node of which cluster this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id, 32 hex digits.
    pub cluster_id: String,
    /// This node.
    pub node: NodeId,
    /// Number of shards the cluster was founded with.
    pub shards: u32,
}

/// Number of a data directory, drawn when it is founded: it tells a directory from another one of the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory(NonZeroU64);

impl Directory {
    /// The lowest number.
    pub const FIRST: Directory = Directory(NonZeroU64::MIN);

    /// `None` for 0, which no directory has.
    pub fn new(number: u64) -> Option<Directory> {
        NonZeroU64::new(number).map(Directory)
    }

    /// A number that no other directory has.
    pub fn draw() -> Directory {
        let drawn = std::iter::repeat_with(rand::random).find_map(Directory::new);
        drawn.unwrap_or(Directory::FIRST)
    }

    /// As it goes over the wire.
    pub fn number(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn parse(text: &str) -> Option<Directory> {
        let digits = text.len() == 16;
        Directory::new(u64::from_str_radix(text, 16).ok().filter(|_| digits)?)
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Why a data directory was refused. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The disk refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error("{path}: another process uses this data directory", path = path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// There is data, but nothing says whose.
    #[error("{path} is missing, but there is {data}", path = path.display(), data = data.display())]
    Missing {
        /// The identity file.
        path: PathBuf,
        /// What was found.
        data: PathBuf,
    },
    /// The file is damaged.
    #[error("{path}: {why}", path = path.display())]
    Unreadable {
        /// The identity file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The directory was written by a newer version.
    #[error("{path}: format {found}; this version reads {newest}", path = path.display())]
    Format {
        /// The identity file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version reads.
        newest: u32,
    },
    /// The directory is of something else than this node.
    #[error("{path}: of {what} {found}, expected {expected}", path = path.display())]
    Other {
        /// The identity file.
        path: PathBuf,
        /// What differs: `cluster`, `node` or `number of shards`.
        what: &'static str,
        /// What the file says.
        found: String,
        /// What this node was told.
        expected: String,
    },
}

/// A data directory that is this node's and that no other process can open until this is dropped.
pub struct DataDir {
    path: PathBuf,
    _lock: Box<dyn DiskLock>,
}

impl DataDir {
    /// Opens a data directory for a node; an empty or missing one becomes this node's, under the number `new`.
    ///
    /// # Errors
    ///
    /// See [`IdentityError`]; nothing was changed.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        identity: &Identity,
        new: Directory,
    ) -> Result<DataDir, IdentityError> {
        let file = path.join(NAME);
        let at = |source| IdentityError::Io {
            path: path.to_path_buf(),
            source,
        };
        // First without a trace, so that a refused directory stays as it is ...
        check(disk, path, identity)?;
        disk.create_dir(path).map_err(at)?;
        let lock_path = path.join(LOCK);
        let Some(lock) = disk.lock(&lock_path).map_err(at)? else {
            return Err(IdentityError::Locked { path: lock_path });
        };
        // ... then for certain: another process may have been here since.
        if check(disk, path, identity)? == Found::Nothing {
            // First, so that a directory with an identity has its number too.
            Met::create(disk, path, new).map_err(at)?;
            let text = identity.to_text();
            write_whole(disk, &file, &[text.as_bytes()])
                .map_err(|source| IdentityError::Io { path: file, source })?;
            if let Some(parent) = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
            {
                disk.sync_dir(parent).map_err(at)?;
            }
        }
        Ok(DataDir {
            path: path.to_path_buf(),
            _lock: lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Ours,
    Nothing,
}

fn check(disk: &dyn Disk, dir: &Path, expected: &Identity) -> Result<Found, IdentityError> {
    let path = dir.join(NAME);
    let bytes = match read_all(disk, &path, IDENTITY_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match data(disk, dir)? {
                Some(data) => Err(IdentityError::Missing { path, data }),
                None => Ok(Found::Nothing),
            };
        }
        Err(source) => return Err(IdentityError::Io { path, source }),
    };
    let found = match Identity::parse(&bytes) {
        Ok(found) => found,
        Err(ParseError::Format(found)) => {
            return Err(IdentityError::Format {
                path,
                found,
                newest: FORMAT,
            });
        }
        Err(ParseError::Damaged(why)) => return Err(IdentityError::Unreadable { path, why }),
    };
    let pairs: [(&str, &dyn fmt::Display, &dyn fmt::Display); 3] = [
        ("cluster", &found.cluster_id, &expected.cluster_id),
        ("node", &found.node, &expected.node),
        ("number of shards", &found.shards, &expected.shards),
    ];
    for (what, found, expected) in pairs {
        let (found, expected) = (found.to_string(), expected.to_string());
        if found != expected {
            return Err(IdentityError::Other {
                path,
                what,
                found,
                expected,
            });
        }
    }
    Ok(Found::Ours)
}

/// The first sign that a directory without identity was in use.
fn data(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>, IdentityError> {
    for sub in ["log", "snapshots", ""] {
        let path = dir.join(sub);
        let names = disk.list(&path).map_err(|source| IdentityError::Io {
            path: path.clone(),
            source,
        })?;
        let ours = |name: &&String| !sub.is_empty() || *name == "log.mark";
        if let Some(name) = names.iter().find(ours) {
            return Ok(Some(path.join(name)));
        }
    }
    Ok(None)
}

/// Text of whole lines with a line behind it that tells damage.
pub(crate) fn with_checksum(body: String) -> String {
    let checksum = crc32fast::hash(body.as_bytes());
    format!("{body}checksum {checksum:08x}\n")
}

/// The text that [`with_checksum`] was given, without its last line break, or what is wrong.
pub(crate) fn without_checksum(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not text")?;
    let (body, checksum) = text
        .trim_end_matches('\n')
        .rsplit_once('\n')
        .and_then(|(body, last)| Some((body, last.strip_prefix("checksum ")?)))
        .ok_or("no checksum at its end")?;
    let actual = crc32fast::hash(format!("{body}\n").as_bytes());
    if checksum == format!("{actual:08x}") {
        Ok(body)
    } else {
        Err("its checksum does not match")
    }
}

enum ParseError {
    Format(u32),
    Damaged(String),
}

impl Identity {
    fn to_text(&self) -> String {
        let Identity {
            cluster_id,
            node,
            shards,
        } = self;
        with_checksum(format!(
            "{TITLE}\nformat {FORMAT}\ncluster {cluster_id}\nnode {node}\nshards {shards}\n"
        ))
    }

    fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let damaged = |why: &str| ParseError::Damaged(why.to_owned());
        let body = without_checksum(bytes).map_err(damaged)?;
        let mut lines = body.lines();
        if lines.next() != Some(TITLE) {
            return Err(damaged("not an identity file"));
        }
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.strip_prefix(' '));
            value.ok_or_else(|| ParseError::Damaged(format!("no {name}")))
        };
        let number = |text: &str| text.parse().map_err(|_| damaged("not a number"));
        let format = number(field("format")?)?;
        if format != FORMAT {
            return Err(ParseError::Format(format));
        }
        let cluster_id = field("cluster")?;
        if cluster_id.len() != CLUSTER_DIGITS || !cluster_id.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(damaged("its cluster id is not 32 hex digits"));
        }
        let node = field("node")?
            .parse()
            .map_err(|_| damaged("not a number"))?;
        Ok(Self {
            cluster_id: cluster_id.to_owned(),
            node: NodeId(node),
            shards: number(field("shards")?)?,
        })
    }
}
