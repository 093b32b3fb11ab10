//! Connections, counted and cut. Who has never asked for anything makes room for who comes, and then who rests.
//!
//! A connection is a *stranger* until its first call. Strangers cost a file descriptor each and nobody
//! needs them, so that a crowd of them must not keep callers out: when the house is full the oldest
//! stranger goes. Everybody has [`STRANGER_SAFE`] to make that first call, however many push behind; who finds
//! nobody to make room is closed at once, so that the system's queue stays short for who comes next.
//!
//! A caller *works* while anything that it asked for is not answered, or it waits for its turn; otherwise it
//! *rests*. Clients keep their connections, and more of them than there is room for may each have little to ask:
//! where [`Incoming::let_rest`] was called, the one that has rested longest makes room, if that was
//! [`REST_MIN`]. A client that has something to ask again comes again.

use super::Seldom;
use crate::limits::{GREETING_BYTES, GREETING_WITHIN, REST_LOOK_EVERY, REST_MIN, STRANGER_SAFE};
use crate::metrics::{ClosedConnection, Door};
use futures::Stream;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// A stream of connections, at most so many at once, all of which end with one token.
///
/// The stream of the inner connections is handed in: a TCP listener in production, a simulated network in
/// tests.
pub struct Incoming<S, IO> {
    inner: S,
    house: Arc<House>,
    cut: CancellationToken,
    /// Accepted, and waiting until a stranger has gone.
    waiting: Option<IO>,
    refusals: Seldom,
}

/// Who is in.
struct House {
    connections_max: usize,
    door: Door,
    born_at: Instant,
    /// True if callers that rest make room.
    rests: AtomicBool,
    guests: Mutex<Guests>,
}

#[derive(Default)]
struct Guests {
    next: u64,
    open: usize,
    strangers: BTreeMap<u64, Stranger>,
    callers: BTreeMap<u64, Arc<Place>>,
    /// Callers that rested when they were last looked at, the longest first.
    rested: VecDeque<u64>,
    looked_at: Option<Instant>,
    /// Who was sent away and is not gone yet.
    leaving: BTreeSet<u64>,
    /// Told when somebody has gone.
    doorman: Option<Waker>,
}

struct Stranger {
    token: CancellationToken,
    safe_until: Instant,
}

impl Guests {
    /// Sends somebody away, if anybody can be spared.
    fn send_away(&mut self, house: &House, now: Instant) -> bool {
        let oldest = self.strangers.first_entry();
        if let Some(oldest) = oldest.filter(|oldest| oldest.get().safe_until <= now) {
            let (number, oldest) = oldest.remove_entry();
            oldest.token.cancel();
            self.leaving.insert(number);
            house.door.closed(ClosedConnection::MadeRoom);
            return true;
        }
        let Some(place) = self.longest_rested(house, now) else {
            return false;
        };
        place.token.cancel();
        self.callers.remove(&place.number);
        self.leaving.insert(place.number);
        house.door.closed(ClosedConnection::Rested);
        true
    }

    /// All callers are looked at now and then, and not for each who comes: there are thousands of both.
    fn longest_rested(&mut self, house: &House, now: Instant) -> Option<Arc<Place>> {
        if !house.rests.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.looked_at.map(|at| at + REST_LOOK_EVERY);
        if self.rested.is_empty() && next.is_none_or(|next| next <= now) {
            self.looked_at = Some(now);
            let rest = |place: &Arc<Place>| Some((place.rests_for(now)?, place.number));
            let mut rested: Vec<_> = self.callers.values().filter_map(rest).collect();
            rested.retain(|(rest, _)| *rest >= REST_MIN);
            rested.sort_unstable_by_key(|(rest, _)| std::cmp::Reverse(*rest));
            self.rested = rested.into_iter().map(|(_, number)| number).collect();
        }
        while let Some(number) = self.rested.pop_front() {
            // It may have gone, or called again.
            let place = self.callers.get(&number);
            let rested =
                |place: &&Arc<Place>| place.rests_for(now).is_some_and(|rest| rest >= REST_MIN);
            if let Some(place) = place.filter(rested) {
                return Some(place.clone());
            }
        }
        None
    }
}

