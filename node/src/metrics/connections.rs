//! What is counted of connections, by port.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PortLabels {
    port: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    port: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionMetrics {
    open: Family<PortLabels, Gauge>,
    closed: Family<ClosedLabels, Counter>,
}

impl ConnectionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "connections",
            "Connections open now, by port",
            self.open.clone(),
        );
        registry.register(
            "closed_connections",
            "Connections closed because all were taken, because they never called or rested and made room for \
             another, \
             or because nothing of a client came in time; by port and reason",
            self.closed.clone(),
        );
    }

    pub(super) fn door(&self, port: &'static str) -> Door {
        Door {
            port,
            open: self.open.get_or_create_owned(&PortLabels { port }),
            closed: self.closed.clone(),
        }
    }
}

/// Why a node closed a connection that did nothing wrong in what it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedConnection {
    /// All connections were taken, by callers and by who had only just come.
    Full,
    /// It never called, and another one came when all were taken.
    MadeRoom,
    /// It rested, and another one came when all were taken.
    Rested,
    /// Nothing that a client would send came in time.
    NoGreeting,
}

/// Counts the connections of one port.
#[derive(Clone, Debug)]
pub struct Door {
    port: &'static str,
    open: Gauge,
    closed: Family<ClosedLabels, Counter>,
}

impl Door {
    /// A connection was accepted.
    pub fn opened(&self) {
        self.open.inc();
    }

    /// A connection that was accepted has ended.
    pub fn gone(&self) {
        self.open.dec();
    }

    /// A connection was closed.
    pub fn closed(&self, why: ClosedConnection) {
        let reason = match why {
            ClosedConnection::Full => "full",
            ClosedConnection::MadeRoom => "made_room",
            ClosedConnection::Rested => "rested",
            ClosedConnection::NoGreeting => "no_greeting",
        };
        let port = self.port;
        self.closed
            .get_or_create(&ClosedLabels { port, reason })
            .inc();
    }
}
