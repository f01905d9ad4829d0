package main

import (
	"sync"
	"time"
)

// Bug 1, a leak: who logs in gets a session, and nobody ever ends one.
type store struct {
	sessions map[string]*session
}

type session struct {
	user  string
	draft [4096]byte
}

func newStore() *store { return &store{sessions: map[string]*session{}} }

func (s *store) login(user string) { s.sessions[user] = newSession(user) }

// Inlined: in a heap profile the line of login has this one in it.
func newSession(user string) *session { return &session{user: user} }

// Bug 2, goroutines that are never done: whoever asked has given up, and nobody takes the answer.
func notify(user string) {
	answer := make(chan string)
	go send(user, answer)
	select {
	case <-answer:
	case <-time.After(time.Millisecond):
	}
}

func send(user string, answer chan<- string) {
	time.Sleep(2 * time.Millisecond)
	answer <- "dear " + user
}

// Bug 3, a lock for all: what takes long is done while it is held.
type counters struct {
	of map[string]int
}

var lock sync.Mutex

func (c *counters) count(what string) {
	lock.Lock()
	defer lock.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[what]++
	c.save()
}

// save writes to what would be a disk.
func (c *counters) save() { time.Sleep(500 * time.Microsecond) }

// Bug 4, waiting: a channel without room before a consumer that is slower than who produces.
type queue struct {
	jobs chan int
}

func newQueue() *queue {
	q := &queue{jobs: make(chan int)}
	go q.consume()
	return q
}

func (q *queue) enqueue(job int) { q.jobs <- job }

func (q *queue) consume() {
	for range q.jobs {
		time.Sleep(5 * time.Millisecond)
	}
}
