//! File descriptors: how many there are decides how many connections a node takes.

use crate::limits::{
    ADMIN_CONNECTIONS_MAX, CONNECTIONS_MAX, CONNECTIONS_MIN, FILES_OWN, PEER_CONNECTIONS_MAX,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of a node that are not connections of clients.
const FILES_RESERVED: usize = FILES_OWN + PEER_CONNECTIONS_MAX + ADMIN_CONNECTIONS_MAX;

/// The system gives this process too few file descriptors.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a node needs at least {needed} file descriptors, and the limit is {limit}; raise it (ulimit -n, or \
     LimitNOFILE of its systemd unit)"
)]
pub struct TooFewFiles {
    needed: usize,
    limit: usize,
}

/// Raises this process's limit as far as it may and one node can use it, and tells the limit. Raising takes
/// no privilege; `None` is no limit.
pub fn raise_limit() -> Option<usize> {
    let enough = u64::try_from(FILES_RESERVED + CONNECTIONS_MAX).unwrap_or(u64::MAX);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(enough, |maximum| maximum.min(enough));
    let mut limit = current;
    if current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = Some(wanted),
            Err(error) => tracing::warn!(%error, "the limit of file descriptors stays"),
        }
    }
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Connections of clients that a node takes with so many file descriptors: log, peers and probes have theirs
/// whatever clients do.
pub fn connections_max(limit: Option<usize>) -> Result<usize, TooFewFiles> {
    let Some(limit) = limit else {
        return Ok(CONNECTIONS_MAX);
    };
    let needed = FILES_RESERVED + CONNECTIONS_MIN;
    if limit < needed {
        return Err(TooFewFiles { needed, limit });
    }
    Ok((limit - FILES_RESERVED).min(CONNECTIONS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_node_itself_does_not_need() {
        let least = FILES_RESERVED + CONNECTIONS_MIN;
        assert_eq!(connections_max(None), Ok(CONNECTIONS_MAX));
        assert_eq!(connections_max(Some(usize::MAX)), Ok(CONNECTIONS_MAX));
        assert_eq!(connections_max(Some(least)), Ok(CONNECTIONS_MIN));
        assert_eq!(connections_max(Some(least + 7)), Ok(CONNECTIONS_MIN + 7));
        let refused = connections_max(Some(least - 1)).unwrap_err();
        assert!(refused.to_string().contains("ulimit"), "{refused}");
        assert!(connections_max(Some(0)).is_err());
    }
}
