//! Full-text search over the catalogue: an inverted index in memory, ranked with BM25.
//!
//! Built once at start, then only read, by many requests at once. A word of the query that no product has is taken for
//! a slip and replaced by the most similar words of the index. Pure computation: no waiting, no I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use serde::Serialize;

use crate::catalogue::{Catalogue, Product, ProductId};

/// BM25's saturation of repeated words and weight of length, as Robertson and Zaragoza (2009) recommend.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// Characters of a description shown with a hit.
const SNIPPET: usize = 120;

/// Which words stand in which products.
#[derive(Debug)]
pub(crate) struct Index {
    postings: BTreeMap<String, Vec<Posting>>,
    /// Words of each product.
    lengths: Vec<u32>,
    mean_length: f64,
}

/// One word in one product.
#[derive(Debug, Clone, Copy)]
struct Posting {
    product: ProductId,
    /// How often.
    count: u32,
}

/// A product that answers a query.
#[derive(Debug, Serialize)]
pub(crate) struct Hit<'c> {
    sku: &'c str,
    name: &'c str,
    category: &'static str,
    price: u64,
    score: f64,
    snippet: String,
}

impl Index {
    /// Reads the whole catalogue.
    pub(crate) fn build(catalogue: &Catalogue) -> Self {
        let mut postings: BTreeMap<String, Vec<Posting>> = BTreeMap::new();
        let mut lengths = Vec::with_capacity(catalogue.products().len());
        for (product, text) in (0..).zip(catalogue.products()) {
            let mut counts: HashMap<String, u32> = HashMap::new();
            for word in words(&text.name).chain(words(&text.description)) {
                *counts.entry(word).or_default() += 1;
            }
            lengths.push(counts.values().sum());
            for (word, count) in counts {
                postings.entry(word).or_default().push(Posting { product, count });
            }
        }
        let total: u32 = lengths.iter().sum();
        let mean_length = f64::from(total) / lengths.len().max(1) as f64;
        Self { postings, lengths, mean_length }
    }

    /// The `limit` best answers to `query`, best first.
    pub(crate) fn search<'c>(&self, catalogue: &'c Catalogue, query: &str, limit: usize) -> Vec<Hit<'c>> {
        let wanted: Vec<_> = words(query).flat_map(|word| self.resolve(word)).collect();
        let scores = self.score(&wanted);
        best(scores, limit)
            .into_iter()
            .filter_map(|(score, id)| Some(Hit::new(catalogue.product(id)?, score, &wanted)))
            .collect()
    }

    /// The word itself if the index has it, else the words nearest to it, at most two edits away.
    fn resolve(&self, word: String) -> Vec<String> {
        if self.postings.contains_key(&word) {
            return vec![word];
        }
        let distances = self.postings.keys().map(|known| (edit_distance(&word, known), known));
        let mut nearest = 2;
        let mut found = Vec::new();
        for (distance, known) in distances {
            if distance < nearest {
                (nearest, found) = (distance, Vec::new());
            }
            if distance == nearest {
                found.push(known.clone());
            }
        }
        found
    }

    /// Every product that has one of the words, with its BM25 score.
    fn score(&self, words: &[String]) -> HashMap<ProductId, f64> {
        let mut scores = HashMap::new();
        for postings in words.iter().filter_map(|word| self.postings.get(word)) {
            let rarity = self.rarity(postings.len());
            for posting in postings {
                *scores.entry(posting.product).or_default() += rarity * self.weight(posting);
            }
        }
        scores
    }

    /// How much a word says that stands in `products` of all.
    fn rarity(&self, products: usize) -> f64 {
        let (all, with) = (self.lengths.len() as f64, products as f64);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    /// How much the product is about the word.
    fn weight(&self, posting: &Posting) -> f64 {
        let length = usize::try_from(posting.product).ok().and_then(|product| self.lengths.get(product));
        let count = f64::from(posting.count);
        let relative = length.copied().map_or(1.0, f64::from) / self.mean_length;
        count * (SATURATION + 1.0) / (count + SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative))
    }
}

