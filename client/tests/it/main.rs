//! The client against a cluster that misbehaves on purpose: everything twice, over sessions and by unary
//! calls.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics has failed, helpers included"
)]
#![allow(
    clippy::duplicate_mod,
    reason = "every test runs over both transports, by the same text"
)]

/// Every test module, with a transport that its clients use.
macro_rules! over {
    ($transport:ident, $($module:ident;)*) => {
        const TRANSPORT: weir_client::Transport = weir_client::Transport::$transport;
        $(mod $module;)*
    };
}

#[path = "."]
mod session {
    over! { Session,
        admin;
        client_rule;
        fake;
        fleet;
        guards;
        local_share;
        logs;
        net;
        outage;
        property;
        retries;
        routing;
        shared;
        storm;
        streams;
        tcp;
        wakes;
    }
}

#[path = "."]
#[allow(dead_code, reason = "the fake can do more than unary calls need")]
mod unary {
    over! { Unary,
        client_rule;
        fake;
        fleet;
        guards;
        local_share;
        net;
        outage;
        property;
        retries;
        routing;
        storm;
        streams;
        tcp;
    }
}
