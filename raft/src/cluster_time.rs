//! Cluster time: stamps that never go back and never run faster than real time.
//!
//! A leader stamps `anchor's stamp + (now - anchor's instant)`. The anchor is set once per term, when
//! the term's first entry is applied: the last stamp, and the instant at which this process applied the
//! entry that carried it, or loaded the state that remembered it. The stamping happened before that
//! instant, wherever it happened, so at least as much real time passes between two stamps as the stamps
//! say. Time can be lost that way, in an election, but never gained or caught up.
//!
//! A new anchor within a term would lose the time between stamping and applying once more, so there is
//! none.

use std::time::Duration;
use weir_admission::Stamp;

/// From which point a term's leader counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// The term.
    pub(crate) term: u64,
    /// The last stamp before the term.
    stamp: Stamp,
    /// When it was applied or loaded here, on the local clock.
    at: Duration,
}

impl Anchor {
    /// The stamp of an entry that is proposed at `now`.
    pub(crate) fn stamp(&self, now: Duration) -> Stamp {
        let elapsed = now.saturating_sub(self.at).as_micros();
        self.stamp.after(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

/// What a replica remembers of cluster time while it applies the log.
#[derive(Debug)]
pub(crate) struct ClusterTime {
    /// Term of the last entry applied.
    term: u64,
    /// The last stamp, and when it was applied or loaded here.
    last: (Stamp, Duration),
    anchor: Option<Anchor>,
}

impl ClusterTime {
    /// A state was loaded (at start or as a leader's snapshot) whose last entry is of `term` and whose
    /// last stamp is `stamp`.
    pub(crate) fn loaded(term: u64, stamp: Stamp, now: Duration) -> Self {
        Self {
            term,
            last: (stamp, now),
            anchor: None,
        }
    }

    /// An entry of `term` is about to be applied.
    pub(crate) fn entry(&mut self, term: u64) {
        if term > self.term {
            self.term = term;
            let (stamp, at) = self.last;
            self.anchor = Some(Anchor { term, stamp, at });
        }
    }

    /// An entry with a stamp was applied, after which the state's last stamp is `stamp`.
    pub(crate) fn stamped(&mut self, stamp: Stamp, now: Duration) {
        self.last = (stamp, now);
    }

    /// The anchor of the newest term of which an entry was applied here from its beginning.
    pub(crate) fn anchor(&self) -> Option<Anchor> {
        self.anchor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn anchor(time: &ClusterTime) -> Anchor {
        time.anchor().unwrap()
    }

    #[test]
    fn a_term_counts_from_the_last_stamp_and_is_not_anchored_again() {
        let mut time = ClusterTime::loaded(0, Stamp::ZERO, us(1_000));
        assert_eq!(
            time.anchor(),
            None,
            "nobody may stamp before the term's first entry"
        );
        time.entry(1);
        assert_eq!(anchor(&time).stamp(us(1_500)), Stamp::from_micros(500));
        // The stamped entry is applied 300 us after its stamp; the term goes on as it began.
        time.entry(1);
        time.stamped(Stamp::from_micros(500), us(1_800));
        assert_eq!(anchor(&time).stamp(us(2_000)), Stamp::from_micros(1_000));
        // The next term loses those 300 us.
        time.entry(2);
        assert_eq!(anchor(&time).term, 2);
        assert_eq!(anchor(&time).stamp(us(2_000)), Stamp::from_micros(700));
    }

    #[test]
    fn loading_counts_as_applying() {
        let mut time = ClusterTime::loaded(7, Stamp::from_micros(900), us(50));
        time.entry(7);
        assert_eq!(
            time.anchor(),
            None,
            "the term's first entry is inside the snapshot"
        );
        time.entry(8);
        assert_eq!(anchor(&time).stamp(us(60)), Stamp::from_micros(910));
    }

    #[test]
    fn a_clock_that_errs_backwards_and_the_end_of_time_are_harmless() {
        let mut time = ClusterTime::loaded(0, Stamp::MAX, us(50));
        time.entry(1);
        assert_eq!(anchor(&time).stamp(us(40)), Stamp::MAX);
        assert_eq!(anchor(&time).stamp(Duration::MAX), Stamp::MAX);
    }

    /// One thing that happens in a cluster of three.
    #[derive(Clone, Debug)]
    enum Event {
        Pass { us: u64 },
        Apply { node: usize, entries: usize },
        Elect { node: usize },
        Propose,
        Restart { node: usize, loses: usize },
    }

    fn event() -> impl Strategy<Value = Event> {
        let node = 0..3_usize;
        prop_oneof![
            (0..5_000_000_u64).prop_map(|us| Event::Pass { us }),
            (node.clone(), 0..9_usize).prop_map(|(node, entries)| Event::Apply { node, entries }),
            node.clone().prop_map(|node| Event::Elect { node }),
            Just(Event::Propose),
            (node, 0..6_usize).prop_map(|(node, loses)| Event::Restart { node, loses }),
        ]
    }

    /// Nodes with clocks of their own, one log, and the real instant of each stamping.
    struct Cluster {
        real: u64,
        log: Vec<(u64, Option<Stamp>)>,
        stamped: Vec<(Stamp, u64)>,
        nodes: Vec<(ClusterTime, usize)>,
        term: u64,
        leader: Option<usize>,
    }

    impl Cluster {
        fn new() -> Self {
            let nodes = (0..3).map(|node| {
                (
                    ClusterTime::loaded(0, Stamp::ZERO, us(Self::origin(node))),
                    0,
                )
            });
            Self {
                real: 0,
                log: Vec::new(),
                stamped: Vec::new(),
                nodes: nodes.collect(),
                term: 0,
                leader: None,
            }
        }

        fn origin(node: usize) -> u64 {
            1_000_000_007 * node as u64
        }

        fn now(&self, node: usize) -> Duration {
            us(Self::origin(node) + self.real)
        }

        fn apply(&mut self, node: usize, entries: usize) {
            let now = self.now(node);
            let (time, applied) = &mut self.nodes[node];
            for (term, stamp) in self.log.iter().skip(*applied).take(entries) {
                time.entry(*term);
                if let Some(stamp) = stamp {
                    time.stamped(*stamp, now);
                }
                *applied += 1;
            }
        }

        fn propose(&mut self) {
            let Some(leader) = self.leader else { return };
            self.apply(leader, usize::MAX);
            let now = self.now(leader);
            let anchor = anchor(&self.nodes[leader].0);
            assert_eq!(anchor.term, self.term);
            let stamp = anchor.stamp(now);
            self.log.push((self.term, Some(stamp)));
            self.stamped.push((stamp, self.real));
        }

        fn restart(&mut self, node: usize, loses: usize) {
            let now = self.now(node);
            let (time, applied) = &mut self.nodes[node];
            *applied = applied.saturating_sub(loses);
            let kept = &self.log[..*applied];
            let term = kept.last().map_or(0, |(term, _)| *term);
            let stamp = kept
                .iter()
                .rev()
                .find_map(|(_, stamp)| *stamp)
                .unwrap_or(Stamp::ZERO);
            *time = ClusterTime::loaded(term, stamp, now);
            // Leadership does not survive a restart.
            self.leader = self.leader.filter(|leader| *leader != node);
        }

        fn run(&mut self, event: &Event) {
            match *event {
                Event::Pass { us } => self.real += us,
                Event::Apply { node, entries } => self.apply(node, entries),
                Event::Elect { node } => {
                    self.term += 1;
                    self.leader = Some(node);
                    self.log.push((self.term, None));
                }
                Event::Propose => self.propose(),
                Event::Restart { node, loses } => self.restart(node, loses),
            }
        }
    }

    proptest! {
        #[test]
        fn between_any_two_stamps_at_least_as_much_real_time_passes(
            events in proptest::collection::vec(event(), 1..120)
        ) {
            let mut cluster = Cluster::new();
            for event in &events {
                cluster.run(event);
            }
            // What holds for neighbours holds for all pairs, by summing up.
            for [(before, then), (after, now)] in cluster.stamped.array_windows() {
                prop_assert!(after >= before, "time went back");
                let by_stamps = after.as_micros() - before.as_micros();
                prop_assert!(by_stamps <= now - then, "{by_stamps} us in {} us", now - then);
            }
        }
    }
}
