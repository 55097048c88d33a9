//! Groups of episodes as they come back, and which of them are trained on.
//!
//! An episode takes part when it was graded; a group takes part when enough of its episodes do
//! and their rewards differ. Everything else is dropped and counted, and what a missing reward
//! was is never guessed.

use std::collections::BTreeMap;

use fulgurite_trace::{
    EpisodeSamples, EpisodeSummary, FailureKind, SampleSettings, Score, TurnValue,
    samples::samples, transcript::EpisodeRecord,
};
use serde::{Deserialize, Serialize};

use crate::{
    advantage::Credit,
    failure::{Treatment, treatment},
    over_long::OverLong,
};

/// What rewards said of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// The weighted total.
    pub total: f64,
    /// Weighted values of single turns; may be empty.
    #[serde(default)]
    pub turns: Vec<TurnValue>,
}

/// An episode of a group: its last attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupEpisode {
    /// Its rows.
    pub samples: EpisodeSamples,
    /// How it ended.
    pub kind: FailureKind,
    /// What the rewards said; none when they said nothing.
    pub grade: Option<Grade>,
}

impl Grade {
    /// From an episode's total and what each reward said. Values of turns are added up with the
    /// weights of their rewards. None when there is no total.
    pub fn of(total: Option<f64>, scores: &[Score]) -> Option<Self> {
        let total = total?;
        let mut turns: BTreeMap<u32, f64> = BTreeMap::new();
        for score in scores {
            for value in &score.turns {
                *turns.entry(value.turn).or_default() += score.weight * value.value;
            }
        }
        let turns = turns.into_iter().map(|(turn, value)| TurnValue { turn, value }).collect();
        Some(Self { total, turns })
    }

    /// An episode that failed through the policy's own doing earns so much at most, and what its
    /// turns had earned before is forfeited.
    fn cap(&mut self, most: f64) {
        self.total = self.total.min(most);
        if let Some(last) = self.turns.last() {
            let earned: f64 = self.turns.iter().map(|value| value.value).sum();
            self.turns = vec![TurnValue { turn: last.turn, value: earned.min(most) }];
        }
    }

    /// Takes a penalty off the total, and off the last turn where the total is not credited.
    fn pay(&mut self, penalty: f64, credit: Credit) {
        self.total -= penalty;
        if matches!(credit, Credit::Turns { total: false, .. })
            && let Some(last) = self.turns.last_mut()
        {
            last.value -= penalty;
        }
    }
}

impl GroupEpisode {
    /// From everything recorded of an attempt; none when it has not ended.
    pub fn of(record: &EpisodeRecord, settings: &SampleSettings) -> Option<Self> {
        let EpisodeSummary { episode, kind, total, .. } = record.summary;
        Some(Self {
            samples: samples(episode, &record.entries, settings),
            kind: kind?,
            grade: Grade::of(total, &record.scores),
        })
    }
}

/// The episodes of one task that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Position of the task in the task list.
    pub task: u32,
    /// Its episodes.
    pub episodes: Vec<GroupEpisode>,
}

/// What becomes of a group whose rewards are all the same, and which therefore teaches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoVariance {
    /// It is left out.
    #[default]
    Skip,
    /// It is left out, and its task is handed back to be sampled once more.
    Resample,
    /// It takes part: for estimators and penalties that learn from it all the same.
    Keep,
}

/// Which groups take part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupSettings {
    /// Fewest episodes a group must be left with.
    pub min_episodes: usize,
    /// What becomes of groups whose rewards are all the same.
    pub no_variance: NoVariance,
    /// The most that an episode can earn whose failure the policy caused; none trusts the run
    /// that graded it.
    pub floor: Option<f64>,
    /// What becomes of episodes that ran into a length limit.
    pub over_long: OverLong,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            min_episodes: 2,
            no_variance: NoVariance::default(),
            floor: None,
            over_long: OverLong::default(),
        }
    }
}

