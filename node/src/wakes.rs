//! Who is told that its turn is near: connected waiters, by the key of their admission.
//!
//! The rules name the admissions whose turn is near; this node tells their sessions, if it knows them.
//! Nothing depends on a wake: a waiter that hears none comes back by the clock. So the registry forgets
//! what does not fit, and a session that ends takes its waiters with it.

use crate::limits::{WAKE_SPREAD, WAKES_EARLY_MAX, WAKES_MAX};
use crate::shards::Shards;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_admission::ShardId;

/// How a session is told.
pub trait Waker: Send + Sync {
    /// The call of that attempt should ask again, at a random moment within `spread`. Must not block.
    fn wake(&self, attempt: u64, spread: Duration);
}

/// The waiters of one node. Cheap to clone.
#[derive(Clone, Default)]
pub struct Wakes {
    registry: Arc<Mutex<Registry>>,
}

#[derive(Default)]
struct Registry {
    /// By the key of their admission.
    waiters: BTreeMap<u128, Waiter>,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    /// Keys whose turn came before their deferral was told to its session, oldest first. An outcome and
    /// the wakes that follow it take different ways, and the wake's is shorter.
    early: VecDeque<u128>,
}

struct Waiter {
    session: u64,
    attempt: u64,
    shard: ShardId,
}

struct Session {
    waker: Arc<dyn Waker>,
    /// Its waiters, by attempt.
    waiting: BTreeSet<(u64, u128)>,
}

impl Registry {
    /// Forgets a waiter, and tells whom to wake.
    fn take(&mut self, key: u128) -> Option<(Arc<dyn Waker>, u64)> {
        let waiter = self.waiters.remove(&key)?;
        let session = self.sessions.get_mut(&waiter.session)?;
        session.waiting.remove(&(waiter.attempt, key));
        Some((session.waker.clone(), waiter.attempt))
    }
}

impl Wakes {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A poisoned registry is still whole: no code that can panic runs while it is held.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of these admissions is near. To be called after the outcomes of the entry that said so
    /// were handed out.
    pub fn due(&self, keys: &[u128]) {
        if keys.is_empty() {
            return;
        }
        let mut woken = Vec::with_capacity(keys.len());
        {
            let mut registry = self.registry();
            for key in keys {
                match registry.take(*key) {
                    Some(waiter) => woken.push(waiter),
                    None => {
                        registry.early.push_back(*key);
                        if registry.early.len() > WAKES_EARLY_MAX {
                            registry.early.pop_front();
                        }
                    }
                }
            }
        }
        for (waker, attempt) in woken {
            waker.wake(attempt, Duration::ZERO);
        }
    }

    /// The shard is no longer led here: its waiters hear nothing more and should ask its new leader.
    pub fn moved(&self, shard: ShardId) {
        let woken: Vec<_> = {
            let mut registry = self.registry();
            let waiting = registry.waiters.iter();
            let keys: Vec<u128> = waiting
                .filter(|(_, waiter)| waiter.shard == shard)
                .map(|(key, _)| *key)
                .collect();
            keys.into_iter()
                .filter_map(|key| registry.take(key))
                .collect()
        };
        for (waker, attempt) in woken {
            waker.wake(attempt, WAKE_SPREAD);
        }
    }

    /// A session that can have waiters until it is dropped.
    pub fn session(&self, waker: Arc<dyn Waker>) -> Waiters {
        let mut registry = self.registry();
        let id = registry.next_session;
        registry.next_session += 1;
        registry.sessions.insert(
            id,
            Session {
                waker,
                waiting: BTreeSet::new(),
            },
        );
        drop(registry);
        Waiters {
            wakes: self.clone(),
            session: id,
        }
    }

    /// Waiters of all sessions.
    pub fn waiting(&self) -> usize {
        self.registry().waiters.len()
    }

    /// Sends waiters on whenever this node stops leading their shard, until the groups are gone.
    pub async fn follow(self, shards: Shards) {
        let own = shards.identity().node;
        let each = shards.groups().all().map(|group| {
            let (wakes, shard) = (self.clone(), group.shard());
            let mut leadership = group.leadership();
            async move {
                let mut leads = false;
                loop {
                    let leader = leadership.borrow_and_update().leader;
                    if std::mem::replace(&mut leads, leader == Some(own)) && !leads {
                        wakes.moved(shard);
                    }
                    if leadership.changed().await.is_err() {
                        return;
                    }
                }
            }
        });
        futures::future::join_all(each).await;
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakes")
            .field("waiting", &self.waiting())
            .finish()
    }
}

/// The waiters of one session. Dropping it forgets them.
#[derive(Debug)]
pub struct Waiters {
    wakes: Wakes,
    session: u64,
}

impl Waiters {
    /// The admission of that key was deferred and waits: tell its attempt when its turn is near. A turn
    /// that has come already is told at once; one that does not fit is never told.
    pub fn wait(&self, key: u128, shard: ShardId, attempt: u64) {
        let mut registry = self.wakes.registry();
        if let Some(at) = registry.early.iter().position(|early| *early == key) {
            registry.early.remove(at);
            let waker = registry.sessions.get(&self.session);
            let waker = waker.map(|session| session.waker.clone());
            drop(registry);
            if let Some(waker) = waker {
                waker.wake(attempt, Duration::ZERO);
            }
            return;
        }
        // Whoever asked last for an admission is the one who waits for it.
        registry.take(key);
        if registry.waiters.len() >= WAKES_MAX {
            return;
        }
        let Some(session) = registry.sessions.get_mut(&self.session) else {
            return;
        };
        session.waiting.insert((attempt, key));
        registry.waiters.insert(
            key,
            Waiter {
                session: self.session,
                attempt,
                shard,
            },
        );
    }

    /// The attempt waits no longer: it was granted, rejected or given up.
    pub fn done(&self, attempt: u64) {
        let mut registry = self.wakes.registry();
        let Some(session) = registry.sessions.get_mut(&self.session) else {
            return;
        };
        let keys: Vec<u128> = session
            .waiting
            .range((attempt, u128::MIN)..=(attempt, u128::MAX))
            .map(|(_, key)| *key)
            .collect();
        for key in keys {
            registry.take(key);
        }
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        let registry = self.wakes.registry();
        let session = registry.sessions.get(&self.session);
        session.map_or(0, |session| session.waiting.len())
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let mut registry = self.wakes.registry();
        if let Some(session) = registry.sessions.remove(&self.session) {
            for (_, key) in session.waiting {
                registry.waiters.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
