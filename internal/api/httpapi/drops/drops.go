// Package drops answers which packets were dropped, and what to do about it.
package drops

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/kernel/dropreason"
)

// Counters count packets dropped, by the name of the reason.
type Counters interface{ Drops() map[string]uint64 }

// Drops has the operations about drops.
type Drops struct{ counters Counters }

// New answers by what a data path has counted.
func New(c Counters) Drops { return Drops{c} }

// GetDrops answers with every reason.
func (d Drops) GetDrops(w http.ResponseWriter, _ *http.Request) {
	counted, out := d.counters.Drops(), v1.DropList{DropAttr: []v1.Drop{}}
	for _, r := range dropreason.All() {
		out.DropAttr = append(out.DropAttr, v1.Drop{Reason: r.Name, Packets: counted[r.Name], Meaning: r.Meaning, Cause: r.Cause, Remedy: r.Remedy})
	}
	rest.JSON(w, out)
}
