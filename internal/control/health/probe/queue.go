package probe

import "time"

// QueueItem is a value's position in a queue. It is embedded in the value.
type QueueItem struct{ index int } // index in the heap, from 1; 0: not in a queue

// Queued reports whether the value is in a queue.
func (i *QueueItem) Queued() bool { return i.index != 0 }

// Queue is a priority queue of values, ordered by time. The method Due of a value returns its
// embedded QueueItem.
//
// It is a heap with four children per node: thousands of values move per second, each move writes
// to another place in memory, and a binary heap has twice as many moves.
type Queue[T interface{ Due() *QueueItem }] struct{ entries []entry[T] }

const branches = 4

// entry has a copy of the time, so comparing entries does not read the values.
type entry[T any] struct {
	at    time.Time
	value T
}

// Len returns the number of values.
func (q *Queue[T]) Len() int { return len(q.entries) }

// Push adds a value that is in no queue, or changes the time of a value in this queue.
func (q *Queue[T]) Push(t T, at time.Time) {
	i := t.Due().index - 1
	if i < 0 {
		i = len(q.entries)
		q.entries = append(q.entries, entry[T]{})
	}
	q.insert(i, entry[T]{at, t})
}

// Remove removes a value if it is in the queue.
func (q *Queue[T]) Remove(t T) {
	i := t.Due().index - 1
	if i < 0 {
		return
	}
	t.Due().index = 0
	end := len(q.entries) - 1
	last := q.entries[end]
	q.entries[end] = entry[T]{}
	q.entries = q.entries[:end]
	if i < end {
		q.insert(i, last)
	}
}

// Next returns the time of the first value; false: the queue is empty.
func (q *Queue[T]) Next() (at time.Time, ok bool) {
	if len(q.entries) == 0 {
		return time.Time{}, false
	}
	return q.entries[0].at, true
}

// Pop removes and returns the first value if it is due.
func (q *Queue[T]) Pop(now time.Time) (t T, ok bool) {
	if at, ok := q.Next(); !ok || at.After(now) {
		return t, false
	}
	t = q.entries[0].value
	q.Remove(t)
	return t, true
}

// insert replaces the entry at i by e, and moves e to its position in the heap.
func (q *Queue[T]) insert(i int, e entry[T]) {
	for i > 0 {
		parent := (i - 1) / branches
		if !e.at.Before(q.entries[parent].at) {
			break
		}
		q.put(i, q.entries[parent])
		i = parent
	}
	for {
		first := i*branches + 1
		if first >= len(q.entries) {
			break
		}
		least := first
		for child := first + 1; child < min(first+branches, len(q.entries)); child++ {
			if q.entries[child].at.Before(q.entries[least].at) {
				least = child
			}
		}
		if !q.entries[least].at.Before(e.at) {
			break
		}
		q.put(i, q.entries[least])
		i = least
	}
	q.put(i, e)
}

func (q *Queue[T]) put(i int, e entry[T]) {
	q.entries[i] = e
	e.value.Due().index = i + 1
}
