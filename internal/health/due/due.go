// Package due holds what is to be done later, in the order of its time.
package due

import (
	"container/heap"
	"time"
)

// Item is a thing's place in a queue; it is a member of that thing.
type Item struct {
	At    time.Time
	place int // in the heap, from 1; 0: in no queue
}

// Queued says whether the thing is in a queue.
func (i *Item) Queued() bool { return i.place != 0 }

// Queue is the things, the first one first. T returns its own Item.
type Queue[T interface{ Due() *Item }] struct{ items items[T] }

// Len is how many there are.
func (q *Queue[T]) Len() int { return len(q.items) }

// Push adds a thing that is in no queue, or gives one that is in this queue another time.
func (q *Queue[T]) Push(t T, at time.Time) {
	i := t.Due()
	i.At = at
	if i.Queued() {
		heap.Fix(&q.items, i.place-1)
		return
	}
	heap.Push(&q.items, t)
}

// Remove takes a thing out, if it is in.
func (q *Queue[T]) Remove(t T) {
	if i := t.Due(); i.Queued() {
		heap.Remove(&q.items, i.place-1)
	}
}

// Next is the time of the first.
func (q *Queue[T]) Next() (at time.Time, ok bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].Due().At, true
}

// Pop takes the first one out, if its time has come.
func (q *Queue[T]) Pop(now time.Time) (t T, ok bool) {
	if at, ok := q.Next(); !ok || at.After(now) {
		return t, false
	}
	return heap.Pop(&q.items).(T), true
}

type items[T interface{ Due() *Item }] []T

func (q items[T]) Len() int           { return len(q) }
func (q items[T]) Less(i, j int) bool { return q[i].Due().At.Before(q[j].Due().At) }

func (q items[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].Due().place, q[j].Due().place = i+1, j+1
}

func (q *items[T]) Push(x any) {
	*q = append(*q, x.(T))
	x.(T).Due().place = len(*q)
}

func (q *items[T]) Pop() any {
	old := *q
	last := old[len(old)-1]
	var none T
	old[len(old)-1] = none
	*q = old[:len(old)-1]
	last.Due().place = 0
	return last
}
