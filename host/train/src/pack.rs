//! Which rows are computed together.

/// Puts rows of the given lengths into packs of at most `budget` tokens: first fit, longest row
/// first. A row beyond the budget is alone in its pack. Each pack lists rows in ascending order;
/// the result depends on nothing but the arguments.
pub fn pack(lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<(usize, usize)> = lengths.iter().copied().enumerate().collect();
    order.sort_by_key(|(row, length)| (std::cmp::Reverse(*length), *row));
    let mut packs: Vec<(usize, Vec<usize>)> = Vec::new();
    for (row, length) in order {
        let free = |used: usize| used.checked_add(length).is_some_and(|sum| sum <= budget);
        match packs.iter_mut().find(|(used, _)| free(*used)) {
            Some((used, rows)) => {
                *used += length;
                rows.push(row);
            }
            None => packs.push((length, vec![row])),
        }
    }
    packs
        .into_iter()
        .map(|(_, mut rows)| {
            rows.sort_unstable();
            rows
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_row_is_in_one_pack_and_packs_keep_the_budget(
            lengths in prop::collection::vec(0..40_usize, 0..40),
            budget in 1..64_usize,
        ) {
            let packs = pack(&lengths, budget);
            let mut rows: Vec<usize> = packs.iter().flatten().copied().collect();
            rows.sort_unstable();
            prop_assert_eq!(rows, (0..lengths.len()).collect::<Vec<_>>());
            for rows in &packs {
                let used: usize = rows.iter().map(|row| lengths[*row]).sum();
                prop_assert!(used <= budget || rows.len() == 1);
            }
            // First fit leaves at most one pack that is half empty.
            let half_empty = packs.iter().filter(|rows| {
                rows.iter().map(|row| lengths[*row]).sum::<usize>() * 2 <= budget
            });
            prop_assert!(half_empty.count() <= 1);
        }
    }
}
