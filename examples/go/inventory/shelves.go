package main

// Shelves along a corridor.
const corridor = 64

// A Shelf is a place to go to.
type Shelf struct {
	Corridor uint32 `json:"corridor"`
	Place    uint32 `json:"place"`
	Pieces   uint32 `json:"pieces"`
}

// shelfOf says where a product stands: by its number.
func shelfOf(item Item) Shelf {
	var number uint32
	for _, digit := range []byte(item.SKU) {
		if '0' <= digit && digit <= '9' {
			number = number*10 + uint32(digit-'0')
		}
	}
	return Shelf{Corridor: number / corridor, Place: number % corridor, Pieces: item.Quantity}
}

// shortest is a short way round: begun anywhere, always on to what is nearest, the best of all beginnings.
func shortest(shelves []Shelf) []Shelf {
	best := shelves
	for first := range shelves {
		if way := wayFrom(first, shelves); first == 0 || length(way) < length(best) {
			best = way
		}
	}
	return best
}

func wayFrom(first int, shelves []Shelf) []Shelf {
	left := append([]Shelf(nil), shelves...)
	way := make([]Shelf, 0, len(shelves))
	for next := first; ; next = nearest(way[len(way)-1], left) {
		way = append(way, left[next])
		left[next] = left[len(left)-1]
		left = left[:len(left)-1]
		if len(left) == 0 {
			return way
		}
	}
}

// nearest is which of those that are left is next to here.
func nearest(here Shelf, left []Shelf) int {
	best := 0
	for at := range left {
		if distance(here, left[at]) < distance(here, left[best]) {
			best = at
		}
	}
	return best
}

func length(way []Shelf) uint32 {
	var steps uint32
	for at := 1; at < len(way); at++ {
		steps += distance(way[at-1], way[at])
	}
	return steps
}

// distance is in steps between shelves: from one corridor to another only at its beginning.
func distance(from, to Shelf) uint32 {
	if from.Corridor == to.Corridor {
		return apart(from.Place, to.Place)
	}
	return from.Place + to.Place + 3*apart(from.Corridor, to.Corridor)
}

func apart(a, b uint32) uint32 {
	if a > b {
		return a - b
	}
	return b - a
}
