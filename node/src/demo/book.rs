//! What the mock provider writes down for the report: who got what, in which second.

use super::limits::{BOOK_SECONDS_MAX, BOOKS_MAX};
use super::window::{At, Limiter, Verdict};
use std::ops::Range;

/// One second of one tenant in one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Calls served.
    pub accepted: u64,
    /// Calls answered with 429.
    pub throttled: u64,
    /// Tokens of the calls served.
    pub tokens: u64,
}

impl Second {
    fn add(&mut self, other: Second) {
        self.accepted += other.accepted;
        self.throttled += other.throttled;
        self.tokens += other.tokens;
    }
}

/// One tenant in one priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Who called.
    pub tenant: String,
    /// In which priority.
    pub priority: String,
    /// Second by second since the provider started.
    pub seconds: Vec<Second>,
}

/// Everything the provider has seen.
#[derive(Debug)]
pub struct Book {
    limiter: Limiter,
    accounts: Vec<Account>,
    overruns: u64,
}

impl Book {
    /// An empty book on a limiter that has seen nothing.
    pub fn new(limiter: Limiter) -> Book {
        Book {
            limiter,
            accounts: Vec::new(),
            overruns: 0,
        }
    }

    /// Decides and writes down one call at `now`, which never goes back.
    pub fn arrive(&mut self, now: At, tenant: &str, priority: &str, tokens: u64) -> Verdict {
        let verdict = self.limiter.arrive(now, tokens);
        let seen = match verdict {
            Verdict::Accepted => Second {
                accepted: 1,
                throttled: 0,
                tokens,
            },
            Verdict::Rejected { .. } => Second {
                accepted: 0,
                throttled: 1,
                tokens: 0,
            },
            Verdict::Overrun => {
                self.overruns += 1;
                return verdict;
            }
        };
        let second = usize::try_from(now / 1_000_000).unwrap_or(usize::MAX);
        if let Some(slot) = self.slot(tenant, priority, second.min(BOOK_SECONDS_MAX - 1)) {
            slot.add(seen);
        }
        verdict
    }

    /// The limits as they stand, for the answer's headers.
    pub fn limiter(&mut self) -> &mut Limiter {
        &mut self.limiter
    }

    /// A copy of what is written so far.
    pub fn counts(&self) -> Counts {
        Counts {
            accounts: self.accounts.clone(),
            worst_requests: self.limiter.requests.worst_over_cap(),
            worst_tokens: self.limiter.tokens.worst_over_cap(),
            cap_requests: self.limiter.requests.cap(),
            cap_tokens: self.limiter.tokens.cap(),
            overruns: self.overruns,
        }
    }

    fn slot(&mut self, tenant: &str, priority: &str, second: usize) -> Option<&mut Second> {
        let known = self
            .accounts
            .iter()
            .position(|a| a.tenant == tenant && a.priority == priority);
        let index = match known {
            Some(index) => index,
            None if self.accounts.len() < BOOKS_MAX => {
                let (tenant, priority) = (tenant.to_owned(), priority.to_owned());
                self.accounts.push(Account {
                    tenant,
                    priority,
                    seconds: Vec::new(),
                });
                self.accounts.len() - 1
            }
            None => BOOKS_MAX - 1,
        };
        let seconds = &mut self.accounts.get_mut(index)?.seconds;
        if seconds.len() <= second {
            seconds.resize(second + 1, Second::default());
        }
        seconds.get_mut(second)
    }
}

/// A copy of the provider's books.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Every tenant in every priority that ever called.
    pub accounts: Vec<Account>,
    /// The largest count of requests in any window over the cap, 429s included if they count.
    pub worst_requests: f64,
    /// The largest count of tokens in any window over the cap.
    pub worst_tokens: f64,
    /// Requests per window.
    pub cap_requests: u64,
    /// Tokens per window.
    pub cap_tokens: u64,
    /// Calls refused because the books were full. The run proves nothing unless this is 0.
    pub overruns: u64,
}

impl Counts {
    /// The worst window of both dimensions over its cap.
    pub fn worst(&self) -> f64 {
        self.worst_requests.max(self.worst_tokens)
    }

    /// The sum over the accounts that `of` picks and the seconds of `span`.
    pub fn total(&self, of: impl Fn(&Account) -> bool, span: Range<usize>) -> Second {
        let mut total = Second::default();
        for account in self.accounts.iter().filter(|account| of(account)) {
            let seconds = account.seconds.iter().enumerate();
            for (_, second) in seconds.filter(|(index, _)| span.contains(index)) {
                total.add(*second);
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::window::{Window, WindowKind};

    fn book(cap: u64) -> Book {
        let window = |cap| Window::new(WindowKind::Sliding, cap, 10_000_000, 0);
        let (requests, tokens) = (window(cap), window(1_000_000));
        Book::new(Limiter {
            requests,
            tokens,
            rejected_counts: true,
        })
    }

    #[test]
    fn counts_by_account_and_second() {
        let mut book = book(3);
        for (at, tenant) in [(0, "a"), (900_000, "b"), (1_000_000, "a"), (2_500_000, "a")] {
            book.arrive(at, tenant, "p1", 10);
        }
        let counts = book.counts();
        let all = counts.total(|_| true, 0..usize::MAX);
        assert_eq!(
            all,
            Second {
                accepted: 3,
                throttled: 1,
                tokens: 30
            }
        );
        let early = counts.total(|account| account.tenant == "a", 0..2);
        assert_eq!(
            early,
            Second {
                accepted: 2,
                throttled: 0,
                tokens: 20
            }
        );
        assert_eq!(counts.worst_requests, 4.0 / 3.0);
    }

    #[test]
    fn accounts_and_seconds_are_bounded() {
        let mut book = book(1_000_000);
        for tenant in 0..BOOKS_MAX + 5 {
            book.arrive(0, &tenant.to_string(), "p1", 1);
        }
        book.arrive(u64::MAX / 4, "0", "p1", 1);
        let counts = book.counts();
        assert_eq!(counts.accounts.len(), BOOKS_MAX);
        assert!(
            counts
                .accounts
                .iter()
                .all(|a| a.seconds.len() <= BOOK_SECONDS_MAX)
        );
        assert_eq!(
            counts.total(|_| true, 0..usize::MAX).accepted,
            BOOKS_MAX as u64 + 6
        );
    }
}
