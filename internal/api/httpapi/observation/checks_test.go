package observation_test

import (
	"context"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/diagnose/doctor"
)

// TestDoctorsAtOnce checks that the machine is examined for one request at a time, and not for
// clients that disconnect while they wait.
func TestDoctorsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := 0
		release := make(chan struct{})
		a := observation.New(observation.Options{Doctor: func() *doctor.Machine {
			running++
			<-release
			runtime.Goexit() // ends the request: this test needs no findings
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		for range 3 {
			requests.Go(func() {
				a.GetDoctor(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/doctor", nil))
			})
		}
		synctest.Wait()
		if running != 1 {
			t.Errorf("%d examinations at once", running)
		}
		cancel()
		synctest.Wait()
		close(release)
		requests.Wait()
		if running != 1 {
			t.Errorf("%d examinations, want one: the clients of the others have gone", running)
		}
	})
}
