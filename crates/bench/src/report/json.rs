use keyway_report::statistics::Spread;
use serde_json::{Value, json};

use super::{BySystem, Report};
use crate::memory::Memory;
use crate::rounds::{Column, RowResult};
use crate::syscalls::Syscalls;

/// Returns all results of a run, with every single measurement.
pub fn to_json(report: &Report) -> Value {
    let machine = &report.setting.machine;
    let versions: serde_json::Map<String, Value> = report
        .setting
        .versions
        .iter()
        .map(|(name, version)| (name.clone(), json!(version)))
        .collect();
    json!({
        "date": report.setting.date,
        "command": report.setting.command,
        "machine": {
            "cpu": machine.cpu,
            "cores": machine.cores,
            "memory_mib": machine.memory_bytes >> 20,
            "kernel": machine.kernel,
        },
        "versions": versions,
        "rounds": report.rounds,
        "load_average": report.load_average,
        "rows": report.rows.iter().map(row).collect::<Vec<_>>(),
        "memory": by_system(&report.memory, memory),
        "bytes_per_item": by_system(&report.items, |figures| json!(figures)),
        "syscalls": by_system(&report.syscalls, syscalls),
        "absent": report.absent.iter()
            .map(|absent| json!({ "system": absent.name, "why": absent.why }))
            .collect::<Vec<_>>(),
        "failures": report.failures(),
    })
}

fn row(result: &RowResult) -> Value {
    let row = &result.row;
    let judgement = result.judgement();
    json!({
        "id": row.id,
        "title": row.title,
        "connections": row.connections,
        "depth": row.depth,
        "value_bytes": row.dataset.value_bytes,
        "at_least": row.target.map(|target| target.at_least),
        "aim": row.target.map(|target| target.aim),
        "against": judgement.as_ref().map(|judgement| &judgement.against),
        "ratio": judgement.as_ref().map(|judgement| spread(judgement.ratio)),
        "verdict": judgement.as_ref()
            .and_then(|judgement| judgement.verdict)
            .map(|verdict| verdict.text()),
        "systems": result.columns.iter()
            .map(|column| system(result, column))
            .collect::<Vec<_>>(),
    })
}

fn system(result: &RowResult, column: &Column) -> Value {
    let samples: Vec<Value> = column
        .samples
        .iter()
        .map(|sample| {
            sample.map_or(Value::Null, |sample| {
                json!({
                    "requests": sample.requests,
                    "cpu_seconds": sample.cpu.as_secs_f64(),
                    "voluntary_switches": sample.voluntary_switches,
                    "loader_cpu_seconds": sample.loader_cpu.as_secs_f64(),
                    "seconds": sample.elapsed.as_secs_f64(),
                    "per_cpu_second": sample.per_cpu_second(),
                    "per_second": sample.per_second(),
                })
            })
        })
        .collect();
    json!({
        "system": column.name,
        "per_cpu_second": column.spread().map(spread),
        "subject_ratio": result.ratio(column).map(spread),
        "failure": column.failure,
        "samples": samples,
    })
}

fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

fn by_system<T>(figures: &BySystem<T>, value: impl Fn(&T) -> Value) -> Value {
    let figure = |(name, figure): &(String, Result<T, String>)| {
        let figure = match figure {
            Ok(figure) => value(figure),
            Err(failure) => json!({ "failure": failure }),
        };
        (name.clone(), figure)
    };
    Value::Object(figures.iter().map(figure).collect())
}

fn memory(memory: &Memory) -> Value {
    json!({
        "after_start_bytes": memory.after_start,
        "after_deep_pipelines_bytes": memory.after_deep,
        "two_seconds_later_bytes": memory.later,
        "connections": memory.connections,
        "bytes_per_fresh_connection": memory.per_fresh_connection,
        "bytes_per_used_connection": memory.per_used_connection,
        "bytes_per_connection_used_at_once": memory.per_connection_used_at_once,
    })
}

fn syscalls(syscalls: &Syscalls) -> Value {
    let by_name: serde_json::Map<String, Value> =
        syscalls.by_name.iter().map(|(name, calls)| (name.clone(), json!(calls))).collect();
    json!({
        "requests": syscalls.requests,
        "per_request": syscalls.per_request,
        "by_name": by_name,
    })
}
