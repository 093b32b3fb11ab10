//! Golden scripts: operations with their times, and the exact answers. The file name is the claim.
//!
//! `at 1.5` moves cluster time to 1.5 s; times and durations are in seconds. `UPDATE_GOLDENFILES=1` writes
//! the answers anew: read the difference before you believe it.

use goldenscript::{Argument, Command};
use std::error::Error;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, AskName, CallOutcome, Deferred, DeletePolicy, DimensionName,
    EnforcedBy, Extend, ExtendOutcome, GrantId, InitialUse, Kind, Limit, LimitName, Operation,
    Outcome, Policy, Principal, Priority, PriorityName, PutPolicy, Rejected, Release, Report,
    Stamp, State, TargetName, TenantName,
};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");

type Failure = Box<dyn Error>;

#[test]
fn scripts() {
    let mut names: Vec<_> = std::fs::read_dir(SCRIPTS)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for name in names {
        goldenscript::run(&mut Script::default(), &name).unwrap();
    }
}

/// A target `api/x` and whoever asks it.
#[derive(Default)]
struct Script {
    state: State,
    index: u64,
    now: u64,
}

impl goldenscript::Runner for Script {
    fn run(&mut self, command: &Command) -> Result<String, Failure> {
        let args = &command.args;
        let answer = match command.name.as_str() {
            "at" => {
                self.now = seconds(&args[0].value)?;
                return Ok(String::new());
            }
            "put" => self.apply(put(args)?),
            "delete" => {
                let expected_version = None;
                self.apply(Operation::DeletePolicy(DeletePolicy {
                    target: target(),
                    expected_version,
                }))
            }
            "admit" => self.apply(admit(args)?),
            "release" => self.apply(release(args)?),
            "extend" => self.apply(Operation::Extend(Extend {
                target: target(),
                principal: principal(args)?,
                grant: grant(&args[0].value)?,
            })),
            "cancel" => self.apply(Operation::Cancel(ask_name(args)?)),
            "unwake" => self.apply(Operation::Unwake(ask_name(args)?)),
            "report" => self.apply(report(args)?),
            "show" => self.show(),
            "near" => self.near(),
            "versions" => self.versions(),
            other => return Err(format!("no command {other}").into()),
        };
        self.state.check()?;
        let again = State::decode(&self.state.encode())?;
        if again.encode() != self.state.encode() {
            return Err("the state does not read back".into());
        }
        Ok(answer)
    }
}

impl Script {
    fn apply(&mut self, operation: Operation) -> String {
        self.index += 1;
        let stamp = Stamp::from_micros(self.now);
        let outcomes = self.state.apply(self.index, stamp, &[operation]);
        outcomes.iter().map(tell).collect()
    }

    /// Numbers of the tickets whose turn is near.
    fn near(&self) -> String {
        let near = self
            .state
            .near(&target(), Stamp::from_micros(self.now), usize::MAX);
        let near: Vec<String> = near.iter().map(ToString::to_string).collect();
        format!("near: {}", near.join(" "))
    }

    /// An empty entry brings the state to now.
    fn wait(&mut self) {
        let stamp = Stamp::from_micros(self.now);
        self.state.apply(self.index, stamp, &[]);
    }

