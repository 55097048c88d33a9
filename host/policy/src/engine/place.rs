//! Where a call goes: which slot, and how much of it is computed already.
//!
//! A slot holds the keys and values of one sequence, computed by the weights of one version (when
//! the version changes, all slots are emptied). A sequence stays in its slot after its call has
//! ended: parked. The rule:
//!
//! 1. The slot with the longest common beginning, busy or parked, is the source. The last token
//!    of a call is always computed, since its logits are wanted.
//! 2. Where a busy slot is about to compute more of the beginning than any slot holds, the call
//!    waits for it. So the n calls of a group compute their prompt once.
//! 3. A parked source that holds nothing but the beginning is taken over: its conversation goes
//!    on. From any other the beginning is copied.
//! 4. The copy goes to an empty slot, else to the parked one that was not used for longest, whose
//!    sequence is forgotten. The source itself is cut only where no other slot is parked.

/// A call waits for fewer tokens than these only when they are all it lacks.
const WORTH_WAITING: usize = 16;

/// What placing needs to know of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'slot> {
    /// The tokens whose keys and values it holds.
    pub(super) held: &'slot [u32],
    /// All tokens of the call that is in it; none when it is parked or empty.
    pub(super) planned: Option<&'slot [u32]>,
    /// When it was last used; larger is later.
    pub(super) used: u64,
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Into this slot, of which the first `keep` tokens stay.
    Here {
        /// The slot.
        slot: usize,
        /// Tokens.
        keep: usize,
    },
    /// Into `to`, after the first `keep` tokens of `from` were copied there.
    Copy {
        /// The source.
        from: usize,
        /// The slot.
        to: usize,
        /// Tokens.
        keep: usize,
    },
    /// Another call is computing the beginning.
    Later,
    /// All slots are busy.
    Full,
}

