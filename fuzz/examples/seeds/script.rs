//! Golden scripts as plans: the same commands, as far as the pools of a plan have room for their names.

use std::error::Error;
use weir_fuzz::plan::{Kind, LimitPlan, Number, PolicyPlan, Step};

type Failure = Box<dyn Error>;

/// Keys of arguments that are no dimension.
const WORDS: [&str; 11] = [
    "tenant", "priority", "attempt", "ask", "deadline", "by", "outcome", "after", "age", "burst",
    "expect",
];

/// Reads commands and writes steps.
#[derive(Default)]
pub(crate) struct Script {
    bytes: Vec<u8>,
    now: u64,
    last: u64,
    dimensions: Pool,
    tenants: Pool,
    priorities: Pool,
    ids: Pool,
    principals: Pool,
}

/// Names in the order in which they were met.
#[derive(Default)]
struct Pool(Vec<String>);

impl Pool {
    fn place(&mut self, name: &str) -> u8 {
        let known = self.0.iter().position(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        place as u8
    }
}

/// An argument of a command: a word, or a key and its value.
struct Argument {
    key: Option<String>,
    value: String,
}

impl Argument {
    fn new(text: &str) -> Argument {
        match text.split_once('=') {
            Some((key, value)) => Argument {
                key: Some(key.to_owned()),
                value: value.to_owned(),
            },
            None => Argument {
                key: None,
                value: text.to_owned(),
            },
        }
    }
}

impl Script {
    /// The plan of a script; the answers that it expects are left aside.
    pub(crate) fn plan(text: &str) -> Result<Vec<u8>, Failure> {
        let mut script = Script::default();
        // The names of the pools come first where a script leaves them out.
        script.tenants.place("t");
        script.priorities.place("p1");
        script.principals.place("anonymous");
        let mut commands = true;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.trim() {
                "---" => commands = false,
                "" => commands = true,
                command if commands => script.run(command)?,
                _ => {}
            }
        }
        Ok(script.bytes)
    }

    fn run(&mut self, command: &str) -> Result<(), Failure> {
        let mut words = command.split_whitespace();
        let name = words.next().unwrap_or_default();
        let args: Vec<_> = words.map(Argument::new).collect();
        let kind = match name {
            "at" => {
                self.now = micros(args.first().map_or("", |arg| &arg.value))?;
                return Ok(());
            }
            "put" => Kind::Put,
            "delete" => Kind::Delete,
            "admit" => Kind::Admit,
            "release" => Kind::Release,
            "extend" => Kind::Extend,
            "cancel" => Kind::Cancel,
            "unwake" => Kind::Unwake,
            "report" => Kind::Report,
            _ => return Ok(()),
        };
        self.step(kind, &args)
    }

    fn step(&mut self, kind: Kind, args: &[Argument]) -> Result<(), Failure> {
        let place = Step::KINDS.iter().position(|listed| *listed == kind);
        let mut step = Step {
            what: place.ok_or("a kind")? as u8,
            wait: Number::of_span(self.now.saturating_sub(self.last)),
            ..Step::default()
        };
        self.last = self.now;
        let plain: Vec<_> = args.iter().filter(|arg| arg.key.is_none()).collect();
        let first = plain.first().map_or("", |arg| arg.value.as_str());
        let tenant = self.tenants.place(find(args, "tenant").unwrap_or("t")) & 3;
        let stranger = self
            .principals
            .place(find(args, "by").unwrap_or("anonymous"))
            & 1;
        step.who = tenant << 2 | stranger << 7;
        let (attempt, ask) = (number(args, "attempt")?, number(args, "ask")?);
        step.number = attempt & 0x0f | (ask & 0x0f) << 4;
        self.amounts(&mut step, args)?;
        match kind {
            Kind::Admit | Kind::Cancel | Kind::Unwake | Kind::Report => {
                step.who |= (self.ids.place(first) & 7) << 4;
                let priority = find(args, "priority").unwrap_or("p1");
                step.flags |= self.priorities.place(priority) & 3;
                if let Some(deadline) = find(args, "deadline") {
                    step.flags |= Step::DEADLINE;
                    step.span = Number::of_span(micros(deadline)?);
                }
                if let Some(age) = find(args, "age") {
                    step.span = Number::of_span(micros(age)?);
                }
                match plain.get(1).map(|arg| arg.value.as_str()) {
                    Some("dry") => step.flags |= Step::DRY_RUN,
                    Some("wake") => step.flags |= Step::WAKE,
                    Some(_) | None => {}
                }
            }
            Kind::Release | Kind::Extend => {
                step.number = first.parse()?;
                step.flags |= Step::BY_INDEX | outcome(args);
                if let Some(after) = find(args, "after") {
                    step.span = Number::of_span(micros(after)?);
                }
            }
            Kind::Put | Kind::Delete => {
                if let Some(version) = find(args, "expect") {
                    step.flags |= Step::EXPECTS;
                    step.number = version.parse()?;
                }
            }
            Kind::Seed | Kind::Nothing => {}
        }
        self.bytes.extend(step.bytes());
        if kind == Kind::Put {
            let policy = self.policy(args)?;
            self.bytes.extend(policy.bytes());
        }
        Ok(())
    }

