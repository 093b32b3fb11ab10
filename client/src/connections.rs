//! One connection per node, made when it is first needed.

use crate::limits::{CONNECT_MAX, NODES_MAX, SEEDS_MAX, TRIES_PER_CONNECTION_MAX};
use crate::lock::lock;
use crate::options::{Connector, endpoint_of};
use crate::route::Address;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tonic::transport::Channel;

/// The connections of one client.
pub(crate) struct Connections {
    connector: Connector,
    open: Mutex<BTreeMap<Address, Connection>>,
}

struct Connection {
    channel: Channel,
    unanswered: u32,
}

impl Connections {
    pub(crate) fn new(connector: Connector) -> Connections {
        Connections {
            connector,
            open: Mutex::new(BTreeMap::new()),
        }
    }

    /// The connection to a node. An address that is none says so.
    pub(crate) fn to(&self, address: &Address) -> Result<Channel, String> {
        let mut open = lock(&self.open);
        if let Some(connection) = open.get(address) {
            return Ok(connection.channel.clone());
        }
        if open.len() >= NODES_MAX + SEEDS_MAX {
            // No cluster has so many: addresses of nodes that left. Those in use are made anew.
            open.clear();
        }
        let endpoint = endpoint_of(address)
            .map_err(|error| format!("{address:?} is no address: {error}"))?
            .connect_timeout(CONNECT_MAX);
        let channel = (self.connector)(endpoint);
        open.insert(
            address.clone(),
            Connection {
                channel: channel.clone(),
                unanswered: 0,
            },
        );
        Ok(channel)
    }

    /// The node answered.
    pub(crate) fn answered(&self, address: &Address) {
        if let Some(connection) = lock(&self.open).get_mut(address) {
            connection.unanswered = 0;
        }
    }

    /// The node did not answer in time. After several times in a row its connection is given up: it may
    /// be waiting for packets that were lost, for much longer than a new one takes.
    pub(crate) fn unanswered(&self, address: &Address) {
        let mut open = lock(&self.open);
        if let Some(connection) = open.get_mut(address) {
            connection.unanswered += 1;
            if connection.unanswered >= TRIES_PER_CONNECTION_MAX {
                open.remove(address);
            }
        }
    }
}
