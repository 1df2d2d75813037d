package services

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// decodeParts decodes a long list of services part by part on all CPUs, so it is never in
// memory in two forms as a whole. It returns false if a part is invalid; then the whole body is
// decoded for an exact error.
func (c *codec) decodeParts(o *rest.Outline) ([]request, bool) {
	if len(o.Parts) < 2 {
		return nil, false
	}
	out := make([]request, o.Elements+1)
	var next atomic.Int64
	var refused atomic.Bool
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(o.Parts)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(o.Parts) && !refused.Load(); i = int(next.Add(1)) - 1 {
				if !c.decodePart(&o.Parts[i], out) {
					refused.Store(true)
				}
			}
		})
	}
	workers.Wait()
	if refused.Load() {
		return nil, false
	}
	seen := make(map[lb.Key]struct{}, len(out))
	for i := range out {
		seen[out[i].Key] = struct{}{}
	}
	return out, len(seen) == len(out)
}

// decodePart decodes the services of a part into their positions of the list.
func (c *codec) decodePart(p *rest.Part, out []request) bool {
	dec := json.NewDecoder(io.MultiReader(strings.NewReader("["), bytes.NewReader(p.Data), strings.NewReader("]")))
	dec.DisallowUnknownFields()
	entries := make([]v1.LoadbalanceEntry, 0, p.Count)
	if dec.Decode(&entries) != nil || len(entries) != p.Count {
		return false
	}
	if _, err := dec.Token(); err != io.EOF {
		return false
	}
	for i := range entries {
		r, problem := c.fromPOST(p.First+i, &entries[i])
		if problem != nil {
			return false
		}
		out[p.First+i] = r
	}
	return true
}
