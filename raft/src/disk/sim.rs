//! A simulated disk: in memory, with a power switch.
//!
//! What was not synced is lost when the power is cut, or partly kept, as on a real disk: each file
//! keeps some of its unsynced writes in order, the last of them perhaps in part, and names that were
//! not synced are as they were. Everything is decided by a seed.
//!
//! The log's engine looks for its files and its lock with the operating system's own calls, so names
//! are mirrored as empty files below a real directory; bytes never reach it.

use super::{Disk, DiskFile, DiskLock, Open};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a simulated disk refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Every write.
    Writes,
    /// Every sync.
    Syncs,
    /// Everything that takes room.
    Full,
}

/// A simulated disk. Clones share it.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<PathBuf, FileRef>,
    durable_names: BTreeMap<PathBuf, FileRef>,
    locks: BTreeSet<PathBuf>,
    fault: Fault,
    /// Grows with each power cut; a file opened before answers no more.
    power: u64,
    writes: u64,
    syncs: u64,
}

type FileRef = Arc<Mutex<Content>>;

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDisk {
    /// A disk without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the disk refuses from now on.
    pub fn set_fault(&self, fault: Fault) {
        lock(&self.state).fault = fault;
    }

    /// Writes and syncs so far.
    pub fn counts(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.writes, state.syncs)
    }

    /// Cuts the power. Whoever has files open gets errors from now on, so this comes before the process
    /// is dropped; what it would tidy up at its end must not reach the disk.
    ///
    /// # Errors
    ///
    /// The real directory that mirrors the names refused.
    pub fn cut_power(&self, seed: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let mut dice = Dice(seed);
        state.power += 1;
        state.locks.clear();
        for name in state.names.keys() {
            if !state.durable_names.contains_key(name) && name.exists() {
                std::fs::remove_file(name)?;
            }
        }
        for (name, file) in &state.durable_names {
            if !state.names.contains_key(name) {
                std::fs::File::create(name)?;
            }
            lock(file).lose(&mut dice);
        }
        state.names = state.durable_names.clone();
        Ok(())
    }

    /// Every file with the bytes it has now, for comparing two runs.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = lock(&self.state);
        let files = state.names.iter();
        files
            .map(|(name, file)| (name.clone(), lock(file).bytes.clone()))
            .collect()
    }

    /// Changes the stored bytes of a file, as decay would.
    ///
    /// # Errors
    ///
    /// There is no such file.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let state = lock(&self.state);
        let file = state.names.get(path).ok_or_else(not_found)?;
        let mut content = lock(file);
        change(&mut content.bytes);
        content.durable = content.bytes.clone();
        content.unsynced.clear();
        Ok(())
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl State {
    fn refuse(&self, faults: &[Fault]) -> io::Result<()> {
        if !faults.contains(&self.fault) {
            return Ok(());
        }
        Err(match self.fault {
            Fault::Full => io::Error::from(io::ErrorKind::StorageFull),
            Fault::None | Fault::Writes | Fault::Syncs => {
                io::Error::other("input/output error (simulated)")
            }
        })
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = lock(&self.state);
        let found = state.names.get(path).cloned();
        let file = match (found, mode) {
            (Some(file), _) => file,
            (None, Open::Read | Open::Write) => return Err(not_found()),
            (None, Open::Create) => {
                state.refuse(&[Fault::Full])?;
                std::fs::File::create(path)?;
                let file = FileRef::default();
                state.names.insert(path.to_path_buf(), file.clone());
                file
            }
        };
        Ok(Arc::new(SimFile {
            file,
            power: state.power,
            state: self.state.clone(),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.names.remove(path).ok_or_else(not_found)?;
        std::fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        let file = state.names.remove(from).ok_or_else(not_found)?;
        state.names.insert(to.to_path_buf(), file);
        std::fs::rename(from, to)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.state);
        let inside = state.names.keys().filter(|name| name.parent() == Some(dir));
        let names = inside.filter_map(|name| name.file_name()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = lock(&self.state);
        if !state.locks.insert(path.to_path_buf()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock {
            path: path.to_path_buf(),
            power: state.power,
            state: self.state.clone(),
        })))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.refuse(&[Fault::Syncs])?;
        let State {
            names,
            durable_names,
            ..
        } = &mut *state;
        let inside = |name: &Path| name.parent() == Some(dir);
        durable_names.retain(|name, _| !inside(name));
        let now = names.iter().filter(|(name, _)| inside(name));
        durable_names.extend(now.map(|(name, file)| (name.clone(), file.clone())));
        Ok(())
    }
}

struct SimLock {
    path: PathBuf,
    power: u64,
    state: Arc<Mutex<State>>,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.power == self.power {
            state.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    file: FileRef,
    power: u64,
    state: Arc<Mutex<State>>,
}

impl SimFile {
    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if state.power != self.power {
            return Err(io::Error::other("the power was cut (simulated)"));
        }
        Ok(state)
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        let _state = self.powered()?;
        Ok(lock(&self.file).bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _state = self.powered()?;
        let content = lock(&self.file);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = content.bytes.get(from..).unwrap_or_default();
        let mut read = 0;
        for (to, byte) in buffer.iter_mut().zip(bytes) {
            *to = *byte;
            read += 1;
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.powered()?;
        state.writes += 1;
        let mut content = lock(&self.file);
        state.refuse(&[Fault::Writes])?;
        if offset + bytes.len() as u64 > content.bytes.len() as u64 {
            state.refuse(&[Fault::Full])?;
        }
        content.change(Change::Write(offset, bytes.to_vec()))
    }

    fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
        self.powered()?.refuse(&[Fault::Full])
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.powered()?.refuse(&[Fault::Writes])?;
        lock(&self.file).change(Change::Truncate(len))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.powered()?;
        state.syncs += 1;
        state.refuse(&[Fault::Syncs])?;
        let mut content = lock(&self.file);
        for change in std::mem::take(&mut content.unsynced) {
            change.apply(&mut content.durable)?;
        }
        Ok(())
    }
}

impl Content {
    fn change(&mut self, change: Change) -> io::Result<()> {
        change.apply(&mut self.bytes)?;
        self.unsynced.push(change);
        Ok(())
    }

    /// Keeps some of what was not synced.
    fn lose(&mut self, dice: &mut Dice) {
        let kept = dice.up_to(self.unsynced.len());
        let mut changes = std::mem::take(&mut self.unsynced).into_iter();
        for change in changes.by_ref().take(kept) {
            // A change that could be made once can be made again.
            let _ = change.apply(&mut self.durable);
        }
        if let Some(Change::Write(offset, mut bytes)) = changes.next() {
            bytes.truncate(dice.up_to(bytes.len()));
            let _ = Change::Write(offset, bytes).apply(&mut self.durable);
        }
        self.bytes = self.durable.clone();
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Change::Truncate(len) => to.resize(usize::try_from(*len).map_err(io::Error::other)?, 0),
            Change::Write(offset, bytes) => {
                let from = usize::try_from(*offset).map_err(io::Error::other)?;
                let end = from + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                if let Some(place) = to.get_mut(from..end) {
                    place.copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }
}

/// Steele and Vigna's SplitMix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn up_to(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % (most as u64 + 1)).unwrap_or(most)
    }
}
