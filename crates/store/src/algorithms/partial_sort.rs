//! Sorting only as far as the first elements go, in the manner of Bentley and
//! McIlroy, "Engineering a Sort Function" (1993). Where elements that compare
//! as equal end up shows in replies, so every step is the one that Redis takes.

use std::cmp::Ordering;

/// Shorter parts are sorted by insertion.
const INSERTION_BELOW: usize = 7;
/// Longer parts are split at a median of nine elements instead of three.
const THREE_UP_TO: usize = 40;

/// Brings the first `count` elements of `all` into their places. The others
/// stay behind them, in any order.
pub(crate) fn sort_first<T>(
    all: &mut [T],
    count: usize,
    compare: impl Fn(&T, &T) -> Ordering + Copy,
) {
    // Not by recursion: how deep it is depends on the elements.
    let mut parts = vec![(0, all.len())];
    while let Some((start, end)) = parts.pop() {
        if start >= count {
            continue;
        }
        let part = &mut all[start..end];
        if part.len() < INSERTION_BELOW {
            insert_all(part, compare);
            continue;
        }
        let (less, greater) = split(part, compare);
        parts.push((end - greater, end));
        parts.push((start, start + less));
    }
}

fn insert_all<T>(part: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    for sorted in 1..part.len() {
        let mut at = sorted;
        while at > 0 && compare(&part[at - 1], &part[at]).is_gt() {
            part.swap(at - 1, at);
            at -= 1;
        }
    }
}

fn median_of<T>(
    part: &[T],
    [low, middle, high]: [usize; 3],
    compare: impl Fn(&T, &T) -> Ordering,
) -> usize {
    let compare = |one: usize, other: usize| compare(&part[one], &part[other]);
    if compare(low, middle).is_lt() {
        match () {
            () if compare(middle, high).is_lt() => middle,
            () if compare(low, high).is_lt() => high,
            () => low,
        }
    } else {
        match () {
            () if compare(middle, high).is_gt() => middle,
            () if compare(low, high).is_lt() => low,
            () => high,
        }
    }
}

fn pivot<T>(part: &[T], compare: impl Fn(&T, &T) -> Ordering + Copy) -> usize {
    let (mut low, mut middle, mut high) = (0, part.len() / 2, part.len() - 1);
    if part.len() == INSERTION_BELOW {
        return middle;
    }
    if part.len() > THREE_UP_TO {
        let step = part.len() / 8;
        low = median_of(part, [low, low + step, low + 2 * step], compare);
        middle = median_of(part, [middle - step, middle, middle + step], compare);
        high = median_of(part, [high - 2 * step, high - step, high], compare);
    }
    median_of(part, [low, middle, high], compare)
}

/// Moves what is less than some element to the front and what is greater to
/// the back; how many there are of each.
fn split<T>(part: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Copy) -> (usize, usize) {
    let len = part.len();
    part.swap(0, pivot(part, compare));
    // Equal ones gather at both ends: before `equal_low`, and from `equal_high`
    // on. From `low` up to `high` nothing was looked at.
    let (mut equal_low, mut low, mut high, mut equal_high) = (1, 1, len, len);
    loop {
        while low < high {
            match compare(&part[low], &part[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    part.swap(equal_low, low);
                    equal_low += 1;
                }
                Ordering::Less => {}
            }
            low += 1;
        }
        while low < high {
            match compare(&part[high - 1], &part[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    equal_high -= 1;
                    part.swap(high - 1, equal_high);
                }
                Ordering::Greater => {}
            }
            high -= 1;
        }
        if low >= high {
            break;
        }
        part.swap(low, high - 1);
        low += 1;
        high -= 1;
    }
    let (less, greater) = (low - equal_low, equal_high - high);
    exchange(part, 0, low, equal_low.min(less));
    exchange(part, low, len, greater.min(len - equal_high));
    (less, greater)
}

/// Exchanges `count` elements from `from` on with those that end at `end`.
fn exchange<T>(part: &mut [T], from: usize, end: usize, count: usize) {
    (0..count).for_each(|nth| part.swap(from + nth, end - count + nth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_are_those_of_a_whole_sort(
            mut numbers in proptest::collection::vec(0..60u8, 0..300),
            count in 1..300usize,
        ) {
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sort_first(&mut numbers, count, |one, other| one.cmp(other));
            let count = count.min(sorted.len());
            prop_assert_eq!(&numbers[..count], &sorted[..count]);
            numbers.sort_unstable();
            prop_assert_eq!(numbers, sorted);
        }

        #[test]
        fn no_order_at_all_does_no_harm(seed: u64, len in 0..200usize) {
            let answers = [Ordering::Less, Ordering::Equal, Ordering::Greater];
            let turn = std::cell::Cell::new(seed);
            let mut numbers: Vec<usize> = (0..len).collect();
            sort_first(&mut numbers, len, |_, _| {
                turn.set(turn.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                answers[(turn.get() >> 33) as usize % 3]
            });
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(0..len));
        }
    }
}
