//! The report: what sold to whom, as CSV or JSON, compressed.
//!
//! In: the receipts kept by the order book. Out: a file to download. Pure computation, some milliseconds of it:
//! `service` runs it on a thread that may block.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::orders::Receipt;
use crate::pricing::{Line, Tier};

/// Rows of a report.
const ROWS: usize = 1000;

/// How the report is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Csv,
    Json,
}

/// What one kind of customer bought of one product.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row<'r> {
    category: &'static str,
    tier: &'static str,
    sku: &'r str,
    name: &'r str,
    orders: usize,
    pieces: u64,
    /// In cents.
    revenue: u64,
    /// The middle one of what the lines came to, in cents.
    median_line: u64,
}

impl Format {
    /// The name that a download gets.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::Csv => "report.csv.gz",
            Self::Json => "report.json.gz",
        }
    }
}

/// The whole report as a gzip file.
pub(crate) fn write(receipts: &[Arc<Receipt>], format: Format) -> io::Result<Vec<u8>> {
    let rows = aggregate(receipts);
    let text = match format {
        Format::Csv => csv(&rows)?,
        Format::Json => serde_json::to_vec(&rows)?,
    };
    compress(&text)
}

/// One row for each product and tier, what earned most first; no more than [`ROWS`].
fn aggregate(receipts: &[Arc<Receipt>]) -> Vec<Row<'_>> {
    let mut groups: BTreeMap<_, Vec<&Line>> = BTreeMap::new();
    for receipt in receipts {
        for line in &receipt.lines {
            groups.entry((receipt.tier, line.product)).or_default().push(line);
        }
    }
    let mut rows: Vec<_> = groups.iter().filter_map(|((tier, _), lines)| Row::sum(*tier, lines)).collect();
    rows.sort_by_key(|row| Reverse(row.revenue));
    rows.truncate(ROWS);
    rows
}

impl<'r> Row<'r> {
    /// Adds up the lines of one product that customers of one tier bought.
    fn sum(tier: Tier, lines: &[&'r Line]) -> Option<Self> {
        let Line { sku, name, category, .. } = lines.first()?;
        Some(Self {
            category: category.name(),
            tier: tier.name(),
            sku,
            name,
            orders: lines.len(),
            pieces: lines.iter().map(|line| u64::from(line.quantity)).sum(),
            revenue: lines.iter().map(|line| line.total).sum(),
            median_line: median(lines.iter().map(|line| line.total).collect()),
        })
    }
}

/// The middle value; the upper one of two.
fn median(mut values: Vec<u64>) -> u64 {
    let middle = values.len() / 2;
    match middle < values.len() {
        true => *values.select_nth_unstable(middle).1,
        false => 0,
    }
}

/// The rows as comma-separated values with a header (RFC 4180); no field needs quotes.
fn csv(rows: &[Row<'_>]) -> io::Result<Vec<u8>> {
    let mut text = b"category,tier,sku,name,orders,pieces,revenue,median_line\r\n".to_vec();
    for Row { category, tier, sku, name, orders, pieces, revenue, median_line } in rows {
        write!(text, "{category},{tier},{sku},{name},{orders},{pieces},{revenue},{median_line}\r\n")?;
    }
    Ok(text)
}

/// The bytes as a gzip file.
fn compress(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text)?;
    gzip.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::catalogue::Catalogue;
    use crate::orders::accept;
    use crate::pricing::Rules;

    fn receipt(tier: &str, quantity: u32) -> Arc<Receipt> {
        let item = format!(r#"[{{"sku":"SKU-00001","quantity":{quantity}}}]"#);
        let body = format!(r#"{{"customer":"ada","tier":"{tier}","items":{item}}}"#);
        Arc::new(accept(body.as_bytes(), &Catalogue::generate(10), &Rules::of_the_season(), &[0; 64]).unwrap())
    }

    /// Check that lines of one product and tier become one row with their sums, and that gzip gives the text back.
    #[test]
    fn lines_add_up_by_product_and_tier() {
        let receipts = [receipt("gold", 1), receipt("gold", 3), receipt("guest", 2)];
        let price = receipts[0].lines[0].unit_price;
        let rows = aggregate(&receipts);
        let figures: Vec<_> = rows.iter().map(|row| (row.tier, row.orders, row.pieces, row.revenue)).collect();
        assert_eq!(figures, [("gold", 2, 4, 4 * price), ("guest", 1, 2, 2 * price)]);
        assert_eq!(rows[0].median_line, 3 * price);

        let mut text = String::new();
        flate2::read::GzDecoder::new(&write(&receipts, Format::Csv).unwrap()[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().nth(1).unwrap().contains(",gold,SKU-00001,"), "{text}");
    }

    /// Check that a report of nothing is an empty list.
    #[test]
    fn nothing_sold_is_an_empty_report() {
        assert_eq!(aggregate(&[]), []);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&write(&[], Format::Json).unwrap()[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "[]");
    }
}
