//! Policy files of `weir ctl apply`.
//!
//! Reading is total: an error tells the line, a violation names its field. A policy that is accepted is put
//! as it would be told again, and every such policy can be said in a file.

// The parser alone, without the servers and clients around it: they take longer to build than all the rest.
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "of the module only the parser is used"
)]
#[rustfmt::skip]
#[path = "../../node/src/ctl/policy_file.rs"]
mod parser;

use crate::memory::{self, Memory};
use parser::{FileTarget, parse};
use prost::Message;
use toml::{Table, Value};
use weir_admission::{Operation, Principal, Stamp};
use weir_proto::convert::{self, Caller};
use weir_proto::stored::{decode_batch, encode_batch};
use weir_proto::v1;

/// Memory for a file: every value keeps where it stands.
const MEMORY: Memory = Memory {
    each: 1024,
    base: memory::BASE,
};
/// Bytes of an error for each byte of a file, and those that any may have: it shows the line, points at the
/// column, and may tell the value.
const ERROR_BYTES_EACH: usize = 16;
const ERROR_BYTES: usize = 1024;

/// Takes an input.
///
/// # Panics
/// A rule of the module does not hold.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match MEMORY.bounds(text.len(), || parse(text)) {
        Ok(targets) => {
            let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
            targets.iter().for_each(|it| target(it, lines));
        }
        Err(error) => {
            let most = text.len() * ERROR_BYTES_EACH + ERROR_BYTES;
            assert!(error.len() <= most, "an error fits on a screen");
            assert!(
                error.contains("at line "),
                "an error tells the line: {error}"
            );
        }
    }
}

fn target(target: &FileTarget, lines: usize) {
    let violations = target.violations();
    for violation in &violations {
        assert!(!violation.field.is_empty() && !violation.description.is_empty());
        assert!((1..=lines).contains(&target.line_of(&violation.field)));
    }
    if !violations.is_empty() {
        return;
    }
    let told = target.spelt_out().expect("a policy without violations");
    assert_eq!(put(&target.name, &target.policy), told, "it is put as told");
    assert_eq!(put(&target.name, &told), told, "what is told is put alike");
    let file = file(&target.name, &told);
    let again = parse(&file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    let [again] = &again[..] else {
        panic!("one target is one target");
    };
    assert_eq!((&again.name, again.spelt_out()), (&target.name, Some(told)));
}

/// The policy as it is told after it went over the wire and through the log.
fn put(name: &str, policy: &v1::Policy) -> v1::Policy {
    let request = v1::PutTargetRequest {
        target: name.to_owned(),
        policy: Some(policy.clone()),
        expected_version: None,
    };
    let request = v1::PutTargetRequest::decode(&request.encode_to_vec()[..]).expect("a request");
    let principal = Principal::new("file").expect("a name");
    let caller = Caller {
        principal: &principal,
        shards: 1,
        wakes: false,
    };
    let put = convert::target::read_put(&request, caller).expect("a policy without violations");
    let batch = [Operation::PutPolicy(Box::new(put))];
    let stored = encode_batch(Stamp::ZERO, &batch).expect("what is accepted can be stored");
    let (_, batch) = decode_batch(&stored).expect("what was stored can be read");
    let [Operation::PutPolicy(put)] = &batch[..] else {
        panic!("a put is a put");
    };
    convert::policy::write(&put.policy)
}

/// A file that says a policy, with every default spelt out.
pub fn file(name: &str, policy: &v1::Policy) -> String {
    let mut target = Table::new();
    target.insert("name".into(), name.into());
    let limits = policy.limits.iter().map(limit).map(Value::Table);
    target.insert("limit".into(), Value::Array(limits.collect()));
    let priorities = policy.priorities.iter().map(|priority| {
        let mut table = Table::new();
        table.insert("name".into(), priority.name.clone().into());
        table.insert("weight".into(), i64::from(priority.weight).into());
        Value::Table(table)
    });
    target.insert("priority".into(), Value::Array(priorities.collect()));
    let weights = policy.tenant_weights.iter();
    let weights = weights.map(|(tenant, weight)| (tenant.clone(), i64::from(*weight).into()));
    target.insert("tenant_weights".into(), Value::Table(weights.collect()));
    let usual = i64::from(policy.default_tenant_weight);
    target.insert("default_tenant_weight".into(), usual.into());
    for (key, us) in [
        ("reply_window", policy.reply_window_us),
        ("send_spread", policy.send_spread_us),
        ("horizon", Some(policy.horizon_us)),
    ] {
        target.extend(us.map(|us| (key.into(), span(us))));
    }
    let counts = policy.rejected_counts() == v1::RejectedCounts::Yes;
    target.insert("rejected_counts".into(), counts.into());
    let sigmas = policy.estimate_sigmas_milli.map(i64::from);
    target.extend(sigmas.map(|sigmas| ("estimate_sigmas_milli".into(), sigmas.into())));
    for (key, choice) in [
        ("headroom", policy.headroom().as_str_name()),
        ("estimate", policy.estimate().as_str_name()),
    ] {
        target.insert(key.into(), word(key, choice));
    }
    let mut document = Table::new();
    document.insert("target".into(), Value::Array(vec![Value::Table(target)]));
    document.to_string()
}

fn limit(limit: &v1::Limit) -> Table {
    let mut table = Table::new();
    table.insert("name".into(), limit.name.clone().into());
    table.insert("dimension".into(), limit.dimension.clone().into());
    let cap = i64::try_from(limit.cap).expect("caps are below 2^63");
    table.insert("cap".into(), cap.into());
    table.insert("per".into(), span(limit.per_us));
    table.extend(limit.burst_us.map(|us| ("burst".into(), span(us))));
    for (key, prefix, choice) in [
        ("kind", "limit_kind", limit.kind().as_str_name()),
        (
            "enforced_by",
            "enforced_by",
            limit.enforced_by().as_str_name(),
        ),
        (
            "initial_use",
            "initial_use",
            limit.initial_use().as_str_name(),
        ),
    ] {
        table.insert(key.into(), word(prefix, choice));
    }
    table
}

/// `HEADROOM_AUTO` as a file says it: `auto`.
fn word(prefix: &str, choice: &str) -> Value {
    let lower = choice.to_lowercase();
    let word = lower.strip_prefix(prefix).unwrap_or(&lower);
    word.trim_start_matches('_').into()
}

fn span(us: u64) -> Value {
    format!("{us}us").into()
}
