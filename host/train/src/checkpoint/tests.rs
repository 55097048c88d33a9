use super::*;

fn state(step: u64) -> State {
    let order = TaskOrder::new(5, 10);
    State { step, version: step, updates: step, order, queue: serde_json::json!([step]) }
}

fn optimizer(step: u64) -> AdamW {
    let mut optimizer = AdamW::new(AdamWSettings::default());
    for _ in 0..step {
        let mut update = optimizer.begin(0.1, 1.0);
        update.apply("layers.0.weight", &mut [1.0, 2.0], &[0.1, -0.7], true).unwrap();
    }
    optimizer
}

fn save(checkpoints: &Checkpoints, step: u64) -> PathBuf {
    checkpoints
        .save(&state(step), &optimizer(step), |folder| {
            fs::create_dir(folder.join("adapter"))?;
            fs::write(folder.join("adapter/weights"), step.to_string())?;
            Ok(())
        })
        .unwrap()
}

#[test]
fn what_is_saved_is_loaded_to_the_bit_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
    assert_eq!(checkpoints.latest().unwrap(), None);
    for step in [1, 2, 9, 10] {
        save(&checkpoints, step);
    }
    let latest = checkpoints.latest().unwrap().unwrap();
    assert_eq!(latest.state, state(10));
    assert_eq!(latest.optimizer(AdamWSettings::default()).unwrap(), optimizer(10));
    assert_eq!(fs::read_to_string(latest.folder.join("adapter/weights")).unwrap(), "10");
    assert_eq!(fs::read_to_string(folder.path().join(LATEST)).unwrap(), "step-00000010");
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["latest", "step-00000009", "step-00000010"]);
}

#[test]
fn whatever_is_damaged_the_older_one_is_taken() {
    for name in [STATE, OPTIMIZER, MANIFEST, "adapter/weights"] {
        for way in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
            save(&checkpoints, 1);
            let newest = save(&checkpoints, 2);
            let path = newest.join(name);
            let mut data = fs::read(&path).unwrap();
            match way {
                0 => fs::remove_file(&path).unwrap(),
                1 => fs::write(&path, &data[..data.len() / 2]).unwrap(),
                _ => {
                    let middle = data.len() / 2;
                    data[middle] ^= 1;
                    fs::write(&path, data).unwrap();
                }
            }
            let latest = checkpoints.latest().unwrap().unwrap();
            assert_eq!(latest.state.step, 1, "{name} {way}");
            // The step is made once more.
            save(&checkpoints, 2);
            assert_eq!(checkpoints.latest().unwrap().unwrap().state.step, 2);
        }
    }
}

#[test]
fn a_run_that_went_back_keeps_what_it_makes() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
    for step in [3, 4, 5] {
        save(&checkpoints, step);
    }
    for step in [4, 5] {
        fs::remove_file(folder.path().join(format!("step-{step:08}")).join(STATE)).unwrap_or(());
    }
    save(&checkpoints, 3);
    assert_eq!(checkpoints.latest().unwrap().unwrap().state.step, 3);
    assert_eq!(checkpoints.steps().unwrap(), [3]);
}

#[test]
fn nothing_whole_is_an_error_and_not_a_new_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
    fs::write(save(&checkpoints, 1).join(STATE), "{}").unwrap();
    let error = checkpoints.latest().unwrap_err().to_string();
    assert!(error.contains("none of the 1 checkpoints"), "{error}");
}

#[test]
fn weights_that_cannot_be_written_leave_what_was() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
    save(&checkpoints, 1);
    let full = |_: &Path| Err("disk full".into());
    checkpoints.save(&state(2), &optimizer(2), full).unwrap_err();
    let again = Checkpoints::open(folder.path(), 3).unwrap();
    assert_eq!(again.latest().unwrap().unwrap().state.step, 1);
    assert!(!folder.path().join(".writing-step-00000002").exists());
}