/// What becomes of somebody who wants to come in.
enum Entry {
    In(Visitor),
    /// As soon as somebody who is leaving has gone.
    Soon,
    Full,
}

impl House {
    fn guests(&self) -> MutexGuard<'_, Guests> {
        // Poisoned guests are still whole: no code that can panic runs while they are held.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn age_us(&self) -> u64 {
        let age = Instant::now().saturating_duration_since(self.born_at);
        u64::try_from(age.as_micros()).unwrap_or(u64::MAX)
    }

    fn enter(self: &Arc<Self>, cut: &CancellationToken, context: &Context<'_>) -> Entry {
        let mut guests = self.guests();
        if guests.open < self.connections_max {
            let number = guests.next;
            guests.next += 1;
            guests.open += 1;
            let token = cut.child_token();
            let stranger = Stranger {
                token: token.clone(),
                safe_until: Instant::now() + STRANGER_SAFE,
            };
            guests.strangers.insert(number, stranger);
            return Entry::In(Visitor(Arc::new(Place {
                house: self.clone(),
                number,
                token,
                has_called: AtomicBool::new(false),
                works: AtomicU32::new(0),
                rests_since_us: AtomicU64::new(self.age_us()),
            })));
        }
        if guests.leaving.is_empty() && !guests.send_away(self, Instant::now()) {
            return Entry::Full;
        }
        guests.doorman = Some(context.waker().clone());
        Entry::Soon
    }
}

/// Who is behind a connection. Cheap to clone.
#[derive(Clone)]
pub struct Visitor(Arc<Place>);

struct Place {
    house: Arc<House>,
    number: u64,
    /// Cancelled when the connection has to end.
    token: CancellationToken,
    has_called: AtomicBool,
    /// Calls and sessions of it that are at work.
    works: AtomicU32,
    /// Since when there is none, in microseconds of the house.
    rests_since_us: AtomicU64,
}

impl Place {
    /// How long nothing is at work; `None` if something is.
    fn rests_for(&self, now: Instant) -> Option<Duration> {
        let rests = self.works.load(Ordering::Acquire) == 0;
        let since = Duration::from_micros(self.rests_since_us.load(Ordering::Relaxed));
        rests.then(|| now.saturating_duration_since(self.house.born_at + since))
    }
}

/// Something of a visitor is at work until this is dropped.
pub struct Works(Visitor);

impl Drop for Works {
    fn drop(&mut self) {
        let place = &self.0.0;
        let now_us = place.house.age_us();
        // First, so that whoever sees it rest sees since when.
        place.rests_since_us.store(now_us, Ordering::Relaxed);
        place.works.fetch_sub(1, Ordering::Release);
    }
}

impl Visitor {
    /// Its first call makes a stranger a caller.
    pub fn calls(&self) {
        let place = &self.0;
        if !place.has_called.swap(true, Ordering::Relaxed) {
            let mut guests = place.house.guests();
            // Who was sent away already stays away.
            if guests.strangers.remove(&place.number).is_some() {
                guests.callers.insert(place.number, place.clone());
            }
        }
    }

    /// Something of it is at work.
    pub fn works(&self) -> Works {
        self.0.works.fetch_add(1, Ordering::Relaxed);
        Works(self.clone())
    }

    /// Ends the connection.
    pub fn cut(&self) {
        self.0.token.cancel();
    }
}

/// Counts until it is dropped.
struct Seat(Visitor);

impl Drop for Seat {
    fn drop(&mut self) {
        let Place { house, number, .. } = &*self.0.0;
        house.door.gone();
        let doorman = {
            let mut guests = house.guests();
            guests.open -= 1;
            guests.strangers.remove(number);
            guests.callers.remove(number);
            guests.leaving.remove(number);
            guests.doorman.take()
        };
        if let Some(doorman) = doorman {
            doorman.wake();
        }
    }
}

