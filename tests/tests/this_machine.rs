//! `fulgurite doctor` and `fulgurite bench`: what they tell of this machine.

use fulgurite_tests::{
    Project,
    resident::names,
    said::{says, stderr, stdout},
};
use serde_json::Value;

/// One check of the doctor's, by its name.
fn check<'a>(checks: &'a Value, what: &str) -> &'a Value {
    let all = checks.as_array().unwrap();
    all.iter().find(|check| check["what"] == what).unwrap_or_else(|| panic!("{what}: {checks:#}"))
}

#[test]
fn the_doctor_finds_what_set_up_made() {
    let project = Project::new();
    let checks = project.json(&["doctor"], 0);
    for what in
        ["plugins", "registry", "compiled code", "python3", "Python for the wasm lane", "HumanEval"]
    {
        let check = check(&checks, what);
        assert_eq!(check["verdict"], "good", "{check}");
        assert_ne!(check["found"], "", "{check}");
        assert_eq!(check.get("mend"), None, "{check}");
    }
    // How large this machine is, is no business of this test.
    for what in ["vm.max_map_count", "open files", "address space", "memory"] {
        let check = check(&checks, what);
        assert_eq!(check["verdict"] == "small", check["mend"].is_string(), "{check}");
        assert_ne!(check["verdict"], "missing", "{check}");
    }
    let shown = project.fulgurite(&["doctor"]).assert().success();
    let words = ["verdict", "mend", "registry", "HumanEval", "good"];
    says(&stdout(shown.get_output()), &words);
}

#[test]
fn the_doctor_says_what_is_not_registered_and_how_to_mend_it() {
    let project = Project::new();
    let checks = project.json(&["--home", "empty", "doctor"], 0);
    let registry = check(&checks, "registry");
    assert_eq!(registry["verdict"], "small", "{registry}");
    says(registry["mend"].as_str().unwrap(), &["coder", "python", "cargo xtask setup"]);
}

#[test]
fn what_is_missing_makes_the_doctor_fail() {
    let project = Project::new();
    project.write("in-the-way", "");
    let checks = project.json(&["--home", "in-the-way", "doctor"], 1);
    for what in ["plugins", "registry"] {
        let check = check(&checks, what);
        assert_eq!(check["verdict"], "missing", "{check}");
        assert!(check["mend"].is_string(), "{check}");
    }
    assert_eq!(check(&checks, "compiled code")["verdict"], "good", "{checks:#}");
    let shown = project.fulgurite(&["--home", "in-the-way", "doctor"]).assert().code(1);
    says(&stdout(shown.get_output()), &["MISSING", "in-the-way"]);
    says(&stderr(shown.get_output()), &["error: 2 of ", "found something missing"]);
    let told = project.fulgurite(&["--home", "in-the-way", "doctor", "--json"]).output().unwrap();
    let error: Value = serde_json::from_slice(&told.stderr).unwrap();
    assert_eq!(error["error"]["exit_code"], 1, "{error}");
}

/// What a measurement answers: an object of numbers under these names, and nothing else. What it
/// needed to measure is gone afterwards.
fn measures(arguments: &[&str], expected: &[&str]) -> Value {
    let project = Project::new();
    let figures = project.json(arguments, 0);
    let named: Vec<&String> = figures.as_object().unwrap().keys().collect();
    assert_eq!(named, expected);
    for (name, figure) in figures.as_object().unwrap() {
        // The last of few episodes may end before anybody looks.
        let least = if name == "finished_after_ms" { 0.0 } else { f64::MIN_POSITIVE };
        assert!(figure.as_f64().unwrap() >= least, "{name}: {figures}");
    }
    assert_eq!(names(&project.path(".fulgurite")), Vec::<String>::new());
    figures
}

#[test]
fn bench_episodes_tells_its_figures_under_their_documented_names() {
    let few = ["bench", "episodes", "--episodes", "20", "--alive", "10"];
    let names = [
        "episodes_per_s",
        "episodes_per_s_bare",
        "instantiate_us_p50",
        "instantiate_us_p99",
        "load_cached_ms",
        "resident_mib_alive",
        "resident_mib_before",
        "alive",
        "alive_after_ms",
        "finished_after_ms",
        "episodes",
    ];
    let figures = measures(&few, &names);
    assert_eq!((figures["episodes"].as_u64(), figures["alive"].as_u64()), (Some(20), Some(10)));
    let number = |name: &str| figures[name].as_f64().unwrap();
    assert!(number("instantiate_us_p50") <= number("instantiate_us_p99"), "{figures}");

    let shown = Project::new().fulgurite(&few).assert().success();
    says(&stdout(shown.get_output()), &["figure", "value", "episodes_per_s", "load_cached_ms"]);
    says(&stderr(shown.get_output()), &["measuring 10 episodes alive at once"]);
}

#[test]
fn bench_store_tells_its_figures_under_their_documented_names() {
    let names = [
        "turns_per_s_durable",
        "episodes_per_s_durable",
        "lone_turn_ms_p50",
        "sync_ms_p50",
        "bytes_per_turn",
        "turns",
        "tasks",
    ];
    let figures = measures(&["bench", "store", "--turns", "300"], &names);
    // The writers have equal shares, so the turns are rounded up.
    let number = |name: &str| figures[name].as_u64().unwrap();
    assert!((300..300 + number("tasks")).contains(&number("turns")), "{figures}");
    // Half a thousand token ids cannot be nothing, and are far from a megabyte.
    let bytes = figures["bytes_per_turn"].as_f64().unwrap();
    assert!((500.0..100_000.0).contains(&bytes), "{figures}");
}
