package observation

import (
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/host/machine"
)

// GetNode replies with the name, build, uptime and roles of this node.
func (a *API) GetNode(w http.ResponseWriter, _ *http.Request) {
	d, err := machine.Describe()
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the machine can't be described: %v", err).Write(w)
		return
	}
	rest.JSON(w, v1.Node{
		HostName: d.Host, Version: a.Version.Version, Commit: a.Version.Commit, Kernel: d.Kernel, Namespace: a.Version.Namespace,
		Started: time.Now().Add(-time.Since(a.started)), Uptime: time.Since(a.started).Seconds(), MachineUptime: d.Uptime.Seconds(),
		Instances: a.Roles(),
	})
}