    fn versions(&mut self) -> String {
        self.wait();
        let Some(versions) = self.state.versions(&target()) else {
            return "no policy".into();
        };
        let lines = versions.iter().map(|version| {
            let limit = &version.policy.limits[0];
            let (number, by, age) = (version.version, &version.put_by, span(version.age));
            format!("{number} by {by} {age} ago: {} {}", limit.name, limit.cap)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn show(&mut self) -> String {
        self.wait();
        let Some(view) = self.state.view(&target()) else {
            return "no policy".into();
        };
        let mut text = format!("version {}", view.version);
        for limit in view.limits {
            text += &format!(", {} {}/{}", limit.name, limit.used, limit.cap);
        }
        text + &format!(", {} waiting, {} granted", view.waiting, view.grants)
    }
}

fn tell(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
            let grant = admitted
                .grant
                .map_or("nothing".into(), |id| id.index.to_string());
            format!("admitted as {grant}, start in {}", span(admitted.start_in))
        }
        Outcome::Admit(AdmitOutcome::Deferred(deferred)) => tell_deferred(deferred),
        Outcome::Admit(AdmitOutcome::Rejected(Rejected::NeverFits {
            limit, cap, cost, ..
        })) => {
            format!("rejected: never fits, {limit} holds {cap}, cost {cost}")
        }
        Outcome::Admit(AdmitOutcome::Rejected(rejected)) => format!("rejected: {rejected:?}"),
        Outcome::Release(release) => format!("{release:?}"),
        Outcome::Cancel(cancel) => format!("{cancel:?}"),
        Outcome::Extend(ExtendOutcome::Extended { expires_in }) => {
            format!("extended, ends in {}", span(*expires_in))
        }
        Outcome::Extend(extend) => format!("{extend:?}"),
        Outcome::Report(report) => format!("{report:?}"),
        Outcome::Policy(policy) => format!("{policy:?}"),
        Outcome::Unwoken => "unwoken".into(),
        Outcome::Seeded => "seeded".into(),
        Outcome::Refused(refusal) => format!("refused: {refusal:?}"),
    }
}

fn tell_deferred(deferred: &Deferred) -> String {
    let limit = deferred
        .limit
        .as_ref()
        .map_or("a hold".into(), ToString::to_string);
    let back = match deferred.retry_in.checked_sub(deferred.earliest_in) {
        None | Some(0) => String::new(),
        Some(_) => format!(", back in {}", span(deferred.retry_in)),
    };
    format!(
        "deferred by {limit}, earliest in {}, {} before it{back}",
        span(deferred.earliest_in),
        deferred.place
    )
}

/// Milliseconds, rounded up: a golden answer should not hang on the width of a bucket.
fn span(us: u64) -> String {
    format!("{} ms", us.div_ceil(1_000))
}

fn seconds(text: &str) -> Result<u64, Failure> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let micros = format!("{fraction:0<6}").parse::<u64>()?;
    Ok(whole.parse::<u64>()? * 1_000_000 + micros)
}

fn target() -> TargetName {
    TargetName::new("api/x").unwrap()
}

fn find<'a>(args: &'a [Argument], key: &str) -> Option<&'a str> {
    args.iter()
        .find(|arg| arg.key.as_deref() == Some(key))
        .map(|arg| arg.value.as_str())
}

fn number<T: std::str::FromStr>(args: &[Argument], key: &str, default: T) -> Result<T, Failure>
where
    T::Err: Error + 'static,
{
    find(args, key).map_or(Ok(default), |text| Ok(text.parse()?))
}

fn principal(args: &[Argument]) -> Result<Principal, Failure> {
    Ok(Principal::new(find(args, "by").unwrap_or("anonymous"))?)
}

/// Keys that are not a dimension.
const WORDS: [&str; 11] = [
    "tenant", "priority", "attempt", "ask", "deadline", "by", "outcome", "after", "age", "burst",
    "expect",
];

/// Every key that is no other word is a dimension; `max_` before it makes it an upper bound.
fn dimensions(args: &[Argument]) -> impl Iterator<Item = (&str, &str)> {
    let pairs = args
        .iter()
        .filter_map(|arg| Some((arg.key.as_deref()?, arg.value.as_str())));
    pairs.filter(|(key, _)| !WORDS.contains(key))
}

fn amounts(args: &[Argument], prefix: &str) -> Result<Amounts, Failure> {
    let mut list = Vec::new();
    for (key, units) in dimensions(args) {
        if key.starts_with("max_") == (prefix == "max_") {
            list.push((
                DimensionName::new(key.trim_start_matches(prefix))?,
                units.parse()?,
            ));
        }
    }
    Ok(Amounts::new(list)?)
}

fn grant(text: &str) -> Result<GrantId, Failure> {
    Ok(GrantId {
        index: text.parse()?,
        offset: 0,
    })
}