/// Why an episode was dropped. Counted in the metrics by [`DropReason::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// It failed in a way that is not the policy's doing.
    Failed(FailureKind),
    /// It was not graded.
    NoReward,
    /// Its reward is not a number.
    RewardNotFinite,
    /// Turns are to be credited, and no reward gave values of turns.
    NoTurnValues,
    /// Its group was left with too few.
    SmallGroup,
    /// Its group's rewards are all the same.
    NoVariance,
    /// A row does not fit together, or holds an id outside the vocabulary.
    BrokenSample,
    /// Its tokens are too old.
    Stale,
}

impl DropReason {
    /// The name in metrics.
    pub fn name(self) -> String {
        match self {
            Self::Failed(kind) => format!("failed-{}", kind.name()),
            Self::NoReward => "no-reward".to_owned(),
            Self::RewardNotFinite => "reward-not-finite".to_owned(),
            Self::NoTurnValues => "no-turn-values".to_owned(),
            Self::SmallGroup => "small-group".to_owned(),
            Self::NoVariance => "no-variance".to_owned(),
            Self::BrokenSample => "broken-sample".to_owned(),
            Self::Stale => "stale".to_owned(),
        }
    }
}

/// Dropped episodes by reason.
pub type Drops = BTreeMap<DropReason, u64>;

/// An episode that takes part.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// Its rows.
    pub samples: EpisodeSamples,
    /// What it earned: floor and penalty for its length included.
    pub grade: Grade,
    /// Whether its tokens are left out of the loss, although its reward counts in the group.
    pub masked: bool,
}

/// What is trained on, and what is not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection {
    /// Groups that take part.
    pub groups: Vec<Vec<Chosen>>,
    /// Episodes that do not.
    pub drops: Drops,
    /// Tasks to sample once more.
    pub resample: Vec<u32>,
}

/// Chooses what takes part: what `admit` does not refuse, and what has values of turns when `credit`
/// needs those.
pub fn select(
    groups: Vec<Group>,
    settings: &GroupSettings,
    credit: Credit,
    admit: &dyn Fn(&EpisodeSamples) -> Result<(), DropReason>,
) -> Selection {
    let mut selection = Selection::default();
    let needs_turn_values = matches!(credit, Credit::Turns { .. });
    for Group { task, episodes } in groups {
        let mut group = Vec::with_capacity(episodes.len());
        for episode in episodes {
            let chosen = choose(episode, settings, credit).and_then(|chosen| {
                if needs_turn_values && chosen.grade.turns.is_empty() {
                    return Err(DropReason::NoTurnValues);
                }
                admit(&chosen.samples)?;
                Ok(chosen)
            });
            match chosen {
                Ok(chosen) => group.push(chosen),
                Err(reason) => count(&mut selection.drops, reason, 1),
            }
        }
        if group.len() < settings.min_episodes.max(1) {
            count(&mut selection.drops, DropReason::SmallGroup, group.len());
        } else if settings.no_variance != NoVariance::Keep && !varies(&group, needs_turn_values) {
            count(&mut selection.drops, DropReason::NoVariance, group.len());
            if settings.no_variance == NoVariance::Resample {
                selection.resample.push(task);
            }
        } else {
            selection.groups.push(group);
        }
    }
    selection
}

fn choose(
    episode: GroupEpisode,
    settings: &GroupSettings,
    credit: Credit,
) -> Result<Chosen, DropReason> {
    let GroupEpisode { samples, kind, grade } = episode;
    let spoke = samples.sampled_tokens > 0;
    let attempt = samples.episode.attempt;
    let floor = match treatment(kind, spoke, attempt, attempt) {
        Treatment::Grade => None,
        Treatment::GradeWithFloor => settings.floor,
        Treatment::Retry | Treatment::Drop | Treatment::Alarm => {
            return Err(DropReason::Failed(kind));
        }
    };
    let mut grade = grade.ok_or(DropReason::NoReward)?;
    let values = grade.turns.iter().map(|value| value.value);
    if !values.chain([grade.total]).all(f64::is_finite) {
        return Err(DropReason::RewardNotFinite);
    }
    if let Some(floor) = floor {
        grade.cap(floor);
    }
    grade.pay(settings.over_long.penalty(&samples), credit);
    let masked = settings.over_long.masks(&samples, kind);
    Ok(Chosen { samples, grade, masked })
}