impl<S, IO> Incoming<S, IO> {
    /// Connections of `inner`, at most `connections_max` at once, counted at `door`. When `cut` is cancelled
    /// every connection fails, as if the process had died.
    pub fn new(
        inner: S,
        connections_max: usize,
        door: Door,
        cut: CancellationToken,
    ) -> Incoming<S, IO> {
        Incoming {
            inner,
            house: Arc::new(House {
                connections_max,
                door,
                born_at: Instant::now(),
                rests: AtomicBool::new(false),
                guests: Mutex::default(),
            }),
            cut,
            waiting: None,
            refusals: Seldom::default(),
        }
    }
}

impl<S, IO> Incoming<S, IO> {
    /// Callers that rest make room.
    pub fn let_rest(self) -> Incoming<S, IO> {
        self.house.rests.store(true, Ordering::Relaxed);
        self
    }

    fn welcome(&self, io: IO, visitor: Visitor) -> Connection<IO> {
        self.house.door.opened();
        Connection {
            io,
            cut: Box::pin(visitor.0.token.clone().cancelled_owned()),
            greeting: Some(Greeting {
                bytes: GREETING_BYTES,
                too_late: Box::pin(tokio::time::sleep(GREETING_WITHIN)),
            }),
            seat: Seat(visitor),
        }
    }

    fn refuse(&mut self) {
        self.house.door.closed(ClosedConnection::Full);
        if let Some(missed) = self.refusals.say() {
            let connections_max = self.house.connections_max;
            tracing::warn!(
                connections_max,
                missed,
                "too many connections, one was closed at once"
            );
        }
    }
}

impl<S, IO> Stream for Incoming<S, IO>
where
    S: Stream<Item = io::Result<IO>> + Unpin,
    IO: Unpin,
{
    type Item = io::Result<Connection<IO>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let io = match self.waiting.take() {
                Some(io) => io,
                None => match std::task::ready!(Pin::new(&mut self.inner).poll_next(context)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Some(Ok(io)) => io,
                },
            };
            match self.house.enter(&self.cut, context) {
                Entry::In(visitor) => {
                    return Poll::Ready(Some(Ok(self.welcome(io, visitor))));
                }
                Entry::Soon => {
                    self.waiting = Some(io);
                    return Poll::Pending;
                }
                Entry::Full => self.refuse(),
            }
        }
    }
}

/// One connection.
pub struct Connection<IO> {
    io: IO,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// What is still to be heard before this counts as a connection of our protocols.
    greeting: Option<Greeting>,
    /// The last field: dropped when the socket is closed.
    seat: Seat,
}

struct Greeting {
    bytes: usize,
    too_late: Pin<Box<Sleep>>,
}

impl<IO> Connection<IO> {
    fn check_cut(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    fn check_greeting(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let greeting = self.greeting.as_mut();
        let too_late =
            greeting.is_some_and(|greeting| greeting.too_late.as_mut().poll(context).is_ready());
        if too_late {
            self.greeting = None;
            let door = &self.seat.0.0.house.door;
            door.closed(ClosedConnection::NoGreeting);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn heard(&mut self, bytes: usize) {
        if let Some(greeting) = &mut self.greeting {
            greeting.bytes = greeting.bytes.saturating_sub(bytes);
            if greeting.bytes == 0 {
                self.greeting = None;
            }
        }
    }
}

impl<IO: Connected> Connected for Connection<IO> {
    type ConnectInfo = Visitor;

    fn connect_info(&self) -> Visitor {
        self.seat.0.clone()
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Connection<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_cut(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.heard(buffer.filled().len().saturating_sub(before));
        // After the read: what came while this process stood still came in time.
        self.check_greeting(context)?;
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
