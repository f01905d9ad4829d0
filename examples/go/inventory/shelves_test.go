package main

import "testing"

// The way goes along one corridor before the next, and leaves nothing out.
func TestAWayIsShortAndWhole(t *testing.T) {
	var shelves []Shelf
	for _, sku := range []string{"SKU-00130", "SKU-00001", "SKU-00140", "SKU-00005"} {
		shelves = append(shelves, shelfOf(Item{SKU: sku, Quantity: 1}))
	}
	way := shortest(shelves)
	if len(way) != 4 || length(way) != 4+1+2+6+10 {
		t.Errorf("%d steps: %v", length(way), way)
	}
	if way := shortest(nil); len(way) != 0 {
		t.Errorf("%v", way)
	}
}
