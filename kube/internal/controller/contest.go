package controller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	contestPause = time.Second
	contestLimit = time.Minute // longest pause; a contest ends after twice this time without a write
)

// writtenStatus is the last status that this controller has written for a Service.
type writtenStatus struct {
	text     string
	rewrites int // consecutive writes of the same text, which others have changed in between
	at       time.Time
}

// contestedError is the time until a status may be written again, which others keep changing.
type contestedError time.Duration

func (c contestedError) Error() string {
	return fmt.Sprintf("somebody else changes the status, too: the next write is in %v", time.Duration(c))
}

// checkContest returns a contestedError while a status must not be written, because others keep
// changing it, such as a controller of another zone. Each write wakes the other controller, so
// without growing pauses the two would keep the apiserver busy. The first change is undone at once.
func (r *Services) checkContest(s *corev1.Service) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.written[client.ObjectKeyFromObject(s)]
	if last == nil || last.text != statusText(s) || last.rewrites == 0 {
		return nil
	}
	pause := min(contestPause<<min(last.rewrites-1, 10), contestLimit)
	if wait := pause - time.Since(last.at); wait > 0 {
		return contestedError(wait)
	}
	return nil
}

// recordWritten records a status that was written, and logs the beginning of a contest.
func (r *Services) recordWritten(s *corev1.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written == nil {
		r.written = map[client.ObjectKey]*writtenStatus{}
	}
	key, now := client.ObjectKeyFromObject(s), writtenStatus{text: statusText(s), at: time.Now()}
	if last := r.written[key]; last != nil && last.text == now.text && now.at.Sub(last.at) < 2*contestLimit {
		now.rewrites = last.rewrites + 1
	}
	if now.rewrites == 3 {
		log.Log.Info("somebody else writes the status of a Service: controllers of several zones need the annotation zoneselect, or different classes", "service", key)
	}
	r.written[key] = &now
}

// statusText returns the parts of a status that this controller writes, without times. It includes
// the generation: a Service that its user changes often is not contested.
func statusText(s *corev1.Service) string {
	text := addressesOf(s)
	for _, kind := range []string{conditionAccepted, conditionProgrammed} {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil {
			text += fmt.Sprintf("\n%s %d %s %s %s", kind, c.ObservedGeneration, c.Status, c.Reason, c.Message)
		}
	}
	return text
}
