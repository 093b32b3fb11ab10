//! The older text format of Prometheus.

use std::collections::BTreeMap;

/// OpenMetrics text as the older format has it: a counter is known by the name of its sample, an info is a
/// gauge, and units and the end are not told.
pub(super) fn classic(open_metrics: &str) -> String {
    let (mut text, mut helps) = (String::with_capacity(open_metrics.len()), BTreeMap::new());
    for line in open_metrics.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap_or((told, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some(help) = helps.remove(name) {
                text += &format!("# HELP {name}{suffix} {help}\n");
            }
            text += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if let Some(told) = line.strip_prefix("# HELP ") {
            // Its suffix is known with the type, which follows.
            if let Some((name, help)) = told.split_once(' ') {
                helps.insert(name.to_owned(), help.to_owned());
            }
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}
