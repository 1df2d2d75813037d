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
	contestLimit = time.Minute // the longest pause; a contest ends after twice as long without a write
)

// written is the last status that this controller has written for a Service.
type written struct {
	text  string
	again int // consecutive times that somebody else has changed it
	at    time.Time
}

// contested is how long a status must not be written, as somebody else keeps changing it.
type contested time.Duration

func (c contested) Error() string {
	return fmt.Sprintf("somebody else changes the status, too: it is written again in %v", time.Duration(c))
}

// contest returns an error while a status must not be written, because somebody else keeps changing
// what this controller writes, such as a controller of another zone. Each write wakes the other
// one, so without growing pauses two of them would keep the apiserver busy. The first change is
// undone at once.
func (r *Services) contest(s *corev1.Service) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.written[client.ObjectKeyFromObject(s)]
	if last == nil || last.text != statusText(s) || last.again == 0 {
		return nil
	}
	pause := min(contestPause<<min(last.again-1, 10), contestLimit)
	if wait := pause - time.Since(last.at); wait > 0 {
		return contested(wait)
	}
	return nil
}

// wrote notes a status that was written.
func (r *Services) wrote(s *corev1.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written == nil {
		r.written = map[client.ObjectKey]*written{}
	}
	key, now := client.ObjectKeyFromObject(s), written{text: statusText(s), at: time.Now()}
	if last := r.written[key]; last != nil && last.text == now.text && now.at.Sub(last.at) < 2*contestLimit {
		now.again = last.again + 1
	}
	if now.again == 3 {
		log.Log.Info("somebody else writes the status of a Service: controllers of several zones need the annotation zoneselect, or different classes", "service", key)
	}
	r.written[key] = &now
}

// statusText returns what this controller writes into a status, without times. A new generation is
// new text: a Service may change often, without a contest.
func statusText(s *corev1.Service) string {
	text := addressesOf(s)
	for _, kind := range []string{conditionAccepted, conditionProgrammed} {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil {
			text += fmt.Sprintf("\n%s %d %s %s %s", kind, c.ObservedGeneration, c.Status, c.Reason, c.Message)
		}
	}
	return text
}