/// Whether rewards differ: totals, or values of turns where these are trained with.
fn varies(group: &[Chosen], with_turns: bool) -> bool {
    let values = |chosen: &Chosen| -> Vec<(u32, u64)> {
        let turns = chosen.grade.turns.iter().filter(|_| with_turns);
        turns.map(|value| (value.turn, value.value.to_bits())).collect()
    };
    let Some(first) = group.first() else { return false };
    group.iter().any(|chosen| {
        (chosen.grade.total - first.grade.total).abs() > 0.0 || values(chosen) != values(first)
    })
}

/// Counts drops.
pub(crate) fn count(drops: &mut Drops, reason: DropReason, episodes: usize) {
    if episodes > 0 {
        let counted = drops.entry(reason).or_default();
        *counted = counted.saturating_add(u64::try_from(episodes).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_trace::{EpisodeRef, samples::Skipped};

    use super::*;
    use crate::advantage::returns;

    fn episode(sample: u32, kind: FailureKind, total: Option<f64>) -> GroupEpisode {
        let samples = EpisodeSamples {
            episode: EpisodeRef::first(0, sample),
            samples: Vec::new(),
            skipped: Skipped::default(),
            sampled_tokens: 4,
            stopped_by_length: false,
        };
        let grade = total.map(|total| Grade { total, turns: Vec::new() });
        GroupEpisode { samples, kind, grade }
    }

    fn chosen(episodes: Vec<GroupEpisode>, settings: &GroupSettings) -> Selection {
        select(vec![Group { task: 7, episodes }], settings, Credit::Outcome, &|_| Ok(()))
    }

    const DONE: FailureKind = FailureKind::Completed;

    #[test]
    fn missing_rewards_are_dropped_and_never_zero() {
        let episodes = vec![
            episode(0, DONE, Some(1.0)),
            episode(1, DONE, None),
            episode(2, DONE, Some(f64::NAN)),
            episode(3, DONE, Some(0.5)),
        ];
        let selection = chosen(episodes, &GroupSettings::default());
        let totals: Vec<f64> =
            selection.groups.concat().iter().map(|chosen| chosen.grade.total).collect();
        assert_eq!(totals, [1.0, 0.5]);
        let drops = [(DropReason::NoReward, 1), (DropReason::RewardNotFinite, 1)];
        assert_eq!(selection.drops, drops.into());
    }

    #[test]
    fn failures_of_the_policy_earn_at_most_the_floor_and_those_of_the_host_are_dropped() {
        let episodes = vec![
            episode(0, FailureKind::OutOfFuel, Some(1.0)),
            episode(1, FailureKind::Trap, Some(-2.0)),
            episode(2, FailureKind::SandboxError, Some(1.0)),
            episode(3, FailureKind::RewardError, None),
            episode(4, DONE, Some(1.0)),
        ];
        let settings = GroupSettings { floor: Some(0.0), ..GroupSettings::default() };
        let selection = chosen(episodes, &settings);
        let totals: Vec<f64> =
            selection.groups.concat().iter().map(|chosen| chosen.grade.total).collect();
        assert_eq!(totals, [0.0, -2.0, 1.0]);
        let drops = [
            (DropReason::Failed(FailureKind::SandboxError), 1),
            (DropReason::Failed(FailureKind::RewardError), 1),
        ];
        assert_eq!(selection.drops, drops.into());
    }

    #[test]
    fn small_groups_and_groups_that_teach_nothing_are_left_out() {
        let small = || vec![episode(0, DONE, Some(1.0)), episode(1, DONE, None)];
        let same = || vec![episode(0, DONE, Some(0.5)), episode(1, DONE, Some(0.5))];
        let skip = GroupSettings::default();
        assert_eq!(chosen(small(), &skip).drops[&DropReason::SmallGroup], 1);
        let skipped = chosen(same(), &skip);
        assert!(skipped.groups.is_empty() && skipped.resample.is_empty());
        assert_eq!(skipped.drops[&DropReason::NoVariance], 2);
        let resample = GroupSettings { no_variance: NoVariance::Resample, ..skip };
        assert_eq!(chosen(same(), &resample).resample, [7]);
        let keep = GroupSettings { no_variance: NoVariance::Keep, ..skip };
        assert_eq!(chosen(same(), &keep).groups.concat().len(), 2);
    }

    #[test]
    fn a_grade_adds_up_turns_by_weight_and_needs_a_total() {
        let score = |weight, turns: &[(u32, f64)]| Score {
            reward: "r".to_owned(),
            weight,
            total: 1.0,
            components: Vec::new(),
            turns: turns
                .iter()
                .map(|(turn, value)| TurnValue { turn: *turn, value: *value })
                .collect(),
            notes: Vec::new(),
        };
        let scores = [score(0.5, &[(2, 4.0), (0, 2.0)]), score(2.0, &[(2, 1.0)])];
        let grade = Grade::of(Some(3.0), &scores).unwrap();
        let turns: Vec<_> = grade.turns.iter().map(|value| (value.turn, value.value)).collect();
        assert_eq!((grade.total, turns), (3.0, vec![(0, 1.0), (2, 4.0)]));
        assert_eq!(Grade::of(None, &scores), None);
    }

    #[test]
    fn values_of_turns_are_variance_where_they_are_trained_with() {
        let mut episodes = vec![episode(0, DONE, Some(0.5)), episode(1, DONE, Some(0.5))];
        for (episode, value) in episodes.iter_mut().zip([0.0, 1.0]) {
            episode.grade.as_mut().unwrap().turns.push(TurnValue { turn: 0, value });
        }
        let selected = |credit| {
            let groups = vec![Group { task: 7, episodes: episodes.clone() }];
            select(groups, &GroupSettings::default(), credit, &|_| Ok(())).groups.len()
        };
        let turns = Credit::Turns { discount: 1.0, total: true };
        assert_eq!((selected(Credit::Outcome), selected(turns)), (0, 1));
    }

    #[test]
    fn floor_and_penalty_reach_what_turns_earned() {
        let failed = || {
            let mut failed = episode(0, FailureKind::OutOfFuel, Some(1.0));
            let values = [(0, 0.5), (2, 0.75)].map(|(turn, value)| TurnValue { turn, value });
            failed.grade.as_mut().unwrap().turns.extend(values);
            failed
        };
        let earned = |settings: GroupSettings, credit| {
            let chosen = choose(failed(), &settings, credit).unwrap().grade;
            let returns = returns(credit, chosen.total, &chosen.turns, &[0, 1, 2]).unwrap();
            (chosen.total, returns)
        };
        let floor = GroupSettings { floor: Some(0.25), ..GroupSettings::default() };
        let alone = Credit::Turns { discount: 1.0, total: false };
        assert_eq!(earned(floor, alone), (0.25, vec![0.25; 3]));
        assert_eq!(earned(floor, Credit::Outcome), (0.25, vec![0.25]));
        let over_long = OverLong::Penalise { limit: 4, buffer: 2, penalty: 1.0 };
        let penalised = GroupSettings { over_long, ..GroupSettings::default() };
        assert_eq!(earned(penalised, alone), (0.0, vec![0.25, -0.25, -0.25]));
        // Paid once, by the total that the last turn earns.
        let both = Credit::Turns { discount: 1.0, total: true };
        assert_eq!(earned(penalised, both), (0.0, vec![1.25, 0.75, 0.75]));
    }
}
