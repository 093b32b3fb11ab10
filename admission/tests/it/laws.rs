//! What the rules promise, judged from the answers alone: nothing here knows how they come about.

mod cap;
