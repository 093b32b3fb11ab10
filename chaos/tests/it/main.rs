//! What is promised to hold when processes die, stop and restart; and that the judge of it can see.

mod judge;
