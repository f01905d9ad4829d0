//! `shop inventory`: the second service, which keeps the stock and says in which order to pick what was ordered.
//!
//! In: `POST /reservations` with items, from the shop. Out: the shelves to go to, as JSON, by a short way round. It has a profile and
//! spans of its own; its requests' spans are children of the shop's.

use std::io;

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, middleware};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::cli::InventoryCli;
use crate::orders::Item;
use crate::{Stops, say, traces};

/// Shelves along a corridor.
const CORRIDOR: u32 = 64;

/// A place to go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Shelf {
    corridor: u32,
    place: u32,
    pieces: u32,
}

/// Serves until told to stop.
pub(crate) fn run(cli: &InventoryCli) -> Result<(), Box<dyn std::error::Error>> {
    let profiler = profiler::start(profiler::Config::new("inventory").serve(cli.serve.to_string()))?;
    if let Some(address) = profiler.serve_address() {
        say(&format!("profiles http://{address}/"))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(cli))
}

async fn serve(cli: &InventoryCli) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(cli.listen).await.map_err(|error| format!("--listen {}: {error}", cli.listen))?;
    let spans = traces::open("inventory")?;
    let stops = Stops::listen()?;
    say(&format!("ready http://{}", listener.local_addr()?))?;
    let router = Router::new()
        .route("/reservations", post(reserve))
        .layer(profiler::tower::TagLayer::new())
        .layer(middleware::from_fn(traces::trace));
    tokio::select! {
        outcome = axum::serve(listener, router).into_future() => outcome?,
        () = stops.wait(None, cli.until_eof) => {}
    }
    traces::close(&spans);
    Ok(())
}

async fn reserve(body: Bytes) -> Response {
    match plan(&body) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response(),
    }
}

/// Where to go for these items, as JSON.
fn plan(body: &[u8]) -> Result<Vec<u8>, io::Error> {
    let items: Vec<Item> = serde_json::from_slice(body)?;
    let shelves: Vec<_> = items.iter().map(|item| shelf(&item.sku, item.quantity)).collect();
    Ok(serde_json::to_vec(&shortest(&shelves))?)
}

/// Where a product stands: by its number.
fn shelf(sku: &str, pieces: u32) -> Shelf {
    let number = sku
        .bytes()
        .filter(u8::is_ascii_digit)
        .fold(0_u32, |number, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
    Shelf { corridor: number / CORRIDOR, place: number % CORRIDOR, pieces }
}

/// A short way round: begun anywhere, always on to what is nearest, the best of all beginnings.
fn shortest(shelves: &[Shelf]) -> Vec<Shelf> {
    let ways = (0..shelves.len()).map(|first| way_from(first, shelves.to_vec()));
    ways.min_by_key(|way| length(way)).unwrap_or_default()
}

fn way_from(first: usize, mut left: Vec<Shelf>) -> Vec<Shelf> {
    let mut way = vec![left.swap_remove(first)];
    while let Some(here) = way.last().copied() {
        let nearest = (0..left.len()).min_by_key(|at| distance(here, left[*at]));
        match nearest {
            Some(at) => way.push(left.swap_remove(at)),
            None => break,
        }
    }
    way
}

fn length(way: &[Shelf]) -> u32 {
    way.windows(2).map(|step| distance(step[0], step[1])).sum()
}

/// Steps between shelves: from one corridor to another only at its beginning.
fn distance(from: Shelf, to: Shelf) -> u32 {
    match from.corridor == to.corridor {
        true => from.place.abs_diff(to.place),
        false => from.place + to.place + 3 * from.corridor.abs_diff(to.corridor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the way goes along one corridor before the next, and leaves nothing out.
    #[test]
    fn a_way_is_short_and_whole() {
        let skus = ["SKU-00130", "SKU-00001", "SKU-00140", "SKU-00005"];
        let way = shortest(&skus.map(|sku| shelf(sku, 1)));
        let places: Vec<_> = way.iter().map(|shelf| (shelf.corridor, shelf.place)).collect();
        assert_eq!(places.len(), 4);
        assert_eq!(length(&way), 4 + 1 + 2 + 6 + 10, "{places:?}");
        assert_eq!(shortest(&[]), []);
    }
}
