//! An order on its way: read from JSON, priced by `pricing`, sorted, signed, answered as JSON.
//!
//! In: the body of a request. Out: a receipt that the shop can recognise later by its signature, or a refusal that
//! says what is wrong. Pure computation: no waiting, no I/O.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::catalogue::Catalogue;
use crate::pricing::{Line, Price, Rules, Tier};

/// Items in one order.
const MAX_ITEMS: usize = 500;

/// What receipts are signed with: one block of SHA-256.
pub(crate) type SigningKey = [u8; 64];

/// What a customer sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) customer: String,
    #[serde(default)]
    pub(crate) tier: Tier,
    pub(crate) coupon: Option<String>,
    pub(crate) items: Vec<Item>,
}

/// One position of an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) sku: String,
    pub(crate) quantity: u32,
}

/// What a customer gets back, and what the order book keeps.
#[derive(Debug, Serialize)]
pub(crate) struct Receipt {
    pub(crate) customer: String,
    pub(crate) tier: Tier,
    /// Dearest first.
    pub(crate) lines: Vec<Line>,
    #[serde(flatten)]
    pub(crate) price: Price,
    /// HMAC-SHA256, in hex, of this object as JSON with an empty signature.
    signature: String,
}

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the order is not JSON as expected: {0}; send {{\"customer\", \"items\": [{{\"sku\", \"quantity\"}}]}}")]
    NotAnOrder(#[from] serde_json::Error),
    #[error("the order has {0} items; 1 to {MAX_ITEMS} are possible")]
    ItemCount(usize),
    #[error("item {position}: there is no {sku:?}; take a sku from /search")]
    UnknownSku { position: usize, sku: String },
    #[error("item {position}: quantity {quantity}; 1 to 1000 are possible")]
    Quantity { position: usize, quantity: u32 },
}

/// Reads an order, prices it and signs the receipt.
pub(crate) fn accept(body: &[u8], catalogue: &Catalogue, rules: &Rules, key: &SigningKey) -> Result<Receipt, Refusal> {
    let order = parse(body)?;
    let mut lines = look_up(&order, catalogue)?;
    let price = rules.price(&mut lines, order.tier, order.coupon.as_deref());
    sort(&mut lines);
    let mut receipt = Receipt { customer: order.customer, tier: order.tier, lines, price, signature: String::new() };
    receipt.signature = sign(&receipt, key)?;
    Ok(receipt)
}

/// The order that the JSON describes.
fn parse(body: &[u8]) -> Result<Order, Refusal> {
    let order: Order = serde_json::from_slice(body)?;
    match order.items.len() {
        1..=MAX_ITEMS => Ok(order),
        count => Err(Refusal::ItemCount(count)),
    }
}

/// One line for each item, not priced yet.
fn look_up(order: &Order, catalogue: &Catalogue) -> Result<Vec<Line>, Refusal> {
    let line = |(position, item): (usize, &Item)| match catalogue.find(&item.sku) {
        _ if !(1..=1000).contains(&item.quantity) => Err(Refusal::Quantity { position, quantity: item.quantity }),
        Some((product, found)) => Ok(Line::new(product, found, item.quantity)),
        None => Err(Refusal::UnknownSku { position, sku: item.sku.clone() }),
    };
    order.items.iter().enumerate().map(line).collect()
}

/// Dearest line first; equal ones by number.
fn sort(lines: &mut [Line]) {
    lines.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.sku.cmp(&b.sku)));
}

/// The signature of a receipt that has none yet.
fn sign(receipt: &Receipt, key: &SigningKey) -> Result<String, serde_json::Error> {
    let mut mac = Hmac::<Sha256>::new(key.into());
    mac.update(&serde_json::to_vec(receipt)?);
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    Ok(mac.finalize().into_bytes().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept_items(items: &str) -> Result<Receipt, Refusal> {
        let body = format!(r#"{{"customer":"ada","items":{items}}}"#);
        accept(body.as_bytes(), &Catalogue::generate(50), &Rules::of_the_season(), &[7; 64])
    }

    /// Check that lines come sorted, that totals add up, and that the signature depends on the receipt and the key.
    #[test]
    fn a_receipt_is_sorted_and_signed() {
        let items = r#"[{"sku":"SKU-00003","quantity":1},{"sku":"SKU-00007","quantity":40}]"#;
        let receipt = accept_items(items).unwrap();
        assert!(receipt.lines[0].total >= receipt.lines[1].total);
        assert_eq!(receipt.price.subtotal, receipt.lines.iter().map(|line| line.total).sum::<u64>());

        let unsigned = Receipt { signature: String::new(), ..accept_items(items).unwrap() };
        assert_eq!(receipt.signature, sign(&unsigned, &[7; 64]).unwrap());
        assert_eq!(receipt.signature.len(), 64);
        assert_ne!(receipt.signature, sign(&unsigned, &[8; 64]).unwrap());
        let other = Receipt { customer: "eve".to_owned(), ..unsigned };
        assert_ne!(receipt.signature, sign(&other, &[7; 64]).unwrap());
    }

    /// Check that each refusal names what is wrong.
    #[test]
    fn refusals_name_what_is_wrong() {
        for (items, reason) in [
            ("[]", "the order has 0 items"),
            (r#"[{"sku":"SKU-00001","quantity":0}]"#, "item 0: quantity 0"),
            (r#"[{"sku":"SKU-00001","quantity":1},{"sku":"X","quantity":1}]"#, r#"item 1: there is no "X""#),
            (r#"[{"sku":"SKU-00001","quantity":-1}]"#, "expected u32"),
            ("7", "not JSON as expected"),
        ] {
            let refusal = accept_items(items).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{items}: {refusal}");
        }
    }
}
