//! `procfs`: the process and its host, as Linux tells them under `/proc`.

use serde_json::{Map, Value, json};

use super::FigureSink;

/// Fields of `/proc/self/stat` by their place after the name of the program (proc(5), from field 3 on).
const STAT_FIELDS: [(&str, usize); 9] = [
    ("minflt", 7),
    ("majflt", 9),
    ("utime", 11),
    ("stime", 12),
    ("threads_num", 17),
    ("starttime", 19),
    ("vsize", 20),
    ("rss_pages", 21),
    ("rsslim", 22),
];

pub(super) fn procfs(sink: &mut FigureSink) {
    sink.set("vm", part("/proc/meminfo", vm));
    sink.set("io", part("/proc/self/io", io));
    sink.set("stat", part("/proc/self/stat", stat));
    sink.set("net", part("/proc/self/net/dev", net));
}

/// The figures of a file, with `error` and `string_error` as Elliptics has them.
fn part(path: &str, read: fn(&str) -> Option<Value>) -> Value {
    let read = std::fs::read_to_string(path).and_then(|text| {
        read(&text).ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "it has another format"))
    });
    match read {
        Ok(mut figures) => {
            figures["error"] = 0.into();
            figures["string_error"] = "".into();
            figures
        }
        Err(error) => {
            json!({"error": error.raw_os_error().unwrap_or(-1), "string_error": format!("{path}: {error}")})
        }
    }
}

fn vm(meminfo: &str) -> Option<Value> {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<f64> = averages.split(' ').take(3).filter_map(|average| average.parse().ok()).collect();
    Some(json!({
        "la": averages,
        "total": kib("MemTotal")?, "active": kib("Active"), "inactive": kib("Inactive"),
        "free": kib("MemFree")?, "available": kib("MemAvailable"), "cached": kib("Cached"), "buffers": kib("Buffers"),
    }))
}

fn io(text: &str) -> Option<Value> {
    let numbers = text.lines().map(|line| {
        let (name, number) = line.split_once(": ")?;
        Some((name.to_owned(), Value::from(number.trim().parse::<u64>().ok()?)))
    });
    numbers.collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn stat(text: &str) -> Option<Value> {
    // The name may have blanks and parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number =
        |(name, at): &(&str, usize)| Some(((*name).to_owned(), Value::from(fields.get(*at)?.parse::<u64>().ok()?)));
    STAT_FIELDS.iter().map(number).collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn net(text: &str) -> Option<Value> {
    let mut interfaces = Map::new();
    for line in text.lines().skip(2) {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
        let direction = |at: usize| {
            Some(json!({"bytes": numbers.get(at)?, "packets": numbers.get(at + 1)?, "errors": numbers.get(at + 2)?}))
        };
        interfaces.insert(name.trim().to_owned(), json!({"rx": direction(0)?, "tx": direction(8)?}));
    }
    Some(json!({"interfaces": interfaces}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Categories, Scope};

    #[test]
    fn the_files_of_proc_are_read() {
        let stat_line = "42 (a (b) c) S 1 2 3 4 5 6 70 8 90 10 110 120 13 14 15 16 17 18 190 200 210 220";
        let told = stat(stat_line).unwrap();
        assert_eq!((&told["minflt"], &told["utime"], &told["stime"]), (&json!(70), &json!(110), &json!(120)));
        assert_eq!((&told["threads_num"], &told["vsize"], &told["rss_pages"]), (&json!(17), &json!(200), &json!(210)));
        assert_eq!(io("rchar: 5\nwrite_bytes: 7\n").unwrap(), json!({"rchar": 5, "write_bytes": 7}));
        let memory = "MemTotal:  10 kB\nMemFree:   4 kB\nActive:    1 kB\nActive(anon):  9 kB\n";
        let told = vm(memory).unwrap();
        assert_eq!((&told["total"], &told["free"], &told["active"]), (&json!(10), &json!(4), &json!(1)));
        let devices = "head\nhead\n    lo: 1 2 3 0 0 0 0 0 4 5 6 0 0 0 0 0\n";
        let told = net(devices).unwrap();
        assert_eq!(told["interfaces"]["lo"]["rx"], json!({"bytes": 1, "packets": 2, "errors": 3}));
        assert_eq!(told["interfaces"]["lo"]["tx"], json!({"bytes": 4, "packets": 5, "errors": 6}));
        for broken in [stat("nothing"), io("rchar 5"), vm(""), net("a\nb\nlo 1 2")] {
            assert_eq!(broken, None);
        }
    }

    #[test]
    fn this_process_and_a_missing_file_are_told() {
        let mut sink = FigureSink::new(Categories::PROCFS, &Scope::EVERY_TENANT);
        procfs(&mut sink);
        assert!(sink.members["stat"]["threads_num"].as_u64().unwrap() > 0, "{:?}", sink.members);
        assert!(sink.members["vm"]["total"].as_u64().unwrap() > 0, "{:?}", sink.members);
        assert_eq!(sink.members["stat"]["error"], 0);
        let missing = part("/proc/self/nothing", io);
        assert_eq!(missing["error"], 2);
        assert!(missing["string_error"].as_str().unwrap().contains("/proc/self/nothing"), "{missing}");
    }
}
