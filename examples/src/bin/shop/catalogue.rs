//! What the shop sells: a few thousand products with names and descriptions, generated, the same at every start.
//!
//! Made once at start, read-only after that. `search` indexes it, `pricing` takes prices from it.

use std::collections::HashMap;

use serde::Serialize;

use crate::dice::Dice;

/// How much is on sale.
pub(crate) const PRODUCTS: u32 = 4000;

/// Index of a product in its catalogue.
pub(crate) type ProductId = u32;

/// Everything on sale.
#[derive(Debug)]
pub(crate) struct Catalogue {
    products: Vec<Product>,
    by_sku: HashMap<String, ProductId>,
}

/// One thing on sale.
#[derive(Debug)]
pub(crate) struct Product {
    /// The number on the label, `SKU-00042`.
    pub(crate) sku: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) category: Category,
    /// Of one unit, in cents.
    pub(crate) price: u64,
}

/// Where in the shop it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Category {
    Bath,
    Garden,
    Kitchen,
    Lighting,
    Office,
    Outdoors,
    Textiles,
    Tools,
}

impl Category {
    const ALL: [Self; 8] = [
        Self::Bath,
        Self::Garden,
        Self::Kitchen,
        Self::Lighting,
        Self::Office,
        Self::Outdoors,
        Self::Textiles,
        Self::Tools,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bath => "bath",
            Self::Garden => "garden",
            Self::Kitchen => "kitchen",
            Self::Lighting => "lighting",
            Self::Office => "office",
            Self::Outdoors => "outdoors",
            Self::Textiles => "textiles",
            Self::Tools => "tools",
        }
    }
}

impl Catalogue {
    /// `count` products; the same count gives the same catalogue.
    pub(crate) fn generate(count: u32) -> Self {
        let mut dice = Dice::new(2026);
        let products: Vec<_> = (0..count).map(|id| Product::generate(id, &mut dice)).collect();
        let by_sku = (0..).zip(&products).map(|(id, product)| (product.sku.clone(), id)).collect();
        Self { products, by_sku }
    }

    pub(crate) fn products(&self) -> &[Product] {
        &self.products
    }

    /// The product with that number on its label.
    pub(crate) fn find(&self, sku: &str) -> Option<(ProductId, &Product)> {
        let id = *self.by_sku.get(sku)?;
        Some((id, self.product(id)?))
    }

    pub(crate) fn product(&self, id: ProductId) -> Option<&Product> {
        self.products.get(usize::try_from(id).ok()?)
    }
}

impl Product {
    fn generate(id: ProductId, dice: &mut Dice) -> Self {
        let noun = dice.pick(&NOUNS);
        let material = dice.pick(&MATERIALS);
        let description = (0..dice.between(3, 7)).map(|_| sentence(noun, material, dice)).collect::<Vec<_>>().join(" ");
        Self {
            sku: sku(id),
            name: format!("{} {material} {noun} {}", dice.pick(&QUALITIES), brand(dice)),
            description,
            category: dice.pick(&Category::ALL),
            price: dice.between(150, 30_000),
        }
    }
}

/// The number on the label of a product.
pub(crate) fn sku(id: ProductId) -> String {
    format!("SKU-{id:05}")
}

/// One of the sentences that describe a product.
fn sentence(noun: &str, material: &str, dice: &mut Dice) -> String {
    let (quality, other) = (dice.pick(&QUALITIES), dice.pick(&NOUNS));
    let (place, brand) = (dice.pick(&PLACES), brand(dice));
    match dice.between(0, 5) {
        0 => format!("A {quality} {noun} made of {material} for the {place}."),
        1 => format!("Goes well with any {other} from {brand} and looks {quality} in the {place}."),
        2 => format!("The {material} is treated by hand, which keeps it {quality} for many years in the {place}."),
        3 => format!("Delivered with a {other} and a {quality} case of {}.", dice.pick(&MATERIALS)),
        _ => format!("Designed by {brand} for a {quality} {place}, with a {} finish.", dice.pick(&QUALITIES)),
    }
}

/// A made-up maker: some hundreds of them, so that search has rare words too.
pub(crate) fn brand(dice: &mut Dice) -> String {
    format!("{}{}{}", dice.pick(&["Nor", "Bel", "Tam", "Ost", "Kir", "Val", "Ru", "Sor"]), dice.pick(&ENDINGS), {
        dice.pick(&["", "", "n", "s", "x"])
    })
}

const ENDINGS: [&str; 8] = ["vik", "dal", "lund", "mar", "heim", "stad", "ello", "ora"];
pub(crate) const QUALITIES: [&str; 20] = [
    "sturdy",
    "light",
    "quiet",
    "bright",
    "classic",
    "modern",
    "folding",
    "compact",
    "heavy",
    "smooth",
    "elegant",
    "simple",
    "durable",
    "soft",
    "waterproof",
    "portable",
    "rustic",
    "slim",
    "warm",
    "foldable",
];
pub(crate) const MATERIALS: [&str; 16] = [
    "oak",
    "steel",
    "linen",
    "ceramic",
    "glass",
    "bamboo",
    "leather",
    "cotton",
    "copper",
    "walnut",
    "wool",
    "granite",
    "aluminium",
    "cork",
    "brass",
    "rattan",
];
pub(crate) const NOUNS: [&str; 28] = [
    "lamp", "chair", "table", "kettle", "blanket", "mirror", "shelf", "knife", "bowl", "curtain", "basket", "hammer",
    "ladder", "towel", "stool", "teapot", "pillow", "tent", "lantern", "desk", "bench", "carpet", "vase", "bottle",
    "cupboard", "hammock", "bucket", "brush",
];
const PLACES: [&str; 14] = [
    "kitchen", "garden", "bedroom", "balcony", "office", "bathroom", "workshop", "terrace", "hallway", "cellar",
    "library", "nursery", "cabin", "garage",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the catalogue is the same at every start and finds what it holds.
    #[test]
    fn the_catalogue_is_the_same_at_every_start() {
        let (one, two) = (Catalogue::generate(200), Catalogue::generate(200));
        assert!(one.products().iter().zip(two.products()).all(|(a, b)| a.description == b.description));
        let (id, product) = one.find("SKU-00042").unwrap();
        assert_eq!((id, product.sku.as_str()), (42, "SKU-00042"));
        assert!(one.find("SKU-00200").is_none());
    }
}
