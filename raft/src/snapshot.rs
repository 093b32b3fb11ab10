//! Snapshots of the groups, one checksummed file each.
//!
//! A snapshot replaces the log before it, so it is checked before anybody relies on it: written beside
//! its place, synced, renamed, read back. The last two are kept. A damaged file is never used and never
//! deleted for being damaged; the one before it serves if the log still reaches back to it.
//!
//! The file, little endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `WEIRSNAP` |
//! | 4 | format, 1 |
//! | 4 | bytes of the meta |
//! | 8 | bytes of the state |
//! | 4 | CRC-32 of everything else in the file |
//! | | the meta: last log position and membership, in stored form |
//! | | the state, as its codec wrote it |

use crate::disk::{Disk, Open, read_all, write_whole};
use crate::limits;
use crate::stored;
use crate::types::SnapshotMeta;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use weir_admission::ShardId;

const MAGIC: [u8; 8] = *b"WEIRSNAP";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 28;
/// Where the checksum stands in the header.
const CRC_AT: usize = 24;
const SUFFIX: &str = ".snapshot";

/// Why a snapshot was not kept or not given.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The disk refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The file is damaged.
    #[error("{path}: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file was written by a newer version.
    #[error("{path}: format {found}; this version reads {newest}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version reads.
        newest: u32,
    },
    /// The state is larger than a snapshot may be.
    #[error("a state of {bytes} bytes is too large, at most {limit}", limit = limits::SNAPSHOT_BYTES)]
    TooLarge {
        /// Bytes of the state.
        bytes: u64,
    },
    /// The meta cannot be stored.
    #[error("meta: {0}")]
    Meta(String),
}

