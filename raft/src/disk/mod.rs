//! The seam between what a node stores and where: a real disk in production, a simulated one in
//! simulation, a faulty one in tests.

mod real;
pub mod sim;

pub use real::RealDisk;

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must exist and is not changed.
    Read,
    /// It must exist.
    Write,
    /// It is created if it does not exist, and not emptied if it does.
    Create,
}

/// A disk. Calls block; they come from the log's own thread and from rare moments of others.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: Open) -> io::Result<Arc<dyn DiskFile>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Renames a file, replacing the other one in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Names of the files in a directory, sorted; none if there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates a directory and its parents; no error if it exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Keeps every other process off a file until the result is dropped; `None` if another process has
    /// it. Creates the file if need be.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
    /// Makes creations, removals and renames in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// A lock that is held; see [`Disk::lock`].
pub trait DiskLock: Send + Sync {}

/// An open file, read and written at offsets in bytes.
pub trait DiskFile: Send + Sync {
    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;
    /// Reads up to the buffer's length; fewer bytes only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes or fails; a failed write may have written some.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reserves room, so that later writes need not change the file's size. May do nothing.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Cuts or extends the file to a length.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Returns when everything written is durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read_all(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let size = file.size()?;
    if size > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{size} bytes, more than the {limit} allowed"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Puts a file in place in one step: written beside it, synced, renamed, directory synced. A crash
/// leaves the old file, or none, or the new one; never a part.
pub(crate) fn write_whole(disk: &dyn Disk, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let dir = path
        .parent()
        .ok_or_else(|| io::Error::other(format!("{} has no directory", path.display())))?;
    let temporary = path.with_extension("tmp");
    let file = disk.open(&temporary, Open::Create)?;
    file.truncate(0)?;
    let mut offset = 0;
    for part in parts {
        file.write_at(part, offset)?;
        offset += part.len() as u64;
    }
    file.sync()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(dir)
}