impl<'c> Hit<'c> {
    fn new(product: &'c Product, score: f64, wanted: &[String]) -> Self {
        Self {
            sku: &product.sku,
            name: &product.name,
            category: product.category.name(),
            price: product.price,
            score: (score * 1000.0).round() / 1000.0,
            snippet: snippet(&product.description, wanted),
        }
    }
}

/// The words of a text as the index knows them: lower case, no plural `s`.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(|word| {
        let mut word = word.to_lowercase();
        if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
            word.pop();
        }
        word
    })
}

/// The `limit` highest scores, highest first; the lower id wins a tie.
fn best(scores: HashMap<ProductId, f64>, limit: usize) -> Vec<(f64, ProductId)> {
    let mut heap = BinaryHeap::with_capacity(limit);
    for (product, score) in scores {
        // Scores are not negative, and such numbers are in the order of their bits.
        let candidate = Reverse((score.to_bits(), Reverse(product)));
        if heap.len() < limit {
            heap.push(candidate);
        } else if let Some(mut worst) = heap.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
    }
    let ordered = heap.into_sorted_vec();
    ordered.into_iter().map(|Reverse((score, Reverse(product)))| (f64::from_bits(score), product)).collect()
}

/// The part of a description with most of the words that were asked for, those in `*`.
fn snippet(description: &str, wanted: &[String]) -> String {
    let sentences = description.split_inclusive('.');
    let hits = |sentence: &str| words(sentence).filter(|word| wanted.contains(word)).count();
    let sentence = sentences.max_by_key(|sentence| hits(sentence)).unwrap_or_default().trim();
    let mut marked = String::with_capacity(SNIPPET + 16);
    for piece in sentence.split_inclusive(' ') {
        let found = words(piece).any(|word| wanted.contains(&word));
        let (open, close) = if found { ("*", "*") } else { ("", "") };
        marked.extend([open, piece.trim_end(), close, " "]);
        if marked.len() > SNIPPET {
            marked.push('…');
            break;
        }
    }
    marked.trim_end().to_owned()
}

/// How many letters to insert, drop or replace to make one word of the other (Levenshtein).
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = line;
        row[0] = line + 1;
        for (column, &against) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that hits have the words, come in falling order, and no more than asked for.
    #[test]
    fn hits_have_the_words_and_fall_in_score() {
        let catalogue = Catalogue::generate(500);
        let hits = Index::build(&catalogue).search(&catalogue, "oak Tables", 7).into_iter().collect::<Vec<_>>();
        assert_eq!(hits.len(), 7);
        assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
        assert!(hits[0].snippet.contains('*'), "{}", hits[0].snippet);
        let text = format!("{} {}", hits[0].name, catalogue.find(hits[0].sku).unwrap().1.description);
        assert!(text.contains("oak") && text.contains("table"), "{text}");
    }

    /// Check that one wrong letter finds the same products, and that nonsense finds none.
    #[test]
    fn a_slip_finds_what_was_meant() {
        let catalogue = Catalogue::generate(500);
        let index = Index::build(&catalogue);
        let skus = |query| index.search(&catalogue, query, 10).iter().map(|hit| hit.sku.to_owned()).collect::<Vec<_>>();
        assert_eq!(skus("lantirn"), skus("lantern"));
        assert_eq!(skus("qqqqqqqqqqqq"), Vec::<String>::new());
        assert_eq!(skus(""), Vec::<String>::new());
    }

    /// Check the distance against pairs worked out by hand.
    #[test]
    fn edit_distance_counts_letters() {
        for (one, other, distance) in [("", "abc", 3), ("kitten", "sitting", 3), ("oak", "oak", 0), ("ab", "ba", 2)] {
            assert_eq!(edit_distance(one, other), distance, "{one} {other}");
        }
    }
}
