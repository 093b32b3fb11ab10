//! Histories as a reader would write them down.

use super::Entry;
use std::fmt::Write;
use weir_admission::{Admit, Amounts, AskName, Operation, Policy};

/// One line for each operation, its answer behind it.
pub(crate) fn tell(entry: &Entry) -> String {
    let mut text = String::new();
    let (seconds, micros) = (entry.now / 1_000_000, entry.now % 1_000_000);
    let at = format!("{seconds}.{micros:06} entry {}", entry.index);
    if entry.batch.is_empty() {
        let _ = writeln!(text, "{at}: nothing");
    }
    for (offset, (operation, outcome)) in entry.batch.iter().zip(&entry.outcomes).enumerate() {
        let _ = writeln!(text, "{at}.{offset}: {}", told(operation));
        let _ = writeln!(text, "    -> {outcome:?}");
    }
    text
}

fn ask_name(ask: &AskName) -> String {
    format!(
        "{} {}/{} attempt {} ask {} by {}",
        ask.target,
        ask.tenant,
        String::from_utf8_lossy(&ask.admission_id),
        ask.attempt,
        ask.ask,
        ask.principal
    )
}

fn told(operation: &Operation) -> String {
    match operation {
        Operation::Admit(admit) => ask(admit),
        Operation::Release(release) => format!(
            "release {} {:?} by {} {:?} used{}",
            release.target,
            release.grant,
            release.principal,
            release.outcome,
            units(&release.actual)
        ),
        Operation::Cancel(ask) => format!("cancel {}", ask_name(ask)),
        Operation::Unwake(ask) => format!("unwake {}", ask_name(ask)),
        Operation::Extend(extend) => format!("extend {} {:?}", extend.target, extend.grant),
        Operation::Report(report) => format!(
            "report {} {}/{} {} attempt {} {} us ago{}",
            report.target,
            report.tenant,
            String::from_utf8_lossy(&report.admission_id),
            report.priority,
            report.attempt,
            report.age,
            units(&report.actual)
        ),
        Operation::PutPolicy(put) => format!(
            "put {} expecting {:?}: {}",
            put.target,
            put.expected_version,
            policy(&put.policy)
        ),
        Operation::DeletePolicy(delete) => {
            format!(
                "delete {} expecting {:?}",
                delete.target, delete.expected_version
            )
        }
        Operation::Seed(_) => "seed".into(),
    }
}

fn ask(admit: &Admit) -> String {
    let mut text = format!(
        "ask {} {}/{} {} attempt {} ask {} by {}{}",
        admit.target,
        admit.tenant,
        String::from_utf8_lossy(&admit.admission_id),
        admit.priority,
        admit.attempt,
        admit.ask,
        admit.principal,
        units(&admit.cost)
    );
    if !admit.cost_max.is_empty() {
        text += &format!(" at most{}", units(&admit.cost_max));
    }
    if let Some(deadline) = admit.deadline {
        text += &format!(" within {deadline} us");
    }
    if admit.dry_run {
        text += " (dry)";
    }
    if admit.wake {
        text += " (to be woken)";
    }
    text
}

fn units(amounts: &Amounts) -> String {
    let units = amounts.iter();
    units
        .map(|(dimension, units)| format!(" {dimension}={units}"))
        .collect()
}

fn policy(policy: &Policy) -> String {
    let mut text = String::new();
    for limit in &policy.limits {
        text += &format!(
            "\n    {}: {} {} per {} us, {:?} by {:?}, burst {:?}, {:?}",
            limit.name,
            limit.cap,
            limit.dimension,
            limit.per,
            limit.kind,
            limit.enforced_by,
            limit.burst,
            limit.initial_use
        );
    }
    let priorities = policy.priorities.iter();
    let priorities: Vec<_> = priorities
        .map(|p| format!("{}/{}", p.name, p.weight))
        .collect();
    text + &format!(
        "\n    {} tenants {:?} usual {} R {:?} J {:?} horizon {} {:?} {:?} rejected count {} sigmas {}",
        priorities.join(" "),
        policy.tenant_weights,
        policy.default_tenant_weight,
        policy.reply_window,
        policy.send_spread,
        policy.horizon,
        policy.headroom,
        policy.estimate,
        policy.rejected_counts,
        policy.estimate_sigmas_milli
    )
}
