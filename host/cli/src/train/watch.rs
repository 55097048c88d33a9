//! Live progress of training, on standard error.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fulgurite_train::{
    metrics::Metrics,
    run::{Budget, Event},
};
use indicatif::{ProgressBar, ProgressStyle};

use super::config::TrainConfig;
use crate::output::Output;

/// Between two lines where there is no terminal.
const PAUSE: Duration = Duration::from_secs(5);

/// Steps whose pace tells the time left: imitation is quicker than what follows it.
const PACE_STEPS: usize = 10;

/// What a step's line shows of its metrics: label, name, decimals.
const NUMBERS: [(&str, &str, usize); 8] = [
    ("kl", "policy/kl-reference", 4),
    ("drift", "policy/kl-old", 4),
    ("entropy", "policy/entropy", 3),
    ("clipped", "policy/clip-fraction", 3),
    ("gradient", "gradient/norm", 3),
    ("sampled/s", "speed/sampled-per-s", 0),
    ("trained/s", "speed/trained-per-s", 0),
    ("episodes/s", "speed/episodes-per-s", 1),
];

/// A line of numbers that changes in place on a terminal; elsewhere a line now and then.
pub(super) struct Watch {
    bar: Option<ProgressBar>,
    budget: Budget,
    /// When this process began.
    began: Instant,
    /// The last steps and when they were made, and first where this process began.
    recent: VecDeque<(Instant, u64)>,
    /// Wall clock of the processes before it.
    before: Duration,
    told: Option<Instant>,
    validation: Option<f64>,
    numbers: String,
    output: Output,
}

impl Watch {
    pub(super) fn new(config: &TrainConfig, step: u64, before: Duration, output: Output) -> Self {
        let bar = output.shows_progress().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let began = Instant::now();
        Self {
            bar,
            budget: config.run().budget,
            began,
            recent: VecDeque::from([(began, step)]),
            before,
            told: None,
            validation: None,
            numbers: String::new(),
            output,
        }
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Group { ready, wanted } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("{}  [{ready}/{wanted} groups]", self.numbers));
                }
            }
            Event::Step { step, metrics } => {
                self.recent.push_back((Instant::now(), *step));
                if self.recent.len() > PACE_STEPS {
                    self.recent.pop_front();
                }
                self.numbers = self.line(*step, metrics);
                match &self.bar {
                    Some(bar) => bar.set_message(self.numbers.clone()),
                    None if self.told.is_none_or(|told| told.elapsed() >= PAUSE) => {
                        self.told = Some(Instant::now());
                        self.output.remark(&self.numbers);
                    }
                    None => {}
                }
            }
            Event::Validated { step, validated } => {
                let counts = &validated.counts;
                self.validation = counts.mean_reward();
                let number = |value: Option<f64>| {
                    value.map_or("none".to_owned(), |value| format!("{value:.3}"))
                };
                let line = format!(
                    "after step {step}: validation reward {}, passed {}  (run {})",
                    number(counts.mean_reward()),
                    number(counts.pass_rate()),
                    validated.run
                );
                match &self.bar {
                    Some(bar) => bar.println(line),
                    None => self.output.remark(line),
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, step: u64, metrics: &Metrics) -> String {
        let mut line = match self.budget.steps {
            Some(steps) => format!("step {step}/{steps}"),
            None => format!("step {step}"),
        };
        let number = |label: &str, name: &str, digits: usize| {
            let value = metrics.get(name);
            value.map_or_else(String::new, |value| format!("  {label} {value:.digits$}"))
        };
        line += &number("reward", "train/reward", 3);
        if let Some(validation) = self.validation {
            line += &format!(" (validation {validation:.3})");
        }
        for (label, name, digits) in NUMBERS {
            line += &number(label, name, digits);
        }
        for (name, value) in metrics {
            if let Some(kind) = name.strip_prefix("ended/").filter(|kind| *kind != "completed") {
                line += &format!("  {kind} {value:.0}");
            }
        }
        if let Some(left) = self.left(step) {
            let left = humantime::format_duration(Duration::from_secs(left.as_secs()));
            line += &format!("  {left} left");
        }
        line
    }

    /// The time until the first budget ends, by the pace of the last steps.
    fn left(&self, step: u64) -> Option<Duration> {
        let by_steps = self.budget.steps.and_then(|steps| {
            let (since, first) = self.recent.front()?;
            let made = u32::try_from(step.saturating_sub(*first)).ok().filter(|made| *made > 0)?;
            let missing = u32::try_from(steps.saturating_sub(step)).ok()?;
            (since.elapsed() / made).checked_mul(missing)
        });
        let by_time =
            self.budget.wall().map(|wall| wall.saturating_sub(self.before + self.began.elapsed()));
        match (by_steps, by_time) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}
