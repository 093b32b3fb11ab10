//! How the result of a log entry comes back to whoever proposed it.

use openraft::OptionalSend;
use openraft::raft::responder::Responder;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::types::TypeConfig;

/// Room that an entry takes up until its result is known, in entries and in bytes.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) _entry: OwnedSemaphorePermit,
    pub(crate) _bytes: OwnedSemaphorePermit,
}

/// Sends a result to whoever waits, if somebody still does, and gives the entry's room back.
///
/// The room goes with the reply and not with the waiting side: a caller that gives up does not make
/// the entry disappear.
#[derive(Debug)]
pub struct Reply<T> {
    to: oneshot::Sender<T>,
    room: Option<Room>,
}

impl<T> Reply<T> {
    pub(crate) fn new(room: Option<Room>) -> (Self, oneshot::Receiver<T>) {
        let (to, from) = oneshot::channel();
        (Self { to, room }, from)
    }
}

impl<T: OptionalSend + 'static> Responder<TypeConfig, T> for Reply<T> {
    fn on_complete(self, result: T) {
        // First, so that whoever gets the result finds the room free.
        drop(self.room);
        // Nobody waiting is no error: the caller's deadline has passed.
        drop(self.to.send(result));
    }
}