/// `put req=10/60 tokens=500/60/bucket priority=p1/5 burst=60`: limits that we enforce, so without a guard:
/// times in the scripts are round numbers of the period.
fn put(args: &[Argument]) -> Result<Operation, Failure> {
    let mut policy = Policy {
        reply_window: Some(0),
        send_spread: Some(0),
        ..Policy::default()
    };
    let burst = find(args, "burst").map(seconds).transpose()?;
    for (name, value) in dimensions(args) {
        let mut parts = value.split('/');
        let cap = parts.next().ok_or("cap")?.parse()?;
        let per = seconds(parts.next().ok_or("seconds")?)?;
        policy.limits.push(Limit {
            name: LimitName::new(name)?,
            dimension: DimensionName::new(name)?,
            cap,
            per,
            kind: if parts.next() == Some("bucket") {
                Kind::Bucket
            } else {
                Kind::Sliding
            },
            enforced_by: EnforcedBy::Us,
            burst,
            initial_use: InitialUse::Empty,
        });
    }
    for arg in args
        .iter()
        .filter(|arg| arg.key.as_deref() == Some("priority"))
    {
        let (name, weight) = arg.value.split_once('/').ok_or("name/weight")?;
        policy.priorities.push(Priority {
            name: PriorityName::new(name)?,
            weight: weight.parse()?,
        });
    }
    if policy.priorities.is_empty() {
        policy.priorities.push(Priority {
            name: PriorityName::new("p1")?,
            weight: 1,
        });
    }
    Ok(Operation::PutPolicy(Box::new(PutPolicy {
        target: target(),
        principal: principal(args)?,
        policy,
        expected_version: find(args, "expect").map(str::parse).transpose()?,
    })))
}

/// `admit ID req=1 max_req=2 tenant=t priority=p1 attempt=1 ask=1 deadline=… by=…`; `dry` or `wake` as a second word.
fn admit(args: &[Argument]) -> Result<Operation, Failure> {
    let plain: Vec<_> = args.iter().filter(|arg| arg.key.is_none()).collect();
    Ok(Operation::Admit(Box::new(Admit {
        target: target(),
        tenant: TenantName::new(find(args, "tenant").unwrap_or("t"))?,
        principal: principal(args)?,
        priority: PriorityName::new(find(args, "priority").unwrap_or("p1"))?,
        admission_id: plain[0].value.as_bytes().into(),
        attempt: number(args, "attempt", 1)?,
        ask: number(args, "ask", 1)?,
        cost: amounts(args, "")?,
        cost_max: amounts(args, "max_")?,
        labels_digest: 0,
        deadline: find(args, "deadline").map(seconds).transpose()?,
        dry_run: plain.get(1).is_some_and(|arg| arg.value == "dry"),
        wake: plain.get(1).is_some_and(|arg| arg.value == "wake"),
    })))
}

/// `release GRANT req=1 outcome=ok|failed|throttled|not_sent after=…`
fn release(args: &[Argument]) -> Result<Operation, Failure> {
    let plain: Vec<_> = args.iter().filter(|arg| arg.key.is_none()).collect();
    let outcome = match find(args, "outcome").unwrap_or("ok") {
        "ok" => CallOutcome::Ok,
        "failed" => CallOutcome::Failed,
        "not_sent" => CallOutcome::NotSent,
        "throttled" => CallOutcome::Throttled {
            retry_after: seconds(find(args, "after").unwrap_or("0"))?,
        },
        other => return Err(format!("no outcome {other}").into()),
    };
    Ok(Operation::Release(Box::new(Release {
        target: target(),
        principal: principal(args)?,
        grant: grant(&plain[0].value)?,
        actual: amounts(args, "")?,
        outcome,
    })))
}

fn ask_name(args: &[Argument]) -> Result<Box<AskName>, Failure> {
    Ok(Box::new(AskName {
        target: target(),
        tenant: TenantName::new(find(args, "tenant").unwrap_or("t"))?,
        principal: principal(args)?,
        admission_id: args[0].value.as_bytes().into(),
        attempt: number(args, "attempt", 1)?,
        ask: number(args, "ask", 1)?,
    }))
}

fn report(args: &[Argument]) -> Result<Operation, Failure> {
    let plain: Vec<_> = args.iter().filter(|arg| arg.key.is_none()).collect();
    Ok(Operation::Report(Box::new(Report {
        target: target(),
        tenant: TenantName::new(find(args, "tenant").unwrap_or("t"))?,
        principal: principal(args)?,
        priority: PriorityName::new(find(args, "priority").unwrap_or("p1"))?,
        admission_id: plain[0].value.as_bytes().into(),
        attempt: number(args, "attempt", 1)?,
        actual: amounts(args, "")?,
        age: seconds(find(args, "age").unwrap_or("0"))?,
    })))
}
