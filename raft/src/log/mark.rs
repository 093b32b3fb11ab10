//! The high-water mark: how far the newest log files are known to be durable.
//!
//! A log that ends in a broken record was either torn in a crash, before anybody was told that the
//! record is safe, or damaged afterwards. The bytes alone do not tell which. So the length up to
//! which the newest file of each kind was synced is kept in a second file, written after each sync:
//! damage behind it may be cut off, damage before it is a loss and is refused.
//!
//! The mark is written after each sync of the log and synced itself only now and then: after a power
//! cut it may be behind by as much, never ahead. Two slots are written in turn, so that a torn one
//! leaves the other.

use super::OpenError;
use crate::disk::{Disk, DiskFile, Open};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"WEIRMARK";
const FORMAT: u32 = 1;
const SLOT_BYTES: usize = 56;
/// Slots stand in pages of their own, so that one torn page spoils one slot.
const SLOT_STRIDE: u64 = 4096;
const SLOTS: u64 = 2;

/// The two kinds of log files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Where everything is written first.
    Append,
    /// Where old entries that are still needed are moved to.
    Rewrite,
}

/// A log file, by kind and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogFile {
    pub(super) kind: Kind,
    pub(super) seq: u64,
}

impl LogFile {
    /// Which log file a path names, if any.
    pub(super) fn parse(path: &Path) -> Option<Self> {
        let kind = match path.extension()?.to_str()? {
            "raftlog" => Kind::Append,
            "rewrite" => Kind::Rewrite,
            _ => return None,
        };
        let seq = path.file_stem()?.to_str()?.parse().ok()?;
        Some(Self { kind, seq })
    }

    fn name(self) -> String {
        match self.kind {
            Kind::Append => format!("{:016}.raftlog", self.seq),
            Kind::Rewrite => format!("{:016}.rewrite", self.seq),
        }
    }
}

/// The newest file of a kind and how many bytes of it are durable. Numbers begin at 1; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    seq: u64,
    synced: u64,
}

/// The mark and its file.
pub(super) struct Mark {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    generation: u64,
    append: Point,
    rewrite: Point,
    unsynced: bool,
}

impl Mark {
    /// Opens the mark of a log directory, or creates it if there is no log yet.
    pub(super) fn open(disk: &dyn Disk, path: PathBuf, log_dir: &Path) -> Result<Self, OpenError> {
        let at = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        match disk.open(&path, Open::Write) {
            Ok(file) => Self::load(path, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let names = disk.list(log_dir).map_err(at)?;
                if names
                    .iter()
                    .any(|name| LogFile::parse(Path::new(name)).is_some())
                {
                    return Err(OpenError::MarkMissing {
                        path,
                        log_dir: log_dir.to_path_buf(),
                    });
                }
                Self::create(disk, path.clone()).map_err(at)
            }
            Err(error) => Err(at(error)),
        }
    }

    /// Both slots are written and synced before anything else is, so that afterwards neither is ever
    /// missing and the file never grows: a full disk does not stop it.
    fn create(disk: &dyn Disk, path: PathBuf) -> io::Result<Self> {
        let temporary = path.with_extension("tmp");
        let file = disk.open(&temporary, Open::Create)?;
        let mut mark = Self {
            file,
            generation: 0,
            append: Point::default(),
            rewrite: Point::default(),
            unsynced: false,
            path,
        };
        for _ in 0..SLOTS {
            mark.write()?;
        }
        mark.sync()?;
        disk.rename(&temporary, &mark.path)?;
        if let Some(dir) = mark.path.parent() {
            disk.sync_dir(dir)?;
        }
        Ok(mark)
    }

    fn load(path: PathBuf, file: Arc<dyn DiskFile>) -> Result<Self, OpenError> {
        let mut newest: Option<Slot> = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; SLOT_BYTES];
            let read = file.read_at(&mut bytes, slot * SLOT_STRIDE);
            let read = read.map_err(|source| OpenError::Io {
                path: path.clone(),
                source,
            })?;
            let slot = (read == SLOT_BYTES).then(|| Slot::decode(&bytes)).flatten();
            if let Some(slot) = slot.filter(|s| newest.is_none_or(|n| n.generation < s.generation))
            {
                newest = Some(slot);
            }
        }
        let Some(slot) = newest else {
            return Err(OpenError::MarkUnreadable { path });
        };
        if slot.format != FORMAT {
            return Err(OpenError::MarkFormat {
                path,
                found: slot.format,
                newest: FORMAT,
            });
        }
        Ok(Self {
            path,
            file,
            generation: slot.generation,
            append: slot.append,
            rewrite: slot.rewrite,
            unsynced: false,
        })
    }

    /// The bytes of a file that are known to be durable.
    pub(super) fn synced(&self, file: LogFile) -> u64 {
        let point = match file.kind {
            Kind::Append => self.append,
            Kind::Rewrite => self.rewrite,
        };
        if point.seq == file.seq {
            point.synced
        } else {
            0
        }
    }

    /// The files that must be there, with the bytes they must have.
    pub(super) fn expected(&self) -> impl Iterator<Item = (String, u64)> {
        let append = (Kind::Append, self.append);
        let rewrite = (Kind::Rewrite, self.rewrite);
        [append, rewrite]
            .into_iter()
            .filter(|(_, point)| point.seq > 0)
            .map(|(kind, point)| {
                let file = LogFile {
                    kind,
                    seq: point.seq,
                };
                (file.name(), point.synced)
            })
    }

    /// Notes that the first `synced` bytes of a file are durable.
    pub(super) fn raise(&mut self, file: LogFile, synced: u64) -> io::Result<()> {
        let point = match file.kind {
            Kind::Append => &mut self.append,
            Kind::Rewrite => &mut self.rewrite,
        };
        if (file.seq, synced) <= (point.seq, point.synced) {
            return Ok(());
        }
        *point = Point {
            seq: file.seq,
            synced,
        };
        self.write()
    }

    /// Makes the mark itself durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.file.sync()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.generation += 1;
        let slot = Slot {
            format: FORMAT,
            generation: self.generation,
            append: self.append,
            rewrite: self.rewrite,
        };
        self.unsynced = true;
        let offset = (self.generation % SLOTS) * SLOT_STRIDE;
        self.file.write_at(&slot.encode(), offset)
    }
}

/// One stored copy: magic 8, format 4, generation 8, append 16, rewrite 16, CRC-32 4; little endian.
#[derive(Clone, Copy)]
struct Slot {
    format: u32,
    generation: u64,
    append: Point,
    rewrite: Point,
}

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        for number in [
            self.generation,
            self.append.seq,
            self.append.synced,
            self.rewrite.seq,
            self.rewrite.synced,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (format, numbers) = body.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
        let mut numbers = numbers
            .as_chunks::<8>()
            .0
            .iter()
            .copied()
            .map(u64::from_le_bytes);
        let mut next = || numbers.next();
        Some(Self {
            format: u32::from_le_bytes(*format),
            generation: next()?,
            append: Point {
                seq: next()?,
                synced: next()?,
            },
            rewrite: Point {
                seq: next()?,
                synced: next()?,
            },
        })
    }
}