    fn amounts(&mut self, step: &mut Step, args: &[Argument]) -> Result<(), Failure> {
        let (mut places, mut told) = (Vec::new(), 0);
        for (key, value) in dimensions(args) {
            let (name, bound) = match key.strip_prefix("max_") {
                Some(name) => (name, true),
                None => (key, false),
            };
            let Ok(units) = value.parse() else { continue };
            let dimension = self.dimensions.place(name) & 0x0f;
            if !places.contains(&dimension) {
                places.push(dimension);
            }
            let at = places.iter().position(|place| *place == dimension);
            let Some(at) = at.filter(|at| *at < step.cost.len()) else {
                continue;
            };
            if bound {
                step.flags |= Step::BOUNDED;
                step.cost_max[at] = Number::of_units(units);
            } else {
                told += 1;
                step.cost[at] = Number::of_units(units);
            }
        }
        if told < 2 {
            step.flags |= Step::ONE_COST;
        }
        let place = |at: usize| places.get(at).copied().unwrap_or(0);
        step.dimensions = place(0) | place(1) << 4;
        Ok(())
    }

    fn policy(&mut self, args: &[Argument]) -> Result<PolicyPlan, Failure> {
        let mut policy = PolicyPlan {
            others: 100,
            sigmas: 255,
            ..PolicyPlan::default()
        };
        let burst = find(args, "burst").map(micros).transpose()?;
        for (name, value) in dimensions(args) {
            let parts: Vec<_> = value.split('/').collect();
            let [cap, seconds, ..] = parts[..] else {
                continue;
            };
            let per = micros(seconds)?;
            let eighths = burst.map_or(0, |burst| 1 + (8 * burst / per.max(1)).min(14));
            let bucket = parts.get(2).map_or(0, |_| LimitPlan::BUCKET);
            policy.limits.push(LimitPlan {
                name: self.dimensions.place(name) & 0x0f,
                cap: Number::of_units(cap.parse()?),
                per: Number::of_span(per),
                shape: bucket | LimitPlan::US | LimitPlan::EMPTY | (eighths as u8) << 4,
            });
        }
        for arg in args
            .iter()
            .filter(|arg| arg.key.as_deref() == Some("priority"))
        {
            let (name, weight) = arg.value.split_once('/').ok_or("name/weight")?;
            let place = usize::from(self.priorities.place(name) & 3);
            policy.priorities[place] = weight.parse::<u64>()?.min(255) as u8;
        }
        for weight in policy.priorities.iter_mut().take(self.priorities.0.len()) {
            *weight = (*weight).max(1);
        }
        Ok(policy)
    }
}

fn dimensions(args: &[Argument]) -> impl Iterator<Item = (&str, &str)> {
    let pairs = args
        .iter()
        .filter_map(|arg| Some((arg.key.as_deref()?, arg.value.as_str())));
    pairs.filter(|(key, _)| !WORDS.contains(key))
}

fn find<'a>(args: &'a [Argument], key: &str) -> Option<&'a str> {
    let named = args.iter().find(|arg| arg.key.as_deref() == Some(key));
    named.map(|arg| arg.value.as_str())
}

fn number(args: &[Argument], key: &str) -> Result<u8, Failure> {
    Ok(find(args, key).map_or(Ok(1), str::parse)?)
}

fn outcome(args: &[Argument]) -> u8 {
    match find(args, "outcome") {
        Some("failed") => 1,
        Some("not_sent") => 2,
        Some("throttled") => 3,
        Some(_) | None => 0,
    }
}

/// `1.5` seconds in microseconds.
fn micros(text: &str) -> Result<u64, Failure> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = format!("{part:0<6}");
    Ok(whole.parse::<u64>()? * 1_000_000 + part.get(..6).unwrap_or("0").parse::<u64>()?)
}
