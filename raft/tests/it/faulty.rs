//! A real disk that counts what is asked of it, and fails or takes long on command.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_raft::disk::{Disk, DiskFile, DiskLock, Open, RealDisk};

/// What was asked of a disk, and what it refuses.
#[derive(Default)]
pub(crate) struct Faults {
    /// Writes to log files.
    pub(crate) writes: AtomicU64,
    /// Syncs of log files.
    pub(crate) syncs: AtomicU64,
    /// Log writes fail with EIO.
    pub(crate) fail_writes: AtomicBool,
    /// Log syncs fail with EIO.
    pub(crate) fail_syncs: AtomicBool,
    /// Whatever takes room fails with ENOSPC.
    pub(crate) full: AtomicBool,
    /// Syncs of any file or directory fail with EIO.
    pub(crate) fail_all_syncs: AtomicBool,
    /// Snapshots are damaged on their way to the disk.
    pub(crate) flip: AtomicBool,
    /// How long a sync of any file takes, in milliseconds.
    delay_ms: AtomicU64,
}

impl Faults {
    pub(crate) fn set(flag: &AtomicBool, to: bool) {
        flag.store(to, Ordering::SeqCst);
    }

    fn check(flag: &AtomicBool, errno: i32) -> io::Result<()> {
        match flag.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(errno)),
            false => Ok(()),
        }
    }

    /// Syncs of files take so long from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms
            .store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    fn wait(&self) {
        let until = Instant::now() + Duration::from_millis(self.delay_ms.load(Ordering::SeqCst));
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
    }

    pub(crate) fn synced(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    pub(crate) fn written(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }
}

/// The real disk behind [`Faults`].
#[derive(Clone, Default)]
pub(crate) struct FaultyDisk(pub(crate) Arc<Faults>);

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    faults: Arc<Faults>,
    log: bool,
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: Open) -> io::Result<Arc<dyn DiskFile>> {
        if mode == Open::Create && !path.exists() {
            Faults::check(&self.0.full, libc::ENOSPC)?;
        }
        let extension = path.extension().and_then(|e| e.to_str());
        Ok(Arc::new(FaultyFile {
            file: RealDisk.open(path, mode)?,
            faults: self.0.clone(),
            log: matches!(extension, Some("raftlog" | "rewrite")),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        RealDisk.lock(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Faults::check(&self.0.fail_all_syncs, libc::EIO)?;
        RealDisk.sync_dir(dir)
    }
}

impl DiskFile for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.log {
            self.faults.writes.fetch_add(1, Ordering::SeqCst);
            Faults::check(&self.faults.fail_writes, libc::EIO)?;
        }
        // Overwriting takes no room, as on a real disk.
        if offset + bytes.len() as u64 > self.file.size()? {
            Faults::check(&self.faults.full, libc::ENOSPC)?;
        }
        if self.faults.flip.load(Ordering::SeqCst) && bytes.len() > 100 {
            let mut bytes = bytes.to_vec();
            bytes[100] ^= 1;
            return self.file.write_at(&bytes, offset);
        }
        self.file.write_at(bytes, offset)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        Faults::check(&self.faults.full, libc::ENOSPC)?;
        self.file.reserve(offset, len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.wait();
        Faults::check(&self.faults.fail_all_syncs, libc::EIO)?;
        if self.log {
            self.faults.syncs.fetch_add(1, Ordering::SeqCst);
            Faults::check(&self.faults.fail_syncs, libc::EIO)?;
        }
        self.file.sync()
    }
}
