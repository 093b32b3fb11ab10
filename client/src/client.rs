//! The client as its users see it.

use crate::stats::Stats;
use crate::{Answer, Call, Error, Guard, Options, OptionsError, Ticket};
use std::sync::Arc;

/// A client of one cluster. Cheap to clone: clones share routes, connections and counts.
///
/// One task works in the background of all clones. It ends when the last of them, and of the guards
/// they gave out, is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: Options,
}

impl Client {
    /// Checks the options and makes a client. Sends nothing: the cluster may be down.
    ///
    /// Must be called inside a tokio runtime, where the background task lives.
    pub fn new(options: Options) -> Result<Client, OptionsError> {
        options.check()?;
        tokio::runtime::Handle::try_current().map_err(|_| OptionsError::NoRuntime)?;
        Ok(Client {
            shared: Arc::new(Shared { options }),
        })
    }

    /// Asks once whether the call may start now.
    ///
    /// Without a ticket this is a new attempt. With the ticket of a deferral the call comes back to its
    /// place in line. `Admitted` is returned when it is time to send; up to the policy's horizon (30 ms
    /// by default) is slept through here. Holds the caller for at most [`Options::answer_within`] plus
    /// that, or the call's deadline.
    ///
    /// Dropping the future gives up what it may have got, and without a ticket its place too.
    pub async fn try_admit(&self, call: &Call, ticket: Option<Ticket>) -> Result<Answer, Error> {
        let _ = (&self.shared.options, call, ticket);
        Err(Error::Unavailable {
            message: "no route".into(),
            may_have_happened: false,
        })
    }

    /// Waits until the call may start: until it is admitted, rejected, or its deadline passes.
    ///
    /// Dropping the future gives up its place in line.
    pub async fn admit_wait(&self, call: &Call) -> Result<Guard, Error> {
        let _ = call;
        Err(Error::Unavailable {
            message: "no route".into(),
            may_have_happened: false,
        })
    }

    /// Gives up a place in line, or a grant that was not used. Nothing newer than the ticket is undone.
    pub async fn cancel(&self, call: &Call, ticket: Ticket) -> Result<(), Error> {
        let _ = (call, ticket);
        Err(Error::Unavailable {
            message: "no route".into(),
            may_have_happened: false,
        })
    }

    /// What this client and its clones counted.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Sends what is left to send (releases, cancels, reports), for at most
    /// [`crate::limits::DRAIN_MAX`], and answers what was counted. Other clones still work.
    pub async fn shutdown(self) -> Stats {
        self.stats()
    }
}
