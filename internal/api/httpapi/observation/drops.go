package observation

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/report"
)

// GetDrops replies with every drop reason and its count.
func (a *API) GetDrops(w http.ResponseWriter, _ *http.Request) {
	counted, out := a.DataPath.Drops(), v1.DropList{DropAttr: []v1.Drop{}}
	for _, r := range report.DropReasons() {
		out.DropAttr = append(out.DropAttr, v1.Drop{Reason: r.Name, Packets: counted[r.Name], Meaning: r.Meaning, Cause: r.Cause, Remedy: r.Remedy})
	}
	rest.JSON(w, out)
}
