//! A real disk whose syncs take long or fail.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_raft::disk::{Disk, DiskFile, DiskLock, Open, RealDisk};

/// What a disk does to syncs from now on.
#[derive(Default)]
pub(crate) struct Slow {
    delay_ms: AtomicU64,
    broken: AtomicBool,
}

impl Slow {
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms
            .store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    pub(crate) fn break_down(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    fn sync(&self) -> io::Result<()> {
        let until = Instant::now() + Duration::from_millis(self.delay_ms.load(Ordering::SeqCst));
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        if self.broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is broken"));
        }
        Ok(())
    }
}

/// The disk.
pub(crate) struct SlowDisk(pub(crate) Arc<Slow>);

struct SlowFile {
    file: Arc<dyn DiskFile>,
    slow: Arc<Slow>,
}

impl Disk for SlowDisk {
    fn open(&self, path: &Path, mode: Open) -> io::Result<Arc<dyn DiskFile>> {
        let file = RealDisk.open(path, mode)?;
        Ok(Arc::new(SlowFile {
            file,
            slow: Arc::clone(&self.0),
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
        RealDisk.sync_dir(dir)
    }
}

impl DiskFile for SlowFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.reserve(offset, len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.slow.sync()?;
        self.file.sync()
    }
}
