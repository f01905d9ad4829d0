//! What an order costs: prices from the catalogue less the season's discounts.
//!
//! Amounts are whole cents, shares whole percent; a share of an amount is rounded down, so that discounts are never
//! more than was promised. Pure computation: no waiting, no I/O.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::catalogue::{Category, Product, ProductId};

/// The discounts in force.
#[derive(Debug)]
pub(crate) struct Rules {
    /// From so many pieces of one product on, so many percent off the line; fewest pieces first.
    quantity_breaks: Vec<(u32, u64)>,
    /// Where every third piece is free, the cheapest ones of the order.
    three_for_two: Vec<Category>,
    /// Percent off the order, by code.
    coupons: HashMap<String, u64>,
}

/// How well the shop knows a customer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    #[default]
    Guest,
    Member,
    Gold,
}

/// One product of an order.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    #[serde(skip)]
    pub(crate) product: ProductId,
    pub(crate) sku: String,
    pub(crate) name: String,
    pub(crate) category: Category,
    pub(crate) quantity: u32,
    pub(crate) unit_price: u64,
    /// Of the line, after the discount for quantity.
    pub(crate) total: u64,
}

/// What an order costs, in cents.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Price {
    /// Sum of the lines.
    pub(crate) subtotal: u64,
    /// Off that: free pieces, then the better of coupon and tier.
    pub(crate) discount: u64,
    /// To pay.
    pub(crate) total: u64,
}

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Member => "member",
            Self::Gold => "gold",
        }
    }

    /// Percent off the order.
    fn discount(self) -> u64 {
        match self {
            Self::Guest => 0,
            Self::Member => 3,
            Self::Gold => 8,
        }
    }
}

impl Line {
    /// A line of that many pieces, without any discount.
    pub(crate) fn new(id: ProductId, product: &Product, quantity: u32) -> Self {
        Self {
            product: id,
            sku: product.sku.clone(),
            name: product.name.clone(),
            category: product.category,
            quantity,
            unit_price: product.price,
            total: product.price * u64::from(quantity),
        }
    }
}

impl Rules {
    /// What is in force now.
    pub(crate) fn of_the_season() -> Self {
        Self {
            quantity_breaks: vec![(5, 2), (10, 5), (25, 8), (100, 12)],
            three_for_two: vec![Category::Bath, Category::Textiles, Category::Garden],
            coupons: [("WELCOME", 5), ("AUTUMN", 10), ("STAFF", 25)].map(|(code, off)| (code.to_owned(), off)).into(),
        }
    }

    /// Prices each line, then the order.
    pub(crate) fn price(&self, lines: &mut [Line], tier: Tier, coupon: Option<&str>) -> Price {
        for line in &mut *lines {
            line.total -= percent(line.total, self.quantity_break(line.quantity));
        }
        let subtotal: u64 = lines.iter().map(|line| line.total).sum();
        let free = self.free_pieces(lines);
        let coupon = coupon.and_then(|code| self.coupons.get(code)).copied().unwrap_or(0);
        let discount = free + percent(subtotal - free, coupon.max(tier.discount()));
        Price { subtotal, discount, total: subtotal - discount }
    }

    /// Percent off a line of that many pieces.
    fn quantity_break(&self, quantity: u32) -> u64 {
        self.quantity_breaks.iter().rev().find(|(pieces, _)| quantity >= *pieces).map_or(0, |(_, off)| *off)
    }

    /// What the free pieces are worth: in each category on offer a third of the pieces, the cheapest.
    fn free_pieces(&self, lines: &[Line]) -> u64 {
        let mut pieces: BTreeMap<Category, Vec<u64>> = BTreeMap::new();
        for line in lines.iter().filter(|line| self.three_for_two.contains(&line.category)) {
            let paid = line.total / u64::from(line.quantity.max(1));
            pieces.entry(line.category).or_default().extend((0..line.quantity).map(|_| paid));
        }
        pieces.into_values().map(a_third).sum()
    }
}

/// The sum of the cheapest third.
fn a_third(mut prices: Vec<u64>) -> u64 {
    prices.sort_unstable();
    prices.iter().take(prices.len() / 3).sum()
}

/// So many percent of an amount, rounded down.
fn percent(amount: u64, percent: u64) -> u64 {
    amount * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(category: Category, unit_price: u64, quantity: u32) -> Line {
        let product =
            Product { sku: "S".into(), name: "N".into(), description: String::new(), category, price: unit_price };
        Line::new(0, &product, quantity)
    }

    /// Check an order worked out by hand: quantity break, then free pieces, then the better of coupon and tier.
    #[test]
    fn discounts_apply_in_their_order() {
        let rules = Rules::of_the_season();
        let mut lines = [line(Category::Tools, 1000, 10), line(Category::Bath, 300, 2), line(Category::Bath, 100, 1)];
        // 10,000 - 5 % = 9,500; + 600 + 100 = 10,200; one piece of 100 is free; 10 % of 10,100 = 1,010.
        let price = rules.price(&mut lines, Tier::Gold, Some("AUTUMN"));
        assert_eq!(price, Price { subtotal: 10_200, discount: 1_110, total: 9_090 });
        assert_eq!(lines[0].total, 9_500);
    }

    /// Check that an unknown coupon is worth nothing and that the tier counts without one.
    #[test]
    fn an_unknown_coupon_is_worth_nothing() {
        let rules = Rules::of_the_season();
        for (tier, coupon, total) in [(Tier::Guest, Some("NO"), 1000), (Tier::Member, None, 970)] {
            assert_eq!(rules.price(&mut [line(Category::Office, 1000, 1)], tier, coupon).total, total);
        }
    }
}