impl From<SnapshotError> for io::Error {
    fn from(error: SnapshotError) -> Self {
        let kind = match &error {
            SnapshotError::Io { source, .. } => source.kind(),
            SnapshotError::Damaged { .. } | SnapshotError::Format { .. } => {
                io::ErrorKind::InvalidData
            }
            SnapshotError::TooLarge { .. } | SnapshotError::Meta(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

/// A snapshot read from disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Its position and membership.
    pub meta: SnapshotMeta,
    /// The state's bytes.
    pub state: Bytes,
}

/// One group's snapshots. Calls block.
pub struct SnapshotStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// What the names of this shard's files begin with.
    prefix: String,
    /// Files found damaged since the start; they are not deleted and do not count as kept.
    damaged: Mutex<BTreeSet<String>>,
}

impl SnapshotStore {
    /// The snapshots of a shard in a data directory; creates their directory.
    ///
    /// # Errors
    ///
    /// The disk refused.
    pub fn open(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        shard: ShardId,
    ) -> Result<SnapshotStore, SnapshotError> {
        let dir = data_dir.join("snapshots");
        let made = disk.create_dir(&dir).and_then(|()| disk.sync_dir(data_dir));
        made.map_err(|source| SnapshotError::Io {
            path: dir.clone(),
            source,
        })?;
        Ok(SnapshotStore {
            disk,
            dir,
            prefix: format!("{:04}-", shard.0),
            damaged: Mutex::default(),
        })
    }

    /// Keeps a snapshot. When it returns the file is durable and was read back; older ones than the
    /// last two are gone.
    ///
    /// # Errors
    ///
    /// The snapshot must not be relied on; what was kept before still is.
    pub fn save(&self, meta: &SnapshotMeta, state: &Bytes) -> Result<(), SnapshotError> {
        let bytes = state.len() as u64;
        if bytes > limits::SNAPSHOT_BYTES {
            return Err(SnapshotError::TooLarge { bytes });
        }
        let stored = stored::encode(meta).map_err(|e| SnapshotError::Meta(e.to_string()))?;
        let header = Header::of(&stored, state)?;
        let path = self.dir.join(self.name(meta));
        let parts: [&[u8]; 3] = [&header.encode(), &stored, state];
        if let Err(source) = write_whole(self.disk.as_ref(), &path, &parts) {
            // The part that was written takes room that the node may lack. If it cannot be removed
            // either, the next snapshot replaces it.
            let _ = self.disk.remove(&path.with_extension("tmp"));
            return Err(SnapshotError::Io { path, source });
        }
        self.verify(&path, &header)?;
        self.remove_old()
    }

    /// The newest snapshot that is whole. A damaged one is passed over only if the log still holds
    /// every entry from the older one on: `log_start` is the index of the log's first entry.
    ///
    /// # Errors
    ///
    /// The newest snapshot's error if nothing can take its place, or the disk refused.
    pub fn newest(&self, log_start: u64) -> Result<Option<Loaded>, SnapshotError> {
        let mut failed = None;
        for name in self.names()?.into_iter().rev() {
            match self.load(&self.dir.join(&name)) {
                Ok(loaded) => {
                    let next = loaded.meta.last_log_id.map_or(0, |id| id.index + 1);
                    return match failed {
                        Some(error) if log_start > next => Err(error),
                        Some(_) | None => Ok(Some(loaded)),
                    };
                }
                Err(error) => {
                    tracing::error!(%error, "a snapshot cannot be used");
                    self.lock_damaged().insert(name);
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if log_start > 0 => Err(error),
            Some(_) | None => Ok(None),
        }
    }

    fn load(&self, path: &Path) -> Result<Loaded, SnapshotError> {
        let limit = limits::SNAPSHOT_BYTES + (HEADER_BYTES + limits::STORED_META_BYTES) as u64;
        let bytes =
            read_all(self.disk.as_ref(), path, limit).map_err(|source| SnapshotError::Io {
                path: path.to_path_buf(),
                source,
            })?;
        read(path, Bytes::from(bytes))
    }

    /// Reads a file back in pieces and compares it with what was meant.
    fn verify(&self, path: &Path, header: &Header) -> Result<(), SnapshotError> {
        let at = |source| SnapshotError::Io {
            path: path.to_path_buf(),
            source,
        };
        let file = self.disk.open(path, Open::Read).map_err(at)?;
        let mut piece = vec![0; limits::SNAPSHOT_READ_BYTES];
        let mut crc = crc32fast::Hasher::new();
        let mut offset = 0;
        loop {
            let read = file.read_at(&mut piece, offset).map_err(at)?;
            let Some(mut bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            if offset == 0 {
                if *header != Header::decode(path, bytes)? {
                    break;
                }
                crc.update(&header.unsigned());
                bytes = bytes.get(HEADER_BYTES..).unwrap_or_default();
            }
            crc.update(bytes);
            offset += read as u64;
        }
        if offset != header.file_bytes() || crc.finalize() != header.crc {
            return Err(SnapshotError::Damaged {
                path: path.to_path_buf(),
                why: "what was read back is not what was written".to_owned(),
            });
        }
        Ok(())
    }

    fn remove_old(&self) -> Result<(), SnapshotError> {
        let mut names = self.names()?;
        let damaged = self.lock_damaged().clone();
        names.retain(|name| !damaged.contains(name));
        let old = names.len().saturating_sub(limits::SNAPSHOTS_KEPT);
        for name in names.into_iter().take(old) {
            let path = self.dir.join(name);
            self.disk
                .remove(&path)
                .map_err(|source| SnapshotError::Io { path, source })?;
        }
        Ok(())
    }

    /// File names of the snapshots, oldest first.
    fn names(&self) -> Result<Vec<String>, SnapshotError> {
        let mut names = self
            .disk
            .list(&self.dir)
            .map_err(|source| SnapshotError::Io {
                path: self.dir.clone(),
                source,
            })?;
        names.retain(|name| name.starts_with(&self.prefix) && name.ends_with(SUFFIX));
        names.sort();
        Ok(names)
    }

    /// Names sort as the snapshots follow each other.
    fn name(&self, meta: &SnapshotMeta) -> String {
        let (next, term) = meta
            .last_log_id
            .map_or((0, 0), |id| (id.index + 1, **id.committed_leader_id()));
        format!("{}{next:020}-{term:020}{SUFFIX}", self.prefix)
    }

    fn lock_damaged(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the bytes of a snapshot's file.
fn read(path: &Path, bytes: Bytes) -> Result<Loaded, SnapshotError> {
    let damaged = |why: String| SnapshotError::Damaged {
        path: path.to_path_buf(),
        why,
    };
    let header = Header::decode(path, &bytes)?;
    if bytes.len() as u64 != header.file_bytes() {
        let (found, expected) = (bytes.len(), header.file_bytes());
        return Err(damaged(format!("{found} bytes, expected {expected}")));
    }
    let body = bytes.slice(HEADER_BYTES..);
    if header.checksum(&[&body]) != header.crc {
        return Err(damaged("its checksum does not match".to_owned()));
    }
    let meta_bytes = header.meta_bytes as usize;
    let meta = stored::decode(&body.slice(..meta_bytes)).map_err(|e| damaged(e.to_string()))?;
    Ok(Loaded {
        meta,
        state: body.slice(meta_bytes..),
    })
}

/// A way in for the fuzz targets.
#[doc(hidden)]
pub mod seam {
    use super::{Bytes, Header, Loaded, Path, SnapshotError, stored};

    /// Reads the bytes of a snapshot's file.
    ///
    /// # Errors
    ///
    /// They are damaged, or of a newer version.
    pub fn read_file(bytes: Bytes) -> Result<Loaded, SnapshotError> {
        super::read(Path::new("snapshot"), bytes)
    }

    /// The bytes of a snapshot's file with any meta and any state.
    ///
    /// # Errors
    ///
    /// The meta is too long.
    pub fn file_of(meta: &[u8], state: &[u8]) -> Result<Vec<u8>, SnapshotError> {
        let header = Header::of(meta, state)?.encode();
        Ok([&header[..], meta, state].concat())
    }

    /// The bytes of a snapshot's meta.
    ///
    /// # Errors
    ///
    /// It is too long.
    pub fn meta_of(loaded: &Loaded) -> Result<Vec<u8>, SnapshotError> {
        stored::encode(&loaded.meta).map_err(|e| SnapshotError::Meta(e.to_string()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    meta_bytes: u32,
    state_bytes: u64,
    crc: u32,
}

impl Header {
    fn of(meta: &[u8], state: &[u8]) -> Result<Self, SnapshotError> {
        let meta_bytes =
            u32::try_from(meta.len()).map_err(|error| SnapshotError::Meta(error.to_string()))?;
        let mut header = Self {
            meta_bytes,
            state_bytes: state.len() as u64,
            crc: 0,
        };
        header.crc = header.checksum(&[meta, state]);
        Ok(header)
    }

    /// Bytes of the file.
    fn file_bytes(&self) -> u64 {
        // Damaged headers hold any number.
        (HEADER_BYTES as u64 + u64::from(self.meta_bytes)).saturating_add(self.state_bytes)
    }

    /// The header up to the checksum.
    fn unsigned(&self) -> [u8; CRC_AT] {
        let mut bytes = [0; CRC_AT];
        let fields = MAGIC
            .into_iter()
            .chain(FORMAT.to_le_bytes())
            .chain(self.meta_bytes.to_le_bytes())
            .chain(self.state_bytes.to_le_bytes());
        for (byte, field) in bytes.iter_mut().zip(fields) {
            *byte = field;
        }
        bytes
    }

    fn checksum(&self, body: &[&[u8]]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.unsigned());
        for part in body {
            crc.update(part);
        }
        crc.finalize()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.unsigned().to_vec();
        bytes.extend_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let damaged = |why: &str| SnapshotError::Damaged {
            path: path.to_path_buf(),
            why: why.to_owned(),
        };
        let rest = bytes
            .strip_prefix(&MAGIC)
            .ok_or_else(|| damaged("not a snapshot"))?;
        let short = || damaged("shorter than its header");
        let (format, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (meta_bytes, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (state_bytes, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (crc, _) = rest.split_first_chunk().ok_or_else(short)?;
        let found = u32::from_le_bytes(*format);
        if found != FORMAT {
            return Err(SnapshotError::Format {
                path: path.to_path_buf(),
                found,
                newest: FORMAT,
            });
        }
        Ok(Self {
            meta_bytes: u32::from_le_bytes(*meta_bytes),
            state_bytes: u64::from_le_bytes(*state_bytes),
            crc: u32::from_le_bytes(*crc),
        })
    }
}
