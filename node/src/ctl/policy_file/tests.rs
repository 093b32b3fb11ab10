use super::*;

const EXAMPLE: &str = r#"
[[target]]
name = "openai/gpt-5"
reply_window = "100ms"
rejected_counts = false
tenant_weights = { acme = 300 }

[[target.limit]]
dimension = "requests"
cap = 600
per = "60s"

[[target.limit]]
name = "daily"
dimension = "tokens"
cap = 1_000_000
per = "1d"
kind = "bucket"
enforced_by = "us"
burst = "2h"
initial_use = "empty"

[[target.priority]]
name = "interactive"
weight = 600

[[target.priority]]
name = "batch"
weight = 100

[[target]]
name = "payments/charge"
headroom = "off"
estimate = "reserve"
horizon = "1500us"
"#;

#[test]
fn a_file_reads_as_written() {
    let [chat, charge] = parse(EXAMPLE).unwrap().try_into().unwrap();
    assert_eq!(chat.name, "openai/gpt-5");
    assert_eq!(chat.policy.reply_window_us, Some(100_000));
    assert_eq!(chat.policy.rejected_counts(), wire::RejectedCounts::No);
    assert_eq!(chat.policy.headroom(), wire::Headroom::Unspecified);
    assert_eq!(chat.policy.tenant_weights.get("acme"), Some(&300));
    let [requests, daily] = &chat.policy.limits[..] else {
        panic!("two limits")
    };
    assert_eq!(
        (requests.name.as_str(), requests.cap, requests.per_us),
        ("requests", 600, 60_000_000)
    );
    assert_eq!(requests.burst_us, None);
    assert_eq!(
        (daily.name.as_str(), daily.per_us),
        ("daily", 86_400_000_000)
    );
    assert_eq!(daily.kind(), wire::LimitKind::Bucket);
    assert_eq!(daily.enforced_by(), wire::EnforcedBy::Us);
    assert_eq!(daily.burst_us, Some(7_200_000_000));
    assert_eq!(daily.initial_use(), wire::InitialUse::Empty);
    let priorities: Vec<_> = chat
        .policy
        .priorities
        .iter()
        .map(|p| (p.name.as_str(), p.weight))
        .collect();
    assert_eq!(priorities, [("interactive", 600), ("batch", 100)]);
    assert_eq!(charge.policy.headroom(), wire::Headroom::Off);
    assert_eq!(charge.policy.estimate(), wire::Estimate::Reserve);
    assert_eq!(charge.policy.horizon_us, 1_500);
}

#[test]
fn a_violation_is_found_in_the_file() {
    let [chat, charge] = parse(EXAMPLE).unwrap().try_into().unwrap();
    assert_eq!(chat.line_of("policy.limits[0].cap"), 8);
    assert_eq!(chat.line_of("policy.limits[1].per_us"), 13);
    assert_eq!(chat.line_of("policy.priorities[1].weight"), 27);
    assert_eq!(chat.line_of("policy.horizon_us"), 2);
    assert_eq!(chat.line_of("policy.limits[9].cap"), 2);
    assert_eq!(charge.line_of("policy.limits"), 31);
}

/// What to replace in the example by what, the line of the mistake, what the error says.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("name = \"openai/gpt-5\"", "names = \"x\"", "line 3", "unknown field `names`"),
    ("cap = 600", "cap = -1", "line 10", "-1"),
    ("cap = 600", "cap = 6e2", "line 10", "floating point"),
    ("cap = 600", "cap = nan", "line 10", "floating point"),
    ("cap = 600", "caps = 600", "line 10", "unknown field `caps`"),
    ("per = \"60s\"", "per = 60", "line 11", "must be text with a unit such as \"60s\", is 60"),
    ("per = \"60s\"", "per = \"60\"", "line 11", "must be a whole number and us, ms, s, m, h or d"),
    ("per = \"60s\"", "per = \"1.5s\"", "line 11", "must be a whole number"),
    ("per = \"60s\"", "per = \"-1s\"", "line 11", "must be a whole number"),
    ("per = \"60s\"", "per = \"s\"", "line 11", "must be a whole number"),
    ("per = \"60s\"", "per = \"99999999999999d\"", "line 11", "is too long"),
    ("kind = \"bucket\"", "kind = \"leaky\"", "line 18", "unknown variant `leaky`"),
    ("weight = 600", "weight = 600\nweights = 1", "line 26", "unknown field `weights`"),
];

#[test]
fn errors_name_the_line() {
    for (from, to, line, message) in MISTAKES {
        let text = EXAMPLE.replacen(from, to, 1);
        let error = parse(&text).map(|_| ()).unwrap_err();
        assert!(
            error.contains(line) && error.contains(message),
            "{to}:\n{error}"
        );
    }
    let error = parse("[[targets]]\nname = \"a\"").map(|_| ()).unwrap_err();
    assert!(
        error.contains("line 1") && error.contains("unknown field `targets`"),
        "{error}"
    );
}

#[test]
fn spans() {
    for (text, us) in [
        ("0s", 0),
        ("15us", 15),
        ("250ms", 250_000),
        ("10s", 10_000_000),
        ("5m", 300_000_000),
    ] {
        assert_eq!(parse_span(text), Ok(us), "{text}");
    }
    for text in [
        "", "10", "s", "1 s", "1S", "1.0s", "+1s", "-1s", "1s2s", "٣s",
    ] {
        assert!(parse_span(text).is_err(), "{text}");
    }
}

#[test]
fn the_files_we_ship_are_valid() {
    for text in [
        include_str!("../../dev/sample.toml"),
        include_str!("../../../../deploy/config/policy.toml"),
    ] {
        for target in parse(text).unwrap() {
            assert_eq!(target.violations(), [], "{}", target.name);
        }
    }
}
