package objects_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/test/apitest"
)

// answered is a change as its client sees it: the request, and the revision in the response.
type answered struct {
	revision uint64
	after    uint64 // the last revision that any client had received before the request
	weights  map[int]int
	back     bool
	to       uint64
}

// TestConcurrentChanges has eight clients apply changes and roll back at the same time. Their
// revisions are consecutive and unique, each is later than those that any client had received
// before the request, and the final state is that of all changes in the order of revisions.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	var mu sync.Mutex
	var all []answered
	var last uint64
	note := func(a answered) {
		mu.Lock()
		defer mu.Unlock()
		all, last = append(all, a), max(last, a.revision)
	}
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(client)))
			for range 60 {
				mu.Lock()
				a := answered{after: last}
				mu.Unlock()
				path, body := "/config/apply", ""
				if a.back = random.IntN(4) == 0 && a.after > 0; a.back {
					a.to = a.after - min(a.after, uint64(random.IntN(10)))
					path, body = "/config/rollback", fmt.Sprintf(`{"revision":%d}`, a.to)
				} else {
					a.weights = map[int]int{random.IntN(5): 1 + random.IntN(100), 5 + client: 1 + random.IntN(100)}
					list := ""
					for n, weight := range a.weights {
						list += fmt.Sprintf(
							`,{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":%d}]}}`,
							1+n, weight)
					}
					body = `{"objects":[` + list[1:] + `]}`
				}
				w := b.Call("POST", httpapi.BaseURL+path, body, "Content-Type", "application/json")
				mu.Lock()
				left := last >= a.to+50 // the others may have made so many revisions meanwhile that this one has left the history
				mu.Unlock()
				if a.back && w.Code == 404 && left {
					continue
				}
				var r v1.ApplyResult
				if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != 200 {
					t.Errorf("got %s %s: %d %s, want no error, code 200", path, body, w.Code, w.Body)
					return
				}
				if a.revision = r.Revision; a.revision > 0 { // 0: no change was needed
					note(a)
				}
			}
		})
	}
	clients.Wait()
	slices.SortFunc(all, func(x, y answered) int { return int(x.revision) - int(y.revision) })
	states := []map[int]int{{}}
	for i, a := range all {
		if a.revision != uint64(i)+1 || a.revision <= a.after {
			t.Fatalf("revision %d is the %d. that was answered, and %d was before it was asked for", a.revision, i+1, a.after)
		}
		next := maps.Clone(states[i])
		if a.back {
			next = maps.Clone(states[a.to])
		}
		maps.Copy(next, a.weights)
		states = append(states, next)
	}
	got := map[int]int{}
	for _, e := range b.List() {
		got[e.ServiceArguments.Port-1] = *e.Endpoints[0].Weight
	}
	if want := states[len(states)-1]; !maps.Equal(got, want) || len(all) < 200 {
		t.Errorf("%d changes: there is %v, want %v", len(all), got, want)
	}
	if r := b.Store.Revisions(); r[0].Number != uint64(len(all)) {
		t.Errorf("revision %d is the last, and %d were answered", r[0].Number, len(all))
	}
}