/// Where a call of these tokens goes.
pub(super) fn place(slots: &[View<'_>], tokens: &[u32]) -> Place {
    let usable = tokens.get(..tokens.len().saturating_sub(1)).unwrap_or_default();
    let mut source: Option<(usize, bool, usize)> = None;
    let mut promised = 0;
    let mut oldest: [Option<(bool, u64, usize)>; 2] = [None; 2];
    for (number, slot) in slots.iter().enumerate() {
        let computed = common(slot.held, usable);
        promised = promised.max(slot.planned.map_or(0, |planned| common(planned, usable)));
        let whole = slot.planned.is_none() && slot.held.len() == computed;
        if source.is_none_or(|(most, best, _)| (computed, whole) > (most, best)) {
            source = Some((computed, whole, number));
        }
        if slot.planned.is_none() {
            let age = Some((!slot.held.is_empty(), slot.used, number));
            let [first, second] = &mut oldest;
            if first.is_none() || age < *first {
                *second = std::mem::replace(first, age);
            } else if second.is_none() || age < *second {
                *second = age;
            }
        }
    }
    let (Some((keep, whole, from)), [Some((_, _, first)), second]) = (source, oldest) else {
        return Place::Full;
    };
    let gain = promised.saturating_sub(keep);
    if gain >= WORTH_WAITING || (gain > 0 && promised == usable.len()) {
        return Place::Later;
    }
    if keep == 0 {
        return Place::Here { slot: first, keep };
    }
    if whole {
        return Place::Here { slot: from, keep };
    }
    match (first == from, second) {
        (false, _) => Place::Copy { from, to: first, keep },
        (true, Some((_, _, to))) => Place::Copy { from, to, keep },
        (true, None) => Place::Here { slot: from, keep },
    }
}

/// How many tokens two sequences begin with together.
pub(super) fn common(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parked(held: &[u32], used: u64) -> View<'_> {
        View { held, planned: None, used }
    }

    fn busy<'slot>(held: &'slot [u32], planned: &'slot [u32]) -> View<'slot> {
        View { held, planned: Some(planned), used: 0 }
    }

    #[test]
    fn an_unknown_beginning_goes_to_an_empty_slot_or_the_oldest() {
        let slots = [parked(&[1, 2], 5), parked(&[3, 4], 4), parked(&[], 9)];
        assert_eq!(place(&slots, &[7, 8]), Place::Here { slot: 2, keep: 0 });
        assert_eq!(place(&slots[..2], &[7, 8]), Place::Here { slot: 1, keep: 0 });
    }

    #[test]
    fn a_conversation_goes_on_in_its_slot() {
        let slots = [parked(&[1, 2, 9], 8), parked(&[1, 2], 5), parked(&[], 0)];
        assert_eq!(place(&slots, &[1, 2, 3, 4]), Place::Here { slot: 1, keep: 2 });
    }

    #[test]
    fn a_branch_is_copied_and_its_source_survives() {
        let slots = [parked(&[1, 2, 9], 1), parked(&[7], 5)];
        assert_eq!(place(&slots, &[1, 2, 3]), Place::Copy { from: 0, to: 1, keep: 2 });
        let running = [busy(&[1, 2, 9], &[1, 2, 9]), parked(&[7], 5)];
        assert_eq!(place(&running, &[1, 2, 3]), Place::Copy { from: 0, to: 1, keep: 2 });
        assert_eq!(place(&slots[..1], &[1, 2, 3]), Place::Here { slot: 0, keep: 2 });
    }

    #[test]
    fn the_last_token_is_always_computed() {
        let slots = [parked(&[1, 2, 3], 1), parked(&[], 0)];
        assert_eq!(place(&slots, &[1, 2, 3]), Place::Copy { from: 0, to: 1, keep: 2 });
    }

    #[test]
    fn a_beginning_that_is_being_computed_is_waited_for() {
        let prompt: Vec<u32> = (0..40).collect();
        let fresh = [busy(&[], &prompt), parked(&[], 0)];
        assert_eq!(place(&fresh, &prompt), Place::Later);
        let half = [busy(&prompt[..20], &prompt), parked(&[], 0)];
        assert_eq!(place(&half, &prompt), Place::Later);
        let done = [busy(&prompt, &prompt), parked(&[], 0)];
        assert_eq!(place(&done, &prompt), Place::Copy { from: 0, to: 1, keep: 39 });
        // Two tokens of many are not worth it.
        let other = [&[0, 1], &[99; 38][..]].concat();
        assert_eq!(place(&fresh, &other), Place::Here { slot: 1, keep: 0 });
        // But all of a short prompt is.
        assert_eq!(place(&[busy(&[], &[1, 2, 3]), parked(&[], 0)], &[1, 2, 3]), Place::Later);
    }

    #[test]
    fn with_all_slots_busy_there_is_no_place() {
        assert_eq!(place(&[busy(&[1], &[1, 2])], &[1, 2, 3]), Place::Full);
        assert_eq!(place(&[], &[1]), Place::Full);
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_beginning_and_busy_slots_are_left_alone(
            slots in proptest::collection::vec(
                (proptest::collection::vec(0u32..3, 0..6), any::<bool>(), 0u64..9), 0..5),
            tokens in proptest::collection::vec(0u32..3, 1..7),
        ) {
            let views: Vec<View<'_>> = slots.iter().map(|(held, busy, used)| View {
                held, planned: busy.then_some(held.as_slice()), used: *used,
            }).collect();
            let longest = views.iter().map(|view| common(view.held, &tokens[..tokens.len() - 1]));
            let longest = longest.max().unwrap_or(0);
            match place(&views, &tokens) {
                Place::Here { slot, keep } => {
                    prop_assert!(!slots[slot].1);
                    prop_assert_eq!(&slots[slot].0[..keep], &tokens[..keep]);
                    prop_assert_eq!(keep, longest);
                }
                Place::Copy { from, to, keep } => {
                    prop_assert!(!slots[to].1 && from != to && keep > 0 && keep < tokens.len());
                    prop_assert_eq!(&slots[from].0[..keep], &tokens[..keep]);
                    prop_assert_eq!(keep, longest);
                }
                Place::Later => prop_assert!(false, "everything planned is computed"),
                Place::Full => prop_assert!(slots.iter().all(|(_, busy, _)| *busy)),
            }
        }
    }
}
