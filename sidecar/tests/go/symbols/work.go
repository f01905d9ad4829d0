package main

import (
	"errors"
	"sort"
	"strings"
)

var sink int

// Inlined into each other, over files and packages.
func add(a, b int) int { return a + b }
func twice(a int) int  { return add(a, a) }
func four(a int) int   { return twice(twice(a)) }
func shout(s string) bool {
	return strings.HasPrefix(strings.TrimSpace(s), "a") || strings.Contains(s, "b")
}

// Methods behind wrappers.
type inner struct{ n int }

func (i inner) Value() int { return four(i.n) }
func (i *inner) Grow()     { i.n = twice(i.n) }

type outer struct {
	*inner
	names []string
}

type valuer interface {
	Value() int
	Grow()
}

// Generic, of two shapes.
type number interface{ ~int | ~float64 }

func total[T number](all []T) (sum T) {
	for _, one := range all {
		sum = plus(sum, one)
	}
	return sum
}

func plus[T number](a, b T) T { return a + b }

type list[T any] struct{ all []T }

func (l *list[T]) push(one T) { l.all = append(l.all, one) }

//go:noinline
func recurse(depth int) int {
	if depth == 0 {
		return 1
	}
	return recurse(depth-1) + twice(depth)
}

func guarded(fail bool) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("failed")
		}
	}()
	if fail {
		panic("on purpose")
	}
	return nil
}

func work(n int) {
	both := []valuer{outer{&inner{n}, nil}, &inner{n}}
	for _, one := range both {
		one.Grow()
		sink += one.Value()
	}
	sink += total([]int{n, n}) + int(total([]float64{1, 2})) + recurse(10)
	var l list[string]
	l.push("a")
	sort.Slice(l.all, func(i, j int) bool { return l.all[i] < l.all[j] })
	if shout(l.all[0]) && guarded(n > 0) != nil {
		sink++
	}
	func() { sink = four(sink) }()
}
